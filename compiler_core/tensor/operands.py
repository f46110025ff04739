"""The operands of an op or a composite of eager tensors, looked at once: their arrays, histories, places, orders.

In: values, Tensors among them. Out: `looked_at`, what is known of them. Nothing is copied: of lent memory the array is
that very memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from compiler_core.cuda import lone
from compiler_core.ops.registry import Value
from compiler_core.tensor.autograd.tape import Edge
from compiler_core.tensor.memory.cell import Cell, DeviceCell

Looked: TypeAlias = tuple[list[Any], list[Edge], list[Any], bool, bool, bool, bool]


class _Kinds(dict[type, bool]):
    """By class, whether its objects are Tensors."""

    def __missing__(self, kind: type) -> bool:
        return self.setdefault(kind, hasattr(kind, "_cell"))


_is_tensor = _Kinds()


def looked_at(values: Sequence[Value], records: bool) -> Looked:
    """(arrays, edges, saved, is_recorded, is_ordered, on_host, is_there) of `values`.

    arrays: what they show. edges: where their gradients go; all None if nothing `records`. saved: what a node of the
    tape saves, the cells of Tensors and all else as it is. is_recorded: one of the edges is not None. is_ordered: all
    Tensors are row-major for certain. on_host, is_there: all, but for None, are NumPy's, or arrays of the one CUDA
    device that there is.
    """
    arrays: list[Any] = []
    edges: list[Edge] = []
    saved: list[Any] = []
    is_recorded, is_ordered, on_host, is_there = False, True, True, True
    for v in values:
        edge = cell = None
        if _is_tensor[type(v)]:
            if records:
                edge = v._edge() if v._view is not None else v._node or (v if v._requires_grad else None)
                is_recorded = is_recorded or edge is not None
            cell = v._cell
            kind = type(cell)
            if kind is DeviceCell or kind is Cell:
                v = cell.raw
            else:
                is_ordered = is_ordered and cell.is_ordered
                v = cell.current()
        if type(v) is np.ndarray:
            is_there = False
        elif v is not None:
            on_host = False
            is_there = is_there and type(v) is lone.array
        arrays.append(v)
        edges.append(edge)
        saved.append(v if cell is None else cell)
    return arrays, edges, saved, is_recorded, is_ordered, on_host, is_there
