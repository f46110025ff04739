"""Products of integer matrices: every bit, modulo 2^bits as NumPy's, which computes them one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.ops.linear_algebra import products as composite_linalg

SHAPES = [((7, 9), (9, 5)), ((2, 3, 4), (4, 5)), ((6,), (6, 2)), ((3, 6), (6,)), ((8,), (8,))]
DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"]


def matrices(dtype: str, *shapes: tuple[int, ...]) -> list[Any]:
    """Of the whole range of `dtype`."""
    limits, rng = np.iinfo(dtype), np.random.default_rng(0)
    return [rng.integers(limits.min, limits.max, shape, dtype, endpoint=True) for shape in shapes]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shapes", [((7, 9), (9, 5)), ((2, 3, 4), (4, 5)), ((6,), (6, 2)), ((3, 6), (6,)), ((8,), (8,))]
)
def test_they_are_exact(dtype: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    a, b = matrices(dtype, *shapes)
    x, y = dc.tensor(a), dc.tensor(b)
    expected = a @ b
    for product in (x @ y, dc.compile(lambda x, y: x @ y)(x, y)):
        assert product.numpy().dtype == expected.dtype
        np.testing.assert_array_equal(product.numpy(), expected)


def test_long_sums_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composite_linalg, "_EXACT", 4)
    for shapes in (((3, 11), (11, 2)), ((3, 11), (11,)), ((11,), (11, 2))):
        a, b = matrices("int64", *shapes)
        np.testing.assert_array_equal((dc.tensor(a) @ dc.tensor(b)).numpy(), a @ b)


def test_einsum_and_factors_take_whole_numbers() -> None:
    a, b = matrices("int32", (3, 4), (4, 2))
    x, y = dc.tensor(a), dc.tensor(b)
    np.testing.assert_array_equal(dc.einsum("ij,jk->ik", x, y).numpy(), a @ b)
    np.testing.assert_array_equal(dc.einsum("i,j->ij", x[0], y[0]).numpy(), np.multiply.outer(a[0], b[0]))
    kept = dc.addmv(dc.ones(3, dtype=dc.int32), x, y[:, 0], beta=0.9, alpha=2.5)  # 0 and 2, as in torch
    np.testing.assert_array_equal(kept.numpy(), 2 * (a @ b[:, 0]))
    square = dc.addmm(dc.ones(3, 2, dtype=dc.int32), x, y, beta=1.9, alpha=0.6)  # 1 and 0
    np.testing.assert_array_equal(square.numpy(), np.ones((3, 2), np.int32))
