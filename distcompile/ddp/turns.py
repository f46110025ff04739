"""Turns: how often one backward completes the gradient of a parameter, where a graph that stays the same says so.

In: `static_graph=True`, and backwards in which a node of the tape runs a backward of its own (a re-entrant checkpoint).
Out: which delivery of a gradient is its last. A weight that two such nodes use is complete twice on the tape; neither
knows of the other. As in torch, the first backward counts, and reduces at its end; the next ones reduce each gradient
at its last turn. What comes less often than counted is reduced at the end; what comes more often, when its bucket may
have left, is a LedgerError.
"""

from __future__ import annotations

from collections import Counter

from compiler_core.tensor.autograd.engine import Backward
from compiler_core.tensor.autograd.tape import FunctionNode


def may_nest(run: Backward) -> bool:
    """Whether a node of the tape in `run` may run a backward of its own: a user's Function."""
    return any(isinstance(node, FunctionNode) and not node.raw for node in run.active)


class Turns:
    """Those of one instance. counted: name -> deliveries, of the first backward that counted."""

    def __init__(self) -> None:
        self.counted: Counter[str] | None = None

    def begin(self, run: Backward | None) -> Turn | None:
        """What a backward that begins is to count; None if every gradient comes once, as far as is known."""
        if self.counted is None and (run is None or not may_nest(run)):
            return None
        return Turn(self)


class Turn:
    """The deliveries of one backward. waiting: name that came, and not for the last time -> whether to show it."""

    def __init__(self, turns: Turns) -> None:
        self.turns, self.expected = turns, turns.counted
        self.came: Counter[str] = Counter()
        self.waiting: dict[str, bool] = {}

    def is_single(self, name: str) -> bool:
        """Whether this gradient is known to come once."""
        return self.expected is not None and self.expected[name] <= 1

    def is_last(self, name: str, *, show: bool) -> bool:
        """Count a delivery. Returns whether it is the last."""
        self.came[name] += 1
        if self.expected is not None and self.came[name] >= self.expected[name]:
            self.waiting.pop(name, None)
            return True
        self.waiting[name] = show
        return False

    def end(self) -> dict[str, bool]:
        """The backward ended: what waits has come for the last time."""
        if self.turns.counted is None:
            self.turns.counted = self.came
        waiting, self.waiting = self.waiting, {}
        return waiting
