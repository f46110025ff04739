"""Hooks on tensors that captured code makes run at every backward, on the whole gradient; the tape is the oracle."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from compiler_core.capture import compile
from compiler_core.errors import GraphBreak
from compiler_core.tensor.tensor import Tensor


@pytest.fixture(params=["eager", "aot_eager", "codegen"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def leaf(*values: float) -> Tensor:
    return Tensor._wrap(np.array(values, np.float32)).requires_grad_()


def told(function: Callable[..., Any], *, backend: str | None, calls: int = 3) -> list[Any]:
    """What `function(x, w, log)` logs in three calls with their backwards, and the gradients."""
    log: list[Any] = []
    run = function if backend is None else compile(function, backend=backend, fullgraph=True)
    for number in range(calls):
        x, w = leaf(1.0 + number, 2.0), leaf(3.0, -1.0 - number)
        out = run(x, w, log)
        log.append("backward")
        outputs = out if isinstance(out, tuple) else (out,)
        sum(o.sum() for o in outputs if isinstance(o, Tensor)).backward()
        log.append([[None if t.grad is None else t.grad.tolist() for t in (x, w)]])
        log.append([o.grad.tolist() for o in outputs if isinstance(o, Tensor) and o.grad is not None])
    return log


def see(log: list[Any], name: str, factor: float | None = None) -> Callable[[Tensor], Tensor | None]:
    def hook(grad: Tensor) -> Tensor | None:
        log.append([name, grad.tolist()])
        return None if factor is None else grad * factor

    return hook


def hook_between(x: Tensor, w: Tensor, log: list[Any]) -> Tensor:
    y = x * w
    before = y + 1
    y.register_hook(see(log, "y"))
    return before * y * w


def hooks_that_replace(x: Tensor, w: Tensor, log: list[Any]) -> Tensor:
    y = x * w
    y.register_hook(see(log, "first", 2.0))
    y.register_hook(see(log, "second", -1.0))
    z = y.exp()
    z.register_hook(lambda g: g if float(g.sum()) > 0 else -g)
    return z * y


def removed_at_once(x: Tensor, w: Tensor, log: list[Any]) -> Tensor:
    y = x * w
    handle = y.register_hook(see(log, "never"))
    y.register_hook(see(log, "stays"))
    handle.remove()
    handle.remove()
    return y * 2


def equal_values_hooked_apart(x: Tensor, w: Tensor, log: list[Any]) -> Tensor:
    a, b = x * w, x * w
    a.register_hook(see(log, "a", 10.0))
    c = x + 0
    c.register_hook(see(log, "c"))
    return a * 3 + b * 5 + c


def views_and_writes(x: Tensor, w: Tensor, log: list[Any]) -> Tensor:
    y = x * w
    y[0].register_hook(see(log, "a view that nobody uses"))
    first = y[0]
    first.register_hook(see(log, "view"))
    y.register_hook(see(log, "before the write"))
    z = y * 1
    z.mul_(first)
    z.register_hook(see(log, "after the write"))
    return z


def kept_gradients(x: Tensor, w: Tensor, log: list[Any]) -> tuple[Tensor, ...]:
    y = x * w
    y.register_hook(see(log, "y", 2.0))
    y.retain_grad()
    z = y * 3
    z.retain_grad()
    z.register_hook(see(log, "z", 3.0))
    z.mul_(2)
    return y, z, z * y


def state_of_a_call(x: Tensor, w: Tensor, log: list[Any]) -> Tensor:
    """The hook closes over tensors and lists of its call."""
    mine: list[Any] = []
    y = x * w
    y.register_hook(lambda g: mine.append(g.tolist()))
    z = y * 2
    z.register_hook(lambda g: log.append([mine, (x + y.detach()).tolist(), len(mine)]))
    return z * z


def handles_that_live_on(x: Tensor, w: Tensor, log: list[Any]) -> tuple[Tensor, Any]:
    y = x * w
    return y * 2, y.register_hook(see(log, "y"))


TENSOR_HOOKS = [
    hook_between, hooks_that_replace, removed_at_once, equal_values_hooked_apart, views_and_writes, kept_gradients,
    state_of_a_call, handles_that_live_on,
]  # fmt: skip


@pytest.mark.parametrize("function", TENSOR_HOOKS, ids=lambda f: f.__name__)
def test_hooks_on_tensors_see_the_whole_gradient_at_every_backward(function: Callable[..., Any], backend: str) -> None:
    same(told(function, backend=backend), told(function, backend=None))


def same(ours: Any, wanted: Any) -> None:
    """Equal, numbers nearly."""
    if isinstance(ours, float) and isinstance(wanted, float):
        assert ours == pytest.approx(wanted, rel=1e-5)
    elif isinstance(ours, list) and isinstance(wanted, list):
        assert len(ours) == len(wanted), (ours, wanted)
        for a, b in zip(ours, wanted, strict=True):
            same(a, b)
    else:
        assert ours == wanted


def test_a_handle_from_a_compiled_call_takes_that_calls_hook_away(backend: str) -> None:
    log: list[Any] = []

    def function(x: Tensor) -> tuple[Tensor, Any]:
        y = x * 2
        return y * 1, y.register_hook(lambda g: log.append(g.tolist()))

    compiled = compile(function, backend=backend, fullgraph=True)
    for _ in range(3):
        (first, handle), (second, _) = compiled(leaf(1.0)), compiled(leaf(1.0))
        handle.remove()
        log.clear()
        first.sum().backward()
        second.sum().backward()
        assert log == [[1.0]]


def test_hooks_on_tensors_from_outside_break_the_graph(backend: str) -> None:
    log: list[Any] = []

    def function(x: Tensor) -> Tensor:
        y = x * 2
        handle = x.register_hook(lambda g: log.append(g.tolist()))
        handle.remove()
        x.register_hook(lambda g: log.append([0.0]) or g * 2)
        return y * y

    compiled = compile(function, backend=backend)
    for _ in range(3):
        log.clear()
        x = leaf(3.0)
        compiled(x).sum().backward()
        assert x.grad.tolist() == [48.0]
        assert log == [[0.0]]
    with pytest.raises(GraphBreak, match="did not compute"):
        compile(function, backend=backend, fullgraph=True)(leaf(1.0))


@pytest.mark.parametrize("how", ["hook", "retain_grad", "inputs"])
def test_outside_the_whole_gradient_of_an_output_is_seen(how: str) -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x * 2
        return y, y * y, x * 3

    def backward(used: tuple[int, ...]) -> list[Any]:
        outputs = compiled(leaf(1.0, 2.0))
        seen: list[Any] = []
        if how == "hook":
            outputs[0].register_hook(lambda g: seen.append(g.tolist()))
        elif how == "retain_grad":
            outputs[0].retain_grad()
        sum(outputs[k].sum() for k in used).backward(inputs=[outputs[0]] if how == "inputs" else None)
        return seen or outputs[0].grad.tolist()

    compiled = compile(function, backend="aot_eager", fullgraph=True)
    assert backward((0, 2)) in ([1.0, 1.0], [[1.0, 1.0]])
    assert backward((0, 1)) in ([5.0, 9.0], [[5.0, 9.0]])
    assert backward((1,)) in ([4.0, 8.0], [[4.0, 8.0]])


def test_a_hook_on_each_side_of_a_graph_break(backend: str) -> None:
    log: list[Any] = []

    def function(x: Tensor) -> Tensor:
        y = x * 2
        y.register_hook(see(log, "first"))
        if y.sum().item() > 100:
            return y
        y.register_hook(see(log, "second", 5.0))
        return y * y

    compiled = compile(function, backend=backend)
    for _ in range(3):
        log.clear()
        x = leaf(1.0, 2.0)
        compiled(x).sum().backward()
        assert x.grad.tolist() == [40.0, 80.0]
        assert [name for name, _ in log] == ["first", "second"]


def test_what_hooks_hold_is_let_go_with_the_call(backend: str) -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        y.register_hook(lambda g: g * y.detach())
        y.retain_grad()
        return y, y.exp() * y

    compiled, kept = compile(function, backend=backend, fullgraph=True), []
    for _ in range(3):
        y, out = compiled(leaf(1.0, 2.0))
        out.sum().backward()
        assert y.grad is not None
        kept.append(weakref.ref(y))
        del y, out
    gc.collect()
    assert [ref() for ref in kept] == [None] * 3
