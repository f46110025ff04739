"""Parameters and buffers: tensors that a module takes note of when they are assigned to it.

In: a tensor (or None: an empty one). Out: a handle on the same cell, so both see each other's writes.
Invariant: a Parameter or Buffer is a leaf of autograd; making one records nothing, also inside `no_grad`.
"""

from __future__ import annotations

from typing import Any

from compiler_core.tensor.creation import empty
from compiler_core.tensor.tensor import Tensor


class Parameter(Tensor):
    """A tensor that is a module's parameter: `data`, with `requires_grad` (default True)."""

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        data = empty(0) if data is None else data
        super().__init__(data.detach()._cell, requires_grad=requires_grad)

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.detach().clone(), self.requires_grad)  # without .grad, as in torch
        copied: Parameter = memo[id(self)]
        return copied


class Buffer(Tensor):
    """A tensor that is a module's buffer when assigned to it. persistent: whether it is part of the state dict."""

    def __init__(self, data: Tensor | None = None, *, persistent: bool = True) -> None:
        data = empty(0) if data is None else data
        super().__init__(data.detach()._cell, requires_grad=data.requires_grad)
        self.persistent = persistent


def __getattr__(name: str) -> Any:
    """torch keeps what has no sizes yet in this module too."""
    if name in ("UninitializedBuffer", "UninitializedParameter", "UninitializedTensorMixin", "is_lazy"):
        from distcompile.nn import lazy

        return getattr(lazy, name)
    raise AttributeError(f"module 'distcompile.nn.parameter' has no attribute {name!r}")
