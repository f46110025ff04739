"""Memory that is written while it is read, or of which several elements are one: refused, as by torch.

In: the tensor that is written, and those that are read. Out: nothing, or OverlapError. Here a write never harms what is
read, values being immutable; but a program that relies on that is wrong in torch, where it is an error.
Method: two tensors of one storage that are both dense (no gaps, no element twice) overlap in part if the ranges that
they span do, unless they are the same elements in the same order. Of others nothing is known, and torch says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from compiler_core.errors import OverlapError
from compiler_core.ops.registry import meta_of

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor


def check_apart(written: Tensor, read: Iterable[Any], wholly: bool = False) -> None:
    """Raise OverlapError where some elements of `written`, but not all in order, are those of one that is read.

    wholly: also where all are.
    """
    cell = written._cell
    for other in read:
        theirs = getattr(other, "_cell", None)
        if theirs is None or (theirs is cell and not wholly) or theirs.root is not cell.root:
            continue
        if _overlap_in_part(written, other, wholly):
            raise OverlapError(
                "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
                "memory location",
                remedy="clone() the tensor before the operation",
            )


def check_no_element_twice(written: Tensor) -> None:
    """Raise OverlapError where one place in memory is several elements, as of an expanded tensor."""
    if any(n > 1 and step == 0 for n, step in zip(meta_of(written).shape, _steps(written))):
        raise OverlapError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location",
            remedy="clone() the tensor before the operation",
        )


def _overlap_in_part(a: Tensor, b: Tensor, wholly: bool) -> bool:
    if not a.numel() or not b.numel() or not (_is_dense(a) and _is_dense(b)) or a.itemsize != b.itemsize:
        return False
    first, second = a._cell.offset(), b._cell.offset()
    if first == second and a.numel() == b.numel() and not wholly:
        return bool(_steps(a) != _steps(b))
    return bool(first < second + b.numel() and second < first + a.numel())


def _is_dense(x: Tensor) -> bool:
    """Whether its elements fill a range of memory, each one place."""
    expected = 1
    for step, n in sorted((step, n) for n, step in zip(meta_of(x).shape, _steps(x)) if n != 1):
        if step != expected:
            return False
        expected *= n
    return True


def _steps(x: Tensor) -> tuple[int, ...]:
    steps = x.stride()
    assert isinstance(steps, tuple)
    return steps
