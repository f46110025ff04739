"""Who am I? The environment variables through which each MPI's mpiexec tells a process its rank.

In: the name of the MPI and an environment. Out: `RankIdentity`, and `variables`: the same under torchrun's names, which
training scripts read (`if "RANK" in os.environ: ...`; without them every rank would train alone). Invariant: a rank
that its mpiexec told nothing, or another world size than was asked for, is an error here, not N worlds of one later.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from launch.errors import WorldSizeError


@dataclass(frozen=True, slots=True)
class Names:
    """The variables' names."""

    rank: str
    size: str
    local_rank: str
    local_size: str


@dataclass(frozen=True, slots=True)
class RankIdentity:
    """One rank's place in the job and on its host."""

    rank: int
    size: int
    local_rank: int
    local_size: int


_HYDRA = Names("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
NAMES: dict[str, Names] = {
    "MPICH": _HYDRA,
    "Intel MPI": _HYDRA,
    "Open MPI": Names(
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"
    ),
}
NO_MPI = "none"  # one rank, started without an mpiexec
KEPT_TMPDIR = "DISTCOMPILE_RUN_TMPDIR"


def identify(mpi: str, size: int, environ: Mapping[str, str]) -> RankIdentity:
    """This process's identity under `mpi`'s mpiexec. Raises WorldSizeError unless the world has `size` ranks."""
    if mpi == NO_MPI:
        return RankIdentity(0, 1, 0, 1)
    names = NAMES[mpi]
    told = environ.get(names.size)
    if told != str(size) or names.rank not in environ:
        raise WorldSizeError(
            f"mpiexec did not start this process as one of {size} ranks of {mpi}",
            expected=f"{names.size}={size} and {names.rank} in the environment",
            got=f"{names.size}={told}",
            remedy="check with --dry-run that the mpiexec is the one of the MPI that mpi4py loads",
        )
    local_rank, local_size = environ.get(names.local_rank, "0"), environ.get(names.local_size, "1")
    return RankIdentity(int(environ[names.rank]), size, int(local_rank), int(local_size))


def variables(identity: RankIdentity) -> dict[str, str]:
    """torchrun's environment variables for this rank. Hosts have equally many ranks, in the order of ranks."""
    node = identity.rank // identity.local_size
    nodes = -(-identity.size // identity.local_size)
    return {
        "RANK": str(identity.rank),
        "WORLD_SIZE": str(identity.size),
        "LOCAL_RANK": str(identity.local_rank),
        "LOCAL_WORLD_SIZE": str(identity.local_size),
        "GROUP_RANK": str(node),
        "GROUP_WORLD_SIZE": str(nodes),
        "NODE_RANK": str(node),
        "ROLE_RANK": str(identity.rank),
        "ROLE_WORLD_SIZE": str(identity.size),
    }


def private_tmpdir(folder: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Variables with which mpiexec makes its temporary files in `folder`; `restore_tmpdir` takes them back."""
    return {"TMPDIR": folder, KEPT_TMPDIR: environ.get("TMPDIR", "")}


def restore_tmpdir(environ: MutableMapping[str, str]) -> None:
    """In a rank: the user's own TMPDIR, or none, again."""
    kept = environ.pop(KEPT_TMPDIR, None)
    if kept:
        environ["TMPDIR"] = kept
    elif kept is not None:
        environ.pop("TMPDIR", None)
