"""How the whole test suite is shared among processes: as many as there are cores, at most four.

In: pytest's options and the collected tests. Out: the number of processes, the tests' order, a scheduler of
pytest-xdist, and `some`: which of a test's parameters are for --long. `pytest` alone shares the tests out; asked for
files or folders it runs in one process, as does `-n 0`.
Invariants: a file's tests stay in one process, in order, so that what they compile together is compiled once. All that
start ranks are one unit: no two jobs of MPI ranks run at a time. Units with much to do go first.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

HERE = Path(__file__).parent
MOST = 4
OF_RANKS = ("docs/", "distributed/", "examples/", "launch/", "benchmarks/")
EARLY = (*OF_RANKS, "oracles/", "conformance/", "as_torch/", "sanitizers/", "fuzz/", "programs/")  # then as collected


def some(values: Sequence[Any], few: int) -> list[Any]:
    """Parameters of a test: the first `few` always, the others with --long. A tuple is several parameters."""
    rest = [value if isinstance(value, tuple) else (value,) for value in values[few:]]
    return [*values[:few], *(pytest.param(*value, marks=pytest.mark.long) for value in rest)]


def processes(config: pytest.Config) -> int:
    """How many processes to use; 0: this one alone."""
    if any((config.invocation_params.dir / argument).resolve() != HERE for argument in config.args):
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST) if cores > 1 else 0


def rank_in_order(path: Path) -> int:
    """Where a file's tests stand: those of the folders in EARLY before the others."""
    place = Path(os.path.relpath(path, HERE)).as_posix()
    return next((k for k, folder in enumerate(EARLY) if place.startswith(folder)), len(EARLY))


class Scheduler(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out files, and all of OF_RANKS as one."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "ranks" if file.removeprefix("tests/").startswith(OF_RANKS) else file
