"""Backward hooks: gradient_boundary on the tape and compiled, for each backend, with the same results."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from compiler_core.aot.boundary import gradient_boundary
from compiler_core.capture import compile
from compiler_core.errors import AutogradError, GraphBreak
from compiler_core.log import DistCompileWarning
from compiler_core.ops import prims
from compiler_core.tensor.tensor import Tensor

BACKENDS = ["eager", "aot_eager"]


def leaf(*values: float) -> Tensor:
    return Tensor._wrap(np.array(values, np.float32)).requires_grad_()


def gradients(function: Callable[..., Any], *tensors: Tensor) -> list[list[float]]:
    for tensor in tensors:
        tensor.grad = None
    function(*tensors).sum().backward()
    return [tensor.grad.tolist() for tensor in tensors]


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


def test_a_hook_that_changes_what_is_guarded_runs_eager() -> None:
    calls: list[int] = []

    def hook(g: Tensor) -> None:
        calls.append(1)

    def function(x: Tensor) -> Tensor:
        return gradient_boundary((x,), hook)[0] * (2 + len(calls) * 0)

    compiled = compile(function, backend="aot_eager")
    with pytest.warns(DistCompileWarning, match="changes what it depends on"):
        compiled(leaf(1.0)).sum().backward()
    before = len(calls)
    compiled(leaf(1.0)).sum().backward()
    assert len(calls) == before + 1


@pytest.mark.parametrize("replacement", [lambda g: (prims.sum(g, (0,)),), lambda g: (g, g)])
def test_replacements_must_fit(replacement: Callable[[Tensor], Any]) -> None:
    x = leaf(1.0, 2.0)
    (y,) = gradient_boundary((x,), replacement)
    with pytest.raises(AutogradError, match="do not fit"):
        y.sum().backward()


@pytest.mark.parametrize(
    "hook",
    [lambda g: (g * float(g.sum()),), lambda g: (g * OUTSIDE,), lambda g: (g + 0 * OUTSIDE.add_(1),)],
    ids=["needs data", "reads another tensor", "writes"],
)
def test_a_hook_that_cannot_be_traced_runs_eager(hook: Callable[[Tensor], Any]) -> None:
    def function(x: Tensor) -> Tensor:
        (y,) = gradient_boundary((x,), hook)
        return y * 2

    wanted = gradients(function, leaf(1.0, 2.0))
    with pytest.warns(DistCompileWarning, match="runs eager"):
        assert gradients(compile(function, backend="aot_eager"), leaf(1.0, 2.0)) == wanted
    with pytest.raises(GraphBreak):
        compile(function, backend="aot_eager", fullgraph=True)(leaf(1.0, 2.0))


def test_a_break_that_a_hook_catches_is_still_one() -> None:
    def hook(g: Tensor) -> tuple[Tensor]:
        try:
            return (g * g.sum().item(),)
        except Exception:  # noqa: BLE001 (what users write)
            return (g * 0,)

    def function(x: Tensor) -> Tensor:
        return gradient_boundary((x,), hook)[0] * 2

    with pytest.warns(DistCompileWarning, match="caught by a backward hook"):
        assert gradients(compile(function, backend="aot_eager"), leaf(1.0, 2.0)) == gradients(function, leaf(1.0, 2.0))


OUTSIDE = Tensor._wrap(np.array([5.0, 6.0], np.float32))


def test_without_gradients_the_boundary_is_nothing() -> None:
    x = Tensor._wrap(np.ones(2, np.float32))
    assert gradient_boundary((x,), lambda g: None)[0] is x
