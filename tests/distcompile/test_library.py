"""Operators of torch.library: called, differentiated by their own rule alone, told apart from what cannot be done."""

from __future__ import annotations

from typing import Any

import pytest

import distcompile as dc
from distcompile.errors import ArgumentError, NotSupportedError


def straight_through(library: Any, torch: Any, name: str) -> Any:
    """Rounding whose gradient is that of scaling, as a library writes it; with torch's names alone."""

    @library.custom_op(name, mutates_args=())
    def rounded(x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return torch.round(x * scale)

    @rounded.register_fake
    def _(x: Any, scale: float = 2.0) -> Any:
        return torch.empty_like(x)

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.scale = inputs[1]

    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * ctx.scale * (x > 0), None

    library.register_autograd(name, backward, setup_context=setup_context)
    return rounded


@pytest.mark.torch
def test_an_operators_gradient_is_the_one_it_was_given() -> None:
    torch = pytest.importorskip("torch")
    results = []
    for module in (torch, dc):
        # annotations are texts here; torch reads them for its schema
        globals()["torch"] = torch
        op = straight_through(module.library, module, "distcompile_tests::rounded")
        x = module.tensor([-1.3, 0.2, 2.7], requires_grad=True)
        y = op(x, scale=3.0)
        y.sum().backward()
        results.append((y.tolist(), x.grad.tolist(), op(x.detach()).tolist()))
    assert results[0] == results[1]
    assert results[1][1] == [0.0, 3.0, 3.0]


def test_an_operator_without_a_gradient_has_none() -> None:
    op = dc.library.custom_op("tests::doubled", lambda x: x * 2, mutates_args=())
    y = op(dc.ones(2, requires_grad=True))
    with pytest.raises(NotSupportedError, match="tests::doubled has no gradient"):
        y.sum().backward()


def test_operators_compile_with_the_gradient_they_have() -> None:
    op = dc.library.custom_op("tests::tripled", lambda x: x * 3, mutates_args=())
    compiled = dc.compile(lambda x: op(x) + 1, fullgraph=True)
    assert compiled(dc.ones(2)).tolist() == [4.0, 4.0]
    assert compiled(dc.ones(2, requires_grad=True)).tolist() == [4.0, 4.0]
    other = dc.library.custom_op("tests::tripled_too", lambda x: x * 3, mutates_args=())
    other.register_autograd(lambda ctx, grad: grad * 10)
    compiled = dc.compile(lambda x: other(x) + 1, fullgraph=True)
    x = dc.ones(2, requires_grad=True)
    compiled(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [10.0, 10.0]


def test_misuse_is_a_named_error() -> None:
    with pytest.raises(ArgumentError, match="no operator's name"):
        dc.library.custom_op("doubled", lambda x: x, mutates_args=())
    with pytest.raises(NotSupportedError, match="changes its arguments"):
        dc.library.custom_op("tests::filled", lambda x: x.fill_(0), mutates_args=("x",))
