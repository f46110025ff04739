"""Ranks that stand still: which processes have been stopped (SIGSTOP), and for how long?

In: process ids by rank, looked at now and then. Out: `Stopped`, once one has been stopped for `limit_s` without a
break. A process under a debugger is in another state ("t") and is left alone. Linux: read from /proc; elsewhere
nothing is found.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from launch import processes

_LOOK_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class Stopped:
    rank: int
    pid: int
    for_s: float


class Stops:
    """limit_s: 0 for never."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self.since: dict[int, float] = {}  # by pid
        self.next_look = 0.0

    def look(self, ranks: Mapping[int, int]) -> Stopped | None:
        """ranks: rank by process id. The one stopped for longest, if for too long."""
        now = time.monotonic()
        if not self.limit_s or now < self.next_look:
            return None
        self.next_look = now + _LOOK_EVERY_S
        stopped = {pid for pid in ranks if processes.state_of(pid) == "T"}
        self.since = {pid: self.since.get(pid, now) for pid in stopped}
        pid = min(self.since, key=self.since.__getitem__, default=0)
        if not pid or now - self.since[pid] < self.limit_s:
            return None
        return Stopped(ranks[pid], pid, now - self.since[pid])

    def forget(self) -> None:
        """We were stopped ourselves, and the ranks with us."""
        self.since.clear()
