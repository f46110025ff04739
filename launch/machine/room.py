"""Is there room for that many ranks here? A word where they outnumber the CPUs, an error where MPI cannot start them.

In: how many ranks, and threads of each; this host's cores and limits. Out: what to tell, or a TooManyRanksError.
Invariant: an error says what cannot be. Its bounds lie below what a rank was measured to take (MPICH: 4.7 open files in
mpiexec's proxy, 11 MB in the rank's warden), so a job that could start is never refused.
"""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path

from launch.errors import TooManyRanksError
from launch.machine import binding

FILES = 3  # of mpiexec's: a rank's two streams, and its line to the process manager
PROCESSES = 2  # the rank and its warden
NBYTES = 8_000_000  # of the warden alone


@dataclass(frozen=True, slots=True)
class Room:
    """What this host has. files: open in one process; nbytes: memory."""

    files: int
    processes: int
    nbytes: int


def here() -> Room:
    """This host's limits; what it does not tell is boundless."""
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    pids = _number(Path("/proc/sys/kernel/pid_max"))
    nbytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Room(files if files != resource.RLIM_INFINITY else 1 << 62, pids, nbytes)


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 1 << 62


def check(ranks: int, room: Room | None = None) -> None:
    """Raises TooManyRanksError if one host cannot hold `ranks`."""
    room = room or here()
    for what, has, each in (
        ("processes (kernel.pid_max)", room.processes, PROCESSES),
        ("open files of mpiexec (ulimit -Hn)", room.files, FILES),
        ("bytes of memory", room.nbytes, NBYTES),
    ):
        if ranks * each > has:
            raise TooManyRanksError(
                f"{ranks} ranks cannot be started on one host",
                expected=f"at most {has // each}: there are {has} {what}, and a rank takes {each} or more",
                remedy=f"-n {usable_cpus()} gives each rank a CPU of its own; --hosts H1,H2 adds others",
            )


def usable_cpus(bind: str = "none") -> int:
    """The hardware threads that ranks may use, no more than the container's quota."""
    cpus = binding.allowed_cpus() if bind in ("core", "none") else binding.cpu_list(bind)
    return max(1, int(min(len(cpus), binding.quota_cpus())))


def shortage(ranks: int, threads: int, cpus: int) -> str:
    """What to tell of `ranks` ranks; empty if each can have a CPU of its own. threads: of each, as told, or 0."""
    if ranks * max(threads, 1) <= cpus:
        return ""
    there = f"{cpus} CPU{'s' if cpus > 1 else ''}"
    if ranks <= cpus:
        remedy = f"--threads-per-rank {cpus // ranks} gives each thread a CPU of its own"
        return f"{ranks} rank(s) of {threads} threads on {there}: the threads take turns; {remedy}"
    return f"{ranks} ranks on {there}: they take turns, and wait for each other; -n {cpus} gives each a CPU of its own"
