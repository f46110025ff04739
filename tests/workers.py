"""Runs the collected tests in processes that are forked from the one that collected them.

In: pytest's session, its items in order, a number of processes. Out: the same reports as of one process, as they come.
Invariants: what is imported and collected is so once, and lies in memory once. A file's tests stay in one process, in
order, so that what they compile together is compiled once. Files that start ranks go first, for what is left at the end
must be short; one process leaves them to the others, for ranks need the cores, and wait a lot. A process whose own
memory has grown past `OWN_MB` ends after its file, and a new fork goes on; one that dies fails the test that it ran,
and no other.
Known limits: Linux only; `-x` ends the processes when the failure is told, in the middle of other tests.
Method: as pytest-xdist's, whose workers each collect all tests, in silence, and keep for ever what any test leaves
behind.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from _pytest.config import create_terminal_writer

from compiler_core.runtime import pool

OWN_MB = 500
GRACE_S = 5.0


@dataclass(slots=True)
class File:
    """One file's tests. starts_ranks: it starts processes that are ranks, and may wait for them."""

    items: list[pytest.Item]
    starts_ranks: bool


@dataclass(slots=True)
class Worker:
    """A process, the file that it runs, and which of its tests: `at` is the one that has begun, -1 before the first."""

    number: int
    process: Any
    pipe: Connection
    file: File | None = None
    at: int = -1
    node: Any = field(init=False)  # a report that has one is shown without its file's name, as pytest-xdist's are

    def __post_init__(self) -> None:
        name = f"process {self.number}"
        self.node = SimpleNamespace(gateway=SimpleNamespace(id=name), _workerinfocache=f"[{name}]")


def run(session: pytest.Session, files: Sequence[File], processes: int) -> None:
    """Run `files` in `processes` processes. Raises session.Failed if that is enough failures."""
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one folder, shared by all
    parent = Parent(session, list(files), most_with_ranks=max(1, processes - 1))
    try:
        for number in range(processes):
            parent.start(number)
        while parent.workers:
            parent.listen()
    finally:
        parent.stop()


class Parent:
    """Hands out files, and passes on what the workers tell."""

    def __init__(self, session: pytest.Session, files: list[File], most_with_ranks: int) -> None:
        self.session, self.files, self.most_with_ranks = session, files, most_with_ranks
        self.workers: list[Worker] = []
        self.waiting: list[int] = []  # numbers of processes for which there is nothing until ranks have ended

    def start(self, number: int) -> None:
        """Fork a process and give it a file; none if there is none for it."""
        file = self._next_file()
        if file is None:
            if self.files:
                self.waiting.append(number)
            return
        ours, theirs = get_context("fork").Pipe()
        others = [worker.pipe for worker in self.workers]
        process = get_context("fork").Process(target=_work, args=(self.session, theirs, [ours, *others]))
        process.start()
        theirs.close()
        worker = Worker(number, process, ours)
        self.workers.append(worker)
        self._give(worker, file)

    def _next_file(self) -> File | None:
        with_ranks = sum(worker.file is not None and worker.file.starts_ranks for worker in self.workers)
        for place, file in enumerate(self.files):
            if not file.starts_ranks or with_ranks < self.most_with_ranks:
                return self.files.pop(place)
        return None

    def _give(self, worker: Worker, file: File) -> None:
        worker.file, worker.at = file, -1
        worker.pipe.send([item.nodeid for item in file.items])

    def listen(self) -> None:
        by_pipe = {worker.pipe: worker for worker in self.workers}
        for pipe in wait(list(by_pipe)):
            worker = by_pipe[pipe]  # type: ignore[index]
            kind, told = _received(worker.pipe)
            getattr(self, f"_told_{kind}")(worker, told)
            if self.session.shouldfail:
                raise self.session.Failed(self.session.shouldfail)
            if self.session.shouldstop:
                raise self.session.Interrupted(self.session.shouldstop)

    def _told_begin(self, worker: Worker, place: int) -> None:
        worker.at = place

    def _told_report(self, worker: Worker, data: dict[str, Any]) -> None:
        hook = self.session.config.hook
        report = hook.pytest_report_from_serializable(config=self.session.config, data=data)
        report.node = worker.node
        hook.pytest_runtest_logreport(report=report)

    def _told_warning(self, worker: Worker, given: dict[str, Any]) -> None:
        terminal = self.session.config.pluginmanager.get_plugin("terminalreporter")
        assert terminal is not None
        terminal.pytest_warning_recorded(**given)

    def _told_end(self, worker: Worker, own_mb: int) -> None:
        """Its file has ended: another, in a new process if this one holds too much memory."""
        worker.file = None
        file = self._next_file() if own_mb < OWN_MB else None
        if file is not None:
            self._give(worker, file)
        else:
            self._end(worker)
            self.waiting.append(worker.number)
        waiting, self.waiting = self.waiting, []
        for number in waiting:
            self.start(number)

    def _end(self, worker: Worker) -> None:
        worker.pipe.close()
        worker.process.join()
        self.workers.remove(worker)

    def stop(self) -> None:
        """End what still runs: as by Ctrl-C first, which lets a test end the processes that it started."""
        for worker in self.workers:
            with suppress(ProcessLookupError):
                os.kill(worker.process.pid, signal.SIGINT)
        for worker in self.workers:
            worker.process.join(GRACE_S)
            worker.process.kill()
            worker.process.join()

    def _told_nothing(self, worker: Worker, _: None) -> None:
        """It has died. The test that ran has failed; the file goes on behind it, in a new process."""
        file, at = worker.file, max(worker.at, 0)
        self._end(worker)
        assert file is not None
        code = worker.process.exitcode
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        item = file.items[at]
        words = dict.fromkeys(item.keywords, 1)
        text = f"the process that ran this test ended by {how}"
        report = pytest.TestReport(item.nodeid, item.location, words, "failed", text, "call", [])
        self.session.config.hook.pytest_runtest_logreport(report=report)
        if rest := file.items[at + 1 :]:
            self.files.insert(0, File(rest, file.starts_ranks))
        self.start(worker.number)


def _received(pipe: Connection) -> tuple[str, Any]:
    try:
        return pipe.recv()  # type: ignore[no-any-return]
    except (EOFError, ConnectionResetError):
        return "nothing", None


def _work(session: pytest.Session, pipe: Connection, others: list[Connection]) -> None:
    """A worker's life: files of tests, until the pipe is closed."""
    for other in others:
        other.close()
    atexit._clear()  # the parent does at its end what it meant to
    pool._Forks.is_child = False  # no child of a rank, which would leave the cores to it
    cores = session.config._tmp_path_factory.getbasetemp() / f"cores-{os.getpid()}"  # type: ignore[attr-defined]
    os.environ["DISTCOMPILE_RUN_CORES"] = str(cores)  # of two jobs at a time each is bound as if it were alone
    config = session.config
    capture = config.pluginmanager.get_plugin("capturemanager")
    if capture is not None:  # the files into which output is captured are the parent's
        capture.stop_global_capturing()
        capture.start_global_capturing()
    config.pluginmanager.unregister(name="terminalreporter")
    teller = Teller(pipe)
    writer = create_terminal_writer(config, sys.__stderr__)  # where pytest-timeout writes stacks
    config.pluginmanager.register(SimpleNamespace(_tw=writer), "terminalreporter")
    config.pluginmanager.register(teller, "teller")
    teller.config = config
    by_name = {item.nodeid: item for item in session.items}
    try:
        while True:
            items = [by_name[name] for name in pipe.recv()]
            for place, item in enumerate(items):
                pipe.send(("begin", place))
                following = items[place + 1] if place + 1 < len(items) else None
                config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            pipe.send(("end", own_mb()))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        pass  # the parent has nothing more, or is not there any more
    finally:
        atexit._run_exitfuncs()


class Teller:
    """Tells the parent what pytest reports."""

    config: pytest.Config

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self.pipe.send(("report", data))

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, when: str, nodeid: str) -> None:
        if when != "runtest":  # that of collecting, which every new plugin hears again
            return
        kind = next(kind for kind in warning_message.category.__mro__ if kind.__module__ == "builtins")
        where = warning_message.filename, warning_message.lineno
        said = warnings.WarningMessage(str(warning_message.message), kind, *where)
        self.pipe.send(("warning", {"warning_message": said, "nodeid": nodeid}))


def own_mb() -> int:
    """Memory of this process that it shares with no other, in MB."""
    rows = dict(line.split(":", 1) for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    return sum(int(rows[name].split()[0]) for name in ("Private_Dirty", "Private_Clean")) >> 10
