"""The seam through which somebody learns what this process is doing: a status board, outside of the core.

In: `phase(...)` around compile steps, forwards, backwards and updates, `segment(k)` inside. Out: calls to the one
`Watcher` that is installed, if any. Without one a phase costs a fraction of a microsecond.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Literal, Protocol, TypeAlias

PhaseName: TypeAlias = Literal["compiling", "forward", "backward", "optimizer", "checkpoint"]
_NOTHING: AbstractContextManager[None] = contextlib.nullcontext()


class Watcher(Protocol):
    """Who wants to know. Called by any thread."""

    def during(self, phase: PhaseName, what: str) -> AbstractContextManager[None]:
        """Entered when the phase begins, left when it ends, well or by an exception. what: the graph, for messages."""

    def segment(self, number: int) -> None:
        """Within a backward: segment `number` begins."""


_watcher: Watcher | None = None


def install(watcher: Watcher | None) -> None:
    """Tell `watcher` from now on; None: nobody."""
    global _watcher
    _watcher = watcher


def phase(name: PhaseName, what: str = "") -> AbstractContextManager[None]:
    """A `with` block in which this process does what `name` says."""
    return _NOTHING if _watcher is None else _watcher.during(name, what)


def segment(number: int) -> None:
    """Segment `number` of a compiled backward begins."""
    if _watcher is not None:
        _watcher.segment(number)
