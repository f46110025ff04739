"""What the launcher knows of each rank, as its warden and the rank itself told it.

In: messages of `channel.py`. Out: `RankRecord`, one a rank. Times are of time.monotonic(); a message's own time
counts, for it is the time of the event and not of its arrival. Nothing here guesses: what nobody told stays None.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from typing import Any

from launch import processes
from launch.channel import Link


@dataclass(frozen=True, slots=True)
class Failure:
    """A rank's own account of its end. consequence: it says that another rank is the cause; suspect: it may be so."""

    at: float
    exit_code: int
    summary: str
    traceback: str
    place: str = ""
    consequence: bool = False
    suspect: bool = False


@dataclass(frozen=True, slots=True)
class End:
    """How the kernel says that a rank's process ended. relayed: a signal that mpiexec had sent to it before, or 0.

    heard_at: when the launcher came to read that; what the rank itself said last may be read a little later.
    """

    at: float
    status: int
    relayed: int = 0
    heard_at: float = field(default_factory=time.monotonic, compare=False)

    @property
    def signum(self) -> int:
        """The signal that ended it, or 0."""
        return os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else 0

    @property
    def exit_code(self) -> int:
        """As a shell gives it."""
        return 128 + self.signum if self.signum else os.WEXITSTATUS(self.status)

    @property
    def how(self) -> str:
        """For a sentence that starts with the rank."""
        return (
            f"was ended by {signal.Signals(self.signum).name}"
            if self.signum
            else f"left with exit code {self.exit_code}"
        )


@dataclass
class RankRecord:
    """One rank. is_far: it runs on another host. warden, pid: process ids there, 0 until told."""

    rank: int
    is_far: bool = False
    warden: int = 0
    pid: int = 0
    warden_link: Link | None = field(default=None, repr=False)
    is_done: bool = False
    is_replaced: bool = False  # by another program, through exec
    is_orphaned: bool = False
    failure: Failure | None = None
    end: End | None = None
    lost_at: float | None = None  # the warden itself died, or is out of reach
    is_cut: bool = False  # the second
    may_leave: bool = False
    fault: str = ""  # faulthandler's text

    @property
    def is_alive(self) -> bool:
        """Its own process runs, as far as anyone has said."""
        return self.pid > 0 and self.end is None and self.lost_at is None

    @property
    def is_over(self) -> bool:
        return self.end is not None or self.lost_at is not None

    @property
    def ended_well(self) -> bool:
        """It came to its program's end, or became a program that did."""
        return self.end is not None and self.end.status == 0 and (self.is_done or self.is_replaced)

    @property
    def left_early(self) -> bool:
        """Exit code 0, but not at its program's end: `os._exit(0)`, or C's `exit`."""
        return self.end is not None and self.end.status == 0 and not self.ended_well and self.failure is None

    def take(self, message: dict[str, Any]) -> None:
        """Note one message of its warden or its own."""
        event, at = message.pop("event"), min(message.pop("at"), time.monotonic())
        if event == "started":
            self.pid = message["pid"]
        elif event == "ended":
            self.end = End(at, message["status"], message["relayed"])
        elif event == "orphaned":
            self.is_orphaned = True
        elif event == "failed":
            self.failure = Failure(at, **message)
        elif event == "done":
            self.is_done = True
        elif event == "exec":
            self.is_replaced = not message["stays"]

    def lose_warden(self, *, is_cut: bool = False) -> None:
        """Its warden's channel has closed: after the end of the rank that is as it should be.

        is_cut: by nobody; its host does not answer.
        """
        self.warden_link = None
        if self.end is None:
            self.lost_at, self.is_cut = time.monotonic(), is_cut

    def signal(self, signum: int) -> None:
        """Send a signal to its process, wherever that runs."""
        if not self.is_far:
            processes.send([self.pid], signum)
        elif self.warden_link is not None:
            self.warden_link.signal(signum)

    def leave(self) -> None:
        """Let its warden end, and so tell mpiexec."""
        if self.warden_link is not None and not self.may_leave:
            self.may_leave = True
            self.warden_link.leave()
