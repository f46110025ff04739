"""The gradients of views by `reshape` and `permute`, at once: the same array, shown as the operand is.

In: a tape node, the gradient of its output, as the engine meets them in a pass of arrays. Out: the array that the op's
own rule gives; None where that is to be asked: for other ops, while somebody looks at ops, for other arrays than
NumPy's and those of a lone device.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from compiler_core.cuda import lone
from compiler_core.ops import registry
from compiler_core.ops.primitives.movement import inverse_permutation
from compiler_core.ops.registry import OPS, Array, Value, current_trace
from compiler_core.tensor.autograd.gone import Poison
from compiler_core.tensor.memory.cell import Cell, DeviceCell, ViewCell

_RESHAPE, _PERMUTE = OPS["reshape"], OPS["permute"]
_inverse = cache(inverse_permutation)
_CELLS = (DeviceCell, ViewCell, Cell)
VIEWS = frozenset((_RESHAPE, _PERMUTE))


def shown_back(node: Any, grad: Value) -> Array | None:
    """The gradient of the operand of a node whose op is one of VIEWS."""
    kind = type(grad)
    if (
        not (kind is np.ndarray or kind is lone.array)
        or registry.run_eager is not registry.RUN
        or current_trace() is not None
    ):
        return None
    try:
        if node.op is _PERMUTE:
            return grad.transpose(_inverse(node.attrs["dims"]))  # type: ignore[no-any-return]
        saved = node.saved[0]
        if type(saved) in _CELLS:
            return grad.reshape(saved.raw.shape) if type(saved.raw) is kind else None
        return grad.reshape(saved.shape) if type(saved) is Poison else None
    except (ValueError, MemoryError):  # the rule says why
        return None
