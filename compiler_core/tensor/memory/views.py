"""Which results alias their operand, how to write through them, and the strides they have.

In: an op, its attributes, cells and shapes. Out: `aliases`, `scatter` (view_scatter: the base with the view's elements
replaced), `view_strides`, `view_offset`: what the op's block says (`Op.alias`; see ops/aliasing.py). A scatter runs on
arrays, nodes and Tensors (where it is recorded, which is how gradients flow through writes to views). How fresh results
lie: layout.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler_core.meta import Shape
from compiler_core.ops.aliasing import Alias, Strides, contiguous_strides, is_contiguous
from compiler_core.ops.registry import Attrs, Op, Value

if TYPE_CHECKING:
    from compiler_core.tensor.memory.cell import Cell

__all__ = ["Strides", "aliases", "contiguous_strides", "is_contiguous", "scatter", "view_offset", "view_strides"]


def _alias(op: Op) -> Alias:
    assert op.alias is not None, f"{op.name} is no view"
    return op.alias


def aliases(op: Op, attrs: Attrs, base: Cell) -> bool:
    """Whether the result of `op` on a tensor with cell `base` shares its memory in torch."""
    alias = op.alias
    if alias is None or not alias.may_copy or base.is_dense:
        return alias is not None
    return alias.strides(base.value.shape, base.strides(), **attrs) is not None


def scatter(op: Op, base: Value, new: Value, attrs: Attrs) -> Value:
    """`base` with the elements that view `op(base, **attrs)` shows replaced by `new`.

    Raises ShapeError for a write to an expanded view.
    """
    return _alias(op).scatter(base, new, **attrs)


def view_strides(op: Op, attrs: Attrs, in_shape: Shape, in_strides: Strides, out_shape: Shape) -> Strides:
    """The strides of a view of something with `in_strides`; of a copy, those of a contiguous array."""
    strides = _alias(op).strides(in_shape, in_strides, **attrs)
    return contiguous_strides(out_shape) if strides is None else strides


def view_offset(op: Op, attrs: Attrs, offset: int, in_strides: Strides) -> int:
    """Where the first element of a view lies in the storage, of something with `in_strides` that begins at `offset`."""
    parts = _alias(op).parts
    many, few = parts if isinstance(parts, tuple) else parts(**attrs)
    return offset * many // few + _alias(op).offset(in_strides, **attrs)
