"""torch.autograd.Variable: a name from before tensors had gradients. Every Tensor is one.

In: a Tensor. Out: a Tensor of its memory, with `requires_grad` as asked.
"""

from __future__ import annotations

from typing import Any

from compiler_core.tensor.tensor import Tensor

__all__ = ["Variable", "VariableMeta"]


class VariableMeta(type):
    """Says of every Tensor that it is a Variable; calling makes a Tensor."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor)

    def __call__(cls, data: Tensor, requires_grad: bool = False, volatile: bool | None = None) -> Any:
        """`data`, cut from what computed it. volatile=True: without a gradient, whatever `requires_grad` says."""
        made = data.detach()
        return made._require(requires_grad and not volatile)


class Variable(metaclass=VariableMeta):
    """The old name of Tensor."""
