"""The framework under measurement, chosen by BENCH_FRAMEWORK: `distcompile` (default) or `torch`.

In: the environment. Out: `torch`, `nn`, `F` (of either), `World` (ranks, barrier, mean over ranks), `pin`, and
`identity`, which every benchmark reports and `run.py` checks: no side's numbers can be shown as the other's.
The models and the loops of this folder are one source for both sides: only what is imported here differs, so a ratio
compares frameworks and not benchmark programs. PyTorch is not a dependency; its side runs under its own interpreter.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

NAME = os.environ.get("BENCH_FRAMEWORK", "distcompile")


# who this rank is among those of its host, and among all: torchrun's and our launcher's, MPICH's, Open MPI's names
_LOCAL_RANKS = ("LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK")
_RANKS = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK")


def pin() -> None:
    """Bind this process to one core, by its rank on this host; before anything counts its cores. Both sides alike.

    With more than one thread (OMP_NUM_THREADS) it is not bound. BENCH_PIN=rank: by its rank among all, for hosts that
    are namespaces of one machine and share its cores.
    """
    if int(os.environ.get("OMP_NUM_THREADS", "1")) > 1:
        return
    names = _RANKS if os.environ.get("BENCH_PIN") == "rank" else _LOCAL_RANKS
    place = next((int(os.environ[name]) for name in names if name in os.environ), 0)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:  # distcompile-run has bound its ranks already
        os.sched_setaffinity(0, {cores[place % len(cores)]})


pin()
torch: Any = importlib.import_module(NAME)
nn: Any = importlib.import_module(f"{NAME}.nn")
F: Any = importlib.import_module(f"{NAME}.nn.functional")
if NAME == "torch":
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))


def identity() -> dict[str, str]:
    """Which framework, of which version, measures here, and whether torch is loaded: not ours under its name."""
    has_torch = sys.modules.get("torch") not in (None, sys.modules.get("distcompile"))
    return {
        "framework": NAME,
        "version": str(torch.__version__),
        "has_torch": "yes" if has_torch else "no",
    }


class World:
    """The ranks of this job, in torch.distributed's words, which both sides understand. gloo means MPI on ours."""

    def __init__(self) -> None:
        self._dist = importlib.import_module(f"{NAME}.distributed")
        self._dist.init_process_group("gloo")
        self.rank, self.size = self._dist.get_rank(), self._dist.get_world_size()

    def barrier(self) -> None:
        self._dist.barrier()

    def means(self, values: list[float]) -> list[float]:
        """Each value's mean over the ranks."""
        both = torch.tensor(values, dtype=torch.float64)
        self._dist.all_reduce(both)
        return [value / self.size for value in both.tolist()]

    def all_reduce_all(self, nbytes: list[int]) -> Callable[[], None]:
        """A function that all-reduces one float32 buffer of each size, all started before the first is awaited."""
        buffers = [torch.ones(n // 4) for n in nbytes]

        def run() -> None:
            for work in [self._dist.all_reduce(b, async_op=True) for b in buffers]:
                work.wait()

        return run

    def close(self) -> None:
        self.barrier()
        self._dist.destroy_process_group()
