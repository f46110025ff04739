"""torch.masked: reductions and normalisations over the elements where a mask holds.

In: a value, and `mask`: bool, broadcast to it (None: all). Out: one value; a reduction of no element gives what torch
gives: the operation's neutral element (sum 0, prod 1, amax -inf, logsumexp -inf), NaN for means, variances and norms'
quotients. Masked elements of cumulative results and of softmax hold what the filled-in neutral element gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from compiler_core import dtype as dt
from compiler_core.dtype import DType
from compiler_core.errors import ShapeError, UnsuitableDTypeError
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import Dim, as_value, broadcast_to, cast, dtype_of, floating, shape_of
from compiler_core.ops.casting import as_given
from compiler_core.ops.indexing.placing import integer_limits
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import Value
from compiler_core.ops.special.elementary import logaddexp as plain_logaddexp

Mask = Value | None


def _prepared(input: Value, dtype: DType | None) -> Value:
    return cast(as_value(input), dtype)


def _of_kind(kinds: str, input: Value, dtype: DType | None) -> Value:
    """The same, refused of other kinds of dtypes."""
    x = _prepared(input, dtype)
    need_kind("masked", kinds, x)
    return x


def _holds(x: Value, mask: Mask) -> Value:
    """The mask in x's shape."""
    if mask is None:
        return prims.full(shape_of(x), True, dt.bool_)
    return broadcast_to(mask, shape_of(x))


def _filled(x: Value, mask: Mask, value: float) -> Value:
    return x if mask is None else F.where(_holds(x, mask), x, prims.full_like(x, value))


def _lowest(x: Value) -> float:
    return -math.inf if dtype_of(x).is_floating_point else integer_limits(dtype_of(x))[0]


def _highest(x: Value) -> float:
    return math.inf if dtype_of(x).is_floating_point else integer_limits(dtype_of(x))[1]


def _dims(dim: Any) -> Any:
    return None if dim == () else dim


def sum(
    input: Value, dim: Dim = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Mask = None
) -> Value:
    """The sum."""
    return F.sum(_filled(_prepared(input, dtype), mask, 0), _dims(dim), keepdim)


@as_given
def prod(
    input: Value, dim: Dim = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Mask = None
) -> Value:
    """The product."""
    return F.prod(_filled(_prepared(input, dtype), mask, 1), _dims(dim), keepdim)


def amax(
    input: Value, dim: Dim = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Mask = None
) -> Value:
    """The largest."""
    x = _of_kind("biuf", input, dtype)
    return F.amax(_filled(x, mask, _lowest(x)), _dims(dim), keepdim)


def amin(
    input: Value, dim: Dim = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Mask = None
) -> Value:
    """The smallest."""
    x = _of_kind("biuf", input, dtype)
    return F.amin(_filled(x, mask, _highest(x)), _dims(dim), keepdim)


def argmax(
    input: Value, dim: int | None = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Mask = None
) -> Value:
    """The place of the largest, in the dtype of what is looked at, as torch has it."""
    x = _of_kind("iufc", input, dtype)
    return cast(F.argmax(_filled(x, mask, _lowest(x)), dim, keepdim), dtype_of(x))


def argmin(
    input: Value, dim: int | None = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Mask = None
) -> Value:
    """The place of the smallest, in the dtype of what is looked at."""
    x = _of_kind("iufc", input, dtype)
    return cast(F.argmin(_filled(x, mask, _highest(x)), dim, keepdim), dtype_of(x))


def _count(x: Value, mask: Mask, dim: Any, keepdim: bool) -> Value:
    return cast(F.sum(_holds(x, mask), dim, keepdim), dtype_of(x))


def mean(
    input: Value, dim: Dim = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Mask = None
) -> Value:
    """The mean of the elements where the mask holds; NaN of none."""
    x, dims = _prepared(input, dtype), _dims(dim)
    if not dtype_of(x).is_inexact:
        raise UnsuitableDTypeError(
            "masked.mean: cannot infer the dtype of the result", got=dtype_of(x).name, remedy="dtype="
        )
    return F.div(F.sum(_filled(x, mask, 0), dims, keepdim), _count(x, mask, dims, keepdim))


def median(
    input: Value, dim: int = -1, *, keepdim: bool = False, dtype: DType | None = None, mask: Mask = None
) -> Value:
    """The lower median of the elements where the mask holds; NaN of none, or if one of them is NaN."""
    from compiler_core.ops.sorting.composite import nanmedian

    x = floating(_of_kind("iufc", input, dtype))
    holds = _holds(x, mask)
    spoiled = F.any(F.logical_and(holds, F.isnan(x)), dim, keepdim)
    value = nanmedian(F.where(holds, x, math.nan), dim, keepdim)
    return F.where(spoiled, math.nan, value[0])


def var(
    input: Value,
    dim: Dim = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Mask = None,
) -> Value:
    """The variance about the mean; of complex numbers complex, as torch has it, though it is real."""
    x, dims = floating(_of_kind("iufc", input, dtype)), _dims(dim)
    away = _filled(F.sub(x, mean(x, dims, keepdim=True, mask=mask)), mask, 0)
    less = correction if correction is not None else float(unbiased is None or unbiased)
    count = cast(_count(x, mask, dims, keepdim), dtype_of(x).real)
    return F.div(F.sum(F.mul(away, prims.conj(away)), dims, keepdim), F.clamp(F.sub(count, less), min=0.0))


def std(
    input: Value,
    dim: Dim = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Mask = None,
) -> Value:
    """The standard deviation."""
    result = var(input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask)
    return F.sqrt_flat_at_zero(result)


def norm(
    input: Value,
    ord: float = 2.0,
    dim: Dim = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Mask = None,
) -> Value:
    """The vector norm of order `ord`."""
    x = _of_kind("fc", input, dtype)
    return F.norm(_filled(x, mask, math.inf if ord == -math.inf else 0), ord, _dims(dim), keepdim)


def logsumexp(
    input: Value, dim: Dim = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Mask = None
) -> Value:
    """log(sum(exp(input)))."""
    x = floating(_of_kind("iufc", input, dtype))
    return F.logsumexp(_filled(x, mask, -math.inf), _dims(dim), keepdim)


def logaddexp(
    input: Value, other: Value, *, dtype: DType | None = None, input_mask: Mask = None, other_mask: Mask = None
) -> Value:
    """log(exp(input) + exp(other)), each where its mask holds."""
    a = _filled(_of_kind("fc", input, dtype), input_mask, -math.inf)
    b = _filled(_of_kind("fc", other, dtype), other_mask, -math.inf)
    return plain_logaddexp(a, b)


def cumsum(input: Value, dim: int, *, dtype: DType | None = None, mask: Mask = None) -> Value:
    """Running sums."""
    return F.cumsum(_filled(_of_kind("iufc", input, dtype), mask, 0), dim)


def cumprod(input: Value, dim: int, *, dtype: DType | None = None, mask: Mask = None) -> Value:
    """Running products."""
    from compiler_core.ops.composites.running import cumprod as plain

    return plain(_filled(_of_kind("iufc", input, dtype), mask, 1), dim)


def _normalised(function: Callable[[Value, int], Value], neutral: float) -> Callable[..., Value]:
    def masked(input: Value, dim: int, *, dtype: DType | None = None, mask: Mask = None) -> Value:
        return function(_filled(_of_kind("fc", input, dtype), mask, neutral), dim)

    return masked


softmax = _normalised(lambda x, dim: F.softmax(x, dim), -math.inf)
log_softmax = _normalised(lambda x, dim: F.log_softmax(x, dim), -math.inf)
softmin = _normalised(lambda x, dim: F.softmin(x, dim), math.inf)


def normalize(
    input: Value, ord: float, dim: int, *, eps: float = 1e-12, dtype: DType | None = None, mask: Mask = None
) -> Value:
    """input (0 where the mask does not hold) over its norm, which counts as eps at least."""
    if eps < 0:
        raise ShapeError("normalize: eps must not be negative", got=str(eps))
    x = _of_kind("fc", input, dtype)
    length = norm(x, ord, dim, keepdim=True, mask=mask)
    return F.div(_filled(x, mask, 0), F.clamp(length, min=eps))
