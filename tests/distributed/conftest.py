"""Communicators of tests that run on MPI ranks (marked `mpi`): one for each way data move (mpi_engines.py).

Without ranks their files are not collected, but where one is asked for by name: test_under_mpi.py starts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mpi_engines import ENGINES, open_communicator

from collectives import Communicator


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if collection_path.name.startswith("test_mpi_") and not config.getoption("--with-mpi", default=False):
        return True
    return None


@pytest.fixture(scope="session", params=ENGINES)
def world(request: pytest.FixtureRequest) -> Iterator[Communicator]:
    """All ranks of this job."""
    communicator = open_communicator(request.param)
    yield communicator
    communicator.close()


@pytest.fixture(params=ENGINES)
def new_world(request: pytest.FixtureRequest) -> Callable[..., Communicator]:
    """Makes communicators, for tests that break them; the test closes them."""

    def make(**options: Any) -> Communicator:
        return open_communicator(request.param, **options)

    return make
