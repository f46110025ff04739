"""as_strided on Tensors: torch's strides count through the storage, which for a view is its base's.

In: a Tensor, sizes, strides and an offset in elements. Out: a copy: values have no layout, so this is no view, and
writing to it does not change the input.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler_core.errors import ShapeError
from compiler_core.ops import composite_placing as placing
from compiler_core.tensor.tensor import Tensor


def as_strided(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """The elements of input's storage at offset + sum of index_d * stride_d: T[size]."""
    base = input
    while base._view is not None:
        base = base._view.base
    whole = input is base or (input.is_contiguous() and input.numel() == base.numel())
    if not whole and storage_offset is None:
        raise ShapeError(
            "as_strided of a part of another tensor needs its offset", expected="storage_offset", got="None",
            remedy="give storage_offset, counted from the base's first element, or use contiguous() first",
        )  # fmt: skip
    return placing.as_strided(input if whole else base, size, stride, storage_offset)  # type: ignore[no-any-return]
