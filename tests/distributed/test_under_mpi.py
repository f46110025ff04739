"""Plain `pytest` starts the tests that need MPI ranks: each `test_mpi_*.py` here, under launcher and pytest-mpi."""

from __future__ import annotations

from pathlib import Path

import pytest
from mpi_job import check_ran, run_on_ranks

pytest.importorskip("mpi4py")
HERE = Path(__file__).parent
FILES = sorted(path.name for path in HERE.glob("test_mpi_*.py"))


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("file", FILES)
def test_on_ranks(file: str, ranks: int) -> None:
    result = run_on_ranks(ranks, ["-m", "pytest", "--with-mpi", "-q", "-x", "--timeout=120", str(HERE / file)])
    check_ran(result)
    assert " passed" in result.stdout, result.stdout  # skipped tests would have passed too
