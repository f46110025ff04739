"""torch.autograd's names: grad, backward, Function, the modes.

In: Tensors. Out: gradients.
"""

from __future__ import annotations

from compiler_core.tensor.autograd import backward, grad
from compiler_core.tensor.function import Function
from compiler_core.tensor.grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled
from distcompile.autograd import function, functional

__all__ = [
    "Function",
    "backward",
    "enable_grad",
    "function",
    "functional",
    "grad",
    "inference_mode",
    "no_grad",
    "set_grad_enabled",
]
