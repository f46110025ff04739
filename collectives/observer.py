"""The seam between a wait and whoever knows what the missing ranks are doing: asked in long waits only.

In: who is missing (ranks of the world; empty: not known), in what. Out: what they do, whether one of them is gone,
whether a time limit may be stretched.
`current()` does nothing until somebody installs another (distcompile.watchdog does). Called by any thread; `doing` and
`gone` may take a second when ranks are on other hosts.
"""

from __future__ import annotations

from collections.abc import Sequence

ASK_EVERY_S = 0.25  # seconds between two questions of one wait
EXCUSED_S = 2.0  # how long an excuse holds, until it is asked for again
LONG_WAIT_S = 0.02  # a wait is told to the observer once it has taken this long


class Observer:
    """Knows nothing; the base of those that do."""

    def waiting(self, what: str, missing: Sequence[int]) -> None:
        """This thread waits in `what` for ranks `missing`. Told again and again, or when `missing` changes."""

    def settled(self) -> None:
        """This thread's wait is over, well or not."""

    def doing(self, missing: Sequence[int]) -> str:
        """What those ranks are doing, a sentence each: "rank 3 has been compiling segment 2 for 41 s"; or ""."""
        return ""

    def gone(self, missing: Sequence[int]) -> str:
        """What became of those among the missing ranks that will never come; "" if all may."""
        return ""

    def excuses(self, missing: Sequence[int], within_s: float) -> bool:
        """Whether the wait may go on past its time limit: some rank compiles, or did within the last seconds."""
        return False

    def gave_up(self, what: str, rank: int) -> None:
        """This thread's wait ended, as another rank gave up at its own limit: that rank's report is this one's."""

    def timed_out(self, what: str, missing: Sequence[int]) -> str:
        """The limit is over and nobody is excused: have the ranks write where they are. Returns what they do."""
        return self.doing(missing)


_current = Observer()


def current() -> Observer:
    """Whom waits tell and ask."""
    return _current


def install(observer: Observer) -> None:
    """Tell and ask `observer` from now on."""
    global _current
    _current = observer
