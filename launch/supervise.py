"""Runs one job to its end: starts mpiexec, relays output, forwards signals, and leaves nothing behind.

In: `Job`. Out: `Outcome`: everything that was told, for `verdict.py` to say. One thread, one selector; every wait has a
deadline:
    a rank fails               -> the others' stories are waited for (`ending.py`), SIGTERM to all, `grace_s`, SIGKILL
    SIGINT, SIGTERM, SIGHUP    -> sent to the ranks; `signal_grace_s` to end, then SIGKILL; a second signal: at once
    timeout, a stopped rank    -> SIGQUIT, so that every rank writes its stacks and stays, then SIGKILL
    a watchdog's word          -> SIGQUIT; ranks that handle their error may save first (`ending.Standstill`)
    mpiexec dies               -> as if a rank had failed
Wardens hold a rank's bad end back from mpiexec until the launcher has ended the others: mpiexec thus never chooses who
dies. Invariant: unless all went well, no descendant, shared memory or temporary file is left when `run` returns.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType

from launch import ending, processes
from launch.arrivals import Arrivals
from launch.boards import Boards, Hang
from launch.cause import MpiexecEnd
from launch.folder import JobFolder
from launch.machine.leftovers import SharedMemoryWatch
from launch.records import RankRecord
from launch.screen.relay import Relay
from launch.stops import Stopped, Stops
from launch.switchboard import Switchboard

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FORWARDED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)
_STACKS_S = 1.0  # for the ranks to write where they are
_NOTICE_S = 2.0  # for ranks to end after a signal, before somebody asks why they do not
_STAY_S = 0.3  # before a stopped rank goes on: the others' stacks are to say that they wait for it
_LAST_OUTPUT_S = 0.5  # for output still in the pipes when the job has ended
_MPIEXEC_LAST_S = 5.0  # for mpiexec to end after its ranks
_TICK_S = 0.05
_ME = "distcompile-run:"
_STARTING_TICK_S = 0.01


@dataclass(frozen=True, slots=True)
class Job:
    """What to run. command: for a folder, and what other hosts are told, the mpiexec line. Times in s; 0: no limit."""

    command: Callable[[str, str], list[str]]
    environment: Callable[[str], Mapping[str, str]]
    size: int
    rank_variable: str = ""  # in which mpiexec tells a process its rank
    shows_mpiexec: bool = False  # its own output is the ranks' (they run on other hosts)
    grace_s: float = 3.0
    timeout_s: float = 0.0
    signal_grace_s: float = 30.0
    save_limit_s: float = 600.0
    stop_limit_s: float = 5.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended. returncode: mpiexec's. ending_at: when the launcher began to end it. signum: its own, or 0."""

    size: int
    returncode: int
    records: tuple[RankRecord, ...]
    vanished: Mapping[int, float]  # ranks that died before they could say hello
    mpiexec: MpiexecEnd | None
    ending_at: float | None
    signum: int
    timed_out: bool
    stopped: Stopped | None
    hang: Hang | None
    doing: Mapping[int, str]  # what each rank was doing when the launcher began to end the job, if it tells
    mpiexec_output: str
    last_words: Mapping[int, bytes]  # the end of each rank's stderr
    survivors: tuple[int, ...]


def _is_ignored(signum: int) -> bool:
    """Whether whoever started us, as nohup does, had it so."""
    return signal.getsignal(signum) is signal.SIG_IGN


class Supervisor:
    """The state of one running job."""

    def __init__(self, job: Job, relay: Relay) -> None:
        self.job, self.relay = job, relay
        self.memory = SharedMemoryWatch()
        self.stops = Stops(job.stop_limit_s)
        self.mpiexec_output = bytearray()
        self.mpiexec_end: MpiexecEnd | None = None
        self.signals: list[int] = []
        self.ended_by = 0
        self.timed_out = False
        self.stopped: Stopped | None = None
        self.hang: Hang | None = None
        self.standstill = ending.Standstill(job.save_limit_s)
        self.doing: Mapping[int, str] = {}
        self.ending_at: float | None = None
        self.tell_at: float | None = None
        self.kill_at: float | None = None
        self.go_on_at: float | None = None
        self.killed = False
        self.over_at: float | None = None

    def run(self) -> Outcome:
        """Start the job and stay until it has ended."""
        processes.adopt_orphans()
        with JobFolder() as folder:
            self.switchboard = Switchboard(self.relay, folder, hears_far=self.job.shows_mpiexec)
            self.boards = Boards(folder)
            self.arrivals = Arrivals(self.job.rank_variable, self.switchboard.watch_end, self.switchboard.records)
            restore = self._install_handlers()
            try:
                self._start(folder)
                self._loop()
            finally:
                restore()
                survivors = self._clean_up()
        return self._outcome(survivors)

    @property
    def records(self) -> list[RankRecord]:
        return list(self.switchboard.records.values())

    def _start(self, folder: str) -> None:
        processes.lift_file_limit()
        self.mpiexec = subprocess.Popen(
            self.job.command(folder, str(self.switchboard.far or "")),
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
            take = lambda data, stream=stream: self._from_mpiexec(stream, data)  # noqa: E731
            self.switchboard.watch(os.dup(pipe.fileno()), take)
            pipe.close()

    def _from_mpiexec(self, stream: int, data: bytes) -> None:
        if self.job.shows_mpiexec:
            self.relay.screen.write(stream, data)
        else:
            self.mpiexec_output += data

    # -- the loop

    def _loop(self) -> None:
        last_output_until: float | None = None
        while True:
            all_here = len(self.switchboard.records) == self.job.size
            self.switchboard.wait(_TICK_S if all_here else _STARTING_TICK_S)
            self.tick()
            if self.mpiexec.poll() is None or (self.switchboard.running() and not self.killed):
                continue
            last_output_until = last_output_until or time.monotonic() + _LAST_OUTPUT_S
            if not self.switchboard.open_pipes or time.monotonic() > last_output_until:
                return

    def tick(self) -> None:
        """What the clock and signals ask for; also called while output is held up."""
        self._handle_signals()
        self._look_around()
        self._check_deadlines()
        self._let_leave()

    def _look_around(self) -> None:
        """What nobody tells us: new shared memory, ranks without a hello, stopped and hanging ranks, mpiexec's end."""
        self.memory.take(self.switchboard.running())
        if len(self.switchboard.records) < self.job.size:
            self.arrivals.look()
        if self.mpiexec_end is None and self.mpiexec.poll() is not None:
            signum = -self.mpiexec.returncode if self.mpiexec.returncode < 0 and not self.killed else 0
            self.mpiexec_end = MpiexecEnd(time.monotonic(), signum)
        if self.ending_at is None:
            here = [record for record in self.records if not record.is_far]
            ranks = {pid: record.rank for record in here for pid in (record.pid, record.warden)}
            self.stopped = self.stops.look({**self.arrivals.seen, **ranks})
            self._look_for_hang()

    def _look_for_hang(self, *, at_once: bool = False) -> None:
        """What the watchdogs say; at their first word, every rank writes its stacks."""
        now, was_there = time.monotonic(), self.hang is not None
        self.hang = self.boards.look(self.job.size, at_once=at_once)
        self.standstill.hear(now, None if self.hang is None else self.hang.goes_on, self.switchboard.records)
        if self.hang is None:
            return
        if not was_there and not ending.is_explained(self.records):
            self.switchboard.signal(signal.SIGQUIT)
        words = self.standstill.words(now, self.hang.text)
        if words:
            self.say(words)

    def say(self, words: str) -> None:
        """The launcher's own, in the middle of a job."""
        self.relay.screen.message(f"{_ME} {words}\n")

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        if self.ending_at is None:
            self._check_whether_to_end(now)
        if self.tell_at is not None and now > self.tell_at and self.switchboard.running():
            self.tell_at = None
            name, limit_s = signal.Signals(self.ended_by).name, self.job.signal_grace_s
            self.say(f"the ranks have had {name}, and {limit_s:g} s to end (--grace); a second one ends them at once")
        if self.go_on_at is not None and now > self.go_on_at:
            self.go_on_at = None
            self.switchboard.signal(signal.SIGCONT)
        if self.kill_at is not None and now > self.kill_at and not self.killed:
            self.killed = True
            self.switchboard.signal(signal.SIGKILL)
            processes.kill_all([self.mpiexec.pid, *self.switchboard.running()])

    def _check_whether_to_end(self, now: float) -> None:
        self.timed_out = bool(self.job.timeout_s) and now - self.started_at > self.job.timeout_s
        explained = ending.is_explained(self.records)
        if self.timed_out or (self.stopped is not None and not self.standstill.holds(now)):
            self._end(now, _STACKS_S, signal.SIGQUIT)
            return
        failed = ending.begins_at(self.records, self.job.size, self.job.grace_s)
        hung = self.standstill.begins_at(self.job.grace_s)
        times = [failed, hung, *(at + ending.SETTLE_S for at in self.arrivals.gone.values())]
        if self.mpiexec_end is not None and self.switchboard.running():
            times.append(self.mpiexec_end.at + ending.SETTLE_S)
        is_due = any(time is not None and time <= now for time in times)
        if is_due:
            self._look_for_hang(at_once=True)
        if is_due and not self.standstill.holds(now):
            has_stacks = explained or self.hang is not None
            signum, grace_s = (signal.SIGTERM, self.job.grace_s) if has_stacks else (signal.SIGQUIT, _STACKS_S)
            self._end(now, grace_s, signum)

    def _all_ended_well(self) -> bool:
        return all(record.ended_well for record in self.records)

    def _end(self, now: float, grace_s: float, signum: int) -> None:
        """Begin to end the job. A stopped rank has its signal when it goes on, which is after the others had theirs."""
        self.ending_at, self.go_on_at = now, now + _STAY_S
        self.kill_at = min(self.kill_at or now + grace_s, now + grace_s)
        self.doing = self.boards.sentences(self.job.size)
        self.switchboard.signal(signum)

    def _let_leave(self) -> None:
        """Tell wardens that mpiexec may know: of good ends at once, of bad ones when everybody has ended; and so of
        ranks that became other programs, which MPI misses.
        """
        records = self.records
        all_over = all(record.is_over for record in records)
        everyone = all_over and (len(records) == self.job.size or self.ending_at is not None)
        for record in records:
            if (record.ended_well and not record.is_replaced) or everyone:
                record.leave()
        if everyone and records:
            self.over_at = self.over_at or time.monotonic()
            self.doing = self.doing or self.boards.sentences(self.job.size)
            if self.kill_at is None and time.monotonic() > self.over_at + _MPIEXEC_LAST_S:
                self.kill_at = 0.0

    # -- signals

    def _install_handlers(self) -> Callable[[], None]:
        """Collect signals from now on; returns what undoes it."""

        def note(signum: int, frame: FrameType | None) -> None:
            self.signals.append(signum)

        heard = [s for s in (*_ENDING, *_FORWARDED, signal.SIGTSTP) if s != signal.SIGHUP or not _is_ignored(s)]
        old = {s: signal.signal(s, note) for s in heard}

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
                self.kill_at = now + (0 if self.ended_by else self.job.signal_grace_s)
                self.ended_by, self.tell_at = signum, None if self.ended_by else now + _NOTICE_S

    def _forward(self, signum: int) -> None:
        """To the ranks; before they have all said hello, to mpiexec, which knows them."""
        everyone = sum(record.pid > 0 for record in self.records) == self.job.size
        if everyone:
            self.switchboard.signal(signum)
        else:
            processes.send([self.mpiexec.pid], signum)

    def _suspend(self) -> None:
        """Ctrl-Z: stop the ranks, then ourselves; go on together."""
        self.switchboard.signal(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        self.switchboard.signal(signal.SIGCONT)
        self.stops.forget()

    # -- the end

    def _clean_up(self) -> list[int]:
        """After the loop, however it ended: unless all went well, nobody stays."""
        survivors: list[int] = []
        has_started = hasattr(self, "mpiexec")
        was_ended = self.ending_at is not None or self.ended_by
        all_well = self._all_ended_well()
        by_choice = all(record.left_early for record in self.records)  # all of them: `os._exit(0)`
        if has_started and (self.mpiexec.poll() != 0 or was_ended or not (all_well or by_choice)):
            survivors = processes.kill_all([self.mpiexec.pid] if self.mpiexec.poll() is None else [])
            self.mpiexec.wait(timeout=5)
            self.memory.remove(only_mpis=all_well and not was_ended)
        else:  # a rank that became another program, say, never came to MPI_Finalize
            self.memory.remove(only_mpis=all_well)
        self.memory.close()
        self.switchboard.close()
        return survivors

    def _outcome(self, survivors: list[int]) -> Outcome:
        self.relay.close()
        return Outcome(
            size=self.job.size,
            returncode=self.mpiexec.returncode,
            records=tuple(sorted(self.records, key=lambda record: record.rank)),
            vanished=dict(self.arrivals.gone),
            mpiexec=self.mpiexec_end,
            ending_at=self.ending_at,
            signum=self.ended_by,
            timed_out=self.timed_out,
            stopped=self.stopped,
            hang=self.hang,
            doing=self.doing,
            mpiexec_output=self.mpiexec_output.decode(errors="replace"),
            last_words=dict(self.relay.last_words),
            survivors=tuple(survivors),
        )
