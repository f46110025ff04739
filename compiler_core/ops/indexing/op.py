"""Indexing by data: take, index_add, index_copy (whole rows); gather, scatter_add, scatter (torch's, along one dim).

In: arrays and an index array, i64 or i32. Out: a new array. Indices must lie in [0, size): IndexError_ otherwise, from
generated code too (`e.check_bounds`). Negative indices are made positive by the functions above.
Repeated places: index_add and scatter_add sum in index order; index_copy and scatter keep the last.
The adjoint of reading rows is adding rows, and the other way round.
`check_index` passes indices through unchanged after the same test.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.dtype import DType, of
from compiler_core.errors import IndexError_, ShapeError
from compiler_core.late import Late
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.batching.rules import rows_of_all
from compiler_core.ops.checks import EVERY, INDEX, NUMERIC, check_dim, check_dtype, check_shape
from compiler_core.ops.indexing.adding import add_at
from compiler_core.ops.primitives.pointwise import as_array
from compiler_core.ops.registry import Array, NotDifferentiable, Op, Sample, Value, register
from compiler_core.ops.rules import ALIKE, CORE, OVER_DIM, Decomposed, Indexed, OwnCode, Scatter

Index = tuple[Any, ...]
Metas = tuple[TensorMeta, ...]
# (op, index, size) -> whether the test was asked for on the index's device, whose answer comes later
TEST_THERE: Late[Callable[[str, Array, int], bool]] = Late("indices: test on a device")
# (a cell of the lone device, size) -> whether a test has said that all places in it lie in [0, size); else one is made
KNOWN_THERE: Late[Callable[[Any, int], bool]] = Late("indices: known on a device")


def check_in_range(op: str, idx: Array, size: int) -> None:
    """Raise IndexError_ naming the first index outside [0, size). Of a CUDA device it may come later: `TEST_THERE`."""
    asks = type(idx) is not np.ndarray and idx.size and size and cuda.is_array(idx)
    if asks and TEST_THERE.get()(op, idx, size):
        return
    if idx.size and (idx.min() < 0 or idx.max() >= size):
        bad = int(idx[(idx < 0) | (idx >= size)][0])
        raise IndexError_(f"{op}: index {bad} is out of range", expected=f"0 <= index < {size}", got=str(bad))


def _checked(e: Any, op: str, value: Any, size: int) -> Any:
    """The loop-IR index that `value` holds, tested against `size`."""
    return e.check_bounds(e.as_index(value), size, f"{op}: index out of range [0, {size})")


def _integers(high: int, shape: Shape, *others: Shape, first: Shape | None = None) -> Any:
    """A sample maker: [first?] + an index array of `shape` below `high` + floating arrays of `others`."""

    def make(rng: np.random.Generator, dtype: DType) -> list[Array]:
        def draw(s: Shape) -> Array:
            return np.asarray(rng.uniform(0.0, 9.0, s)).astype(dtype.numpy)

        head = [] if first is None else [draw(first)]
        return [*head, np.asarray(rng.integers(0, high, shape)), *(draw(s) for s in others)]

    return make


# ---- take: rows of x


def _infer_take(x: TensorMeta, idx: TensorMeta) -> TensorMeta:
    check_dtype("take", idx, INDEX, "the index")
    if x.ndim == 0:
        raise ShapeError("take from a 0-d array", expected="at least one dim", got=str(x))
    return x.with_shape((*idx.shape, *x.shape[1:]))


def _eager_take(xp: Any, x: Array, idx: Array) -> Array:
    check_in_range("take", idx, x.shape[0])
    return as_array(xp, xp.take(x, idx, axis=0))  # type: ignore[no-any-return]


def _vjp_take(g: Value, out: Value, x: Value, idx: Value) -> tuple[Value, None]:
    return prims.index_add(prims.full_like(x, 0.0), idx, g), None


def _emit_take(e: Any, index: Index, read: Any, metas: Metas) -> Any:
    k = metas[1].ndim
    return read[0]((_checked(e, "take", read[1](index[:k]), metas[0].shape[0]), *index[k:]))


TAKE = register(
    Op(
        "take",
        infer=_infer_take,
        eager=_eager_take,
        vjp=_vjp_take,
        vmap=rows_of_all,
        lower=Indexed(_emit_take),
        samples=(
            Sample(((5, 3), (4,)), make=_integers(5, (4,), first=(5, 3))),
            Sample(((5, 3), (2, 3)), make=_integers(5, (2, 3), first=(5, 3))),
            Sample(((5,), ()), make=_integers(5, (), first=(5,))),
            Sample(((5, 2), (0,)), make=_integers(5, (0,), first=(5, 2))),
        ),
        dtypes=EVERY,
        raises=True,
        engines=CORE,
    )
)


# ---- index_add, index_copy: rows put into base


def _infer_rows(op: str, dtypes: tuple[DType, ...]) -> Any:
    def infer(base: TensorMeta, idx: TensorMeta, src: TensorMeta) -> TensorMeta:
        check_dtype(op, base, dtypes)
        check_dtype(op, src, (base.dtype,), "the source")
        check_shape(op, _infer_take(base, idx).shape, src, "the source")
        return base

    return infer


def _added_at(xp: Any, base: Array, places: Any, src: Array) -> Array:
    """`base` with `src` added at index arrays; the 16-bit floats are summed in f32."""
    if xp is not np and base.dtype.kind == "c":  # CuPy adds real numbers alone
        real, imag = (_added_at(xp, b, places, s) for b, s in ((base.real, src.real), (base.imag, src.imag)))
        return (real + 1j * imag).astype(base.dtype)
    wide = of(base.dtype).compute.numpy
    if xp is not np and wide.kind in "iu" and wide.itemsize < 4:
        wide = np.dtype(np.int32)  # its sums wrap alike
    out = xp.array(base, dtype=wide)
    out = add_at(xp, out, places, src.astype(out.dtype, copy=False))
    return out.astype(base.dtype, copy=False)  # type: ignore[no-any-return]


def _eager_index_add(xp: Any, base: Array, idx: Array, src: Array) -> Array:
    check_in_range("index_add", idx, base.shape[0])
    return _added_at(xp, base, idx, src)


def _eager_index_copy(xp: Any, base: Array, idx: Array, src: Array) -> Array:
    check_in_range("index_copy", idx, base.shape[0])
    out: Array = xp.array(base)
    out[idx] = src
    return out


def _vjp_index_add(g: Value, out: Value, base: Value, idx: Value, src: Value) -> tuple[Value, None, Value]:
    return g, None, prims.take(g, idx)


def _vjp_index_copy(g: Value, out: Value, base: Value, idx: Value, src: Value) -> tuple[Value, None, Value]:
    return prims.index_copy(g, idx, prims.full_like(src, 0.0)), None, prims.take(g, idx)


def _target_rows(op: str) -> Any:
    def target(e: Any, index: Index, read: Any, metas: Metas) -> Index:
        k = metas[1].ndim
        return (_checked(e, op, read[1](index[:k]), metas[0].shape[0]), *index[k:])

    return target


_ROWS = (
    Sample(((5, 3), (4,), (4, 3)), make=_integers(5, (4,), (4, 3), first=(5, 3))),
    Sample(((5,), (2, 3), (2, 3)), make=_integers(5, (2, 3), (2, 3), first=(5,))),
    Sample(((5, 2), (0,), (0, 2)), make=_integers(5, (0,), (0, 2), first=(5, 2))),
)


def _distinct_rows(rng: np.random.Generator, dtype: DType) -> list[Array]:
    base, src = (rng.uniform(0.0, 9.0, s).astype(dtype.numpy) for s in ((5, 3), (4, 3)))
    return [base, rng.permutation(5)[:4], src]


def _by_rows(put: Callable[..., Value]) -> Callable[..., Value]:
    """The op, as one along dim 0 whose index says the row of each element."""

    def composition(base: Value, idx: Value, src: Value) -> Value:
        count, rest = math.prod(idx.shape), tuple(base.shape[1:])
        rows = prims.reshape(idx, (count, *(1,) * len(rest)))
        return put(base, prims.expand(rows, (count, *rest)), prims.reshape(src, (count, *rest)), 0)

    return composition


INDEX_ADD = register(
    Op(
        "index_add",
        infer=_infer_rows("index_add", NUMERIC),
        eager=_eager_index_add,
        vjp=_vjp_index_add,
        vmap=rows_of_all,
        lower=Scatter(_target_rows("index_add"), source=2, mode="add"),
        samples=_ROWS,
        dtypes=NUMERIC,
        engines=Decomposed(_by_rows(prims.scatter_add)),
    )
)

INDEX_COPY = register(
    Op(
        "index_copy",
        infer=_infer_rows("index_copy", EVERY),
        eager=_eager_index_copy,
        vjp=_vjp_index_copy,
        vmap=rows_of_all,
        lower=Scatter(_target_rows("index_copy"), source=2, mode="set"),
        samples=(Sample(((5, 3), (4,), (4, 3)), make=_distinct_rows), _ROWS[2]),
        dtypes=EVERY,
        engines=Decomposed(_by_rows(prims.scatter)),
    )
)


# ---- gather, scatter_add, scatter: one element per index, along `dim`


def _check_along(op: str, x: TensorMeta, idx: TensorMeta, dim: int) -> None:
    check_dtype(op, idx, INDEX, "the index")
    check_dim(op, dim, x.ndim)
    fits = idx.ndim == x.ndim and all(m <= n for d, (m, n) in enumerate(zip(idx.shape, x.shape)) if d != dim)
    if not fits:
        raise ShapeError(
            f"{op}: the index does not fit", expected=f"{x.ndim} dims, none but {dim} longer than {x}", got=str(idx)
        )


def _infer_gather(x: TensorMeta, idx: TensorMeta, dim: int) -> TensorMeta:
    _check_along("gather", x, idx, dim)
    return x.with_shape(idx.shape)


def _places(xp: Any, idx: Array, dim: int) -> tuple[Array, ...]:
    """Index arrays, one per dim, that address element idx[i] along `dim` and i elsewhere."""
    is_small = xp is np and sum(idx.shape) <= _SMALL
    grid = _small_grid(idx.shape) if is_small else xp.ogrid[tuple(slice(n) for n in idx.shape)]
    return (*grid[:dim], idx, *grid[dim + 1 :])


_SMALL = 4096  # places, of all dims together


@lru_cache(maxsize=256)  # to make one takes longer than a small gather
def _small_grid(shape: tuple[int, ...]) -> tuple[Array, ...]:
    return tuple(np.ogrid[tuple(slice(n) for n in shape)])


def _eager_gather(xp: Any, x: Array, idx: Array, dim: int) -> Array:
    check_in_range("gather", idx, x.shape[dim])
    return as_array(xp, x[_places(xp, idx, dim)])  # type: ignore[no-any-return]


def _vjp_gather(g: Value, out: Value, x: Value, idx: Value, dim: int) -> tuple[Value, None]:
    return prims.scatter_add(prims.full_like(x, 0.0), idx, g, dim), None


def _along(e: Any, op: str, index: Index, read: Any, metas: Metas, dim: int) -> Index:
    return (*index[:dim], _checked(e, op, read[1](index), metas[0].shape[dim]), *index[dim + 1 :])


def _emit_gather(e: Any, index: Index, read: Any, metas: Metas, dim: int) -> Any:
    return read[0](_along(e, "gather", index, read, metas, dim))


GATHER = register(
    Op(
        "gather",
        infer=_infer_gather,
        eager=_eager_gather,
        vjp=_vjp_gather,
        vmap=OVER_DIM,
        lower=Indexed(_emit_gather),
        samples=(
            Sample(((3, 5), (3, 2)), {"dim": 1}, make=_integers(5, (3, 2), first=(3, 5))),
            Sample(((3, 5), (4, 5)), {"dim": 0}, make=_integers(3, (4, 5), first=(3, 5))),
            Sample(((2, 3, 4), (1, 3, 2)), {"dim": 2}, make=_integers(4, (1, 3, 2), first=(2, 3, 4))),
        ),
        dtypes=EVERY,
        raises=True,
        engines=CORE,
    )
)


def _infer_scatter(op: str, dtypes: tuple[DType, ...]) -> Any:
    def infer(base: TensorMeta, idx: TensorMeta, src: TensorMeta, dim: int) -> TensorMeta:
        check_dtype(op, base, dtypes)
        check_dtype(op, src, (base.dtype,), "the source")
        _check_along(op, base, idx, dim)
        check_shape(op, idx.shape, src, "the source")
        return base

    return infer


def _eager_scatter_add(xp: Any, base: Array, idx: Array, src: Array, dim: int) -> Array:
    check_in_range("scatter_add", idx, base.shape[dim])
    return _added_at(xp, base, _places(xp, idx, dim), src)


def _eager_scatter(xp: Any, base: Array, idx: Array, src: Array, dim: int) -> Array:
    check_in_range("scatter", idx, base.shape[dim])
    out: Array = xp.array(base)
    out[_places(xp, idx, dim)] = src
    return out


def _vjp_scatter_add(g: Value, out: Value, base: Value, idx: Value, src: Value, dim: int) -> tuple[Value, None, Value]:
    return g, None, prims.gather(g, idx, dim)


def _vjp_scatter(g: Value, out: Value, base: Value, idx: Value, src: Value, dim: int) -> tuple[Value, None, Value]:
    return prims.scatter(g, idx, prims.full_like(src, 0.0), dim), None, prims.gather(g, idx, dim)


def _target_along(op: str) -> Any:
    def target(e: Any, index: Index, read: Any, metas: Metas, dim: int) -> Index:
        return _along(e, op, index, read, metas, dim)

    return target


def _distinct_along(rng: np.random.Generator, dtype: DType) -> list[Array]:
    base, src = (rng.uniform(0.0, 9.0, s).astype(dtype.numpy) for s in ((3, 5), (3, 2)))
    return [base, np.argsort(rng.random((3, 5)), axis=1)[:, :2], src]


SCATTER_ADD = register(
    Op(
        "scatter_add",
        infer=_infer_scatter("scatter_add", NUMERIC),
        eager=_eager_scatter_add,
        vjp=_vjp_scatter_add,
        vmap=OVER_DIM,
        lower=Scatter(_target_along("scatter_add"), source=2, mode="add"),
        samples=(
            Sample(((3, 5), (3, 2), (3, 2)), {"dim": 1}, make=_integers(5, (3, 2), (3, 2), first=(3, 5))),
            Sample(((3, 5), (4, 5), (4, 5)), {"dim": 0}, make=_integers(3, (4, 5), (4, 5), first=(3, 5))),
        ),
        dtypes=NUMERIC,
        engines=CORE,
    )
)

SCATTER = register(
    Op(
        "scatter",
        infer=_infer_scatter("scatter", EVERY),
        eager=_eager_scatter,
        vjp=_vjp_scatter,
        vmap=OVER_DIM,
        lower=Scatter(_target_along("scatter"), source=2, mode="set"),
        samples=(Sample(((3, 5), (3, 2), (3, 2)), {"dim": 1}, make=_distinct_along),),
        dtypes=EVERY,
        engines=CORE,
    )
)


# ---- check_index


def _infer_check_index(idx: TensorMeta, size: int) -> TensorMeta:
    check_dtype("check_index", idx, INDEX)
    return idx


def _eager_check_index(xp: Any, idx: Array, size: int) -> Array:
    check_in_range("check_index", idx, size)
    return idx


def _emit_check_index(e: Any, index: Index, read: Any, metas: Metas, size: int) -> Any:
    return e.index_value(_checked(e, "check_index", read[0](index), size), metas[0].dtype)


CHECK_INDEX = register(
    Op(
        "check_index",
        infer=_infer_check_index,
        eager=_eager_check_index,
        vjp=NotDifferentiable("indices have no gradient"),
        vmap=ALIKE,
        lower=Indexed(_emit_check_index),
        samples=(Sample(((4,),), {"size": 5}, low=0, high=5), Sample(((2, 3),), {"size": 5}, low=0, high=5)),
        dtypes=INDEX,
        shares=True,
        raises=True,
        engines=OwnCode("it raises for some values"),
    )
)
