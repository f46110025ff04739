"""The gradients of one primitive by its own rule: what nodes of the tape compute, and what calls made again note.

In: an op, its attributes, which operands want a gradient, that of the result, the result and the operands: arrays, or
what stands for those that are gone. Out: a gradient for each operand that wants one. Raises AutogradError where a
gradient would be computed from what is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler_core.ops.on_device import UNARY_OPS, slope_there
from compiler_core.ops.registry import OPS, Attrs, Op, PerOperand, Value
from compiler_core.tensor.autograd.gone import Poison, demand


def gradients(op: Op, attrs: Attrs, needs: Sequence[bool], grad: Value, operands: Sequence[Value]) -> list[Any]:
    """The cotangents that are needed of an op's operands. operands: the result, and these."""
    rule: Any = op.vjp
    grads: Sequence[Any] | None = None
    if isinstance(rule, PerOperand):
        grads = [one(grad, *operands, **attrs) if need else None for need, one in zip(needs, rule.rules)]
    elif op in _SLOPED:
        grads = slope_there(op, grad, operands)
    found: list[Any] = []
    for need, g in zip(needs, rule(grad, *operands, **attrs) if grads is None else grads):
        found.append(None if not need else g if type(g) is not Poison else demand(g))
    return found


_SLOPED = frozenset([OPS[name] for name in UNARY_OPS])  # whose slope a kernel may give
