"""Runs one job to its end: starts mpiexec, relays output, forwards signals, and leaves no process behind.

In: `Job`. Out: `Outcome` (exit code, what to say last). One thread, one selector; every wait has a deadline:
    a rank reports failure  -> `grace_s` for mpiexec to end the others, then SIGKILL to all
    SIGINT, SIGTERM, SIGHUP -> sent to the ranks; `grace_s` to end, then SIGKILL; a second signal: at once
    the job's own timeout   -> SIGQUIT, so that every rank writes its stacks and stays, then SIGKILL to all
Invariant: unless all went well, no descendant is alive when `run` returns.
"""

from __future__ import annotations

import math
import os
import selectors
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from launch import processes
from launch.channel import RankLink, listen
from launch.output import Screen

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STACKS_S = 1.0  # for the ranks to write where they are
_FORWARDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
_LAST_OUTPUT_S = 0.5  # for output still in the pipes when the job has ended


@dataclass(frozen=True, slots=True)
class Job:
    """What to run. command: for a socket path, the whole mpiexec line. Times in seconds; timeout_s 0: none."""

    command: Callable[[str], list[str]]
    environment: Mapping[str, str]
    size: int
    prefix: bool = True
    show_mpiexec: bool = False  # its own output is the ranks' (they run on other hosts)
    grace_s: float = 3.0
    timeout_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended. signum: the signal that ended it, or 0. ranks: in the order in which they ended badly."""

    returncode: int  # mpiexec's
    ranks: tuple[RankLink, ...]
    signum: int
    timed_out: bool
    mpiexec_output: str
    survivors: tuple[int, ...]


class Supervisor:
    """The state of one running job."""

    def __init__(self, job: Job, screen: Screen) -> None:
        self.job, self.screen = job, screen
        self.selector = selectors.DefaultSelector()
        self.links: list[RankLink] = []
        self.open_pipes: set[int] = set()
        self.mpiexec_output = bytearray()
        self.signals: list[int] = []
        self.ended_by = 0
        self.timed_out = False
        self.deadline: float | None = None
        self.killed = False

    def run(self) -> Outcome:
        """Start the job and stay until it has ended."""
        processes.adopt_orphans()
        with tempfile.TemporaryDirectory(prefix="dcrun-", dir=_short_tmp()) as folder:
            path = os.path.join(folder, "s")
            listener = listen(path)
            self.selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener))
            restore = self._install_handlers()
            try:
                self._start(path)
                self._loop()
            finally:
                restore()
                survivors = self._clean_up()
                listener.close()
        return self._outcome(survivors)

    def _start(self, path: str) -> None:
        self.mpiexec = subprocess.Popen(
            self.job.command(path),
            env=dict(self.job.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=processes.die_with_parent,  # noqa: PLW1509  # this process has one thread
        )
        self.started_at = time.monotonic()
        for stream, pipe in ((1, self.mpiexec.stdout), (2, self.mpiexec.stderr)):
            assert pipe is not None
            self._watch(os.dup(pipe.fileno()), lambda data, stream=stream: self._from_mpiexec(stream, data))  # type: ignore[misc]
            pipe.close()

    def _loop(self) -> None:
        last_output_until: float | None = None
        while True:
            for key, _ in self.selector.select(timeout=0.05):
                key.data()
            self._handle_signals()
            self._check_deadlines()
            if self.mpiexec.poll() is None:
                continue
            last_output_until = last_output_until or time.monotonic() + _LAST_OUTPUT_S
            if not self.open_pipes or time.monotonic() > last_output_until:
                return

    def _watch(self, descriptor: int, take: Callable[[bytes], None]) -> None:
        """Call `take` with what arrives on a pipe, and with b"" at its end."""
        os.set_blocking(descriptor, False)
        self.open_pipes.add(descriptor)

        def readable() -> None:
            try:
                data = os.read(descriptor, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                self.selector.unregister(descriptor)
                self.open_pipes.discard(descriptor)
                os.close(descriptor)
            take(data)

        self.selector.register(descriptor, selectors.EVENT_READ, readable)

    def _from_mpiexec(self, stream: int, data: bytes) -> None:
        if self.job.show_mpiexec:
            self.screen.write(stream, data)
        else:
            self.mpiexec_output += data

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        connection.setblocking(False)
        link = RankLink(connection)
        self.links.append(link)
        self.selector.register(connection, selectors.EVENT_READ, lambda: self._from_rank(link))

    def _from_rank(self, link: RankLink) -> None:
        if link.receive():
            self._hand_over(link)
        if link.failed_at is not None and self.deadline is None:
            self.deadline = link.failed_at + self.job.grace_s
        if link.closed_at is not None:
            self.selector.unregister(link.socket)
            link.socket.close()

    def _hand_over(self, link: RankLink) -> None:
        """Pipes of its own for the rank, or, without prefixes, our own stdout and stderr (so a terminal stays one)."""
        if not self.job.prefix:
            link.hand_over(1, 2)
            return
        ends = []
        for stream in (1, 2):
            ours, theirs = os.pipe()
            self._watch(ours, lambda data, stream=stream: self.screen.feed(link.rank, stream, data))  # type: ignore[misc]
            ends.append(theirs)
        link.hand_over(ends[0], ends[1])
        for end in ends:
            os.close(end)

    def _install_handlers(self) -> Callable[[], None]:
        """Collect signals from now on; returns what undoes it."""

        def note(signum: int, frame: FrameType | None) -> None:
            self.signals.append(signum)

        old = {s: signal.signal(s, note) for s in (*_ENDING, *_FORWARDED, signal.SIGTSTP)}

        def restore() -> None:
            for signum, handler in old.items():
                signal.signal(signum, handler)

        return restore

    def _handle_signals(self) -> None:
        while self.signals:
            signum = self.signals.pop(0)
            if signum == signal.SIGTSTP:
                self._suspend()
            elif signum in _FORWARDED or not self.ended_by:
                self._forward(signum)
            if signum in _ENDING:
                self.deadline = time.monotonic() + (0 if self.ended_by else self.job.grace_s)
                self.ended_by = signum

    def _alive(self) -> list[int]:
        return [link.pid for link in self.links if link.pid and link.closed_at is None]

    def _forward(self, signum: int) -> None:
        """To the ranks; before they have all said hello, to mpiexec, which knows them."""
        everyone = sum(link.pid > 0 for link in self.links) == self.job.size
        processes.send(self._alive() if everyone else [self.mpiexec.pid], signum)

    def _suspend(self) -> None:
        """Ctrl-Z: stop the ranks, then ourselves; go on together."""
        processes.send(self._alive(), signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        processes.send(self._alive(), signal.SIGCONT)

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        if self.job.timeout_s and not self.timed_out and now - self.started_at > self.job.timeout_s:
            self.timed_out = True
            self.deadline = min(self.deadline or math.inf, now + _STACKS_S)
            processes.send(self._alive(), signal.SIGQUIT)
        if self.deadline is not None and now > self.deadline and not self.killed:
            self.killed = True
            processes.kill_all([self.mpiexec.pid, *self._alive()])

    def _clean_up(self) -> list[int]:
        """After the loop, however it ended: unless all went well, nobody stays."""
        survivors: list[int] = []
        if not hasattr(self, "mpiexec"):
            return survivors
        if self.mpiexec.poll() != 0 or self.ended_by:
            survivors = processes.kill_all([self.mpiexec.pid] if self.mpiexec.poll() is None else [])
            self.mpiexec.wait(timeout=5)
        for descriptor in list(self.open_pipes):
            os.close(descriptor)
        self.selector.close()
        return survivors

    def _outcome(self, survivors: list[int]) -> Outcome:
        self.screen.close()
        bad = [link for link in self.links if link.failed_at is not None or link.died]
        bad.sort(key=lambda link: link.failed_at or link.closed_at or 0.0)
        output = self.mpiexec_output.decode(errors="replace")
        code = self.mpiexec.returncode
        return Outcome(code, tuple(bad), self.ended_by, self.timed_out, output, tuple(survivors))


def _short_tmp() -> str | None:
    """A folder for the socket: Unix socket paths end at about 100 bytes, and TMPDIR may be longer."""
    return None if len(tempfile.gettempdir()) < 70 else str(Path("/tmp"))
