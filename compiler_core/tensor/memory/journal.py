"""The journal of a trace: what traced code changed in cells, handles and tables, so that it can be taken back.

In: `note_change(target, names...)` from whatever is about to change attributes while a trace records. Out: the
attributes as they were, once the trace rewinds (`Journal.rewind`): a native call that turns out not to be traceable is
then as if it had never begun. Traces without a journal, and code that runs without a trace, note nothing.
Invariant: entries are taken back in reverse, so that an attribute which changed twice has its first value again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from compiler_core.ops.registry import current_trace


class Journal:
    """How to take back what changed, in the order it changed."""

    __slots__ = ("undo",)

    def __init__(self) -> None:
        self.undo: list[Callable[[], object]] = []

    def __len__(self) -> int:
        return len(self.undo)

    def note(self, target: object, *names: str) -> None:
        """These attributes of `target` are about to change."""
        self.undo.extend([partial(setattr, target, name, getattr(target, name)) for name in names])

    def note_entry(self, table: dict[Any, Any], key: object) -> None:
        """The entry `key` of `table` is about to be set."""
        self.undo.append(partial(table.__setitem__, key, table[key]) if key in table else partial(table.pop, key))

    def before(self, length: int, name: str) -> list[tuple[Any, Any]]:
        """(target, the value that it had) of each change of an attribute `name` since there were `length` entries."""
        changes: list[Any] = self.undo[length:]
        return [(c.args[0], c.args[2]) for c in changes if c.func is setattr and c.args[1] == name]

    def rewind(self, length: int) -> None:
        """Take back all that was noted since there were `length` entries."""
        while len(self.undo) > length:
            self.undo.pop()()


def note_outside(target: object, *names: str) -> None:
    """As `note_change`, for what is true within the trace only: it is taken back also when the trace is over."""
    outside = getattr(current_trace(), "outside", None)
    if outside is not None:
        outside.note(target, *names)


def note_entry(table: dict[Any, Any], key: object) -> None:
    """Say, before setting or deleting the entry `key` of `table`, that it changes."""
    journal = getattr(current_trace(), "journal", None)
    if journal is not None:
        journal.note_entry(table, key)


def note_change(target: object, *names: str) -> None:
    """Say, before changing these attributes of `target`, that they change; a trace that keeps a journal remembers."""
    journal = getattr(current_trace(), "journal", None)
    if journal is not None:
        journal.note(target, *names)
