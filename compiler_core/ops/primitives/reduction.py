"""Reductions: sum, prod, max, min, argmax, argmin over `dims`, which the result drops.

In: one array, `dims` ascending. Out: an array without those dimensions (no dims: sum, prod, max, min are the identity).
sum and prod keep the operand's dtype (integers wrap); the 16-bit floats accumulate in f32 and round once. In max, min,
argmax and argmin NaN wins; argmax and argmin take one dim, give i64, and choose the first of equals. Only sum and prod,
and max and min of bool, have a value over nothing: 0, 1, False, True.
Complex numbers have sum and prod alone.
The cotangent of max and min is shared evenly between equal elements, as torch's amax and amin do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from compiler_core.dtype import DType, bool_, int64, of
from compiler_core.errors import EmptyReductionError
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.checks import NUMERIC, ORDERED, check_dims, check_dtype
from compiler_core.ops.primitives.pointwise import as_array
from compiler_core.ops.primitives.scans import products_before
from compiler_core.ops.quiet import quietly, silence
from compiler_core.ops.quiet import restore as restore_warnings
from compiler_core.ops.registry import Array, NotDifferentiable, Op, Sample, Value, VjpRule, register
from compiler_core.ops.rules import CORE, OVER_DIMS, Reduction, ReductionKind

Dims = tuple[int, ...]


def reduced_shape(shape: Shape, dims: Dims) -> Shape:
    """`shape` without `dims`."""
    return tuple(n for d, n in enumerate(shape) if d not in dims)


def restore(value: Value, shape: Shape, dims: Dims) -> Value:
    """Undo the dropping of `dims`: value (shape without dims) repeated to `shape`. One node where one will do."""
    if not dims:
        return value
    if dims != tuple(range(len(dims))):
        value = prims.reshape(value, tuple(1 if d in dims else n for d, n in enumerate(shape)))
        if all(type(shape[d]) is int and shape[d] == 1 for d in dims):
            return value
    return prims.expand(value, shape)


def _check(op: str, x: TensorMeta, dims: Dims, dtypes: tuple[DType, ...]) -> None:
    check_dtype(op, x, dtypes)
    check_dims(op, dims, x.ndim)


def _check_not_empty(op: str, x: TensorMeta, dims: Dims) -> None:
    if x.dtype is not bool_ and any(x.shape[d] == 0 for d in dims):
        remedy = "check the size before reducing"
        raise EmptyReductionError(f"{op} over an empty dimension has no value", got=str(x), remedy=remedy)


def _infer_sum(name: str) -> Any:
    def infer(x: TensorMeta, dims: Dims) -> TensorMeta:
        _check(name, x, dims, NUMERIC)
        return x.with_shape(reduced_shape(x.shape, dims))

    return infer


def _infer_extremum(name: str) -> Any:
    def infer(x: TensorMeta, dims: Dims, shared: bool = False) -> TensorMeta:
        _check(name, x, dims, ORDERED)
        _check_not_empty(name, x, dims)
        return x.with_shape(reduced_shape(x.shape, dims))

    return infer


def _infer_place(name: str) -> Any:
    def infer(x: TensorMeta, dims: Dims) -> TensorMeta:
        _check(name, x, dims, ORDERED)
        if len(dims) != 1 or x.shape[dims[0]] == 0:
            raise EmptyReductionError(f"{name} takes one dim, not empty", expected="one dim", got=f"{x}, dims={dims}")
        return TensorMeta(reduced_shape(x.shape, dims), int64)

    return infer


def _eager_accumulate(function: str, by_numpy: Callable[..., Any]) -> Any:
    def eager(xp: Any, x: Array, dims: Dims) -> Array:
        dtype = x.dtype
        if xp is not np or (dtype.itemsize == 2 and dtype.kind not in "iu"):
            return widened(xp, x, dims)
        before = silence()
        try:
            result = by_numpy(x, dims, dtype)
        finally:
            restore_warnings(before)
        return result if type(result) is np.ndarray else np.asarray(result)

    @quietly
    def widened(xp: Any, x: Array, dims: Dims) -> Array:
        dtype = x.dtype
        wide = x.astype(np.float32) if dtype.itemsize == 2 and dtype.kind not in "iu" else x
        total = by_numpy(wide, dims, wide.dtype) if xp is np else getattr(xp, function)(wide, dims, wide.dtype)
        return as_array(xp, total).astype(x.dtype, copy=False)  # type: ignore[no-any-return]

    return eager


def _eager_extremum(function: str, of_truths: str) -> Any:
    @quietly
    def eager(xp: Any, x: Array, dims: Dims, shared: bool = False) -> Array:
        if x.dtype == np.bool_:  # which has one over nothing too
            return as_array(xp, getattr(xp, of_truths)(x, axis=dims))  # type: ignore[no-any-return]
        return as_array(xp, getattr(xp, function)(x, axis=dims))  # type: ignore[no-any-return]

    return eager


def _eager_place(function: str) -> Any:
    def eager(xp: Any, x: Array, dims: Dims) -> Array:
        wide = x.astype(np.float32) if of(x.dtype).compute is not of(x.dtype) else x
        return xp.asarray(getattr(xp, function)(wide, axis=dims[0]), dtype=np.int64)  # type: ignore[no-any-return]

    return eager


def _vjp_sum(g: Value, out: Value, x: Value, dims: Dims) -> tuple[Value]:
    return (restore(g, tuple(x.shape), dims),)


def _vjp_prod(g: Value, out: Value, x: Value, dims: Dims) -> tuple[Value]:
    """Times the product of the others: of those before it and those behind, which needs no division by a zero."""
    shape = tuple(x.shape)
    order = (*(d for d in range(len(shape)) if d not in dims), *dims)
    turned, kept = tuple(shape[d] for d in order), reduced_shape(shape, dims)
    line = prims.reshape(prims.permute(x, order), (*kept, math.prod(turned[len(kept) :])))
    others = prims.mul(*(products_before(line, len(kept), reverse) for reverse in (False, True)))
    back = tuple(order.index(d) for d in range(len(shape)))
    others = prims.permute(prims.reshape(others, turned), back)
    return (prims.mul(restore(g, shape, dims), prims.conj(others)),)


def _vjp_extremum(g: Value, out: Value, x: Value, dims: Dims, shared: bool = False) -> tuple[Value]:
    """g / n for each of n equal extremes. shared: NaN is equal to NaN; else where the extreme is NaN, so is all."""
    shape = tuple(x.shape)
    attained = prims.eq(x, restore(out, shape, dims))
    attained = prims.bitwise_or(attained, prims.isnan(x)) if shared else attained
    is_one = prims.cast(attained, of(x.dtype))
    return (prims.mul(restore(prims.div(g, prims.sum(is_one, dims)), shape, dims), is_one),)


def _samples(low: float = -2.0, high: float = 2.0) -> tuple[Sample, ...]:
    cases: list[tuple[Shape, Dims]] = [((3, 4), (1,)), ((3, 4), (0,)), ((2, 3, 4), (0, 2)), ((5,), (0,)), ((2, 3), ())]
    return tuple(Sample((shape,), {"dims": dims}, low=low, high=high) for shape, dims in cases)


def _reduction(
    name: ReductionKind,
    infer: Any,
    eager: Any,
    vjp: VjpRule | NotDifferentiable,
    samples: tuple[Sample, ...],
    dtypes: Any,
    *,
    nests: bool = True,
) -> Op:
    """Register reduction `name`; its loop-IR kind has the same name."""
    lower = Reduction(name)
    return register(
        Op(name, infer, eager, vjp, lower, samples, dtypes, nests=nests, vmap=OVER_DIMS, engines=CORE),
    )


_PLACE = NotDifferentiable("the result is an index")
_PLACE_SAMPLES = tuple(s for s in _samples() if len(s.attrs["dims"]) == 1)


def _place(name: ReductionKind) -> Op:
    return _reduction(name, _infer_place(name), _eager_place(name), _PLACE, _PLACE_SAMPLES, ORDERED, nests=False)


SUM = _reduction("sum", _infer_sum("sum"), _eager_accumulate("sum", np.add.reduce), _vjp_sum, _samples(), NUMERIC)
PROD = _reduction(
    "prod", _infer_sum("prod"), _eager_accumulate("prod", np.multiply.reduce), _vjp_prod, _samples(0.5, 1.5), NUMERIC
)
MAX = _reduction("max", _infer_extremum("max"), _eager_extremum("max", "any"), _vjp_extremum, _samples(), ORDERED)
MIN = _reduction("min", _infer_extremum("min"), _eager_extremum("min", "all"), _vjp_extremum, _samples(), ORDERED)
ARGMAX = _place("argmax")
ARGMIN = _place("argmin")
