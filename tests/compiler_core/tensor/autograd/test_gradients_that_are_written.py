"""Gradients that hooks write to, and leaves that have none yet."""

from __future__ import annotations

from typing import Any

import pytest

from compiler_core.tensor import Tensor
from compiler_core.tensor.autograd.engine import running_backwards
from compiler_core.tensor.autograd.function import Function
from compiler_core.tensor.making import creation


@pytest.mark.parametrize("write", ["mul_", "part"])
@pytest.mark.parametrize("place", ["inner", "leaf"])
def test_a_hook_may_write_to_its_gradient_in_place(write: str, place: str) -> None:
    """As in torch; what somebody else holds of that gradient stays as it was."""

    def hook(g: Tensor) -> None:
        if write == "mul_":
            g.mul_(3)
        else:
            g[0] = 7.0

    for _ in range(2):
        x, other = (creation.tensor([1.0, 2.0]).requires_grad_() for _ in range(2))
        h = x * 2
        (h if place == "inner" else x).register_hook(hook)
        h.retain_grad()
        (h + other).backward(creation.tensor([1.0, 1.0]))
        came = [3.0, 3.0] if write == "mul_" else [7.0, 1.0]
        slopes = [2 * c for c in came] if place == "inner" else ([6.0, 6.0] if write == "mul_" else [7.0, 2.0])
        found = [v.grad.tolist() for v in (other, h, x) if v.grad is not None]
        assert found == [[1.0, 1.0], came if place == "inner" else [1.0, 1.0], slopes]


def test_a_leaf_to_which_none_came_has_no_gradient_yet() -> None:
    """DDP takes what a leaf has so far into a call's segment: None is no gradient."""

    class Nothing(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> None:
            return None

    x, seen = creation.tensor([1.0, 2.0]).requires_grad_(), list[bool]()
    first = x * 2
    first.register_hook(lambda g: seen.append(x in running_backwards()[-1].grads))
    (Nothing.apply(x) + first).sum().backward()
    assert seen == [False]
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 2.0]
