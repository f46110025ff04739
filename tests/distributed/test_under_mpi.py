"""Plain `pytest` starts the tests that need MPI ranks: all of on_mpi/, under launcher and pytest-mpi.

On 2 ranks of MPICH; with --long on 3, and on 2 of Open MPI, too. One job each: most of a short job is its start.
The communicator's tests run on all its engines, training on one: it sees ranks, not how data move among them. With
--long it is run on all, too, in the first world.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from mpi_job import check_ran, run_on_ranks

pytest.importorskip("mpi4py")
HERE = Path(__file__).parent
FILES = sorted((HERE / "on_mpi").glob("test_mpi_*.py"))
TRAINING = ("test_mpi_ddp", "test_mpi_mixed_ranks", "test_mpi_sync", "test_mpi_tuning")

WORLDS = [
    ("mpich", 2),
    pytest.param("mpich", 3, marks=pytest.mark.long),
    pytest.param("openmpi", 2, marks=pytest.mark.long),
]


@pytest.mark.slow
@pytest.mark.timeout(700)
@pytest.mark.parametrize(("mpi", "ranks"), WORLDS)
def test_on_ranks(mpi: str, ranks: int, in_full: bool) -> None:
    """The tests marked `long`, and training on every engine, run on the first world alone, if at all."""
    options = ["--with-mpi", "-n", "0", "-q", "-x", "--timeout=120"]
    if (mpi, ranks) == WORLDS[0] and in_full:
        options.append("--long")
    else:
        options += ["-k", f"not ({' or '.join(TRAINING)}) or (native and not messages)"]
        options += ["--thin"] if (mpi, ranks) == WORLDS[0] else []
    command = ["--mpi", mpi, "-m", "pytest", *options, *map(str, FILES)]
    result = run_on_ranks(ranks, command, limit_s=600)
    check_ran(result)
    assert " passed" in result.stdout, result.stdout
    assert " skipped" not in result.stdout, result.stdout  # not a single one
