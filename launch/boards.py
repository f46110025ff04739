"""The ranks' status boards, as the launcher reads them: what was each rank doing, and does one say that the job hangs?

In: the job's folder, where `child.py` makes a board for each rank and distcompile's watchdog keeps it. Out:
sentences. A board can be read whatever has become of its rank: running, stopped, or dead. A program that does not use
distcompile leaves its board as it was made: then only the beginning of the program is known.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace

from launch import board
from launch.board import BoardError, Phase, Reader

_LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Hang:
    """What a rank's watchdog says. goes_on: who said so, or was told so, and has not come to its program's end."""

    rank: int
    text: str
    goes_on: frozenset[int]


def path_of(folder: str, rank: int) -> str:
    """The board of `rank`."""
    return os.path.join(folder, f"board.{rank}")


@dataclass
class Boards:
    """Those of one job's ranks on this host."""

    folder: str
    _readers: dict[int, Reader] = field(default_factory=dict)
    next_look: float = 0.0
    seen: Hang | None = None

    def look(self, size: int, *, at_once: bool = False) -> Hang | None:
        """Whether a watchdog says that the job hangs: as it was half a second ago at most, or is now."""
        now = time.monotonic()
        if now < self.next_look and not at_once:
            return self.seen
        self.next_look = now + _LOOK_EVERY_S
        snapshots = {rank: reader.snapshot() for rank, reader in sorted(self._open(size).items())}
        said = {rank: snapshot.hang for rank, snapshot in snapshots.items() if snapshot.hang}
        goes_on = frozenset(rank for rank in said if snapshots[rank].main.phase is not Phase.FINISHED)
        self.seen = Hang(min(said), said[min(said)], goes_on) if said else None
        return self.seen

    def sentences(self, size: int) -> dict[int, str]:
        """What each rank was doing when this was called; ranks without a board are left out."""
        now = board.now_ns()
        found = {}
        for rank, reader in self._open(size).items():
            snapshot = reader.snapshot()
            never_beaten = snapshot.beat_ns <= snapshot.main.since_ns
            found[rank] = (replace(snapshot, beat_ns=now) if never_beaten else snapshot).sentence(now)
        return found

    def _open(self, size: int) -> dict[int, Reader]:
        for rank in set(range(size)) - set(self._readers):
            try:
                self._readers[rank] = Reader.open(path_of(self.folder, rank))
            except (FileNotFoundError, BoardError):  # not made yet
                continue
        return self._readers
