"""`connect`: the communicator of this process, over MPI if it was started by an MPI launcher, else of one rank.

In: the environment that mpiexec (or a scheduler) gave. Out: a Communicator. One rank alone does not load MPI.
Where there is a GPU, and CuPy, it takes arrays on GPUs too (nccl/); neither CuPy nor NCCL is loaded before the first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

from collectives.communicator import Communicator
from collectives.errors import CollectiveArgumentError, NcclNotFoundError
from collectives.native import Build
from collectives.nccl.library import is_there
from collectives.over_mpi.transfer import Reduction
from collectives.threaded import ThreadedWorld
from collectives.work import DEFAULT_TIMEOUT_S

Transport: TypeAlias = Literal["auto", "host", "mpi", "threaded", "nccl"]
TRANSPORTS: tuple[str, ...] = get_args(Transport)

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

    transport: "auto" takes MPI under an MPI launcher and one rank alone otherwise, and NCCL for arrays on GPUs if there
    is one; "nccl" the same, or NcclNotFoundError; "host" the same without NCCL; "mpi" and "threaded" only these.
    timeout_s: limit of every wait.
    build: makes a shared object of the native engine's source; without it, a Python thread runs the collectives.
    Over MPI, an uncaught exception on one rank then ends the job (`mpi_library.install_abort_hook`).
    """
    if transport not in TRANSPORTS:
        raise CollectiveArgumentError(f"unknown transport {transport!r}", expected=", ".join(TRANSPORTS))
    has_gpu = transport in ("auto", "nccl") and is_there()
    if transport == "nccl" and not has_gpu:
        raise NcclNotFoundError(
            "there is no NCCL transport here: no GPU is visible to this process, or CuPy is not installed",
            expected="a CUDA device, and CuPy",
            remedy='pip install "distcompile[cuda]" where there is a GPU; transport "auto" takes what there is',
        )
    if transport == "mpi" or (transport != "threaded" and was_launched_by_mpi()):
        made = _connect_over_mpi(timeout_s, reduction, build)
    else:
        made = ThreadedWorld(1, timeout_s=timeout_s).communicator(0)
    if not has_gpu:
        return made
    from collectives.nccl.communicator import NcclCommunicator

    return NcclCommunicator(made)


def _connect_over_mpi(timeout_s: float, reduction: Reduction, build: Build | None) -> Communicator:
    from collectives.over_mpi.library import abort_at_exit, install_abort_hook, load_mpi, within
    from collectives.over_mpi.transport import MpiCommunicator

    mpi = within(timeout_s, load_mpi, "starting MPI")  # MPI_Init waits for all ranks
    install_abort_hook(mpi.COMM_WORLD.Abort)
    try:
        return MpiCommunicator(timeout_s=timeout_s, reduction=reduction, build=build)
    except BaseException:
        abort_at_exit(mpi)
        raise
