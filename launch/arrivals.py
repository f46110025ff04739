"""Ranks that have been started but have not said hello yet: which process is which rank, and which of them vanished?

In: looks at the launcher's descendants, by the variable in which mpiexec tells a process its rank. Out: pids by rank,
and ranks whose process was seen and is gone. Until a warden has a channel nobody else could tell whom a signal has
hit. Linux: read from /proc; elsewhere nothing is seen.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from launch import processes


@dataclass
class Arrivals:
    """variable: the name of mpiexec's variable for the rank; empty if there is no mpiexec."""

    variable: str
    seen: dict[int, int] = field(default_factory=dict)  # rank by pid
    gone: dict[int, float] = field(default_factory=dict)  # when a rank's only process was found to be gone

    def look(self, arrived: set[int]) -> None:
        """arrived: ranks that need no watching any more, for they have said hello."""
        if not self.variable:
            return
        alive = processes.descendants(os.getpid())
        for pid in alive:
            if pid not in self.seen and (rank := rank_of(pid, self.variable)) is not None:
                self.seen[pid] = rank
        ranks_alive = {self.seen[pid] for pid in alive if pid in self.seen}
        for rank in set(self.seen.values()):
            if rank not in arrived and rank not in ranks_alive:
                self.gone.setdefault(rank, time.monotonic())


def rank_of(pid: int, variable: str) -> int | None:
    """The rank in the environment of process `pid`, if it was started with one."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    prefix = variable.encode() + b"="
    return next((int(entry[len(prefix) :]) for entry in entries if entry.startswith(prefix)), None)
