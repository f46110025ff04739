"""Communicators of tests that run on MPI ranks (marked `mpi`): one for each way data move (mpi_engines.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mpi_engines import ENGINES, open_communicator

from collectives import Communicator


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
