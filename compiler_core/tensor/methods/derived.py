"""More of torch's functions and methods, each composed of others in a line or two.

In: Tensors. Out: Tensors; nothing here needs the data, so all of it can be traced and differentiated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from compiler_core.dtype import DType, int64
from compiler_core.errors import ShapeError
from compiler_core.names.spelling import result_text
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.casting import in_float32
from compiler_core.ops.refusals import need_floating, need_kind
from compiler_core.tensor.tensor import Tensor


class MinMax(NamedTuple):
    """What aminmax returns."""

    min: Tensor
    max: Tensor

    def __repr__(self) -> str:
        return result_text("aminmax", self)


def broadcast_to(input: Tensor, size: Sequence[int]) -> Tensor:
    """input expanded to `size`."""
    return F.expand(input, tuple(size))  # type: ignore[no-any-return]


def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A view of the diagonal over dims dim1 and dim2, as the last dim: T[..., K]. offset > 0: above the main one."""
    return prims.diagonal(F.movedim(input, (dim1, dim2), (-2, -1)), offset)  # type: ignore[no-any-return]


def matrix_diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """torch.linalg.diagonal."""
    return diagonal(A, offset, dim1, dim2)


@in_float32
def trace(input: Tensor) -> Tensor:
    """The sum of a matrix's diagonal."""
    need_kind("trace", "iufc", input)
    if len(input.shape) != 2:
        raise ShapeError("trace: expected a matrix", got=f"a tensor of {len(input.shape)} dims")
    return F.sum(diagonal(input))  # type: ignore[no-any-return]


def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """The smallest and the largest."""
    return MinMax(F.amin(input, dim, keepdim), F.amax(input, dim, keepdim))


def _without_nan(x: Tensor) -> Tensor:
    return F.masked_fill(x, F.isnan(x), 0.0) if x.dtype.is_floating_point else x


def nansum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """The sum, NaN counting as 0."""
    need_kind("nansum", "biuf", input)
    return F.sum(_without_nan(input), dim, keepdim, dtype=dtype)  # type: ignore[no-any-return]


def nanmean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """The mean of what is not NaN. Raises DTypeError for integers."""
    need_kind("nanmean", "f", input)
    need_floating("nanmean", input, dtype or input.dtype)
    count = F.sum(F.logical_not(F.isnan(input)), dim, keepdim)
    return F.div(nansum(input, dim, keepdim, dtype=dtype), count.to(dtype or input.dtype))  # type: ignore[no-any-return]


def sum_to_size(input: Tensor, *size: Any) -> Tensor:
    """input summed over the dims that broadcasting `size` to input's shape would expand. Raises ShapeError."""
    wanted = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    lead = input.ndim - len(wanted)
    if lead < 0 or any(n not in (1, m) for n, m in zip(wanted, input.shape[lead:])):
        raise ShapeError("sum_to_size: no broadcast leads back", expected=str(tuple(input.shape)), got=str(wanted))
    dims = [*range(lead), *(lead + k for k, n in enumerate(wanted) if n == 1 != input.shape[lead + k])]
    summed = F.sum(input, dims) if dims else input if input.dtype.is_inexact else input.to(int64)
    return F.reshape(summed, wanted)  # type: ignore[no-any-return]


def fill_diagonal(input: Tensor, fill_value: float) -> Tensor:
    """A matrix with its main diagonal replaced."""
    mask = F.diagonal_mask(*input.shape)
    return F.masked_fill(input, mask, fill_value)  # type: ignore[no-any-return]
