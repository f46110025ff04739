"""torch.autograd.function's names: Function and what its subclasses use.

In: nothing. Out: the names.
"""

from __future__ import annotations

from compiler_core.tensor.autograd.function import Function, FunctionContext, once_differentiable

__all__ = ["Function", "FunctionCtx", "once_differentiable"]

FunctionCtx = FunctionContext
