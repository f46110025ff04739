"""What registering a hook returns, anywhere: torch.utils.hooks.RemovableHandle.

In: the dict in which the hook stands under the handle's number, and others that say more of it. Out: `remove()`. A dict
that can be referred to weakly is: a handle keeps no module alive. A copy of a handle is one of the copied dicts.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, MutableMapping
from typing import Any, Self, TypeAlias

Table: TypeAlias = MutableMapping[int, Any]


class RemovableHandle:
    """Takes the hook of number `id` out of `hooks_dict`, and out of `extra_dict`, one or a list. Also a context."""

    _ids = itertools.count()

    def __init__(self, hooks_dict: Table, *, extra_dict: Table | list[Table] | None = None) -> None:
        extras = extra_dict if isinstance(extra_dict, list) else [] if extra_dict is None else [extra_dict]
        self.id = next(self._ids)
        self._refer(hooks_dict, extras)

    def _refer(self, hooks: Table | None, extras: list[Table]) -> None:
        self.hooks_dict_ref = _reference(hooks)
        self.extra_dict_ref = tuple(map(_reference, extras))

    def remove(self) -> None:
        """Take the hook off; a second call does nothing."""
        for reference in (self.hooks_dict_ref, *self.extra_dict_ref):
            table = reference()
            if table is not None and self.id in table:
                del table[self.id]

    def __getstate__(self) -> tuple[Table | None, int, tuple[Table | None, ...]]:
        return self.hooks_dict_ref(), self.id, tuple(reference() for reference in self.extra_dict_ref)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        extras = state[2] if len(state) > 2 and state[2] is not None else ()
        self.id = state[1]
        self._refer(state[0], [table for table in extras if table is not None])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def _reference(table: Table | None) -> Callable[[], Table | None]:
    try:
        return weakref.ref(table)
    except TypeError:  # a plain dict, or None
        return lambda: table
