"""Backward hooks: gradient_boundary on the tape and compiled, for each backend, with the same results."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from compiler_core.aot.boundary import gradient_boundary, opaque_backward
from compiler_core.capture import compile
from compiler_core.errors import AutogradError
from compiler_core.ops import prims
from compiler_core.tensor.autograd.backward import grad
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.tensor import Tensor

BACKENDS = ["eager", "aot_eager"]


def leaf(*values: float) -> Tensor:
    return Tensor._wrap(np.array(values, np.float32)).requires_grad_()


def gradients(function: Callable[..., Any], *tensors: Tensor) -> list[list[float]]:
    for tensor in tensors:
        tensor.grad = None
    function(*tensors).sum().backward()
    return [None if tensor.grad is None else tensor.grad.tolist() for tensor in tensors]


@pytest.fixture(params=[*BACKENDS, "codegen"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["tape", *BACKENDS])
def run(request: pytest.FixtureRequest) -> Callable[..., list[list[float]]]:
    """gradients(function, *tensors), by the tape or compiled."""

    def apply(function: Callable[..., Any], *tensors: Tensor) -> list[list[float]]:
        made = function if request.param == "tape" else compile(function, backend=request.param, fullgraph=True)
        return gradients(made, *tensors)

    return apply


def test_a_hook_replaces_the_gradient(run: Callable[..., list[list[float]]]) -> None:
    def function(x: Tensor) -> Tensor:
        (y,) = gradient_boundary((x * 2,), lambda g: (g * 10,))
        return y * y

    assert run(function, leaf(1.0, 3.0)) == [[80.0, 240.0]]


def test_none_changes_nothing(run: Callable[..., list[list[float]]]) -> None:
    def function(x: Tensor) -> Tensor:
        (y,) = gradient_boundary((x,), lambda g: None)
        return y * 3

    assert run(function, leaf(1.0)) == [[3.0]]


def test_several_tensors_meet_in_one_hook(run: Callable[..., list[list[float]]]) -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        a, b = gradient_boundary((a, b), lambda ga, gb: (gb, ga))
        return a * 2 + b * 5

    assert run(function, leaf(1.0), leaf(1.0)) == [[5.0], [2.0]]


def test_a_cotangent_that_never_came_is_none(run: Callable[..., list[list[float]]]) -> None:
    seen: SimpleQueue[tuple[bool, bool]] = SimpleQueue()  # no guard looks into one

    def hook(used: Tensor | None, unused: Tensor | None) -> tuple[Tensor | None, ...]:
        seen.put((used is None, unused is None))
        return used, unused

    def function(a: Tensor) -> Tensor:
        used, _ = gradient_boundary((a, a * 2), hook)
        return used * 4

    assert run(function, leaf(1.0)) == [[4.0]]
    assert {seen.get() for _ in range(seen.qsize())} == {(False, True)}


def test_a_hook_may_read_what_the_forward_reads(run: Callable[..., list[list[float]]]) -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        (y,) = gradient_boundary((x * w,), lambda g: (g + w.detach(),))
        return y * 1

    assert run(function, leaf(2.0), leaf(7.0)) == [[56.0], [16.0]]


def test_nested_boundaries_run_inside_out(run: Callable[..., list[list[float]]]) -> None:
    def function(x: Tensor) -> Tensor:
        (inner,) = gradient_boundary((x,), lambda g: (g + 1,))
        (outer,) = gradient_boundary((inner * 2,), lambda g: (g * 3,))
        return outer * 1

    assert run(function, leaf(0.0)) == [[7.0]]


def test_integers_pass() -> None:
    index = Tensor._wrap(np.array([1, 2]))
    assert gradient_boundary((index,), lambda g: None)[0] is index
    compiled = compile(lambda i: gradient_boundary((i,), lambda g: None)[0] + 1, backend="aot_eager", fullgraph=True)
    assert compiled(index).tolist() == [2, 3]


def test_a_hook_runs_at_every_backward_and_never_while_compiling(backend: str) -> None:
    seen: list[list[float]] = []

    def function(x: Tensor) -> Tensor:
        return gradient_boundary((x * 1,), lambda g: seen.append(g.tolist()))[0] * 3

    compiled = compile(function, backend=backend, fullgraph=True)
    for call in range(3):
        out = compiled(leaf(1.0, 2.0))
        assert len(seen) == call
        out.backward(Tensor._wrap(np.array([call, 1.0], np.float32)))
    assert seen == [[0.0, 3.0], [3.0, 3.0], [6.0, 3.0]]


@pytest.mark.parametrize("replacement", [lambda g: (prims.sum(g, (0,)),), lambda g: (g, g)])
def test_replacements_must_fit(replacement: Callable[[Tensor], Any]) -> None:
    x = leaf(1.0, 2.0)
    (y,) = gradient_boundary((x,), replacement)
    with pytest.raises(AutogradError, match="do not fit"):
        y.sum().backward()


@pytest.mark.parametrize(
    "hook",
    [
        lambda g: (g * float(g.sum()),),
        lambda g: (g * OUTSIDE,),
        lambda g: (g + 0 * OUTSIDE.add_(1),),
        lambda g: (g * 2 if g.sum() > 0 else g,),
        lambda g: (Tensor._wrap(np.flip(g.numpy())),),
        lambda g: [g.mul_(3)][1:] or None,
        lambda g: [None],
    ],
    ids=["needs data", "reads another tensor", "writes", "branches", "NumPy", "in place", "drops it"],
)
def test_a_hook_may_do_what_it_likes(backend: str, hook: Callable[[Tensor], Any]) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        (z,) = gradient_boundary((x * y.exp(),), hook)
        return z * y

    compiled = compile(function, backend=backend, fullgraph=True)
    for number in range(3):
        OUTSIDE.copy_(Tensor._wrap(np.array([5.0, 6.0], np.float32)))
        wanted = gradients(function, leaf(1.0, 2.0), leaf(number, 1.0))
        OUTSIDE.copy_(Tensor._wrap(np.array([5.0, 6.0], np.float32)))
        got = gradients(compiled, leaf(1.0, 2.0), leaf(number, 1.0))
        for a, b in zip(got, wanted, strict=True):
            assert (a is None) == (b is None)
            np.testing.assert_allclose(a or [], b or [], rtol=1e-6)


def test_what_a_hook_raises_comes_out_and_the_next_backward_is_right(backend: str) -> None:
    fail = True

    def hook(g: Tensor) -> None:
        if fail:
            raise ZeroDivisionError("in the hook")

    compiled = compile(lambda x: gradient_boundary((x * 2,), hook)[0] * 3, backend=backend, fullgraph=True)
    with pytest.raises(ZeroDivisionError, match="in the hook"):
        compiled(leaf(1.0)).sum().backward()
    fail = False
    assert gradients(compiled, leaf(1.0)) == [[6.0]]


def test_two_stops_and_what_is_between_them(backend: str) -> None:
    """The second hook gets what the first made of the gradient, and a parameter between them its own."""
    log: list[Any] = []

    def function(x: Tensor, w: Tensor) -> Tensor:
        (h,) = gradient_boundary((x.sin(),), lambda g: log.append(("low", g.tolist())))
        (y,) = gradient_boundary((h * w,), lambda g: log.append(("high", g.tolist())) or (g * 10,))
        return y * y

    def run(call: Callable[..., Any]) -> tuple[Any, Any]:
        log.clear()
        return gradients(call, leaf(0.5, 1.0), leaf(2.0, 3.0)), list(log)

    wanted, told = run(function)
    got, said = run(compile(function, backend=backend, fullgraph=True))
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
    assert [name for name, _ in said] == [name for name, _ in told] == ["high", "low"]
    for (_, a), (_, b) in zip(said, told, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_only_hooks_on_the_way_to_what_is_asked_for_run(backend: str) -> None:
    log: list[str] = []

    def hook(name: str) -> Callable[[Tensor], None]:
        return lambda g: log.append(name)

    def function(x: Tensor, w: Tensor) -> Tensor:
        (a,) = gradient_boundary((x * 2,), hook("x"))
        (b,) = gradient_boundary((w * 3,), hook("w"))
        (c,) = gradient_boundary((a * b,), hook("both"))
        return c.sum()

    compiled = compile(function, backend=backend, fullgraph=True)
    for call in (function, compiled, compiled):
        x, w = leaf(1.0), leaf(2.0)
        out = call(x, w)
        log.clear()
        out.backward(inputs=[w], retain_graph=True)
        assert (log, x.grad, w.grad.tolist()) == (["both", "w"], None, [6.0])
        log.clear()
        assert grad(out, [x], retain_graph=True)[0].tolist() == [12.0]
        assert log == ["both", "x"]
        log.clear()
        out.backward()
        assert sorted(log) == ["both", "w", "x"]
        assert (x.grad.tolist(), w.grad.tolist()) == ([12.0], [12.0])


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_of_outputs_nobody_used_hooks_get_none_or_are_not_called(backend: str, used: tuple[int, ...]) -> None:
    log: list[Any] = []

    def function(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        a, b = gradient_boundary((x * 2, w * 3), lambda *gs: log.append([g is None for g in gs]))
        (c,) = gradient_boundary((b * 1,), lambda g: log.append("c"))
        return a * 1, c * 1

    compiled = compile(function, backend=backend, fullgraph=True)
    told = []
    for call in (function, compiled, compiled):
        x, w = leaf(1.0), leaf(2.0)
        log.clear()
        outputs = call(x, w)
        sum(outputs[k].sum() for k in used).backward()
        told.append(
            (list(log), None if x.grad is None else x.grad.tolist(), None if w.grad is None else w.grad.tolist())
        )
    assert told[0] == told[1] == told[2]


def test_a_gradient_that_a_hook_made_up_flows(backend: str) -> None:
    """`b` is used by nobody, so its cotangent is None; the hook gives it one."""

    def function(x: Tensor, w: Tensor) -> Tensor:
        a, _ = gradient_boundary((x * 2, w * 3), lambda g, none: (None, g) if none is None else None)
        return a * 5

    compiled = compile(function, backend=backend, fullgraph=True)
    for call in (function, compiled, compiled):
        x, w = leaf(1.0), leaf(2.0)
        call(x, w).sum().backward()
        assert (x.grad, w.grad.tolist()) == (None, [15.0])


def cube(x: Tensor, log: list[Any]) -> Tensor:
    """x**3, whose gradient NumPy computes; `log` is told."""

    def backward(saved: tuple[Tensor, ...], g: Tensor | None) -> list[Tensor | None]:
        (x,) = saved
        log.append(g.tolist())
        return [Tensor._wrap(3 * x.numpy() ** 2 * g.numpy())]

    with no_grad():
        y = x * x * x
    (y,) = opaque_backward((y,), (x,), backward, (x,))
    return y


def test_a_rule_that_is_not_traced(backend: str) -> None:
    log: list[Any] = []

    def function(x: Tensor, w: Tensor) -> Tensor:
        return cube(x * w, log) * w

    compiled = compile(function, backend=backend, fullgraph=True)
    for x, w in ((leaf(1.0, 2.0), leaf(0.5, 3.0)), (leaf(3.0, 1.0), leaf(2.0, 0.25))):
        wanted = gradients(lambda x, w: (x * w) ** 3 * w, x, w)
        for call in (function, compiled):
            log.clear()
            np.testing.assert_allclose(gradients(call, x, w), wanted, rtol=1e-5)
            assert log == [w.tolist()]


def test_a_rule_of_several_tensors_of_other_shapes(backend: str) -> None:
    """outputs (2, 3) and (3,), inputs (3,) and (2, 1), of which one output is not used."""
    log: list[Any] = []

    def backward(saved: tuple[Tensor, ...], *gs: Tensor | None) -> list[Tensor | None]:
        log.append([g is None for g in gs])
        g = gs[0].numpy()
        return [Tensor._wrap(g.sum(0) * 2), Tensor._wrap(g.sum(1, keepdims=True) * saved[0].numpy())]

    def function(a: Tensor, b: Tensor) -> Tensor:
        with no_grad():
            wide, narrow = a * b, a * 2
        wide, narrow = opaque_backward((wide, narrow), (a, b), backward, (b,))
        return wide * 1 + 0 * narrow.detach()

    compiled = compile(function, backend=backend, fullgraph=True)
    b_value = np.array([[2.0], [3.0]], np.float32)
    told = []
    for call in (function, compiled, compiled):
        a, b = leaf(1.0, 2.0, 3.0), Tensor._wrap(b_value).requires_grad_()
        told.append((gradients(call, a, b), list(log)))
        log.clear()
    assert told[0] == told[1] == told[2] == (([[4.0] * 3, [[6.0], [9.0]]]), [[False, True]])


def test_a_rule_must_give_what_fits(backend: str) -> None:
    def function(x: Tensor) -> Tensor:
        with no_grad():
            y = x * 2
        (y,) = opaque_backward((y,), (x,), lambda saved, g: [Tensor._wrap(np.ones(3, np.float32))])
        return y

    for call in (function, compile(function, backend=backend, fullgraph=True)):
        with pytest.raises(AutogradError, match="a backward rule returned gradients that do not fit"):
            call(leaf(1.0)).sum().backward()


def test_each_call_has_a_state_of_its_own(backend: str) -> None:
    """Two forwards before their backwards: what hooks hold is made anew for each."""

    class Pair:
        def __init__(self) -> None:
            self.seen: Any = None

        def outer(self, g: Tensor) -> None:
            self.seen = g.tolist()

        def inner(self, g: Tensor) -> tuple[Tensor]:
            return (g * 0 + self.seen[0],)

    def function(x: Tensor) -> Tensor:
        pair = Pair()
        (y,) = gradient_boundary((x,), pair.inner)
        (z,) = gradient_boundary((y * 2,), pair.outer)
        return z * 1

    compiled = compile(function, backend=backend, fullgraph=True)
    for call in (compiled, compiled):
        first, second = leaf(1.0), leaf(1.0)
        a, b = call(first), call(second)
        (3 * a + 7 * b).sum().backward()
        assert (first.grad.tolist(), second.grad.tolist()) == ([3.0], [7.0])


def test_what_a_hook_changes_in_place_and_a_later_part_reads_is_an_error() -> None:
    w = Tensor._wrap(np.array([2.0], np.float32))

    def function(x: Tensor) -> Tensor:
        (y,) = gradient_boundary((x * w,), lambda g: [w.add_(1)][1:] or None)
        return y.exp()

    for call in (function, compile(function, backend="aot_eager", fullgraph=True)):
        with pytest.raises(AutogradError, match="changed in place"):
            call(leaf(1.0)).sum().backward()


OUTSIDE = Tensor._wrap(np.array([5.0, 6.0], np.float32))


def test_without_gradients_the_boundary_is_nothing() -> None:
    x = Tensor._wrap(np.ones(2, np.float32))
    assert gradient_boundary((x,), lambda g: None)[0] is x


def test_what_one_hook_drops_another_may_make_up(backend: str) -> None:
    """The first hands nothing on, the second runs all the same and does; what is between them has no gradient."""

    def function(x: Tensor, w: Tensor) -> Tensor:
        (h,) = gradient_boundary((x * 2,), lambda g: (Tensor._wrap(np.full(1, 7, np.float32)),) if g is None else None)
        (y,) = gradient_boundary((h * w,), lambda g: (None,))
        return y * 3

    compiled = compile(function, backend=backend, fullgraph=True)
    for call in (function, compiled, compiled):
        assert gradients(call, leaf(1.0), leaf(2.0)) == [[14.0], None]
