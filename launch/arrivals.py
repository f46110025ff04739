"""Ranks that have been started but have not said hello yet: which process is which rank, and which of them vanished?

In: looks at the launcher's descendants, by the variable in which mpiexec tells a process its rank. Out: pids by rank,
and when a rank's process ended, in the order in which the kernel told it (pidfd). Until a warden has a channel nobody
else could tell whom a signal has hit: mpiexec kills the others a millisecond later. Linux; elsewhere nothing is seen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from pathlib import Path

from launch import processes


@dataclass
class Arrivals:
    """variable: the name of mpiexec's variable for the rank; empty if there is no mpiexec.

    watch_end: has a function called when a process has ended.
    """

    variable: str
    watch_end: Callable[[int, Callable[[], None]], None]
    arrived: Container[int]  # ranks that have said hello: their wardens tell the rest
    seen: dict[int, int] = field(default_factory=dict)  # rank by pid
    gone: dict[int, float] = field(default_factory=dict)  # when a rank was found to have ended without a hello

    def look(self) -> None:
        """Find processes that are new."""
        if not self.variable:
            return
        for pid in processes.descendants(os.getpid()):
            if pid not in self.seen and is_here(pid) and (rank := rank_of(pid, self.variable)) is not None:
                self.seen[pid] = rank
                if rank not in self.arrived:
                    self.watch_end(pid, lambda rank=rank: self._ended(rank))  # type: ignore[misc]

    def _ended(self, rank: int) -> None:
        if rank not in self.arrived:
            self.gone.setdefault(rank, time.monotonic())


def is_here(pid: int) -> bool:
    """Whether the process is of this host, by its host name's namespace: containers may be hosts of their own."""
    try:
        return os.readlink(f"/proc/{pid}/ns/uts") == os.readlink("/proc/self/ns/uts")
    except OSError:
        return False


def rank_of(pid: int, variable: str) -> int | None:
    """The rank in the environment of process `pid`, if it was started with one."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    prefix = variable.encode() + b"="
    return next((int(entry[len(prefix) :]) for entry in entries if entry.startswith(prefix)), None)
