"""The operands of an op or a composite of eager tensors, looked at once: their arrays, histories, places, orders.

In: values, Tensors among them. Out: `Operands`. Nothing is copied: of lent memory the array is that very memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler_core.cuda import lone
from compiler_core.ops.registry import Value
from compiler_core.tensor.autograd.grad_mode import thread_mode
from compiler_core.tensor.autograd.tape import Edge
from compiler_core.tensor.memory.cell import Cell, DeviceCell


class _Kinds(dict[type, bool]):
    """By class, whether its objects are Tensors."""

    def __missing__(self, kind: type) -> bool:
        return self.setdefault(kind, hasattr(kind, "_cell"))


_is_tensor = _Kinds()


class Operands:
    """arrays: what they show, in order. edges: where their gradients go; all None where nothing is recorded.

    is_recorded: one of the edges is not None. is_ordered: all Tensors are row-major for certain. on_host, is_there: all
    of them, but for None, are NumPy's, or arrays of the one CUDA device that there is.
    """

    __slots__ = ("arrays", "edges", "is_ordered", "is_recorded", "is_there", "on_host", "records")

    def __init__(self, values: Sequence[Value]) -> None:
        self.records = records = thread_mode.enabled
        arrays: list[Any] = []
        edges: list[Edge] = []
        is_recorded, is_ordered, on_host, is_there = False, True, True, True
        for v in values:
            edge = None
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
            kind = type(v)
            if kind is not np.ndarray and v is not None:
                on_host = False
                is_there = is_there and kind is lone.array
            elif v is not None:
                is_there = False
            arrays.append(v)
            edges.append(edge)
        self.arrays, self.edges, self.is_recorded = arrays, edges, is_recorded
        self.is_ordered, self.on_host, self.is_there = is_ordered, on_host, is_there

    def cells(self, values: Sequence[Value]) -> list[Any]:
        """What a node of the tape saves of `values`, which these are: the cells of Tensors, all else as it is."""
        return [v._cell if _is_tensor[type(v)] else v for v in values]
