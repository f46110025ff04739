"""The dtype of an expression, and its value: Tensors, 0-d Tensors, Python's and NumPy's numbers; judged by torch."""

from __future__ import annotations

import numpy as np
import pytest
from both_libraries import assert_as_torch

import distcompile

pytestmark = pytest.mark.torch

OPERANDS = {
    "x": np.array([0.5, -1.5, 2.5], np.float32),
    "d": np.array([0.25, -1.5, 2.5]),
    "h": np.array([0.5, -1.5, 2.5], np.float16),
    "i": np.array([1, -2, 3]),
    "u": np.array([1, 2, 3], np.uint8),
    "b": np.array([True, False, True]),
    "d0": np.array(2.5),
    "h0": np.array(1.5, np.float16),
    "i0": np.array(3),
}
BETWEEN_TENSORS = [
    "x * i", "i * x", "i + h", "h * d", "u + i", "b * x", "i / u", "i // u", "x ** i", "torch.where(b, i, x)",
    "torch.cat([i, x])", "torch.stack([u, h])", "torch.maximum(i, x)", "torch.addcmul(x, x, i)", "i < x",
]  # fmt: skip
WITH_ZERO_DIMS = [
    "x * d0", "d0 * x", "h + d0", "i * d0", "i * h0", "x * i0", "u + i0", "b * i0", "d0 * h0", "i0 / 2", "i0 * 2.5",
    "x.sum() / b.sum()", "x.sum() / d.sum()", "torch.where(b, x, d0)", "(x > 0).float().mean() / d0", "i0 * b.sum()",
]  # fmt: skip
WITH_NUMBERS = [
    "x * 2", "x * 2.5", "i * 2.5", "b * 2", "b + 1.5", "u * 2", "i / 2", "2.0 ** i", "i ** 2.0",
    "x * np.float64(2)", "np.float64(2) * x", "i * np.sqrt(2)", "np.sqrt(2) * i", "h * np.float32(2)",
    "np.float32(2.5) * h", "i * np.int32(2)", "b * np.int64(2)", "x / np.prod((2, 3))", "x ** np.float64(2)",
    "np.float64(2) ** x", "torch.where(b, x, np.float64(2))", "torch.full((2,), np.float64(1.5))", "i.clamp(min=0.5)",
    "torch.add(x, i, alpha=2)", "torch.full((2,), np.int32(1))",
    "torch.arange(np.float64(3))", "torch.arange(4) * np.sqrt(2)", "x - np.float32(1)",
    "x.masked_fill(b, np.float64(3))", "torch.true_divide(i, 2)", "i % 2.5", "i == 1.5", "x.add(np.float64(0.5))",
]  # fmt: skip


@pytest.mark.parametrize("group", [BETWEEN_TENSORS, WITH_ZERO_DIMS, WITH_NUMBERS], ids=["tensors", "0-d", "numbers"])
def test_promotion_is_torchs(group: list[str]) -> None:
    assert_as_torch(group, OPERANDS)


def test_beside_numpy_arrays_promotion_is_numpys() -> None:
    assert_as_torch(
        ["x * np.ones(3)", "i / np.arange(1, 4)", "x + np.array(2.0)", "i * np.ones(3, np.float32)"], OPERANDS
    )


def test_a_step_of_a_float32_model_stays_float32() -> None:
    torch = distcompile
    layer = torch.nn.Linear(3, 2)
    mask = torch.tensor([1, 0])
    loss = (layer(torch.ones(4, 3)) * mask * np.sqrt(0.5)).sum() / mask.sum() / np.prod((4, 2))
    assert loss.dtype is torch.float32
    loss.backward()
    assert layer.weight.grad.dtype is torch.float32
