"""Which cores does each rank get, and how many threads may its libraries start?

In: the cores this process may use, their topology, the number of ranks on this host. Out: `Share` (cpus, threads).
Invariants: every rank gets at least one hardware thread; while there are cores enough, shares are disjoint and no core
is split between ranks; the last cores are left idle rather than making ranks unequal (ranks wait for the slowest).
A container's CPU quota (cgroup v2 `cpu.max`) bounds the threads. Linux only; elsewhere ranks are not bound.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Share:
    """One rank's part of its host. cpus: hardware threads to bind to, empty: not bound. threads: for its libraries."""

    cpus: tuple[int, ...]
    threads: int


def allowed_cpus() -> tuple[int, ...]:
    """The hardware threads that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def quota_cpus(root: Path = Path("/sys/fs/cgroup")) -> float:
    """The container's CPU quota in CPUs; infinity if there is none."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return float("inf")
    return float("inf") if quota == "max" else int(quota) / int(period)


def cores_of(cpus: Sequence[int], root: Path = Path("/sys/devices/system/cpu")) -> list[tuple[int, ...]]:
    """`cpus` grouped by physical core, in the order package, core, thread, so that neighbours share caches."""
    cores: dict[tuple[int, int], list[int]] = {}
    for cpu in cpus:
        topology = root / f"cpu{cpu}" / "topology"
        try:
            key = (int((topology / "physical_package_id").read_text()), int((topology / "core_id").read_text()))
        except (OSError, ValueError):
            key = (0, -1 - cpu)  # no topology told: each hardware thread is its own core
        cores.setdefault(key, []).append(cpu)
    return [tuple(cores[key]) for key in sorted(cores, key=lambda k: (k[0], abs(k[1])))]


def share(
    rank: int,
    size: int,
    cores: Sequence[Sequence[int]],
    quota: float = float("inf"),
    bind: bool = True,
    threads: int = 0,
) -> Share:
    """The part of local rank `rank` of `size` on a host with these `cores` (hardware threads of each).

    bind: or count threads only. threads: cores for each rank; 0: as many as there are. More ranks than hardware threads
    wrap around.
    """
    units = list(cores) if size * max(threads, 1) <= len(cores) else [(cpu,) for core in cores for cpu in core]
    each = min(threads, len(units)) if threads else max(1, len(units) // size)
    first = rank * each % len(units)
    mine = [cpu for unit in (units + units)[first : first + each] for cpu in unit]
    most = max(1, min(each, int(quota / size) if quota != float("inf") else each))
    return Share(tuple(sorted(mine)) if bind else (), threads or most)


def local_share(rank: int, size: int, bind: str, threads: int = 0) -> Share:
    """`share` on this host, as it is. bind: "core", "none", or the hardware threads to use, "0,2-3"."""
    cpus = allowed_cpus() if bind in ("core", "none") else cpu_list(bind)
    return share(rank, size, cores_of(cpus), quota_cpus(), bind != "none", threads)


def cpu_list(text: str) -> tuple[int, ...]:
    """ "0,2-3" as (0, 2, 3). Raises ValueError."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        found.update(range(int(first), int(last if dash else first) + 1))
    return tuple(sorted(found))


def thread_environment(threads: int, environ: Mapping[str, str], wanted: bool = False) -> dict[str, str]:
    """The variables to set so that a rank's libraries start `threads` threads; what the user has set is left alone.

    wanted: the user has named this number, which then counts more than the environment. A user's OMP_NUM_THREADS also
    speaks for the BLAS libraries, which read it when they have no variable of their own.
    """
    if "OMP_NUM_THREADS" in environ and not wanted:
        return {}
    return {name: str(threads) for name in THREAD_VARIABLES if wanted or name not in environ}


def apply(share: Share, wanted: bool = False) -> None:
    """Bind this process and set its thread variables. Must run before any library counts its cores."""
    os.environ.update(thread_environment(share.threads, os.environ, wanted))
    if share.cpus and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, share.cpus)
