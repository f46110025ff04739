"""Communicators over MPI for tests, with short limits, one for each way data move.

ENGINES: the Python thread and the native engine, each with shared memory and with messages only.
everyone_is_here: a barrier of the processes.
"""

from __future__ import annotations

import time
from typing import Any

from collectives import Communicator

LIMIT_S = 60.0
ENGINES = ("python", "python messages", "native", "native messages")


def open_communicator(engine: str, **options: Any) -> Communicator:
    """A communicator of all ranks, driven by one of ENGINES."""
    from collectives.over_mpi.transport import MpiCommunicator
    from distcompile.engine_build import build_engine

    build = build_engine if engine.startswith("native") else None
    settings: dict[str, Any] = {"timeout_s": LIMIT_S, "share_memory": "messages" not in engine, "build": build}
    settings["reduction"] = "rank_order"  # the native engine knows no other
    return MpiCommunicator(**(settings | options))


def everyone_is_here() -> None:
    """A barrier apart from the communicators that are tested, which leaves the core to others."""
    from mpi4py import MPI

    request = MPI.COMM_WORLD.Ibarrier()
    while not request.Test():
        time.sleep(0.01)
