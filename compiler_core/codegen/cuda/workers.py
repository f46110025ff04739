"""Processes that compile Triton functions, side by side; they stay, for whoever compiles next.

In: requests, as worker.py has them. Out: its answers, in order. One process loads Triton, and forks others as they are
needed, up to as many as there are cores: Triton is imported once, whatever is compiled later. They live until nobody
has asked for a while (`IDLE_S`), or the process that began them ends. What Triton writes into its own cache goes to
the folder's `triton`, which is removed.
Raises: BackendError where Triton is not installed.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Timer
from typing import Any, TextIO

from compiler_core.codegen.cuda import worker
from compiler_core.codegen.triton.load import import_triton
from compiler_core.config import available_cores

MOST = 16  # workers
IDLE_S = 60.0

Answer = dict[str, Any]
ENDED: Answer = {"error": "the process that compiles it ended"}


class Workers:
    """A block in which functions are compiled.

    The processes load Triton while the caller is still lowering; not `early`: when there is something to compile.
    folder: where Triton may write.
    """

    def __init__(self, folder: Path, *, early: bool = True) -> None:
        check_triton()
        self.folder = folder
        if early:
            _kept.begin()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self.folder / "triton", ignore_errors=True)

    def compile(self, requests: Sequence[dict[str, Any]]) -> list[Answer]:
        """The answers, in order. The longest come first; each process takes the next as soon as it is done with one."""
        if not requests:
            return []
        return _kept.compile([request | {"cache": str(self.folder / "triton")} for request in requests])


def check_triton() -> None:
    """Raise BackendError, with the remedy, where Triton is not installed. It is not imported here."""
    if find_spec("triton") is None:
        import_triton()


class _Pool:
    """One process that has loaded Triton, or is about to, and a line to each that it will fork."""

    def __init__(self) -> None:
        pairs = [socket.socketpair() for _ in range(min(available_cores(), MOST))]
        theirs = [pair[1].fileno() for pair in pairs]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "TRITON_INTERPRET": "0",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-P", worker.__file__, *map(str, theirs)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            pass_fds=theirs,
        )
        self.is_whole = True  # no worker has ended
        self._lines = [(ours.makefile("r"), ours.makefile("w")) for ours, _ in pairs]
        for pair in pairs:
            for end in pair:
                end.close()  # ours is open while its files are

    def compile(self, requests: Sequence[dict[str, Any]]) -> dict[int, Answer]:
        """The answers of those that were answered, by place."""
        queue: SimpleQueue[tuple[int, dict[str, Any]] | None] = SimpleQueue()
        for numbered in sorted(enumerate(requests), key=lambda numbered: -numbered[1]["length"]):
            queue.put(numbered)
        lines = self._lines[: len(requests)]
        for _ in lines:
            queue.put(None)
        answers: dict[int, Answer] = {}
        with ThreadPoolExecutor(len(lines)) as pool:
            for served in pool.map(lambda line: dict(_serve(queue, *line)), lines):
                answers |= served
        self.is_whole = ENDED not in answers.values()
        return answers

    def close(self) -> None:
        self._process.kill()  # who was forked ends with its line
        self._process.wait()
        for line in self._lines:
            for end in line:
                with suppress(OSError):  # what was not sent yet to one that has ended
                    end.close()


def _serve(
    queue: SimpleQueue[tuple[int, dict[str, Any]] | None], answers: TextIO, requests: TextIO
) -> Iterator[tuple[int, Answer]]:
    """Requests from the queue through one worker, until there are none, or it ends; (number, answer) of each."""
    while (numbered := queue.get()) is not None:
        place, request = numbered
        try:
            requests.write(json.dumps(request) + "\n")
            requests.flush()
            line = answers.readline()
        except OSError:
            line = ""
        yield place, json.loads(line) if line else ENDED


class _Kept:
    """The pool of this process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._pool: _Pool | None = None
        self._timer: Timer | None = None

    def begin(self) -> None:
        with self._lock:
            self._pool = self._pool or _Pool()
            self._rest()

    def compile(self, requests: Sequence[dict[str, Any]]) -> list[Answer]:
        with self._lock:
            self._pool = pool = self._pool or _Pool()
            answers = pool.compile(requests)
            self._rest()
            if not pool.is_whole:
                self._close()
        return [answers[k] for k in range(len(requests))]

    def _rest(self) -> None:
        """Idle from now on."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = timer = Timer(IDLE_S, lambda: self._leave(timer))
        timer.daemon = True
        timer.start()

    def _leave(self, timer: Timer) -> None:
        """Unless somebody asked since `timer` began."""
        with self._lock:
            if timer is self._timer:
                self._close()

    def _close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def close(self) -> None:
        with self._lock:
            self._close()


_kept = _Kept()


def _forget() -> None:
    """In a fork: the pool is its parent's."""
    global _kept
    _kept = _Kept()


atexit.register(lambda: _kept.close())
os.register_at_fork(after_in_child=_forget)
