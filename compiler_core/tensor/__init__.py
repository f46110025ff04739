"""Tensors: handles on immutable values, with torch's names, aliasing and autograd."""

from compiler_core.tensor.tensor import Size, Tensor

__all__ = ["Size", "Tensor"]
