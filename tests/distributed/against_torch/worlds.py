"""Runs a module's programs on ranks of torch (gloo) and on ours (MPI): a process a rank, results by rank.

As a script, started by `torchs` and `ours`: `worlds.py MODULE OUT [RANK WORLD STORE]`. OUT.RANK receives, as JSON, what
MODULE.run_all(torch, torch.distributed) returns; without the last three words on distcompile and its ranks.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

from mpi_job import ROOT, check_ran, run_on_ranks

SCRIPT = str(Path(__file__))
LIMIT_S = 200


def torchs(programs: ModuleType, ranks: int, folder: Path) -> list[Any]:
    """What torch's ranks return."""
    out = folder / "out"
    started = [
        subprocess.Popen(
            [sys.executable, SCRIPT, programs.__name__, str(out), str(rank), str(ranks), str(folder / "store")],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "tests" / "distributed")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        said = [process.communicate(timeout=LIMIT_S)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    assert all(process.returncode == 0 for process in started), "\n".join(said)
    return read(out, ranks)


def ours(programs: ModuleType, ranks: int, folder: Path, mpi: str = "mpich") -> list[Any]:
    """What our ranks return, under the launcher."""
    out, paths = folder / "out", {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "distributed")])}
    command = [f"--mpi={mpi}", SCRIPT, programs.__name__, str(out)]
    check_ran(run_on_ranks(ranks, command, limit_s=LIMIT_S, environment=paths))
    return read(out, ranks)


def read(out: Path, ranks: int) -> list[Any]:
    return [json.loads(Path(f"{out}.{rank}").read_text()) for rank in range(ranks)]


def main(module: str, out: str, *of_torch: str) -> None:
    warnings.simplefilter("ignore")
    torch = importlib.import_module("torch" if of_torch else "distcompile")
    dist = importlib.import_module(f"{torch.__name__}.distributed")
    if of_torch:
        rank, world, store = of_torch
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=int(rank), world_size=int(world))
    else:
        dist.init_process_group(timeout=60)
    results = importlib.import_module(module).run_all(torch, dist)
    Path(f"{out}.{dist.get_rank()}").write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
