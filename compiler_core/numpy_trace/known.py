"""Values that are known while tracing: arrays made of Python data, and views of them, as long as nobody writes there.

In: a Tensor. Out: its array, if the graph has it as a constant; None if it depends on inputs.
With this, code that computes sizes, masks or indices with NumPy from numbers runs as it is.
"""

from __future__ import annotations

import numpy as np

from compiler_core.graph.ir import Call, Constant
from compiler_core.ops.registry import Array, bind, current_trace, use_trace
from compiler_core.tensor.memory.cell import Cell, ViewCell, cell_trace
from compiler_core.tensor.tensor import Tensor


def known_value(tensor: Tensor) -> Array | None:
    """The array that a traced tensor is known to hold. It must not be written to."""
    return _known(tensor._cell)


def _known(cell: Cell) -> Array | None:
    if isinstance(cell, ViewCell):
        base = None if cell.is_external else _known(cell.base)
        with use_trace(None):
            return None if base is None else bind(cell.op, base, **cell.attrs)
    node = cell.value
    if isinstance(node, Constant):
        return node.array
    if isinstance(node, Call) and node.op.name == "full":
        return np.full(node.shape, node.attrs["value"], node.dtype.numpy)
    return None


def constant(array: Array) -> Tensor:
    """A Tensor that holds a copy of `array`: known, under a trace."""
    trace = current_trace()
    array = np.array(array)
    return Tensor._wrap(array if trace is None else cell_trace(trace).constant(array))
