"""Tensors in one row, and back: torch._utils' functions of code that sends many tensors as one.

In: tensors. Out: a 1-d tensor; views of it in their shapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import distcompile as dc
from compiler_core.tensor.tensor import Tensor

__all__ = ["flatten_dense_tensors", "take_tensors", "unflatten_dense_tensors"]


def flatten_dense_tensors(tensors: Iterable[Tensor]) -> Tensor:
    """T[n]: the elements of all, in order."""
    whole: Tensor = dc.cat([tensor.contiguous().view(-1) for tensor in tensors])
    return whole


def unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of `flat`, in the shapes of `tensors`."""
    parts = flat.split([tensor.numel() for tensor in tensors])
    return tuple(part.view(tuple(tensor.shape)) for part, tensor in zip(parts, tensors))


def take_tensors(tensors: Iterable[Tensor], size_limit: int) -> Iterator[list[Tensor]]:
    """Lists of tensors of one dtype and device, in order, of at most `size_limit` bytes, or of one tensor."""
    open_lists: dict[tuple[object, object], tuple[list[Tensor], int]] = {}
    for tensor in tensors:
        kind = tensor.dtype, tensor.device
        held, nbytes = open_lists.get(kind, ([], 0))
        size = tensor.numel() * tensor.element_size()
        if held and nbytes + size > size_limit:
            yield held
            held, nbytes = [], 0
        open_lists[kind] = [*held, tensor], nbytes + size
    yield from (held for held, _ in open_lists.values() if held)
