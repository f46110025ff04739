"""as_strided and resize_ on Tensors: views by sizes and strides that count through the storage.

In: a Tensor, sizes, strides and an offset in elements. Out: a view of the storage, which for a view is its base's; what
is written to it is seen by all who share the storage. Writing where places overlap raises ShapeError.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from compiler_core.errors import AutogradError, DTypeError, ShapeError
from compiler_core.forward import level
from compiler_core.ops import prims
from compiler_core.ops.primitives.strided import check_strided
from compiler_core.tensor.making.creation import sizes
from compiler_core.tensor.making.placement import moved
from compiler_core.tensor.memory.cell import ViewCell
from compiler_core.tensor.memory.views import contiguous_strides
from compiler_core.tensor.size import told
from compiler_core.tensor.tensor import Tensor


def _storage(input: Tensor) -> tuple[Tensor, int]:
    """The whole storage that input lies in, T[n], and 0; of a contiguous leaf that is a part of one, which alone
    requires a gradient, the part, and where it begins."""
    base = input
    while base._view is not None:
        base = base._view.base
    if isinstance(base._cell, ViewCell):  # a detached handle on a view
        base = Tensor._from_cell(base._cell.root)
    is_dual = level.on and level.tangent_of(input) is not None and level.tangent_of(base) is None
    if is_dual or (input.requires_grad and not base.requires_grad):  # the gradient is its own, not the base's
        if not input.is_contiguous():
            raise AutogradError(
                "as_strided of a part of a tensor, where the part alone requires a gradient", remedy="clone() it first"
            )
        base = input
    begin = input._cell.offset() if base is input else 0
    if base.dtype is not input.dtype or input.is_conj():
        raise DTypeError(
            "as_strided of a part, or a conjugate, of complex numbers: its storage holds other ones",
            expected=base.dtype.name, got=input.dtype.name, remedy="use contiguous() or clone() first",
        )  # fmt: skip
    return prims.reshape(base, (math.prod(base.shape),)), begin


def as_strided(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """A view of the elements of input's storage at offset + sum of index_d * stride_d: T[size].

    storage_offset: input's own by default. Raises ShapeError for elements outside the storage.
    """
    size, stride = tuple(size), tuple(stride)
    offset = input._cell.offset() if storage_offset is None else storage_offset
    storage, begin = _storage(input)
    check_strided("as_strided", storage.numel(), size, stride, offset - begin)
    return prims.strided(storage, size, stride, offset - begin)  # type: ignore[no-any-return]


def storage_offset(input: Tensor) -> int:
    """Where input's first element lies in its storage, in elements."""
    return told(input._cell.offset())


def resized(input: Tensor, *size: Any, memory_format: object = None) -> Tensor:
    """The first elements of what input's storage holds from input's first one on, as a contiguous view: T[size].

    A tensor without elements becomes one of zeros (torch: whatever is there). Raises ShapeError where the storage
    would have to grow.
    """
    if input.requires_grad:
        raise AutogradError("resize_: a tensor that requires a gradient cannot be resized", remedy="detach() it first")
    shape = sizes(size)
    count, offset = math.prod(shape), input._cell.offset()
    storage, _ = _storage(input)
    if count > storage.numel() - offset and input.numel() == 0:
        return moved(Tensor._wrap(prims.full(shape, 0, input.dtype)), input.device)
    if count > storage.numel() - offset:
        raise ShapeError(
            "resize_: a storage cannot grow",
            expected=f"at most {storage.numel() - offset} elements",
            got=str(shape),
            remedy="make a new tensor with new_empty()",
        )
    return prims.strided(storage, shape, contiguous_strides(shape), offset)  # type: ignore[no-any-return]


def resized_as(input: Tensor, the_template: Tensor, *, memory_format: object = None) -> Tensor:
    """`resized` to the_template's shape."""
    return resized(input, tuple(the_template.shape))


def empty_strided(size: Sequence[int], stride: Sequence[int], **options: Any) -> Tensor:
    """A tensor of these strides on a storage of its own (zeros here). options: dtype, device, requires_grad, ..."""
    from compiler_core.tensor.making.creation import zeros

    shape, steps = tuple(size), tuple(stride)
    if len(shape) != len(steps) or any(step < 0 for step in steps):
        raise ShapeError("empty_strided: one stride, not negative, for each dim", got=f"{shape}, {steps}")
    requires_grad = options.pop("requires_grad", False)
    count = 1 + sum((n - 1) * step for n, step in zip(shape, steps)) if math.prod(shape) else 0
    made = as_strided(zeros(count, **options), shape, steps, 0)
    return made._require() if requires_grad else made


def get_device(input: Tensor) -> int:
    """The number of its CUDA device; -1 on the CPU."""
    return input.get_device()


def adjoint(input: Tensor) -> Tensor:
    """The conjugate, with the last two dims exchanged."""
    return input.adjoint()  # type: ignore[no-any-return]
