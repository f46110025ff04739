"""The warden: the tiny parent of each rank's process, which knows how that process died, because the kernel tells it.

    mpiexec -> warden (this file; never loads MPI or the user's program) -> the rank

In: the pid of the rank, forked a moment ago, and the channel to the launcher. Out: the rank's exit status and time,
told to the launcher; then this process ends in the same way, once the launcher says so: mpiexec thus learns of a
death only after the launcher, and nobody is killed for it before its story is told. Invariants: signals that mpiexec
sends to "the rank" are passed on, and said to have been; the rank dies if its warden does (PR_SET_PDEATHSIG), and is
ended if the mpiexec above or the launcher goes away. Without a launcher to talk to (another host) the warden only
passes signals and the exit status on.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import select
import signal
import time
from types import FrameType
from typing import NoReturn

from launch import processes
from launch.channel import LEAVE, STREAMS, Channel

RELAYED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LEAVE_WITHIN_S = 60.0  # the launcher always says when; this is for one that is itself stopped


def fork(channel: Channel | None) -> None:
    """Split into warden and rank: returns in the rank only, whose parent then is the warden."""
    warden = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, RELAYED)
    pid = os.fork()
    if pid:
        Warden(pid, channel).watch()
    os.setpgid(0, 0)  # what mpiexec sends to the warden's group reaches the rank through the warden alone
    processes.die_with_parent(signal.SIGKILL)
    if os.getppid() != warden:
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, RELAYED)
    if channel is not None:
        channel.close()


class Warden:
    """The state of one watch. pid: the rank's process."""

    def __init__(self, pid: int, channel: Channel | None) -> None:
        self.pid, self.channel = pid, channel
        self.parent = os.getppid()
        self.relayed = 0
        self.status: int | None = None
        self.may_leave = channel is None
        self.wakeup, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for signum in RELAYED:
            signal.signal(signum, self._relay)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        processes.die_with_parent(signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, RELAYED)

    def watch(self) -> NoReturn:
        """Stay until the rank has died and the launcher lets us go; then die as the rank did."""
        self._let_go_of_streams()
        if self.channel is not None:
            self.channel.tell("started", pid=self.pid)
        self._check_parent()  # it may have gone before we asked to be told
        while self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = status
            else:
                self._listen(None)  # SIGCHLD wakes it
        if self.channel is not None:
            self.channel.tell("ended", status=self.status, relayed=self.relayed)
        deadline = time.monotonic() + _LEAVE_WITHIN_S
        while not self.may_leave and (left := deadline - time.monotonic()) > 0:
            self._listen(left)
        end_as(self.status)

    def _listen(self, timeout_s: float | None) -> None:
        """Wait for a signal or for the launcher."""
        sources = [self.wakeup] if self.channel is None else [self.wakeup, self.channel.fileno()]
        ready, _, _ = select.select(sources, [], [], timeout_s)
        if self.wakeup in ready:
            os.read(self.wakeup, 4096)
        if len(ready) > (self.wakeup in ready):
            self._hear()

    def _hear(self) -> None:
        """The launcher says `leave`, or has gone: then the rank must go too."""
        assert self.channel is not None
        said = self.channel.receive()
        self.may_leave |= not said or LEAVE in said
        for signum in re.findall(rb"signal (\d+)\n", said):
            self._signal(int(signum))
        if not said:
            self.channel = None
            self._signal(signal.SIGKILL)

    def _relay(self, signum: int, frame: FrameType | None) -> None:
        if signum == signal.SIGTERM and self._check_parent():
            return
        if signum in _ENDING:
            self.relayed = signum
        self.may_leave |= self.status is not None and signum in _ENDING
        self._signal(signum)

    def _check_parent(self) -> bool:
        """Whether the mpiexec above us has gone; then the rank goes."""
        if os.getppid() == self.parent:
            return False
        if self.channel is not None:
            self.channel.tell("orphaned")
        self._signal(signal.SIGKILL)
        return True

    def _signal(self, signum: int) -> None:
        if self.status is None:
            processes.send([self.pid], signum)  # our own child, not yet waited for: the pid is its own

    def _let_go_of_streams(self) -> None:
        """The streams are the rank's; held here too, they would never end."""
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in STREAMS:
            os.dup2(nothing, stream)


def end_as(status: int) -> NoReturn:
    """End this process with a `waitpid` status of another: its exit code, or its signal."""
    if os.WIFSIGNALED(status):
        signum = os.WTERMSIG(status)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the rank has written its core, if any
        if signum not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)
        os._exit(128 + signum)
    os._exit(os.WEXITSTATUS(status))
