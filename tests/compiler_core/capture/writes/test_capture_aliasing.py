"""Aliasing, mutation and identity of compiled calls: what happens to handles must be what eager does.

Each case runs eager and compiled, twice, on fresh tensors; a probe then looks at what shares memory with what.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.capture import compile
from compiler_core.errors import GraphBreak
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.making.creation import ones, tensor, zeros
from compiler_core.tensor.tensor import Tensor
from distcompile import nn

BACKENDS = ["eager", "aot_eager"]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def same(a: Any, b: Any) -> None:
    if isinstance(a, Tensor):
        assert a.requires_grad == b.requires_grad
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-6)
    elif isinstance(a, tuple | list):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
    else:
        assert a == b


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    # name: (function(x), probe(x, result) -> what to compare)
    "input returned": (lambda x: x, lambda x, r: r is x),
    "input returned twice": (lambda x: (x, x * 2, x), lambda x, r: (r[0] is x, r[2] is x)),
    "same result twice": (lambda x: (lambda y: (y, y))(x * 2), lambda x, r: r[0] is r[1]),
    "view of an input": (lambda x: x.view(4), lambda x, r: (r.add_(1), x)),
    "view of a view of an input": (lambda x: x.t()[0], lambda x, r: (r.add_(1), x)),
    "detached input": (lambda x: x.detach(), lambda x, r: (r is x, r.add_(1), x)),
    "input written later shows in view": (lambda x: x[0], lambda x, r: (x.add_(1), r)),
    "view of a result": (lambda x: (lambda y: (y, y.view(4)))(x * 2), lambda x, r: (r[0].add_(1), r[1])),
    "two views of one result": (lambda x: (lambda y: (y.view(4), y.t()))(x * 2), lambda x, r: (r[0].add_(1), r[1])),
    "lone view of a result": (lambda x: (x * 2).view(4), lambda x, r: (r.add_(1), x)),
    "input written": (lambda x: x.add_(1), lambda x, r: (r is x, x)),
    "input written and read": (lambda x: (x.mul_(3), x + 1)[1], lambda x, r: (x, r)),
    "input written through a view": (lambda x: (x[0].fill_(7), x * 1)[1], lambda x, r: (x, r)),
    "input written, view returned": (lambda x: (x.add_(1), x.view(4))[1], lambda x, r: (r.add_(1), x)),
    "input written twice": (lambda x: x.add_(1).mul_(2), lambda x, r: (r is x, x)),
    "input overwritten without reading": (lambda x: x.zero_(), lambda x, r: (r is x, x)),
    "item assigned": (lambda x: x.__setitem__((slice(None), 0), 9.0), lambda x, r: x),
    "result written": (lambda x: (x * 2).add_(1), lambda x, r: (x, r)),
    "result's view written": (lambda x: (lambda y: (y[0].zero_(), y)[1])(x * 2), lambda x, r: (x, r)),
    "constant result": (lambda x: (tensor([1.0, 2.0]), 5), lambda x, r: r),
    "nothing": (lambda x: None, lambda x, r: r),
}


@pytest.mark.parametrize("name", CASES)
def test_as_eager(name: str, backend: str) -> None:
    function, probe = CASES[name]
    compiled = compile(function, backend=backend, fullgraph=True)
    for _ in range(2):
        x, y = (tensor([[1.0, 2.0], [3.0, 4.0]]) for _ in range(2))
        same(probe(x, compiled(x)), probe(y, function(y)))
        same(x, y)
    assert len(compiled.explain().entries) == 1


GRADIENT_CASES: dict[str, Callable[[Tensor], Any]] = {
    "view of an input": lambda x: x.view(4)[1:],
    "detached result beside it": lambda x: (lambda y: (y * 1, y.detach()))(x * 2),
    "detach inside": lambda x: x * x.detach(),
    "no_grad inside": lambda x: x * under_no_grad(x),
    "input and its views": lambda x: (x, x.t(), x * 3),
    "result and its view": lambda x: (lambda y: (y, y.view(4)))(x * 2),
    "written result": lambda x: (lambda y: (y.mul_(3), y.exp())[1])(x * 2),
    "written view of a result": lambda x: (lambda y: (y[0].mul_(3), y)[1])(x * 2),
}


def under_no_grad(x: Tensor) -> Tensor:
    with no_grad():
        return x * 5


@pytest.mark.parametrize("name", GRADIENT_CASES)
def test_gradients_as_eager(name: str, backend: str) -> None:
    function = GRADIENT_CASES[name]
    compiled = compile(function, backend=backend, fullgraph=True)
    for _ in range(2):
        leaves = [tensor([[0.1, 0.2], [0.3, 0.4]]).requires_grad_() for _ in range(2)]
        for f, leaf in zip((compiled, function), leaves):
            result = f(leaf)
            parts = result if isinstance(result, tuple) else (result,)
            sum((part * part).sum() for part in parts if part.requires_grad).backward()
            leaf.flags = [part.requires_grad for part in parts]
        assert leaves[0].flags == leaves[1].flags
        np.testing.assert_allclose(leaves[0].grad.numpy(), leaves[1].grad.numpy(), rtol=1e-6)


def test_a_detached_alias_of_an_argument_gets_no_gradient(backend: str) -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum()

    compiled = compile(function, backend=backend, fullgraph=True)
    x = tensor([2.0, 3.0]).requires_grad_()
    compiled(x, x.detach()).backward()
    assert x.grad.tolist() == [2.0, 3.0]
    x.grad = None
    compiled(x, x).backward()
    assert x.grad.tolist() == [4.0, 6.0]


def test_layout_decides_what_is_a_view(backend: str) -> None:
    compiled = compile(lambda x: x.reshape(4), backend=backend, fullgraph=True)
    for _ in range(2):
        plain, turned = ones(2, 2), ones(2, 2).t()
        assert compiled(plain)._cell.root is plain._cell.root
        assert compiled(turned)._cell.root is not turned._cell.root
        rows = ones(4, 2)[1:3]
        assert compiled(rows)._cell.root is rows._cell.root
    assert len(compiled.explain().entries) == 2
    assert compiled.explain().recompiles == ("args[0].stride() == (2, 1)",)


def test_one_tensor_twice_then_two(backend: str) -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        a.add_(1)
        return b * 2

    compiled = compile(function, backend=backend, fullgraph=True)
    one = ones(1)
    assert compiled(one, one).tolist() == [4.0]
    a, b = ones(1), ones(1)
    assert compiled(a, b).tolist() == [2.0]
    assert a.tolist() == [2.0]
    one = ones(1)
    assert compiled(one, one).tolist() == [4.0]
    assert len(compiled.explain().entries) == 2


def test_a_view_argument_beside_its_written_base() -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        a.add_(1)
        return b * 2

    compiled = compile(function, backend="aot_eager", fullgraph=True)
    for part in (slice(0, 1), slice(1, 2), slice(0, 1)):
        base, other = zeros(2), zeros(2)
        assert compiled(base, base[part]).tolist() == function(other, other[part]).tolist() == [2.0]


def test_distinct_arguments_then_aliases_that_are_written(backend: str) -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        a.add_(1)
        return b * 2

    compiled = compile(function, backend=backend)
    assert compiled(zeros(2), zeros(2)).tolist() == [0.0, 0.0]
    base = zeros(2)
    assert compiled(base, base.reshape(1, 2)[0]).tolist() == [2.0, 2.0]
    assert compiled.explain().breaks == ()


class Written(nn.Module):
    """Writes its argument, and reads a tensor of its own after that."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("own", ones(2))

    def forward(self, x: Tensor) -> Tensor:
        x.add_(1)
        own: Tensor = self.own
        return x + 10 * own


def test_an_argument_that_is_written_is_later_a_tensor_of_the_module(backend: str) -> None:
    for given in (lambda own: own, lambda own: own[:]):
        module, plain = Written(), Written()
        compiled: Any = dc.compile(module, backend=backend)
        assert compiled(zeros(2)).tolist() == [11.0, 11.0]
        assert compiled(given(module.own)).tolist() == plain(given(plain.own)).tolist() == [22.0, 22.0]


def test_three_arguments_of_which_one_is_written_share_memory_later(backend: str) -> None:
    def function(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        a.add_(1)
        return b * 2 + c

    compiled = compile(function, backend=backend)
    assert compiled(zeros(2), zeros(2), zeros(2)).tolist() == [0.0, 0.0]
    for places in ((0, 0, 1), (0, 1, 0), (0, 1, 1), (0, 0, 0)):
        mine, other = [zeros(2), zeros(2)], [zeros(2), zeros(2)]
        views = [[base.reshape(1, 2)[0] for base in (bases[i] for i in places)] for bases in (mine, other)]
        assert compiled(*views[0]).tolist() == function(*views[1]).tolist(), places


def test_a_recorded_write_to_a_leaf_is_torch_s_error() -> None:
    w = ones(1).requires_grad_()
    with pytest.raises(RuntimeError, match="a leaf that requires a gradient"):
        compile(lambda x, w: w.add_(x).sum(), backend="aot_eager", fullgraph=True)(ones(1), w)


def test_what_was_done_before_a_break_is_done_once() -> None:
    def function(x: Tensor) -> Tensor:
        x.add_(1)
        return x * float(x.sum())

    x = zeros(1)
    with pytest.raises(GraphBreak):
        compile(function, backend="aot_eager", fullgraph=True)(x)
    assert x.tolist() == [0.0]  # refused: nothing has happened
    compiled = compile(function, backend="aot_eager")
    assert compiled(x).tolist() == [1.0]
    assert compiled(x).tolist() == [4.0]
    assert x.tolist() == [2.0]


def test_a_traced_tensor_in_a_slot_is_a_real_one_afterwards() -> None:
    class Keeper:
        __slots__ = ("kept",)
        kept: Tensor

    keeper = Keeper()

    def function(x: Tensor) -> Tensor:
        keeper.kept = x * 2
        return x * 3

    compiled = compile(function, backend="aot_eager", fullgraph=True)
    for n in (1.0, 4.0):
        compiled(ones(1) * n)
        assert keeper.kept.tolist() == [2 * n]
