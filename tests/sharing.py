"""Which tests run, and how they are shared among processes: one more than there are cores, for jobs of ranks wait.

In: pytest's options and the collected tests. Out: what is left for --long, the number of processes, the tests' order,
the files to hand out (`workers.py` does).
Which: tests marked `long` run with --long. Of a test with many parameters the whole suite runs every fifth, unless
they are quick, and the others with --long. `--long --turn 2/3` runs, of all that is left for --long, the second of
three parts, as CI does by turns. Asked for files or folders `pytest` runs all of their tests that are not `long`, in
one process, as `-n 0` does.
Invariant: files with much to do go first, of all those that start ranks.
"""

from __future__ import annotations

import os
import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.workers import File

HERE = Path(__file__).parent
IN_FULL = pytest.StashKey[bool]()  # a test that takes a few samples always takes all of them now
MOST = 5
BETWEEN_LINES_S = 2.0
MANY, EACH = 3, 5  # of a test with more parameters than MANY, one of EACH
OF_RANKS = ("docs/test_pages_on_ranks", "distributed/", "examples/", "launch/", "benchmarks/")
EARLY = (*OF_RANKS, "planted/", "oracles/", "conformance/", "as_torch/", "sanitizers/", "fuzz/", "programs/",
         "distcompile/ddp/", "test_layers")  # fmt: skip  # then as collected
QUICK = ("collectives/test_programs", "compiler_core/aot/", "compiler_core/capture/guards/test_purity",
         "compiler_core/eager/", "compiler_core/graph/", "compiler_core/loop_ir/", "compiler_core/lowering/",
         "compiler_core/runtime/", "compiler_core/schedule/test_fusion", "compiler_core/symbolic/",
         "fuzz/test_random_constants", "launch/test_cause")  # fmt: skip  # not thinned: milliseconds each


def some(values: Sequence[Any], few: int) -> list[Any]:
    """Parameters of a test: the first `few` always, the others with --long. A plain tuple is several parameters."""
    rest = [value if type(value) is tuple else (value,) for value in values[few:]]
    return [*values[:few], *(pytest.param(*value, marks=pytest.mark.long) for value in rest)]


def every(values: Sequence[Any], step: int, first: int = 0) -> list[Any]:
    """Parameters of a test: each `step`-th from `first` on always, the others with --long."""
    return [
        value if place % step == first else pytest.param(value, marks=pytest.mark.long)
        for place, value in enumerate(values)
    ]


def left_for_long(items: Sequence[pytest.Item], *, is_thin: bool) -> list[pytest.Item]:
    """What only --long runs: what is marked so and, if `is_thin`, most parameters of a test that has many.

    Not where it is QUICK, nor where its author says which, with `some` or `every`.
    """
    authored = {_test(item) for item in items if item.get_closest_marker("long")}
    of_tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not item.get_closest_marker("long"):
            of_tests.setdefault(_test(item), []).append(item)
    kept = set()
    for name, of_test in of_tests.items():
        is_one_of_many = is_thin and len(of_test) > MANY and name not in authored and not _is_quick(of_test[0])
        first = zlib.crc32(name.encode()) % min(EACH, len(of_test))
        kept.update(of_test[first::EACH] if is_one_of_many else of_test)
    return [item for item in items if item not in kept]


def _is_quick(item: pytest.Item) -> bool:
    return Path(os.path.relpath(item.path, HERE)).as_posix().startswith(QUICK)


def _test(item: pytest.Item) -> str:
    """The name of an item's test, without parameters."""
    return item.nodeid.partition("[")[0]


def _of_turn(turn: str) -> tuple[int, int]:
    """K - 1 and N of "K/N". Raises UsageError for a turn that is none."""
    found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", turn)
    if found is None or int(found[1]) > int(found[2]):
        raise pytest.UsageError(f"--turn {turn}: expected K/N, such as 1/3, K from 1 to N")
    return int(found[1]) - 1, int(found[2])


def choose(items: Sequence[pytest.Item], *, is_thin: bool, is_long: bool, turn: str) -> list[pytest.Item]:
    """Those that run, in order. With `is_long` they are told which of them take all their samples: what only --long
    runs, and of the others those whose turn it is."""
    left = left_for_long(items, is_thin=is_thin)
    apart = set(left)
    always = [item for item in items if item not in apart]
    if not is_long and _of_turn(turn) != (0, 1):
        raise pytest.UsageError(f"--turn {turn} is for what --long adds: give --long too")
    if not is_long:
        return always
    in_turn = of_turn(left, turn)
    for item in in_turn | of_turn(always, turn):
        item.stash[IN_FULL] = True
    return [item for item in items if item not in apart or item in in_turn]


def of_turn(items: Sequence[pytest.Item], turn: str) -> set[pytest.Item]:
    """Of N parts of `items` the K-th, for a turn "K/N": of each test's parameters every N-th."""
    part, parts = _of_turn(turn)
    met: Counter[str] = Counter()
    chosen = set()
    for item in items:
        test = _test(item)
        if (zlib.crc32(test.encode()) + met[test]) % parts == part:
            chosen.add(item)
        met[test] += 1
    return chosen


def is_whole(config: pytest.Config) -> bool:
    """Whether all tests are asked for."""
    return all((config.invocation_params.dir / argument).resolve() == HERE for argument in config.args)


def processes(config: pytest.Config) -> int:
    """How many processes to use; 0: this one alone."""
    asked = config.getoption("processes")
    if asked != "auto":
        return int(asked)
    if sys.platform != "linux" or config.getoption("usepdb") or not is_whole(config):
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
