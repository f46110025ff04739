"""Which engine runs the array collectives of an MPI communicator: the native one, or a Python thread.

In: the communicator, its object channel, and a builder for the native source, or none. Out: an `Engine`; all ranks have
the same kind. Without a builder, a C++ compiler, or MPI's own functions in reach, the Python thread does the same job;
if it was not asked for, that is said once.
"""

from __future__ import annotations

import warnings
from typing import Any, Protocol

from collectives.call import Array, Task
from collectives.errors import CollectiveError, ForkedProcessError, SlowEngineWarning
from collectives.host import open_host
from collectives.native import Build, EngineLibrary, load
from collectives.native_engine import STAGE_NBYTES, NativeEngine, functions_of
from collectives.over_mpi.objects import ObjectChannel
from collectives.over_mpi.thread_engine import ThreadEngine
from collectives.over_mpi.transfer import Reduction
from collectives.shared_memory import open_shared_memory
from collectives.work import Work


class Engine(Protocol):
    """Runs tasks strictly in launch order."""

    @property
    def broken(self) -> CollectiveError | None:
        """Why nothing can be launched any more; None while all is well."""

    def launch(self, task: Task, *, quiet: bool = False) -> Work:
        """Queue `task`. quiet: who launches it waits for it at once."""

    def allocate(self, nbytes: int) -> Array | None:
        """Zeroed bytes that the engine handles best; None: any memory will do."""

    def set_timeout(self, timeout_s: float) -> None:
        """The limit of waits that give none, from now on, in seconds."""

    def give_up(self, error: CollectiveError) -> None:
        """End what is queued, and all later tasks, with `error`."""

    def become_forked(self, error: ForkedProcessError) -> None:
        """In a forked child: what is under way ends with `error`, and nothing reaches the other ranks."""

    def leave(self) -> None:
        """Give up what is held, and tell the other ranks, behind what is queued, that this one ends."""

    def stop(self, timeout_s: float) -> None:
        """After `leave`: finish what is queued, and end."""


def open_engine(
    comm: Any,
    mpi: Any,
    channel: ObjectChannel,
    *,
    timeout_s: float,
    reduction: Reduction,
    chunk_nbytes: int,
    share_memory: bool,
    build: Build | None,
) -> Engine:
    """The engine for `comm`. Collective."""
    library = _load(build, mpi, channel, timeout_s)
    if library is not None:
        nbytes = library.calls.dc_board_nbytes(channel.world_size, STAGE_NBYTES)
        host = open_host(channel, nbytes, timeout_s) if share_memory else None
        return NativeEngine(comm, mpi, library, host, world=channel.roll.world, timeout_s=timeout_s)
    shared = open_shared_memory(channel, timeout_s) if share_memory and channel.world_size > 1 else None
    return ThreadEngine(comm, mpi, timeout_s=timeout_s, reduction=reduction, chunk_nbytes=chunk_nbytes, shared=shared)


def _load(build: Build | None, mpi: Any, channel: ObjectChannel, timeout_s: float) -> EngineLibrary | None:
    """The native library, if every rank has it."""
    library, reason = None, ""
    if build is not None:
        try:
            functions_of(mpi)
            library = load(build)
        except Exception as error:  # noqa: BLE001 - whatever the builder raises: it is told, and Python does the job
            reason = f"{type(error).__name__}: {error}"
    reasons = channel.all_gather(None if library is not None else reason, timeout_s)
    missing = [rank for rank, said in enumerate(reasons) if said is not None]
    if missing and any(reasons) and channel.rank == missing[0]:
        text = next(said for said in reasons if said)
        warnings.warn(
            f"collectives run in a Python thread, slower, as rank(s) {missing} have no native engine: {text}",
            SlowEngineWarning,
            stacklevel=2,
        )
    return None if missing else library
