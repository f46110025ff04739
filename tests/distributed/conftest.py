"""The communicator of tests that run on MPI ranks (marked `mpi`): one for the session, with short limits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from collectives import Communicator

LIMIT_S = 60.0


@pytest.fixture(scope="session")
def world() -> Iterator[Communicator]:
    """All ranks of this job."""
    from collectives.mpi import MpiCommunicator

    communicator = MpiCommunicator(timeout_s=LIMIT_S)
    yield communicator
    communicator.close()
