"""Order by value: argsort, topk_places and rank_place, from which sorting, medians and their kin are composed.

In: x: T[...], dim. Out: i64: the places along dim in order (argsort; descending too), the first k of them
(topk_places), the one of a rank (rank_place; from 0, the smallest). Stable: equal elements keep their order, descending
too. NaN counts as the largest. Eager, NumPy sorts (radix or timsort, chosen by dtype); generated code has functions of
its own (sorting/cpp.py).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from compiler_core.dtype import DType, int64
from compiler_core.errors import ShapeError
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops.checks import ORDERED, check_dim, check_dtype
from compiler_core.ops.registry import Array, Attrs, NotDifferentiable, Op, Sample, register
from compiler_core.ops.routine import call_back
from compiler_core.ops.rules import OVER_DIM, OwnCode
from compiler_core.ops.sorting.native import RANK, SORT, TOPK

_PLACES = NotDifferentiable("places do not change with small changes of the values")
_WHY = "sorting is no loop nest, and has no routine outside generated C++"


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
        vjp=_PLACES,
        vmap=OVER_DIM,
        lower=call_back("argsort", _eager_argsort, why=_WHY, native=SORT),
        samples=(
            Sample(((3, 4),), {"dim": 1, "descending": False}),
            Sample(((3, 4, 2),), {"dim": 0, "descending": True}),
            Sample(((3, 9),), {"dim": 1, "descending": True}, make=_with_ties),
            Sample(((3, 9),), {"dim": 1, "descending": False}, make=_with_ties),
            Sample(((2, 0),), {"dim": 1, "descending": False}),
        ),
        dtypes=ORDERED,
        engines=OwnCode("a stable sort with NaN at the end"),
    )
)


# ---- some of the places


def _infer_some(op: str, x: TensorMeta, dim: int, wanted: int, least: int) -> TensorMeta:
    check_dtype(op, x, ORDERED)
    check_dim(op, dim, x.ndim)
    if not least <= wanted <= x.shape[dim]:
        raise ShapeError(f"{op}: there are not so many", expected=f"{least}..{x.shape[dim]}", got=str(wanted))
    return x.with_dtype(int64)


def _infer_topk_places(x: TensorMeta, k: int, dim: int, largest: bool) -> TensorMeta:
    meta = _infer_some("topk_places", x, dim, k, 0)
    return meta.with_shape((*x.shape[:dim], k, *x.shape[dim + 1 :]))


def _infer_rank_place(x: TensorMeta, rank: int, dim: int) -> TensorMeta:
    meta = _infer_some("rank_place", x, dim, rank + 1, 1)
    return meta.with_shape((*x.shape[:dim], 1, *x.shape[dim + 1 :]))


def _part(places: Array, dim: int, start: int, length: int) -> Array:
    return places[(slice(None),) * dim + (slice(start, start + length),)]


def _eager_topk_places(xp: Any, x: Array, k: int, dim: int, largest: bool) -> Array:
    return _part(_eager_argsort(xp, x, dim, largest), dim, 0, k)


def _eager_rank_place(xp: Any, x: Array, rank: int, dim: int) -> Array:
    return _part(_eager_argsort(xp, x, dim, False), dim, rank, 1)


def _many_ties(rng: np.random.Generator, dtype: DType, shape: Shape = (2, 400)) -> list[Array]:
    """Lines of some hundred numbers, many of them equal, some NaN."""
    values = rng.integers(0, 50, shape).astype(dtype.numpy)
    if dtype.is_floating_point:
        values = np.where(rng.random(values.shape) < 0.5, -values, values)
        values[-1, ::37] = np.nan
    return [values]


def _beside(attrs: Attrs, shape: Shape) -> Sample:
    """Lines that lie side by side."""
    return Sample((shape,), attrs, make=partial(_many_ties, shape=shape))


TOPK_PLACES = register(
    Op(
        "topk_places",
        infer=_infer_topk_places,
        eager=_eager_topk_places,
        vjp=_PLACES,
        vmap=OVER_DIM,
        lower=call_back("topk_places", _eager_topk_places, why=_WHY, native=TOPK),
        samples=(
            Sample(((3, 40),), {"k": 3, "dim": 1, "largest": True}),
            Sample(((40, 2, 3),), {"k": 2, "dim": 0, "largest": False}),
            Sample(((3, 9),), {"k": 8, "dim": 1, "largest": True}, make=_with_ties),
            Sample(((2, 400),), {"k": 5, "dim": 1, "largest": True}, make=_many_ties),
            Sample(((2, 400),), {"k": 60, "dim": 1, "largest": False}, make=_many_ties),
            _beside({"k": 5, "dim": 0, "largest": False}, (400, 19)),
            _beside({"k": 60, "dim": 1, "largest": True}, (2, 400, 19)),
            Sample(((3, 4),), {"k": 0, "dim": 1, "largest": True}),
        ),
        dtypes=ORDERED,
        engines=OwnCode("a selection in which the first of equals wins"),
    )
)
RANK_PLACE = register(
    Op(
        "rank_place",
        infer=_infer_rank_place,
        eager=_eager_rank_place,
        vjp=_PLACES,
        vmap=OVER_DIM,
        lower=call_back("rank_place", _eager_rank_place, why=_WHY, native=RANK),
        samples=(
            Sample(((3, 4),), {"rank": 2, "dim": 1}),
            Sample(((30, 2, 3),), {"rank": 29, "dim": 0}),
            Sample(((3, 9),), {"rank": 5, "dim": 1}, make=_with_ties),
            Sample(((2, 400),), {"rank": 150, "dim": 1}, make=_many_ties),
        ),
        dtypes=ORDERED,
        engines=OwnCode("a selection in which the first of equals wins"),
    )
)
