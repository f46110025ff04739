"""Which gradients come, and which are None: as in torch, where nobody used an output, or no path leads to a tensor.

Each program returns several things; the loss is made of some of them. Under torch, here eager, and compiled by three
backends: results, whether they require a gradient, and the gradients of all arguments, None where there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import distcompile
from tests.compiler_core.capture.writes.test_writes_in_the_graph import arange, close, look

torch = pytest.importorskip("torch")

Program = Callable[[Any, Any, Any, Any], Any]


def used_and_unused(lib: Any, a: Any, b: Any, c: Any) -> Any:
    return a * b, b * c, (c * 2).sum()


def branch(lib: Any, a: Any, b: Any, c: Any) -> Any:
    return (a * b if a.shape[0] == 2 else a * c), c.detach() * a


def inputs_returned(lib: Any, a: Any, b: Any, c: Any) -> Any:
    return a, a * b, c


def integers(lib: Any, a: Any, b: Any, c: Any) -> Any:
    return lib.argmax(a * b, 1), (a * c > 4), a * b, (b * 2).to(lib.int64)


def no_grad_part(lib: Any, a: Any, b: Any, c: Any) -> Any:
    with lib.no_grad():
        y = a * b
    return y, y * c, a.detach() + c


def flat_ops(lib: Any, a: Any, b: Any, c: Any) -> Any:
    return lib.round(a) + c, lib.sign(b) * 2, lib.zeros_like(a) * b


def overwritten(lib: Any, a: Any, b: Any, c: Any) -> Any:
    y = a * b
    y.zero_()
    z = b * c
    z[0] = 0
    w = c * 1
    w.fill_(3)
    return y + 1, z, w


def views(lib: Any, a: Any, b: Any, c: Any) -> Any:
    y = a * b
    return y, y[0], y.t() * c.t(), (c * 1).view(-1)


def one_tensor_twice(lib: Any, a: Any, b: Any, c: Any) -> Any:
    y = a * b
    return y, y, c * 1


def written_part(lib: Any, a: Any, b: Any, c: Any) -> Any:
    y = a * 1
    y[0] = b[0]
    y[1] = c[1]
    return y[0] * 1, y[1] * 1


def selected(lib: Any, a: Any, b: Any, c: Any) -> Any:
    joined = lib.cat([a, b])
    return joined[:2] * 1, joined[2:] * 1, lib.where(a > 3, b, c)


def condition_only(lib: Any, a: Any, b: Any, c: Any) -> Any:
    return lib.where(a > 3, b, 0.0), c[(a > 3).to(lib.int64)[0]], (a > b) * c


PROGRAMS: dict[str, tuple[Program, int]] = {
    "used and unused": (used_and_unused, 3),
    "branch": (branch, 2),
    "inputs returned": (inputs_returned, 3),
    "integers": (integers, 4),
    "no_grad part": (no_grad_part, 3),
    "flat ops": (flat_ops, 3),
    "overwritten": (overwritten, 3),
    "views": (views, 4),
    "one tensor twice": (one_tensor_twice, 3),
    "written part": (written_part, 2),
    "selected": (selected, 3),
    "condition only": (condition_only, 3),
}


def observed(name: str, used: int, lib: Any, function: Program) -> Any:
    """Results and gradients where the loss is made of the results whose bit is set in `used`."""
    seen = []
    for call in range(2):
        args = [arange(lib, 2, 3, grad=True) for _ in range(3)]
        if call and name != "inputs returned":
            args[2].requires_grad_(False)
        results = function(lib, *args)
        seen.append(look(results, False))
        taken = [r for k, r in enumerate(results) if used >> k & 1 and r.requires_grad]
        if taken:
            sum((r * r).sum() for r in taken).backward()
        seen.append(look(args, False))
    return seen


@pytest.mark.parametrize("name", PROGRAMS)
def test_eager_is_torch(name: str) -> None:
    for used in range(1, 1 << PROGRAMS[name][1]):
        theirs = observed(name, used, torch, PROGRAMS[name][0])
        close(observed(name, used, distcompile, PROGRAMS[name][0]), theirs, f"{name} {used:b}")


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_is_eager(name: str, backend: str) -> None:
    compiled = distcompile.compile(PROGRAMS[name][0], backend=backend, fullgraph=True)
    for used in range(1, 1 << PROGRAMS[name][1]):
        expected = observed(name, used, distcompile, PROGRAMS[name][0])
        close(observed(name, used, distcompile, compiled), expected, f"{name} {used:b}")


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
def test_grad_with_allow_unused(backend: str) -> None:
    compiled = distcompile.compile(lambda a, b, c: (a * b, b * c), backend=backend, fullgraph=True)
    for _ in range(2):
        a, b, c = (distcompile.ones(2, requires_grad=True) for _ in range(3))
        first, second = compiled(a, b, c)
        grads = distcompile.autograd.grad(first.sum(), (a, b, c), allow_unused=True, retain_graph=True)
        assert [g is None for g in grads] == [False, False, True]
        grads = distcompile.autograd.grad(second.sum(), (a, b, c), allow_unused=True)
        assert [g is None for g in grads] == [True, False, False]
