"""compile(DDP(model), dynamic=True): one capture, batches of other sizes on each rank and in each step."""

from __future__ import annotations

from typing import Any

import pytest
from ddp_models import (
    DistributedDataParallel,
    Net,
    batch,
    check_close,
    gradients,
    joined_gradients,
    loss_of,
    on_ranks,
    wrap,
)

from collectives import Communicator
from compiler_core.capture import compile

TINY_MB = 1e-6  # every parameter a bucket
Steps = tuple[tuple[int, int], ...]
# of two ranks: in some steps one compiles and the other need not
STEPS: Steps = ((4, 4), (3, 5), (5, 3), (3, 3), (2, 7))


def trained(communicator: Communicator, steps: Steps, backend: str) -> int:
    """How often a rank captured; each step's gradients are the means of the ranks' own."""
    ddp = DistributedDataParallel(Net(), bucket_cap_mb=TINY_MB)
    run: Any = compile(ddp, backend=backend, fullgraph=True, dynamic=True)
    for seed, sizes in enumerate(steps):
        arrays = [batch(seed + rank, size) for rank, size in enumerate(sizes)]
        ddp.zero_grad()
        loss_of(run(wrap(arrays[communicator.rank]))).backward()
        locals_ = [joined_gradients(Net(), array) for array in arrays]
        check_close(gradients(ddp.module), {n: (locals_[0][n] + locals_[1][n]) / 2 for n in locals_[0]})
    return len(run.explain().entries)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
def test_ranks_of_different_sizes_agree_without_another_capture(backend: str) -> None:
    assert on_ranks(2, lambda communicator: trained(communicator, STEPS, backend)) == [1, 1]


def test_a_rank_whose_batch_is_one_captures_alone() -> None:
    steps = ((1, 6), (6, 6), (6, 1), (9, 4), (1, 1))
    assert on_ranks(2, lambda communicator: trained(communicator, steps, "codegen")) == [2, 2]
