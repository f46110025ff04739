"""Loads: which modules have taken values from a state dict, for whoever must know that parameters are other ones.

In: a module whose `load_state_dict` runs. Out: whether, since an earlier count, one was loaded that has some of these
parameters. Invariant: what cannot be told (the module is gone, more than KEPT loads since) counts as one that has.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Collection
from threading import Lock
from typing import TYPE_CHECKING

from compiler_core.breaking import breaks_graph

if TYPE_CHECKING:
    from distcompile.nn.module import Module

KEPT = 32


class Loads:
    """count: loads so far in this process. recent: the last modules."""

    def __init__(self) -> None:
        self.count = 0
        self.recent: deque[weakref.ref[Module]] = deque(maxlen=KEPT)
        self._lock = Lock()  # ranks may be threads

    @breaks_graph("load_state_dict() changes parameters that others watch")
    def note(self, module: Module) -> None:
        """`module` is about to be loaded."""
        with self._lock:
            self.count += 1
            self.recent.append(weakref.ref(module))

    def reached(self, parameters: Collection[int], since: int) -> bool:
        """Whether a load after the first `since` was of a module with some of `parameters`, which are ids."""
        with self._lock:
            new, recent = self.count - since, list(self.recent)
        if new > KEPT:
            return True
        modules = [reference() for reference in recent[len(recent) - new :]]
        return any(m is None or any(id(p) in parameters for p in m.parameters()) for m in modules)


LOADS = Loads()
