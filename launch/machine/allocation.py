"""Are we inside a scheduler's allocation, and how many ranks is it for?

In: the environment. Out: the scheduler's name and its number of tasks, 0 if it does not say. MPI's own launchers read
the same variables and start ranks where the scheduler says; so in an allocation no hosts are named, and the number of
ranks defaults to the allocation's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def detect(environ: Mapping[str, str]) -> tuple[str, int]:
    """("Slurm" or "PBS", tasks), or ("", 0)."""
    if "SLURM_JOB_ID" in environ or "SLURM_JOBID" in environ:
        return "Slurm", slurm_tasks(environ)
    if "PBS_NODEFILE" in environ:
        return "PBS", pbs_slots(environ["PBS_NODEFILE"])
    return "", 0


def slurm_tasks(environ: Mapping[str, str]) -> int:
    """SLURM_NTASKS, or nodes times tasks on each; 0 if neither is told."""
    if environ.get("SLURM_NTASKS", "").isdigit():
        return int(environ["SLURM_NTASKS"])
    nodes, each = environ.get("SLURM_NNODES", ""), environ.get("SLURM_NTASKS_PER_NODE", "")
    return int(nodes) * int(each) if nodes.isdigit() and each.isdigit() else 0


def pbs_slots(nodefile: str) -> int:
    """One line of the file a slot; 0 if it cannot be read."""
    try:
        return sum(1 for line in Path(nodefile).read_text().splitlines() if line.strip())
    except OSError:
        return 0
