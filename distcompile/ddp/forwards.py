"""Forwards: where the forwards of one DDP instance stand on the tape, so that a backward knows whose forwards it is of.

In: their beginnings and ends, as they run: of one that runs eager from DDP itself, of a compiled one from whoever runs
the graphs in which it begins and ends. Graphs, and Python between them, after a graph break lie between the two.
Invariant: the stretches of one instance follow one another, as an instance is not called inside of itself. One that an
exception has ended is open until the next begins.
"""

from __future__ import annotations

import math
import weakref
from bisect import bisect

from compiler_core.tensor.autograd.engine import Backward
from compiler_core.tensor.autograd.tape import tape_position

MOST = 4096  # remembered; then the older half is forgotten


class Forwards:
    """The stretches of the tape, oldest first."""

    def __init__(self) -> None:
        self._first: list[int] = []
        self._last: list[float] = []
        self._judged: tuple[weakref.ref[Backward], bool] | None = None

    def begin(self) -> None:
        """What the tape records from here on is part of a forward."""
        self.end()
        if len(self._first) == MOST:
            del self._first[: MOST // 2], self._last[: MOST // 2]
        self._first.append(tape_position())
        self._last.append(math.inf)

    def end(self) -> bool:
        """The forward that runs, if one does, ends here. Returns whether one did."""
        if not self._last or self._last[-1] != math.inf:
            return False
        self._last[-1] = tape_position()
        if self._last[-1] == self._first[-1] + 1:  # it has recorded nothing, like those without gradients
            del self._first[-1], self._last[-1]
        return True

    def are_in(self, run: Backward) -> bool:
        """Whether one of them is part of the backward `run`."""
        if self._judged is None or self._judged[0]() is not run:
            self._judged = weakref.ref(run), any(self._has(node.seq) for node in run.active)
        return self._judged[1]

    def _has(self, position: int) -> bool:
        place = bisect(self._first, position) - 1
        return place >= 0 and position < self._last[place]
