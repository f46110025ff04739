"""A compilation that lasts says what it is doing: a line on stderr after two seconds, then ever more rarely.

In: the begin and end of every step. Out: lines, on rank 0, where a person looks: on a terminal, in a notebook, under
distcompile-run on a terminal; the knob DISTCOMPILE_PROGRESS (0, 1) says otherwise.
Steps that follow each other at once are one compilation: seven of half a second each are worth a line too.
Method: a timer in a thread of its own, for the C++ compiler is one long wait; it is made only where a line is wanted.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from compiler_core import log
from compiler_core.config import config

SAY_AT_S = (2.0, 10.0, 30.0)
THEN_EVERY_S = 60.0
PAUSE_S = 0.5  # steps further apart belong to two compilations
_WORDS = {
    "capture": "reading the program",
    "backend": "generating code",
    "schedule": "choosing what is fused",
    "build": "the C++ compiler is at work",
    "cubins": "Triton is at work",
    "tune": "measuring kernels",
    "measure": "measuring kernels",
}


def is_wanted() -> bool:
    """Whether a person is there to read progress."""
    if config.progress != "auto":
        return config.progress == "1"
    in_notebook = "ipykernel" in sys.modules
    return in_notebook or "DISTCOMPILE_RUN_COLUMNS" in os.environ or bool(getattr(sys.stderr, "isatty", bool)())


class _Compilation:
    """The one that is under way in this process, if any; ranks that are threads share it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.steps: list[tuple[str, str]] = []
        self.begun_s = self.ended_s = -PAUSE_S
        self.said = 0
        self.timer: threading.Timer | None = None

    def begin(self, step: tuple[str, str]) -> None:
        with self.lock:
            if not self.steps:
                now_s = time.monotonic()
                if now_s - self.ended_s > PAUSE_S:
                    self.begun_s, self.said = now_s, 0
                self._wait(now_s)
            self.steps.append(step)

    def end(self, step: tuple[str, str]) -> None:
        with self.lock:
            self.steps.remove(step)
            if not self.steps:
                self.ended_s = time.monotonic()
                if self.timer is not None:
                    self.timer.cancel()

    def _wait(self, now_s: float) -> None:
        over = self.said - len(SAY_AT_S)
        at_s = SAY_AT_S[self.said] if over < 0 else SAY_AT_S[-1] + (over + 1) * THEN_EVERY_S
        self.timer = threading.Timer(max(self.begun_s + at_s - now_s, 0.0), self._say)
        self.timer.daemon = True
        self.timer.start()

    def _say(self) -> None:
        with self.lock:
            if not self.steps:
                return
            now_s = time.monotonic()
            graph, step = self.steps[-1]
            self.said += 1
            self._wait(now_s)
        words = _WORDS.get(step, step)
        sys.stderr.write(f"distcompile: compiling {graph}: {words}, {now_s - self.begun_s:.0f} s so far\n")
        sys.stderr.flush()


_compilation = _Compilation()


@contextmanager
def noticed(graph: str, step: str) -> Iterator[None]:
    """A step of a compilation."""
    if log.rank() != 0 or not is_wanted():
        yield
        return
    _compilation.begin((graph, step))
    try:
        yield
    finally:
        _compilation.end((graph, step))
