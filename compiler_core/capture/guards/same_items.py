"""Containers of tensors that hold the very same ones at every call: one guard for all that they hold.

In: a list of tensors, or a dict of dicts (an optimizer's state). Out: `SameTensors`, which is asked for the container
of a later call. Nothing is kept alive: what dies takes the guard with it (`deaths.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiler_core.capture.guards.deaths import Deaths
from compiler_core.capture.guards.sources import Source


def ids_in_list(tensors: list[Any]) -> list[Any]:
    """What identifies a list's items."""
    return list(map(id, tensors))


def ids_in_state(state: dict[Any, dict[str, Any]]) -> list[Any]:
    """What identifies a state: whose it is, under which names, which tensors."""
    found: list[Any] = list(map(id, state))
    for table in state.values():
        found += table
        found += map(id, table.values())
    return found


class SameTensors:
    """See the head of this file. source: where the container is. things: what it holds."""

    def __init__(
        self, identify: Callable[[Any], list[Any]], container: Any, source: Source, things: list[Any], deaths: Deaths
    ) -> None:
        self.identify, self.ids, self.source = identify, identify(container), source
        self._things = [deaths.refer(thing) for thing in things]

    def __call__(self, container: Any) -> bool:
        """Whether a container holds the same."""
        return self.identify(container) == self.ids

    @property
    def difference(self) -> str:
        return f"{self.source.text} holds the same tensors"

    def culprits(self) -> list[Any]:
        """None of the tensors: what comes in the place of these is guarded one by one (`Memory.note_lost`)."""
        return []

    def has_lost(self) -> bool:
        """Whether something that it held is gone."""
        return any(thing() is None for thing in self._things)
