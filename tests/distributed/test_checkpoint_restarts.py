"""A job that loses a rank, started again by --max-restarts: it ends with the bits of one that nothing happened to."""

from __future__ import annotations

from pathlib import Path

import pytest
from mpi_job import check_ran, run_on_ranks

pytest.importorskip("mpi4py")

SCRIPT = """
import hashlib, os, sys
import numpy as np
import distcompile as dc
from distcompile import distributed as dist, nn
from distcompile.distributed.checkpoint import Checkpoints, Position
from distcompile.nn.parallel import DistributedDataParallel

folder, dies_at = sys.argv[1], int(sys.argv[2])
dist.init_process_group(timeout=60)
rank = dist.get_rank()
dc.manual_seed(0)
ddp = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1)))
model = dc.compile(ddp)
optimizer = dc.optim.AdamW(ddp.parameters(), lr=0.01)
checkpoints = Checkpoints(folder)
at = checkpoints.load(model=model, optimizer=optimizer)
if rank == 0:
    print("began at step", at.step, flush=True)
for step in range(at.step, 7):
    batch = np.random.default_rng(100 * step + rank).standard_normal((3, 4)).astype(np.float32)
    optimizer.zero_grad()
    model(dc.from_numpy(batch)).square().mean().backward()
    if rank == 1 and step == dies_at and os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0":
        os._exit(3)
    optimizer.step()
    if (step + 1) % 2 == 0:
        checkpoints.save(Position(step + 1), model=model, optimizer=optimizer)
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in ddp.parameters())).hexdigest()
print("ended with", digest, flush=True)
dist.destroy_process_group()
"""


def digests(text: str) -> set[str]:
    return {line.split()[-1] for line in text.splitlines() if "ended with" in line}


@pytest.mark.long
@pytest.mark.slow
def test_a_restarted_job_resumes_from_its_last_checkpoint_to_equal_bits(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    undisturbed = run_on_ranks(2, [str(script), str(tmp_path / "a"), "-1"], limit_s=90)
    check_ran(undisturbed)
    restarted = run_on_ranks(2, ["--max-restarts=1", str(script), str(tmp_path / "b"), "5"], limit_s=90)
    check_ran(restarted)
    assert "began at step 0" in restarted.stdout
    assert "began at step 4" in restarted.stdout
    assert len(digests(undisturbed.stdout)) == 1
    assert digests(restarted.stdout) == digests(undisturbed.stdout)
    at_three = run_on_ranks(3, [str(script), str(tmp_path / "b"), "-1"], limit_s=90)
    check_ran(at_three)
    assert "began at step 6" in at_three.stdout
    assert len(digests(at_three.stdout)) == 1
