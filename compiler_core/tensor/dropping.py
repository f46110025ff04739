"""Dropout of tensors of the lone CUDA device, at once: the draw, the definition's kernel, one node of the tape.

In: a Tensor, a probability. Out: what `dropout` gives, or what `bernoulli_` puts in its place; None, and nothing was
drawn, for other tensors, under a trace, while somebody looks at ops: the general way (`ops/composites/activation.py`,
`making/filling.py`) then draws and computes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler_core.cuda import lone
from compiler_core.device import cuda_device
from compiler_core.ops import functional as F
from compiler_core.ops.on_device import CHANCE
from compiler_core.ops.registry import Telling
from compiler_core.ops.remembered import Plan
from compiler_core.ops.whole import COMPOSITES
from compiler_core.tensor.autograd.grad_mode import Inference, thread_mode
from compiler_core.tensor.making.filling import kept_by_dropout
from compiler_core.tensor.making.random import Generator, generator_for
from compiler_core.tensor.making.there import is_plain
from compiler_core.tensor.memory import lent
from compiler_core.tensor.memory.cell import DeviceCell, ViewCell
from compiler_core.tensor.recalling import record
from compiler_core.tensor.straight import array_of

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor

_LIMIT = 1 << 12
_plans: dict[tuple[Any, ...], Plan] = {}  # by the probability, dtype and shape


def dropped(self: Tensor, p: float) -> Tensor | None:
    """Each element zero with probability p, 0 < p < 1, the others times 1/(1-p)."""
    cell, kind = getattr(self, "_cell", None), type(getattr(self, "_cell", None))
    if kind is not DeviceCell and not (kind is ViewCell and cell.is_ordered):  # type: ignore[union-attr]
        return None
    array: Any = array_of(self)
    there: Any = lone.array
    if type(array) is not there or array.dtype.kind not in "fV" or not array.size:
        return None
    if Telling.count or lent.Lending.is_there or Inference.in_use:
        return None
    rng = kept_by_dropout(cuda_device(0), tuple(array.shape), p)
    definition: Any = COMPOSITES["dropout"].on_device()
    made = definition.forward(array, rng[0], p=p, stream=rng[1]) if isinstance(rng, tuple) else None
    if made is None:
        return F.dropout(self, p, True, rng=rng)  # type: ignore[no-any-return]
    result = self._of_array(made[0])
    edge = self._edge() if thread_mode.enabled else None
    if edge is not None:
        record(_plan(definition, p, array), result, (cell, rng[0]), (edge, None), made[1])
        result._node.attrs = {"p": p, "stream": rng[1]}  # type: ignore[union-attr]
    return result


def by_chance(self: Tensor, p: float, generator: Generator | None) -> Tensor | None:
    """Of a tensor's dtype and shape: 1 with probability p, else 0."""
    cell: Any = self._cell
    if type(cell) is not DeviceCell or generator is not None or lent.Lending.is_there or not is_plain():
        return None
    there: Any = lone.array
    compute = CHANCE.get()(cell.raw, p) if type(cell.raw) is there else None
    if compute is None:
        return None
    made = compute(*map(int, generator_for(cuda_device(0)).take_keys(1)))
    return None if made is None else self._of_array(made)


def _plan(definition: Any, p: float, array: Any) -> Plan:
    """What nodes of such calls have in common."""
    key = p, array.dtype, array.shape
    found = _plans.get(key)
    if found is None:
        if len(_plans) >= _LIMIT:
            _plans.clear()
        found = _plans[key] = Plan(False, definition, None, {"p": p, "stream": 0}, definition=definition)
        found.back = _without_key(definition.prepare_backward(found.attrs))
    return found


def _without_key(back: Callable[..., Any]) -> Callable[..., Any]:
    """The backward, which does not read the key."""

    def prepared(needs: Sequence[bool], g: Any, out: Any, kept: Any, operands: Sequence[Any]) -> Any:
        none = [None if type(one) is np.ndarray else one for one in operands]
        return back(needs, g, out, kept, none)

    return prepared
