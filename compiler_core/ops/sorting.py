"""Order by value: argsort, from which sorting, topk, medians and their kin are composed.

In: x: T[...], dim, descending. Out: i64 of x's shape: the places along dim, in order. Stable: equal elements keep their
order, descending too. NaN counts as the largest. NumPy sorts (radix or timsort, chosen by dtype); called back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler_core.dtype import DType, int64
from compiler_core.meta import TensorMeta
from compiler_core.ops.checks import ORDERED, check_dim, check_dtype
from compiler_core.ops.registry import Array, NotDifferentiable, Op, Sample, register
from compiler_core.ops.routine import call_back


def _infer_argsort(x: TensorMeta, dim: int, descending: bool) -> TensorMeta:
    check_dtype("argsort", x, ORDERED)
    check_dim("argsort", dim, x.ndim)
    return x.with_dtype(int64)


def _eager_argsort(xp: Any, x: Array, dim: int, descending: bool) -> Array:
    keys = x if x.dtype.kind in "biufc" else x.astype(np.float32)  # NumPy knows no order of bfloat16
    if not descending:
        return xp.argsort(keys, axis=dim, kind="stable").astype(np.int64, copy=False)  # type: ignore[no-any-return]
    backwards = xp.argsort(xp.flip(keys, dim), axis=dim, kind="stable")
    places: Array = x.shape[dim] - 1 - xp.flip(backwards, dim)
    return places.astype(np.int64, copy=False)


def _with_ties(rng: np.random.Generator, dtype: DType) -> list[Array]:
    values = rng.integers(0, 4, (3, 9)).astype(dtype.numpy)
    if dtype.is_floating_point:
        values[1, ::3] = np.nan
    return [values]


ARGSORT = register(
    Op(
        "argsort",
        infer=_infer_argsort,
        eager=_eager_argsort,
        vjp=NotDifferentiable("places do not change with small changes of the values"),
        lower=call_back("argsort", _eager_argsort, why="sorting is no loop nest, and no C library at hand sorts"),
        samples=(
            Sample(((3, 4),), {"dim": 1, "descending": False}),
            Sample(((3, 4, 2),), {"dim": 0, "descending": True}),
            Sample(((3, 9),), {"dim": 1, "descending": True}, make=_with_ties),
            Sample(((3, 9),), {"dim": 1, "descending": False}, make=_with_ties),
            Sample(((2, 0),), {"dim": 1, "descending": False}),
        ),
        dtypes=ORDERED,
    )
)
