"""Leaves made or changed in compiled code: `(x * 2).requires_grad_()`, flags switched on parameters, detached ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import distcompile
from compiler_core.errors import ShapeError
from tests.compiler_core.capture.writes.test_writes_in_the_graph import Case, arange, backward, close, story

torch = pytest.importorskip("torch")


def made(lib: Any, p: Any, x: Any) -> Any:
    return (x * 2).requires_grad_(), (p * 3).detach().requires_grad_(), x[0].detach().clone().requires_grad_()


def made_and_used(lib: Any, p: Any, x: Any) -> Any:
    t = x * 2
    t.requires_grad_()
    return t, (t * p).sum()


def switched(lib: Any, p: Any, x: Any) -> Any:
    p.requires_grad_(False)
    y = p * 2
    p.requires_grad_(True)
    return y, p * x


def frozen(lib: Any, p: Any, x: Any) -> Any:
    p.requires_grad_(False)
    x.requires_grad_(True)
    return p * x


def make(lib: Any) -> Any:
    return arange(lib, 2, 3, grad=True), arange(lib, 2, 3)


def each_backward(lib: Any, result: Any, args: Any) -> None:
    backward(lib, result, args)


CASES: dict[str, tuple[Case, bool]] = {
    "made": (Case(made, make, each_backward), True),
    "made and used": (Case(made_and_used, make, lambda lib, r, a: r[1].backward()), False),
    "switched": (Case(switched, make, each_backward), True),
    "frozen": (Case(frozen, make, each_backward), True),
}


@pytest.mark.parametrize("name", CASES)
def test_eager_is_torch(name: str) -> None:
    case, _ = CASES[name]
    close(story(case, distcompile, lambda f: f, False), story(case, torch, lambda f: f, False))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
@pytest.mark.parametrize("name", CASES)
def test_compiled_is_eager(name: str, backend: str) -> None:
    case, whole = CASES[name]

    def wrap(function: Callable[..., Any]) -> Any:
        return distcompile.compile(function, backend=backend, fullgraph=whole)

    close(story(case, distcompile, wrap, False), story(case, distcompile, lambda f: f, False))


def test_an_error_of_the_program_is_told_as_it_is() -> None:
    def wrong(x: Any) -> Any:
        leaf = x.clone().requires_grad_()
        return (leaf * 2) @ distcompile.ones(5, 5)

    for call in (wrong, distcompile.compile(wrong), distcompile.compile(wrong, fullgraph=True)):
        with pytest.raises(ShapeError, match="matmul"):
            call(distcompile.ones(2, 3))
