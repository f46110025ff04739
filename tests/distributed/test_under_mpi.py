"""Plain `pytest` starts the tests that need MPI ranks: each `test_mpi_*.py` here, under launcher and pytest-mpi.

On 2 ranks of MPICH; with --long on 3, and on 2 of Open MPI, too.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from mpi_job import check_ran, run_on_ranks

pytest.importorskip("mpi4py")
HERE = Path(__file__).parent
FILES = sorted(path.name for path in HERE.glob("test_mpi_*.py"))


WORLDS = [
    ("mpich", 2),
    pytest.param("mpich", 3, marks=pytest.mark.long),
    pytest.param("openmpi", 2, marks=pytest.mark.long),
]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("mpi", "ranks"), WORLDS)
@pytest.mark.parametrize("file", FILES)
def test_on_ranks(file: str, mpi: str, ranks: int) -> None:
    command = ["--mpi", mpi, "-m", "pytest", "--with-mpi", "-n", "0", "-q", "-x", "--timeout=120", str(HERE / file)]
    result = run_on_ranks(ranks, command)
    check_ran(result)
    assert " passed" in result.stdout, result.stdout  # skipped tests would have passed too
