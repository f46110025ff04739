"""`connect`: the communicator of this process, over MPI if it was started by an MPI launcher, else of one rank.

In: the environment that mpiexec (or a scheduler) gave. Out: a Communicator. One rank alone does not load MPI.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping
from typing import Literal, TypeAlias

from collectives.communicator import Communicator
from collectives.errors import CollectiveArgumentError
from collectives.native import Build
from collectives.threaded import ThreadedWorld
from collectives.transfer import Reduction
from collectives.work import DEFAULT_TIMEOUT_S

Transport: TypeAlias = Literal["auto", "mpi", "threaded"]

# set for every rank by: MPICH and Intel MPI (Hydra), Open MPI, any PMIx launcher, Slurm's srun --mpi=...
RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "MPI_LOCALRANKID")


def was_launched_by_mpi(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether an MPI launcher started this process."""
    return any(name in environment for name in RANK_VARIABLES)


def connect(
    transport: Transport = "auto",
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    reduction: Reduction = "fast",
    build: Build | None = None,
) -> Communicator:
    """A communicator of all ranks of this job. Collective.

    transport: "auto" takes MPI under an MPI launcher and one rank alone otherwise. timeout_s: limit of every wait.
    build: makes a shared object of the native engine's source; without it, a Python thread runs the collectives.
    Over MPI, an uncaught exception on one rank then ends the job (`mpi_library.install_abort_hook`).
    """
    if transport not in ("auto", "mpi", "threaded"):
        raise CollectiveArgumentError(f"unknown transport {transport!r}", expected="auto, mpi or threaded")
    if transport == "mpi" or (transport == "auto" and was_launched_by_mpi()):
        return _connect_over_mpi(timeout_s, reduction, build)
    return ThreadedWorld(1, timeout_s=timeout_s).communicator(0)


def _connect_over_mpi(timeout_s: float, reduction: Reduction, build: Build | None) -> Communicator:
    from collectives.mpi import MpiCommunicator
    from collectives.mpi_library import install_abort_hook, load_mpi, within

    mpi = within(timeout_s, load_mpi, "starting MPI")  # MPI_Init waits for all ranks
    install_abort_hook(mpi.COMM_WORLD.Abort)
    try:
        return MpiCommunicator(timeout_s=timeout_s, reduction=reduction, build=build)
    except BaseException:
        atexit.register(mpi.COMM_WORLD.Abort, 1)  # MPI_Finalize would wait for the ranks that did not come
        raise
