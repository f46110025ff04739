"""A call that fullgraph=True refuses is as if it had not begun: what its code changed until then is changed back.

In: a segment that broke off. Out: nothing; containers, attributes, cells, globals and tensors from outside are as they
were. Changes are made while they are recorded (see segment.py): `originals` has what containers held, `undo` how to
bring back the rest, the journal of the trace what tensors were.
Known limits: an `itertools.count` that was advanced stays so, and so do the caches of functions with `lru_cache`.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from types import CellType
from typing import TYPE_CHECKING, Any

from compiler_core.capture.guards.kinds import is_registry

if TYPE_CHECKING:
    from compiler_core.capture.segment import CaptureSegment
    from compiler_core.capture.trace import Mark

NOTHING = object()  # an attribute that was not there


def take_back(segment: CaptureSegment, start: Mark) -> None:
    """start: of the trace, before anything was traced. To be called under the trace."""
    for bring_back in reversed(segment.undo):
        bring_back()
    for container in segment.keep:
        if id(container) in segment.originals:
            restore(container, segment.originals[id(container)])
    segment.trace.rollback(start)


def attribute(owner: Any, name: str) -> Callable[[], None]:
    """What brings back what `owner` itself, a class or an object with slots, has under `name` now."""
    old = vars(owner).get(name, NOTHING) if isinstance(owner, type) else getattr(owner, name, NOTHING)
    return partial(delattr, owner, name) if old is NOTHING else partial(setattr, owner, name, old)


def variable(cell: CellType) -> Callable[[], None]:
    """What brings back what a cell holds now, if it holds anything: a variable may be set for the first time."""
    try:
        return partial(setattr, cell, "cell_contents", cell.cell_contents)
    except ValueError:
        return partial(delattr, cell, "cell_contents")


def contents(table: dict[Any, Any]) -> Callable[[], None]:
    """What brings back what a dictionary holds now."""
    return partial(restore, table, dict(table))


def restore(container: Any, before: Any) -> None:
    """Make a container hold what it held, by the methods of its C type."""
    if isinstance(container, dict):
        _restore_table(container, before)
    elif isinstance(container, list):
        list.__setitem__(container, slice(None), before)
    elif isinstance(container, set):
        set.clear(container)
        set.update(container, before)
    elif isinstance(container, deque):
        deque.clear(container)
        deque.extend(container, before)


def _restore_table(table: dict[Any, Any], before: dict[Any, Any]) -> None:
    kind: Any = OrderedDict if isinstance(table, OrderedDict) else dict
    if is_registry(table):
        kind = type(table)  # whoever watches it is told
    stays = [key for key in kind.keys(table) if key in before]
    in_order = stays == list(before)[: len(stays)]
    for key in list(kind.keys(table)):
        if not in_order or key not in before:
            kind.__delitem__(table, key)
    for key, value in before.items():
        if not kind.__contains__(table, key) or kind.__getitem__(table, key) is not value:
            kind.__setitem__(table, key, value)
