"""Numbers that the graph computes, read by captured code (`loss.item()`), where all of it must be one graph.

In: a traced tensor of one element. Out: a symbol (`read_later`): later calls, and this one, take the number from the
graph's outputs when it has run. It may be handed on, returned and put where others see it, and added to, subtracted
from and multiplied by numbers, and divided by ones that are known. Whoever needs to look at it before, and so all that
would make the rest of the graph depend on it, breaks the graph.
`resolved`: what a symbol is for this very call, when its graph has run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from types import CellType
from typing import TYPE_CHECKING, Any

from compiler_core.capture.guards.kinds import own_attributes
from compiler_core.capture.guards.sources import AtEnd
from compiler_core.capture.numbers.symbols import Apply, Input, is_read, make, plain_of
from compiler_core.location import user_location
from compiler_core.ops import prims
from compiler_core.ops.batching.value import Batched
from compiler_core.ops.registry import current_trace
from compiler_core.tensor.autograd.grad_mode import taping
from compiler_core.tensor.tensor import Tensor

if TYPE_CHECKING:
    from compiler_core.capture.numbers.numbers import Numbers
    from compiler_core.capture.record import Change

_SETTING = (setattr, object.__setattr__)
_KNOWN = {"f": 0.0, "i": 0, "u": 0}  # a number of the type that an element has in Python, by the dtype's kind


def read_later(numbers: Numbers, tensor: Tensor, what: str, kind: type | None = None) -> Any:
    """The number that `tensor` holds now, known when the graph has run; None where it must be known before.

    what: who asks. kind: of the number, int or float; None: the dtype's.
    """
    trace, raw = numbers.trace, tensor._cell.raw
    if not trace.is_fullgraph or trace.exports or current_trace() is not trace or trace.noted or taping.depth:
        return None
    if type(raw) is Batched or tensor.is_meta or tensor.numel() != 1 or tensor.dtype.kind not in _KNOWN:
        return None
    number = _KNOWN[tensor.dtype.kind] if kind is None else kind(0)
    with_place = prims.reshape(tensor.detach()._read(), ())
    handle = Tensor._wrap(prims.cast(with_place, tensor.dtype))
    source = AtEnd(len(numbers.reads), f"{what}, at {user_location()}", is_read=True)
    numbers.reads.append((handle, type(number)))
    made = numbers.symbols[source] = make(number, Input(source, number, is_time=True))
    return made


def held_by(handle: Tensor, kind: type) -> Any:
    """The number that a tensor holds, when the graph has run."""
    return kind(handle.item())


def resolved(numbers: Numbers, value: Any) -> Any:
    """The number that a symbol stands for, when the graph of this very call has run."""
    if not is_read(value):
        return plain_of(value)
    formula = value.formula
    if isinstance(formula, Input):
        return held_by(*numbers.reads[formula.source.number])  # type: ignore[union-attr]
    assert isinstance(formula, Apply)
    names = [f"part{place}" for place in range(len(formula.parts))]
    parts = [resolved(numbers, part) for part in formula.parts]
    return eval(formula.template.format(*names), dict(zip(names, parts)))


def put_back(numbers: Numbers, changes: Iterable[Change]) -> None:
    """What was there before, and holds symbols of such numbers, holds the numbers."""
    for change in changes if numbers.reads else ():
        target = change.target
        if isinstance(target, CellType):
            target.cell_contents = _put(numbers, target.cell_contents)
            continue
        if isinstance(target, list | deque):
            for place, item in enumerate(target):
                target[place] = _put(numbers, item)
        table = target if isinstance(target, dict) else own_attributes(target)
        if isinstance(table, dict):
            for key, held in [(key, held) for key, held in table.items() if _put(numbers, held) is not held]:
                dict.__setitem__(table, key, _put(numbers, held))
        if change.function in _SETTING and _put(numbers, change.args[1]) is not change.args[1]:  # a slot, too
            change.function(target, change.args[0], _put(numbers, change.args[1]))


def _put(numbers: Numbers, held: Any) -> Any:
    """What is to be held: of a tuple with such a number in it another one."""
    if type(held) is tuple and any(_put(numbers, part) is not part for part in held):
        return tuple(_put(numbers, part) for part in held)
    return resolved(numbers, held) if is_read(held) else held
