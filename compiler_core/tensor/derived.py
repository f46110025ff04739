"""More of torch's functions and methods, each composed of others in a line or two.

In: Tensors. Out: Tensors; nothing here needs the data, so all of it can be traced and differentiated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from compiler_core import dtype as dt
from compiler_core.errors import ShapeError
from compiler_core.ops import functional as F
from compiler_core.tensor.random import Generator
from compiler_core.tensor.random_creation import rand
from compiler_core.tensor.tensor import Tensor


class MinMax(NamedTuple):
    """What aminmax returns."""

    min: Tensor
    max: Tensor


def broadcast_to(input: Tensor, size: Sequence[int]) -> Tensor:
    """input expanded to `size`."""
    return F.expand(input, tuple(size))  # type: ignore[no-any-return]


def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A view of the diagonal over dims dim1 and dim2, as the last dim: T[..., K]. offset > 0: above the main one."""
    x = F.movedim(input, (dim1, dim2), (-2, -1))
    rows, columns = x.shape[-2:]
    count = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    start = max(offset, 0) - min(offset, 0) * columns
    stop = start + count * (columns + 1)
    flat = F.reshape(x, (*x.shape[:-2], rows * columns))
    return flat[..., start : min(stop, rows * columns) : columns + 1] if count else flat[..., :0]  # type: ignore[no-any-return]


def trace(input: Tensor) -> Tensor:
    """The sum of a matrix's diagonal."""
    return F.sum(diagonal(input))  # type: ignore[no-any-return]


def diff(input: Tensor, n: int = 1, dim: int = -1) -> Tensor:
    """Differences of neighbours along `dim`, n times."""
    for _ in range(n):
        length = input.shape[dim] - 1
        input = F.sub(F.narrow(input, dim, 1, length), F.narrow(input, dim, 0, length))
    return input


def inner(input: Tensor, other: Tensor) -> Tensor:
    """Inner products over the last dims."""
    if input.ndim == 0 or other.ndim == 0:
        return F.mul(input, other)  # type: ignore[no-any-return]
    a, b = (F.reshape(x, (-1, x.shape[-1])) for x in (input, other))
    return F.reshape(F.matmul(a, F.t(b)), (*input.shape[:-1], *other.shape[:-1]))  # type: ignore[no-any-return]


def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of the difference."""
    return F.norm(F.sub(input, other), p)  # type: ignore[no-any-return]


def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """The smallest and the largest."""
    return MinMax(F.amin(input, dim, keepdim), F.amax(input, dim, keepdim))


def _without_nan(x: Tensor) -> Tensor:
    return F.masked_fill(x, F.isnan(x), 0.0) if x.dtype.is_floating_point else x


def nansum(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The sum, NaN counting as 0."""
    return F.sum(_without_nan(input), dim, keepdim)  # type: ignore[no-any-return]


def nanmean(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The mean of what is not NaN."""
    count = F.sum(F.logical_not(F.isnan(input)), dim, keepdim)
    return F.div(nansum(input, dim, keepdim), count.to(input.dtype))  # type: ignore[no-any-return]


def logaddexp(input: Tensor, other: Tensor) -> Tensor:
    """log(exp(input) + exp(other)), without overflow; the larger one plus log1p(exp(-|difference|))."""
    larger = F.maximum(input, other)
    distance = F.abs(F.sub(input, other))
    distance = F.masked_fill(distance, F.eq(input, other), 0.0)  # also of two equal infinities
    return F.add(larger, F.log1p(F.exp(F.neg(distance))))  # type: ignore[no-any-return]


def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """log(input / (1 - input)), input limited to [eps, 1 - eps] first."""
    x = input if eps is None else F.clamp(input, eps, 1.0 - eps)
    return F.log(F.div(x, F.sub(1.0, x)))  # type: ignore[no-any-return]


def sum_to_size(input: Tensor, *size: Any) -> Tensor:
    """input summed over the dims that broadcasting `size` to input's shape would expand. Raises ShapeError."""
    wanted = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    lead = input.ndim - len(wanted)
    if lead < 0 or any(n not in (1, m) for n, m in zip(wanted, input.shape[lead:])):
        raise ShapeError("sum_to_size: no broadcast leads back", expected=str(tuple(input.shape)), got=str(wanted))
    dims = [*range(lead), *(lead + k for k, n in enumerate(wanted) if n == 1 != input.shape[lead + k])]
    return F.reshape(F.sum(input, dims) if dims else input, wanted)  # type: ignore[no-any-return]


def exponential(input: Tensor, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Exponential draws of input's shape and dtype: -log(1 - u) / lambd."""
    uniform = rand(input.shape, dtype=input.dtype, generator=generator)
    return F.div(F.neg(F.log1p(F.neg(uniform))), lambd)  # type: ignore[no-any-return]


def fill_diagonal(input: Tensor, fill_value: float) -> Tensor:
    """A matrix with its main diagonal replaced."""
    mask = F.diagonal_mask(*input.shape)
    return F.masked_fill(input, mask, fill_value)  # type: ignore[no-any-return]


def cumprod(input: Tensor, dim: int, *, dtype: dt.DType | None = None) -> Tensor:
    """Running products along `dim`, by doubling strides (Hillis and Steele, 1986)."""
    x = input if dtype is None else input.to(dtype)
    x = x if x.dtype.is_floating_point or dtype is not None else x.long()
    length = x.shape[dim] if x.ndim else 1
    for level in range(math.ceil(math.log2(max(length, 1)))):
        step = 1 << level
        head, tail = F.narrow(x, dim, 0, step), F.narrow(x, dim, step, length - step)
        x = F.cat([head, F.mul(tail, F.narrow(x, dim, 0, length - step))], dim)
    return x
