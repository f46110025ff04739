"""The watchdog in a process: tells the board what waits wait for, and tells waits what the missing ranks are doing.

In: long waits of collectives (`collectives.observer`), the boards of the other ranks. Out: sentences for warnings and
errors, and three decisions: a rank that is gone ends the wait at once; a rank that is compiling is waited for past the
time limit; otherwise, at the limit, every rank writes where it is, and the launcher is told that the job hangs.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from threading import get_ident

from collectives.observer import Observer
from distcompile.watchdog.peers import Peers, Report, write_stack
from distcompile.watchdog.status import Status
from launch.board import Phase, Where, now_ns

FAR_EVERY_S = 5.0  # between questions to other hosts whether a rank is gone


class Watchdog(Observer):
    """One rank's watchdog. has_launcher: it reads the boards too, and can ask any rank for its stacks."""

    def __init__(self, status: Status, peers: Peers, *, has_launcher: bool) -> None:
        self.status, self.peers, self.has_launcher = status, peers, has_launcher
        self.lock = threading.Lock()
        self.main_waits = False
        self.asked_far_s = time.monotonic()
        self.has_reported = False

    # -- what the board shows

    def waiting(self, what: str, missing: Sequence[int]) -> None:
        status, board = self.status, self.status.board
        label, text = board.place(what), board.place(", ".join(map(str, missing)))
        if get_ident() != status.main:
            board.write(Where.COMMUNICATION, Phase.WAITING, now_ns(), status.step, label=label, text=text)
        elif not self.main_waits:
            self.main_waits = True
            status.enter(Phase.WAITING, label, text=text)

    def settled(self) -> None:
        if get_ident() != self.status.main:
            self.status.board.write(Where.COMMUNICATION, Phase.STARTING, now_ns())
        elif self.main_waits:
            self.main_waits = False
            self.status.leave()

    # -- what the others do

    def _reports(self, ranks: Sequence[int], *, with_stacks: bool = False) -> dict[int, Report]:
        others = [r for r in ranks or range(len(self.peers.cards)) if r != self.peers.rank]
        with self.lock:
            return self.peers.reports(others, with_stacks=with_stacks)

    def doing(self, missing: Sequence[int]) -> str:
        return "; ".join(report.sentence for _, report in sorted(self._reports(missing).items()))

    def gone(self, missing: Sequence[int]) -> str:
        far = [r for r in missing if r not in self.peers.readers]
        now_s = time.monotonic()
        if far and now_s - self.asked_far_s < FAR_EVERY_S:
            missing = [r for r in missing if r in self.peers.readers]
        elif far:
            self.asked_far_s = now_s
        if not missing:
            return ""
        return "; ".join(report.sentence for report in self._reports(missing).values() if report.is_gone)

    def excuses(self, missing: Sequence[int], within_s: float) -> bool:
        return any(report.compiled_s_ago < within_s for report in self._reports(()).values())

    def gave_up(self, what: str, rank: int) -> None:
        self._say_hang(f"rank {rank} gave up at its time limit while rank {self.peers.rank} was in {what}")

    def _say_hang(self, text: str) -> None:
        """What was said first counts: later waits end because of it."""
        if not self.status.board.words[6]:
            self.status.board.hang(text)

    def timed_out(self, what: str, missing: Sequence[int]) -> str:
        """Once a process: the report of all ranks on stderr. The board's word of it is for the launcher.

        Without a launcher the ranks write their stacks as well.
        """
        with self.lock:
            first, self.has_reported = not self.has_reported, True
        reports = self._reports((), with_stacks=first and not self.has_launcher)
        if first:
            lines = [f"rank {self.peers.rank} waited in {what} until its time limit; meanwhile:"]
            lines += [f"  {report.sentence}" for _, report in sorted(reports.items())]
            sys.stderr.write("\n".join([*lines, ""]))
            if not self.has_launcher:
                write_stack()
        self._say_hang(f"rank {self.peers.rank} waited too long in {what} for rank(s) {', '.join(map(str, missing))}")
        named = sorted((r, report) for r, report in reports.items() if not missing or r in missing)
        return "; ".join(report.sentence for _, report in named)
