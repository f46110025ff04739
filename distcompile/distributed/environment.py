"""How this process was started, and whether that is the world which the caller, or the environment, promises.

In: environment variables and the arguments of `init_process_group`. Out: `Promise`s (who says there are how many ranks,
and which one this is), and LaunchError where one is not kept. Ranks come from MPI alone: torchrun and plain `srun`
start processes that do not know each other through MPI, and each would train alone without a word.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from collectives import was_launched_by_mpi
from distcompile.distributed.errors import LaunchError

# of MPI launchers: who sets it, size, rank
MPI_VARIABLES = (
    ("MPICH's or Slurm's PMI", "PMI_SIZE", "PMI_RANK"),
    ("Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
)
# of launchers that start processes without MPI
OTHER_VARIABLES = (
    ("torchrun", "WORLD_SIZE", "RANK"),
    ("Slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    ("Slurm", "SLURM_NTASKS", "SLURM_PROCID"),
)
# how the variables begin by which a launcher's process finds its world
MPI_PREFIXES = ("PMI_", "PMIX_", "OMPI_", "PRTE_", "HYDI_", "MPI_LOCAL")
SCHEMES = ("env", "tcp", "file")


@dataclass(frozen=True, slots=True)
class Promise:
    """Someone's word on the world: its number of ranks and this one's, each None if not given. text: as it was said."""

    who: str
    world_size: int | None
    rank: int | None
    text: str

    def is_kept(self, world_size: int, rank: int) -> bool:
        return self.world_size in (None, world_size) and self.rank in (None, rank)


def promises_of_arguments(init_method: str | None, world_size: int, rank: int) -> list[Promise]:
    """What `init_process_group` was told. Raises LaunchError for an init_method that is not torch's."""
    given = _promise("the arguments", world_size if world_size >= 0 else None, rank if rank >= 0 else None, "{}={}")
    promises = [given] if given else []
    if init_method is None:
        return promises
    parts = urlsplit(init_method)
    if parts.scheme not in SCHEMES:
        raise LaunchError(
            f"no rendezvous by init_method={init_method!r}",
            expected=", ".join(f"{scheme}://" for scheme in SCHEMES),
            remedy="leave init_method out: MPI brings the ranks together",
        )
    query = {name: int(values[0]) for name, values in parse_qs(parts.query).items() if values[0].isdecimal()}
    asked = _promise("init_method", query.get("world_size"), query.get("rank"), "{}={}")
    return promises + ([asked] if asked else [])


def promises_of_environment(environment: Mapping[str, str]) -> list[Promise]:
    """What launchers left in the environment: MPI's if one started this process, else the others'."""
    tables = MPI_VARIABLES + OTHER_VARIABLES[:1] if was_launched_by_mpi(environment) else OTHER_VARIABLES
    found = []
    for who, size_name, rank_name in tables:
        if size_name in environment:
            size, rank = _number(environment, size_name), _number(environment, rank_name)
            text = ", ".join(f"{n}={environment[n]}" for n in (size_name, rank_name) if n in environment)
            found.append(Promise(who, size, rank, text))
    return found


def check_before(promises: list[Promise], environment: Mapping[str, str] = os.environ) -> None:
    """Without an MPI launcher there is one rank: raise LaunchError if more are promised. Nothing is loaded yet."""
    if was_launched_by_mpi(environment):
        return
    for promise in promises:
        if not promise.is_kept(1, 0):
            raise LaunchError(
                f"{promise.text} promises more ranks, but no MPI launcher started this process: it would train alone",
                expected="a process started by distcompile-run, mpiexec, or srun --mpi=pmi2 (or pmix)",
                got=f"{promise.text} (by {promise.who}), and none of PMI_RANK, OMPI_COMM_WORLD_RANK, PMIX_RANK",
                remedy=f"{command(promise.world_size)}; to train alone all the same: world_size=1, rank=0",
            )


def check_after(promises: list[Promise], world_size: int, rank: int, library: str) -> None:
    """Raise LaunchError if the world that MPI made is not the promised one."""
    for promise in promises:
        if promise.is_kept(world_size, rank):
            continue
        other_mpi = " (did another MPI's launcher start it?)" if world_size == 1 else ""
        raise LaunchError(
            f"the world is not the one that {promise.who} promised",
            where=f"rank {rank} of {world_size}",
            expected=promise.text,
            got=f"rank {rank} of {world_size}, by {library}{other_mpi}",
            remedy=f"{command(promise.world_size)}; or leave world_size and rank out: MPI knows them",
        )


def place(world_size: int, environment: Mapping[str, str] = os.environ) -> int | None:
    """This process's rank if an MPI launcher started `world_size` of them, and that is several."""
    if world_size < 2 or not was_launched_by_mpi(environment):
        return None
    said = [promise for promise in promises_of_environment(environment) if promise.rank is not None]
    return said[0].rank if said and said[0].world_size == world_size else None


def command(world_size: int | None) -> str:
    """The command that starts this script on that many ranks."""
    script = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "script.py"
    is_torch = "torch" in sys.modules and sys.modules["torch"] is sys.modules.get("distcompile")
    return f"distcompile-run {'--as-torch ' if is_torch else ''}-n {world_size or 'N'} {script}"


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    return int(text) if text.isdecimal() else None


def _promise(who: str, world_size: int | None, rank: int | None, form: str) -> Promise | None:
    given = [("world_size", world_size), ("rank", rank)]
    text = ", ".join(form.format(name, value) for name, value in given if value is not None)
    return Promise(who, world_size, rank, text) if text else None
