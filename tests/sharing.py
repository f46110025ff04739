"""How the whole test suite is shared among processes: one more than there are cores, for jobs of ranks often wait.

In: pytest's options and the collected tests. Out: the number of processes, the tests' order, the files to hand out
(`workers.py` does), and `some`: which of a test's parameters are for --long. `pytest` alone shares the tests out; asked
for files or folders it runs in one process, as does `-n 0`.
Invariant: files with much to do go first, of all those that start ranks.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.workers import File

HERE = Path(__file__).parent
MOST = 5
BETWEEN_LINES_S = 2.0
OF_RANKS = ("docs/test_pages_on_ranks", "distributed/", "examples/", "launch/", "benchmarks/")
EARLY = (*OF_RANKS, "planted/", "oracles/", "conformance/", "as_torch/", "sanitizers/", "fuzz/", "programs/",
         "distcompile/ddp/", "test_layers")  # fmt: skip  # then as collected


def some(values: Sequence[Any], few: int) -> list[Any]:
    """Parameters of a test: the first `few` always, the others with --long. A plain tuple is several parameters."""
    rest = [value if type(value) is tuple else (value,) for value in values[few:]]
    return [*values[:few], *(pytest.param(*value, marks=pytest.mark.long) for value in rest)]


def processes(config: pytest.Config) -> int:
    """How many processes to use; 0: this one alone."""
    asked = config.getoption("processes")
    if asked != "auto":
        return int(asked)
    if sys.platform != "linux" or config.getoption("usepdb"):
        return 0
    if any((config.invocation_params.dir / argument).resolve() != HERE for argument in config.args):
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores + 1, MOST) if cores > 1 else 0


@cache
def rank_in_order(path: Path) -> int:
    """Where a file's tests stand: those of the folders in EARLY before the others."""
    place = Path(os.path.relpath(path, HERE)).as_posix()
    return next((k for k, folder in enumerate(EARLY) if place.startswith(folder)), len(EARLY))


def files(items: Sequence[pytest.Item]) -> list[File]:
    """The tests of each file, in order."""
    return [
        File(list(tests), rank_in_order(path) < len(OF_RANKS)) for path, tests in groupby(items, lambda item: item.path)
    ]


def show_progress(config: pytest.Config) -> None:
    """While the whole suite is read, say how far that is, where pytest itself does not."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not terminal.isatty() and processes(config) > 1:
        config.pluginmanager.register(Reading(terminal), "reading")


class Reading:
    """A line every few seconds."""

    def __init__(self, terminal: Any) -> None:
        self.terminal, self.files, self.tests = terminal, 0, 0
        self.all = sum(1 for _ in HERE.rglob("test_*.py"))
        self.told_s = time.monotonic()
        terminal.write_line(f"reading {self.all} files of tests")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.tests += sum(isinstance(found, pytest.Item) for found in report.result)
        self.files += report.nodeid.endswith(".py")
        if time.monotonic() > self.told_s + BETWEEN_LINES_S:
            self.terminal.write_line(f"read {self.files} of {self.all} files, {self.tests} tests")
            self.told_s = time.monotonic()
