"""Runs one job to its end: starts mpiexec, relays output, forwards signals, and leaves nothing behind.

In: `Job`. Out: `Outcome`: everything that was told, for `verdict.py` to say. One thread, one selector; every wait has a
deadline:
    a rank fails               -> the others' stories are waited for (`ending.py`), SIGTERM to all, `grace_s`, SIGKILL
    SIGINT, SIGTERM, SIGHUP    -> sent to the ranks; `grace_s` to end, then SIGKILL; a second signal: at once
    timeout, a stopped rank, a watchdog's word -> SIGQUIT, so that every rank writes its stacks and stays, then SIGKILL
    mpiexec dies               -> as if a rank had failed
Wardens hold a rank's bad end back from mpiexec until the launcher has ended the others: mpiexec thus never chooses
who dies. Invariant: unless all went well, no descendant, shared memory or temporary file is left when `run` returns.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType

from launch import ending, processes
from launch.arrivals import Arrivals
from launch.cause import MpiexecEnd
from launch.channel import Link, listen
from launch.folder import JobFolder
from launch.leftovers import SharedMemoryWatch
from launch.records import RankRecord
from launch.relay import Relay
from launch.stops import Stopped, Stops

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FORWARDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
_STACKS_S = 1.0  # for the ranks to write where they are
_LAST_OUTPUT_S = 0.5  # for output still in the pipes when the job has ended
_MPIEXEC_LAST_S = 5.0  # for mpiexec to end after its ranks
_TICK_S = 0.05


@dataclass(frozen=True, slots=True)
class Job:
    """What to run. command: for a folder, the whole mpiexec line. Times in seconds; 0: no limit."""

    command: Callable[[str], list[str]]
    environment: Callable[[str], Mapping[str, str]]
    size: int
    rank_variable: str = ""  # in which mpiexec tells a process its rank
    shows_mpiexec: bool = False  # its own output is the ranks' (they run on other hosts)
    grace_s: float = 3.0
    timeout_s: float = 0.0
    stop_limit_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended. returncode: mpiexec's. ending_at: when the launcher began to end it. signum: its own, or 0."""

    returncode: int
    records: tuple[RankRecord, ...]
    vanished: Mapping[int, float]  # ranks that died before they could say hello
    mpiexec: MpiexecEnd | None
    ending_at: float | None
    signum: int
    timed_out: bool
    stopped: Stopped | None
    mpiexec_output: str
    last_words: Mapping[int, bytes]  # the end of each rank's stderr
    survivors: tuple[int, ...]


class Supervisor:
    """The state of one running job."""

    def __init__(self, job: Job, relay: Relay) -> None:
        self.job, self.relay = job, relay
        self.selector = selectors.DefaultSelector()
        self.records: dict[int, RankRecord] = {}
        self.arrivals = Arrivals(job.rank_variable)
        self.memory = SharedMemoryWatch()
        self.stops = Stops(job.stop_limit_s)
        self.open_pipes: set[int] = set()
        self.mpiexec_output = bytearray()
        self.mpiexec_end: MpiexecEnd | None = None
        self.signals: list[int] = []
        self.ended_by = 0
        self.timed_out = False
        self.stopped: Stopped | None = None
        self.ending_at: float | None = None
        self.kill_at: float | None = None
        self.killed = False
        self.over_at: float | None = None

    def run(self) -> Outcome:
        """Start the job and stay until it has ended."""
        processes.adopt_orphans()
        with JobFolder() as folder:
            listener = listen(folder)
            self.selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener))
            restore = self._install_handlers()
            try:
                self._start(folder)
                self._loop()
            finally:
                restore()
                survivors = self._clean_up()
                listener.close()
        return self._outcome(survivors)

    def _start(self, folder: str) -> None:
        self.mpiexec = subprocess.Popen(
            self.job.command(folder),
            env=dict(self.job.environment(folder)),
            stdin=None if self.job.shows_mpiexec else subprocess.DEVNULL,  # rank 0 gets ours from the warden's channel
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

    # -- the loop

    def _loop(self) -> None:
        last_output_until: float | None = None
        while True:
            for key, _ in self.selector.select(timeout=_TICK_S):
                key.data()
            self.tick()
            if self.mpiexec.poll() is None or (self._running() and not self.killed):
                continue
            last_output_until = last_output_until or time.monotonic() + _LAST_OUTPUT_S
            if not self.open_pipes or time.monotonic() > last_output_until:
                return

    def tick(self) -> None:
        """What the clock and signals ask for; also called while output is held up."""
        self._handle_signals()
        self._look_around()
        self._check_deadlines()
        self._let_leave()

    def _look_around(self) -> None:
        """What nobody tells us: new shared memory, ranks that have not said hello, stopped ranks, mpiexec's end."""
        running = self._running()
        self.memory.take(running)
        if len(self.records) < self.job.size:
            self.arrivals.look(set(self.records))
        if self.mpiexec_end is None and self.mpiexec.poll() is not None:
            signum = -self.mpiexec.returncode if self.mpiexec.returncode < 0 and not self.killed else 0
            self.mpiexec_end = MpiexecEnd(time.monotonic(), signum)
        if self.stopped is None and self.ending_at is None:
            ranks = {pid: record.rank for record in self.records.values() for pid in (record.pid, record.warden)}
            self.stopped = self.stops.look({**self.arrivals.seen, **ranks})

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        if self.ending_at is None:
            self._check_whether_to_end(now)
        if self.kill_at is not None and now > self.kill_at and not self.killed:
            self.killed = True
            processes.kill_all([self.mpiexec.pid, *self._running()])

    def _check_whether_to_end(self, now: float) -> None:
        if self.job.timeout_s and now - self.started_at > self.job.timeout_s:
            self.timed_out = True
        if self.timed_out or self.stopped is not None:
            self._end(now, _STACKS_S, signal.SIGCONT, signal.SIGQUIT)
            return
        times = [ending.begins_at(list(self.records.values()), self.job.size, self.job.grace_s)]
        times += [at + ending.SETTLE_S for at in self.arrivals.gone.values()]
        if self.mpiexec_end is not None and self._running():
            times.append(self.mpiexec_end.at + ending.SETTLE_S)
        if any(time is not None and time <= now for time in times):
            self._end(now, self.job.grace_s, signal.SIGTERM, signal.SIGCONT)

    def _end(self, now: float, grace_s: float, *signums: int) -> None:
        """Begin to end the job."""
        self.ending_at = now
        self.kill_at = min(self.kill_at or now + grace_s, now + grace_s)
        for signum in signums:
            processes.send(self._running(), signum)

    def _let_leave(self) -> None:
        """Tell wardens that mpiexec may know: of good ends at once, of bad ones when everybody has ended."""
        records = list(self.records.values())
        all_over = all(record.is_over for record in records)
        everyone = all_over and (len(records) == self.job.size or self.ending_at is not None)
        for record in records:
            if record.ended_well or everyone:
                record.leave()
        if everyone and records:
            self.over_at = self.over_at or time.monotonic()
            if self.kill_at is None and time.monotonic() > self.over_at + _MPIEXEC_LAST_S:
                self.kill_at = 0.0

    def _running(self) -> list[int]:
        """The ranks' own processes that nobody has said to be over."""
        return [record.pid for record in self.records.values() if record.is_alive]

    # -- output and channels

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
        if self.job.shows_mpiexec:
            self.relay.screen.write(stream, data)
        else:
            self.mpiexec_output += data

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        link = Link(connection)
        said: dict[str, int | str] = {}
        self.selector.register(connection, selectors.EVENT_READ, lambda: self._hear(link, said))

    def _hear(self, link: Link, said: dict[str, int | str]) -> None:
        """One readable connection. said: its hello, once it has come."""
        messages, text = link.receive()
        for message in messages:
            if message["event"] == "hello":
                said.update(message)
                self._greet(link, said)
            else:
                self.records[int(said["rank"])].take(message)
        if said and text:
            self.records[int(said["rank"])].fault += text
        if link.closed:
            self.selector.unregister(link.socket)
            link.socket.close()
            if said and said["role"] == "warden":
                self.records[int(said["rank"])].lose_warden()

    def _greet(self, link: Link, said: Mapping[str, int | str]) -> None:
        rank = int(said["rank"])
        record = self.records.setdefault(rank, RankRecord(rank))
        if said["role"] == "warden":
            record.warden, record.warden_link = int(said["pid"]), link
            descriptors, close = self.relay.streams_of(rank, self._watch)
            link.hand_over(descriptors)
            close()

    # -- signals

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
            signum, now = self.signals.pop(0), time.monotonic()
            if signum == signal.SIGTSTP:
                self._suspend()
            elif signum in _FORWARDED or not self.ended_by:
                self._forward(signum)
            if signum in _ENDING:
                self.ending_at = self.ending_at or now
                self.kill_at = now + (0 if self.ended_by else self.job.grace_s)
                self.ended_by = signum

    def _forward(self, signum: int) -> None:
        """To the ranks; before they have all said hello, to mpiexec, which knows them."""
        everyone = sum(record.pid > 0 for record in self.records.values()) == self.job.size
        processes.send(self._running() if everyone else [self.mpiexec.pid], signum)

    def _suspend(self) -> None:
        """Ctrl-Z: stop the ranks, then ourselves; go on together."""
        processes.send(self._running(), signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        processes.send(self._running(), signal.SIGCONT)
        self.stops.forget()

    # -- the end

    def _clean_up(self) -> list[int]:
        """After the loop, however it ended: unless all went well, nobody stays."""
        survivors: list[int] = []
        if not hasattr(self, "mpiexec"):
            return survivors
        if self.mpiexec.poll() != 0 or self.ended_by or self.ending_at is not None:
            survivors = processes.kill_all([self.mpiexec.pid] if self.mpiexec.poll() is None else [])
            self.mpiexec.wait(timeout=5)
            self.memory.remove()
        self.memory.close()
        for descriptor in list(self.open_pipes):
            os.close(descriptor)
        self.selector.close()
        return survivors

    def _outcome(self, survivors: list[int]) -> Outcome:
        self.relay.close()
        return Outcome(
            returncode=self.mpiexec.returncode,
            records=tuple(self.records[rank] for rank in sorted(self.records)),
            vanished=dict(self.arrivals.gone),
            mpiexec=self.mpiexec_end,
            ending_at=self.ending_at,
            signum=self.ended_by,
            timed_out=self.timed_out,
            stopped=self.stopped,
            mpiexec_output=self.mpiexec_output.decode(errors="replace"),
            last_words=dict(self.relay.last_words),
            survivors=tuple(survivors),
        )
