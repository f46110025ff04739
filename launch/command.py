"""The mpiexec line of a job, in the words of its MPI, and the environment it is started in.

In: `JobSettings`, the MPI found, the job's folder. Out: an argument list and variables. Binding is ours, so mpiexec's
is off; in a scheduler's allocation MPI is left to find hosts and slots itself. Variables for the ranks travel as
arguments of `child.py`, because not every mpiexec passes its environment to other hosts.
"""

from __future__ import annotations

import os
import shlex
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from launch import ranks
from launch.machine.mpi_discovery import MPI
from launch.options import JobSettings
from launch.ranks import NO_MPI

_CHILD = Path(__file__).resolve().with_name("child.py")


def build_command(
    mpi: MPI | None, settings: JobSettings, folder: str, variables: Mapping[str, str], far: str = ""
) -> list[str]:
    """The whole command line of a job. folder: empty for a line that runs without a launcher. far: see `FarAddress`."""
    launch = [mpi.mpiexec, *mpiexec_arguments(mpi, settings)] if mpi else []
    child = [sys.executable, str(_CHILD), "--mpi", mpi.family.name if mpi else NO_MPI, "--size", str(settings.ranks)]
    child += ["--bind", settings.bind]
    child += ["--threads", str(settings.threads)] if settings.threads else []
    child += ["--folder", folder] if folder else []
    child += ["--far", far] if far else []
    child += [word for name, value in variables.items() for word in ("--set", f"{name}={value}")]
    child += [] if settings.python else ["--no-python"]
    return [*launch, *child, "--", *settings.program]


def mpiexec_arguments(mpi: MPI, settings: JobSettings) -> list[str]:
    """Arguments between mpiexec and the program, in the words of that MPI."""
    arguments = _open_mpi(mpi, settings) if mpi.family.name == "Open MPI" else _hydra(settings)
    return ["-n", str(settings.ranks), *arguments, *shlex.split(settings.mpi_args)]


def _open_mpi(mpi: MPI, settings: JobSettings) -> list[str]:
    where = f"ppr:{settings.per_node}:node" if settings.per_node and settings.is_remote else ""
    words = ["--bind-to", "none"]
    if not settings.allocation:
        words += ["--map-by", f"{where}:OVERSUBSCRIBE"]
    elif where:
        words += ["--map-by", where]
    words += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    if settings.is_remote:
        words += ["--tag-output"] if mpi.version.startswith("4.") else ["--output", "tag"]
        words += [word for name in mpi.environment for word in ("-x", name)]
    words += ["--host", settings.hosts] if settings.hosts else []
    return words + (["--hostfile", settings.hostfile] if settings.hostfile else [])


def _hydra(settings: JobSettings) -> list[str]:
    words = ["-ppn", str(settings.per_node)] if settings.per_node and settings.is_remote else []
    words += ["-hosts", settings.hosts] if settings.hosts else []
    words += ["-f", settings.hostfile] if settings.hostfile else []
    return words + (["-prepend-rank"] if settings.is_remote else [])


def rank_variables(settings: JobSettings, attempt: int, port: int) -> dict[str, str]:
    """torchrun's variables that are alike on all ranks, and ours. attempt: 0 for the first start. port: a free one."""
    wide = settings.is_remote
    ours = {} if settings.watchdog_s is None else {"DISTCOMPILE_WATCHDOG_S": f"{settings.watchdog_s:g}"}
    return {
        "MASTER_ADDR": settings.master_addr or (socket.gethostname() if wide else "127.0.0.1"),
        "MASTER_PORT": str(settings.master_port or port),
        "ROLE_NAME": settings.role,
        "TORCHELASTIC_RESTART_COUNT": str(attempt),
        "TORCHELASTIC_MAX_RESTARTS": str(settings.max_restarts),
        "TORCHELASTIC_RUN_ID": settings.run_id,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        **ours,
    }


def free_port() -> int:
    """A TCP port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def environment(mpi: MPI | None, settings: JobSettings, folder: str, columns: int) -> dict[str, str]:
    """mpiexec's environment. columns: the width left to a progress bar if a terminal shows it behind a prefix, or 0."""
    added = {"DISTCOMPILE_RUN_COLUMNS": str(columns)} if columns else {}
    added |= dict(mpi.environment) if mpi else {}
    added |= {} if settings.is_remote else ranks.private_tmpdir(folder, os.environ)
    return {**os.environ, **added}
