"""Tensors: handles on immutable values, with torch's names, aliasing and autograd.

`tensor.py` first: the handle. Then the rooms: `memory/` (cells, views, writes), `autograd/` (the tape), `nodes/` (the
tape's nodes as programs see them), `making/`, and `methods/`. The files beside them are functions on Tensors that are
no op of the core's: selection, counting, printing.
"""

from types import FunctionType

from compiler_core.tensor.tensor import Size, Tensor


def _name_methods() -> None:
    """Each method is named as Tensor has it, whatever made it: so it pickles. What pickles of tensors name stays."""
    for name in dir(Tensor):
        if name == "_rebuild_as":
            continue
        method = getattr(Tensor, name)
        if isinstance(method, FunctionType) and getattr(Tensor, method.__name__, None) is not method:
            method.__name__ = name
        if isinstance(method, FunctionType):
            method.__module__, method.__qualname__ = Tensor.__module__, f"Tensor.{method.__name__}"


_name_methods()

__all__ = ["Size", "Tensor"]
