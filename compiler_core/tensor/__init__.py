"""Tensors: handles on immutable values, with torch's names, aliasing and autograd.

`tensor.py` first: the handle. Then the rooms: `memory/` (cells, views, writes), `autograd/` (the tape), `nodes/` (the
tape's nodes as programs see them), `making/`, and `methods/`. The files beside them are functions on Tensors that are
no op of the core's: selection, counting, printing.
"""

from compiler_core.tensor.tensor import Size, Tensor

__all__ = ["Size", "Tensor"]
