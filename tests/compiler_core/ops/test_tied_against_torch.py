"""A gradient penalty on a critic of straight lines gives the biases before them zeros, as in torch, and not None."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import distcompile as dc

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch

Activation = Callable[[Any, Any], Any]

LINES: dict[str, Activation] = {
    "relu": lambda m, y: y.relu(),
    "leaky_relu": lambda m, y: m.nn.functional.leaky_relu(y, 0.2),
    "twice": lambda m, y: m.nn.functional.leaky_relu(y, 0.2).relu(),
    "no lines": lambda m, y: y * 2,
}


def penalty_gradients(m: Any, activation: Activation) -> list[Any]:
    """Those of a convolution's weight and bias, and of a second weight and bias, by the penalty."""
    x = m.linspace(-1, 1, 16).view(1, 1, 4, 4).requires_grad_()
    weights = [m.linspace(-1, 1, 8).view(2, 1, 2, 2), m.linspace(-1, 1, 8).view(1, 2, 2, 2)]
    biases = [m.full((2,), 0.1), m.full((1,), 0.1)]
    leaves = [leaf.requires_grad_() for pair in zip(weights, biases) for leaf in pair]
    score = m.nn.functional.conv2d(activation(m, m.nn.functional.conv2d(x, *leaves[:2])), *leaves[2:]).sum()
    (slope,) = m.autograd.grad(score, x, create_graph=True)
    ((slope.norm() - 1) ** 2).backward()
    return [leaf.grad if leaf.grad is None else leaf.grad.tolist() for leaf in leaves]


@pytest.mark.parametrize("name", LINES)
def test_what_a_penalty_gives_is_torchs(name: str) -> None:
    ours, theirs = (penalty_gradients(m, LINES[name]) for m in (dc, torch))
    assert [one is None for one in ours] == [one is None for one in theirs]
    for one, other in zip(ours, theirs):
        if other is not None:
            torch.testing.assert_close(torch.tensor(one), torch.tensor(other))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_leaky_relu_compiled_and_its_gradient_are_the_eager_ones(dtype: str) -> None:
    def step(x: Any) -> Any:
        y = dc.nn.functional.leaky_relu(x, 0.3)
        return y, dc.autograd.grad(y.sum(), x)[0]

    x = dc.tensor([-2.0, -0.0, 0.0, 3.0, float("inf"), float("nan")], dtype=getattr(dc, dtype), requires_grad=True)
    for ours, eager in zip(dc.compile(step)(x), step(x)):
        dc.testing.assert_close(ours, eager, equal_nan=True, rtol=0, atol=0)
