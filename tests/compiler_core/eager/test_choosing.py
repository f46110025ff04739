"""Choosing by a kernel: what NumPy chooses, for each size of element, also where arrays repeat or lie otherwise."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler_core.eager.choosing import MANY, choose
from compiler_core.eager.native import kernels
from compiler_core.ops.registry import OPS

Array = Any
N = MANY + 5
pytestmark = pytest.mark.skipif(kernels() is None, reason="no compiler")


def drawn(dtype: Any, seed: int) -> Array:
    values = np.random.default_rng(seed).normal(size=(5, N // 5)) * 4
    if np.dtype(dtype) == np.float32:
        values[0, :3] = np.nan, np.inf, -0.0
    return values.astype(dtype)


DTYPES = [np.float32, np.float64, np.int64, np.int32, np.int8, np.bool_, np.float16, ml_dtypes.bfloat16, np.complex64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_it_is_numpys(dtype: Any) -> None:
    a, b = drawn(dtype, 0), drawn(dtype, 1)
    cond = drawn(np.float64, 2) > 0
    one = np.broadcast_to(a[2, 3], a.shape)
    for left, right in ((a, b), (one, b), (a, one), (one, np.broadcast_to(b[1, 1], b.shape)), (a[::-1], b)):
        made = choose(cond, left, right)
        assert made is not None
        assert made.dtype == a.dtype
        assert made.tobytes() == np.where(cond, left, right).astype(dtype).tobytes()
    turned = choose(cond.T, a.T, b.T)
    assert turned is not None
    assert turned.tobytes() == np.where(cond.T, a.T, b.T).astype(dtype).tobytes()


def test_the_op_uses_it_and_leaves_the_rest_to_numpy() -> None:
    a, b, cond = drawn(np.float32, 0), drawn(np.float32, 1), drawn(np.float64, 2) > 0
    assert choose(cond[:, :3], a[:, :3], b[:, :3]) is None
    assert choose(cond, a.astype(np.complex128), b.astype(np.complex128)) is None
    assert choose(cond, a, b.astype(np.float64)) is None
    for left, right, kind in ((a, b, cond), (a + 0j, b + 0j, cond), (a[:1], b[:1], cond[:1])):
        made = OPS["where"].eager(np, kind, left, right)
        np.testing.assert_array_equal(made, np.where(kind, left, right))
