"""Rules of NumPy's reductions and running sums: sum, mean, var, max, argmax, any, cumsum and those that leave out NaN.

In: NumPy's arguments. Out: Tensors. Sums of whole numbers are 64 bits wide, means of them float64; `axis=()` reduces
nothing; `where=` leaves elements out, `initial=` takes part.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from compiler_core.numpy_trace.array import not_traced
from compiler_core.numpy_trace.dispatch import answers
from compiler_core.numpy_trace.operands import (
    axes_of,
    axis_of,
    cast,
    dtype_of,
    flat,
    floats,
    shape_of,
    tensor_of,
    torch_function,
)
from compiler_core.ops import functional as F
from compiler_core.tensor.tensor import Tensor

_GIVEN_NONE = np._NoValue


def given(x: Any) -> bool:
    """Whether an optional argument was given."""
    return x is not None and x is not _GIVEN_NONE


def _kept(keepdims: Any) -> bool:
    return bool(keepdims) and keepdims is not _GIVEN_NONE


def masked(tensor: Tensor, where: Any, value: Any) -> Tensor:
    """tensor with `value` where `where` does not hold."""
    if where is True or where is _GIVEN_NONE:
        return tensor
    keep = cast(tensor_of(where), np.bool_)
    shape = np.broadcast_shapes(shape_of(tensor), shape_of(keep))
    return F.masked_fill(F.expand(tensor, shape), F.logical_not(F.expand(keep, shape)), value)  # type: ignore[no-any-return]


def _count(tensor: Tensor, where: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """How many elements take part in each reduction."""
    if where is True or where is _GIVEN_NONE:
        return math.prod(shape_of(tensor)[axis] for axis in axes)
    keep = cast(F.expand(cast(tensor_of(where), np.bool_), shape_of(tensor)), np.int64)
    return F.sum(keep, axes, keepdims) if axes else keep


def sum_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What NumPy adds up elements of this dtype in."""
    wide = {"b": np.int64, "i": np.int64, "u": np.uint64}.get(dtype.kind)
    return dtype if wide is None else np.dtype(wide)


def _over(function: Callable[..., Any], tensor: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """function(tensor, axes, keepdims); nothing, where no axes are named."""
    return function(tensor, axes, keepdims) if axes else tensor


def _prod(tensor: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    return F.prod(tensor, axes, keepdims)  # type: ignore[no-any-return]


def _adding(function: Callable[..., Any], join: Callable[..., Any], identity: int) -> Callable[..., Any]:
    def rule(
        a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, initial: Any = None,
        where: Any = True,
    ) -> Any:  # fmt: skip
        tensor = tensor_of(a)
        tensor = cast(tensor, np.dtype(dtype) if dtype is not None else sum_dtype(dtype_of(a)))
        tensor = masked(tensor, where, identity)
        result = _over(function, tensor, axes_of(axis, len(shape_of(tensor))), _kept(keepdims))
        result = cast(result, tensor.dtype.numpy)  # sums of Tensors of whole numbers are int64
        return join(result, cast(tensor_of(initial), tensor.dtype.numpy)) if given(initial) else result

    return rule


answers(np.sum)(_adding(F.sum, F.add, 0))
answers(np.prod)(_adding(_prod, F.mul, 1))


def _extreme(function: Callable[..., Any], join: Callable[..., Any]) -> Callable[..., Any]:
    def rule(
        a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = None, where: Any = True
    ) -> Any:
        tensor = tensor_of(a)
        if tensor.dtype.is_complex:
            raise not_traced("the greatest or least complex number")
        if given(initial):
            initial = cast(tensor_of(initial), dtype_of(a))
        if where is not True and where is not _GIVEN_NONE:
            if not given(initial):
                raise ValueError("reduction operation 'maximum' does not have an identity, so to use a where mask one "
                                 "has to specify 'initial'")  # fmt: skip
            tensor = F.where(cast(tensor_of(where), np.bool_), tensor, initial)
        elif 0 in shape_of(tensor) and given(initial):
            shape = [1 if n == 0 else n for n in shape_of(tensor)]
            tensor = F.expand(initial, shape)
        axes = axes_of(axis, len(shape_of(tensor)))
        result = _over(function, tensor, axes, _kept(keepdims))
        return join(result, initial) if given(initial) else result

    return rule


maximum_over = answers(np.max, np.amax)(_extreme(F.amax, F.maximum))
minimum_over = answers(np.min, np.amin)(_extreme(F.amin, F.minimum))


@answers(np.ptp)
def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    return F.sub(maximum_over(a, axis, None, keepdims), minimum_over(a, axis, None, keepdims))


def _place(function: Callable[..., Any]) -> Callable[..., Any]:
    def rule(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
        tensor = tensor_of(a)
        if tensor.dtype.kind == "b":
            tensor = cast(tensor, np.uint8)
        shape = shape_of(tensor)
        if not math.prod(shape):
            raise ValueError("attempt to get argmax of an empty sequence")
        if axis is None:
            found = function(flat(tensor), 0)
            return F.reshape(found, (1,) * len(shape)) if _kept(keepdims) else found
        return function(tensor, axis_of(axis, len(shape)), _kept(keepdims))

    return rule


answers(np.argmax)(_place(F.argmax))
answers(np.argmin)(_place(F.argmin))


def _nan_place(name: str, function: Callable[..., Any], worst: float) -> Callable[..., Any]:
    plain = _place(function)

    def rule(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
        return plain(_filled(tensor_of(a), worst), axis, None, keepdims=keepdims)

    return rule


def _filled(tensor: Tensor, value: float) -> Tensor:
    """tensor with NaN replaced."""
    return F.masked_fill(tensor, F.isnan(tensor), value) if tensor.dtype.is_inexact else tensor


answers(np.nanargmax)(_nan_place("nanargmax", F.argmax, -math.inf))
answers(np.nanargmin)(_nan_place("nanargmin", F.argmin, math.inf))


def _mean_dtypes(tensor: Tensor, dtype: Any) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """What a mean is computed in, and what it is given in."""
    if dtype is not None:
        return np.dtype(dtype), np.dtype(dtype)
    kind = tensor.dtype.numpy
    if not tensor.dtype.is_inexact:
        return np.dtype(np.float64), np.dtype(np.float64)
    return (np.dtype(np.float32), kind) if kind == np.float16 else (kind, kind)


def _mean(tensor: Tensor, axes: tuple[int, ...], keepdims: bool, where: Any) -> Tensor:
    if where is True or where is _GIVEN_NONE:
        if 0 in shape_of(tensor):
            return F.mul(_over(F.sum, tensor, axes, keepdims), math.nan)  # type: ignore[no-any-return]
        return _over(F.mean, tensor, axes, keepdims)
    total = _over(F.sum, masked(tensor, where, 0), axes, keepdims)
    return F.true_divide(total, cast(_count(tensor, where, axes, keepdims), tensor.dtype.real.numpy))  # type: ignore[no-any-return]


@answers(np.mean)
def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True
) -> Any:
    tensor = tensor_of(a)
    inner, outer = _mean_dtypes(tensor, dtype)
    tensor = cast(tensor, inner)
    return cast(_mean(tensor, axes_of(axis, len(shape_of(tensor))), _kept(keepdims), where), outer)


def _variance(
    a: Any, axis: Any, dtype: Any, ddof: Any, keepdims: Any, where: Any, mean: Any, correction: Any
) -> tuple[Tensor, np.dtype[Any]]:
    tensor = tensor_of(a)
    inner, outer = _mean_dtypes(tensor, dtype)
    tensor = cast(tensor, inner)
    ddof = correction if given(correction) else ddof
    axes = axes_of(axis, len(shape_of(tensor)))
    known_mean = tensor_of(mean) if given(mean) else _mean(tensor, axes, True, where)
    away = F.sub(tensor, known_mean)
    squares = F.square(F.abs(away)) if tensor.dtype.is_complex else F.mul(away, away)
    total = _over(F.sum, masked(squares, where, 0), axes, _kept(keepdims))
    count = _count(tensor, where, axes, _kept(keepdims))
    if isinstance(count, Tensor):
        left = F.maximum(F.sub(cast(count, total.dtype.numpy), ddof), 0)
        return F.true_divide(total, left), _real(outer)
    return F.true_divide(total, float(max(count - ddof, 0))), _real(outer)


def _real(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.empty(0, dtype).real.dtype


@answers(np.var)
def var(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = False, *,
    where: Any = True, mean: Any = None, correction: Any = None,
) -> Any:  # fmt: skip
    return cast(*_variance(a, axis, dtype, ddof, keepdims, where, mean, correction))


@answers(np.std)
def std(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = False, *,
    where: Any = True, mean: Any = None, correction: Any = None,
) -> Any:  # fmt: skip
    tensor, dtype = _variance(a, axis, dtype, ddof, keepdims, where, mean, correction)
    return cast(F.sqrt(tensor), dtype)


@answers(np.average)
def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False) -> Any:
    tensor = floats(a)
    axes = axes_of(axis, len(shape_of(tensor)))
    if weights is None:
        total = _mean(tensor, axes, _kept(keepdims), True)
        scale = F.add(F.mul(F.detach(total), 0), _count(tensor, True, axes, False))
    else:
        common = np.result_type(dtype_of(a), dtype_of(weights), *([np.float64] if dtype_of(a).kind in "biu" else []))
        factor = cast(tensor_of(weights), common)
        if shape_of(factor) != shape_of(tensor):
            if axis is None or len(axes) != 1 or shape_of(factor) != (shape_of(tensor)[axes[0]],):
                raise TypeError("Axis must be specified when shapes of a and weights differ.")
            factor = F.reshape(factor, [-1 if d == axes[0] else 1 for d in range(len(shape_of(tensor)))])
            factor = F.expand(factor, shape_of(tensor))
        scale = _over(F.sum, factor, axes, _kept(keepdims))
        total = F.true_divide(_over(F.sum, F.mul(cast(tensor, common), factor), axes, _kept(keepdims)), scale)
    return (total, F.expand(scale, shape_of(total)).clone()) if returned else total


def _truth(function: Callable[..., Any], otherwise: bool) -> Callable[..., Any]:
    def rule(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True) -> Any:
        tensor = masked(cast(tensor_of(a), np.bool_), where, otherwise)
        return _over(function, tensor, axes_of(axis, len(shape_of(tensor))), _kept(keepdims))

    return rule


answers(np.all)(_truth(F.all, True))
answers(np.any)(_truth(F.any, False))


@answers(np.count_nonzero)
def count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    tensor = cast(cast(tensor_of(a), np.bool_), np.int64)
    return _over(F.sum, tensor, axes_of(axis, len(shape_of(tensor))), _kept(keepdims))


def _running(function: Callable[..., Any]) -> Callable[..., Any]:
    def rule(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        tensor = cast(tensor_of(a), np.dtype(dtype) if dtype is not None else sum_dtype(dtype_of(a)))
        tensor = flat(tensor) if axis is None or not shape_of(tensor) else tensor
        found = function(tensor, axis_of(0 if axis is None else axis, len(shape_of(tensor))))
        return cast(found, tensor.dtype.numpy)

    return rule


def _cumprod(tensor: Tensor, axis: int) -> Tensor:
    return torch_function("cumprod")(tensor, axis)  # type: ignore[no-any-return]


cumsum, cumprod = answers(np.cumsum)(_running(F.cumsum)), answers(np.cumprod)(_running(_cumprod))


@answers(np.nancumsum)
def nancumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return cumsum(_filled(tensor_of(a), 0), axis, dtype)


@answers(np.nancumprod)
def nancumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return cumprod(_filled(tensor_of(a), 1), axis, dtype)


# ---- those that leave out NaN


@answers(np.nansum)
def nansum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, initial: Any = None,
           where: Any = True) -> Any:  # fmt: skip
    return _adding(F.sum, F.add, 0)(_filled(tensor_of(a), 0), axis, dtype, None, keepdims, initial, where)


@answers(np.nanprod)
def nanprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, initial: Any = None,
            where: Any = True) -> Any:  # fmt: skip
    return _adding(_prod, F.mul, 1)(_filled(tensor_of(a), 1), axis, dtype, None, keepdims, initial, where)


def _there(tensor: Tensor, where: Any) -> Tensor:
    """Where an element takes part: it is a number, and `where` holds."""
    there = F.logical_not(F.isnan(tensor))
    return there if where is True else F.logical_and(there, cast(tensor_of(where), np.bool_))  # type: ignore[no-any-return]


@answers(np.nanmean)
def nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True
) -> Any:
    tensor = tensor_of(a)
    if not tensor.dtype.is_inexact:
        return mean(a, axis, dtype, None, keepdims, where=where)
    return mean(tensor, axis, dtype, None, keepdims, where=_there(tensor, where))


@answers(np.nanvar)
def nanvar(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = False, *,
    where: Any = True, mean: Any = None, correction: Any = None,
) -> Any:  # fmt: skip
    tensor = floats(a)
    there = _there(tensor, where)
    axes = axes_of(axis, len(shape_of(tensor)))
    result, kind = _variance(_filled(tensor, 0), axis, dtype, ddof, keepdims, there, mean, correction)
    enough = F.gt(_count(tensor, there, axes, _kept(keepdims)), correction if given(correction) else ddof)
    return cast(F.masked_fill(result, F.logical_not(enough), math.nan), kind)


@answers(np.nanstd)
def nanstd(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = False, *,
    where: Any = True, mean: Any = None, correction: Any = None,
) -> Any:  # fmt: skip
    return F.sqrt(nanvar(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean, correction=correction))


def _nan_extreme(function: Callable[..., Any], worst: float) -> Callable[..., Any]:
    def rule(
        a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = None, where: Any = True
    ) -> Any:
        tensor = tensor_of(a)
        result = function(_filled(tensor, worst), axis, None, keepdims, initial, where)
        if not tensor.dtype.is_inexact or given(initial):
            return result
        nothing = _over(F.all, F.isnan(tensor), axes_of(axis, len(shape_of(tensor))), _kept(keepdims))
        return F.masked_fill(result, nothing, math.nan)

    return rule


answers(np.nanmax)(_nan_extreme(maximum_over, -math.inf))
answers(np.nanmin)(_nan_extreme(minimum_over, math.inf))
