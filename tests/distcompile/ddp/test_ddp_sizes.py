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
STEPS = ((4, 4), (3, 5), (5, 3), (3, 3), (2, 7))  # of two ranks: in some steps one compiles and the other need not


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "codegen"])
def test_ranks_of_different_sizes_agree_without_another_capture(backend: str) -> None:
    def step(communicator: Communicator) -> int:
        ddp = DistributedDataParallel(Net(), bucket_cap_mb=TINY_MB)
        run: Any = compile(ddp, backend=backend, fullgraph=True, dynamic=True)
        for seed, sizes in enumerate(STEPS):
            arrays = [batch(seed + rank, size) for rank, size in enumerate(sizes)]
            ddp.zero_grad()
            loss_of(run(wrap(arrays[communicator.rank]))).backward()
            locals_ = [joined_gradients(Net(), array) for array in arrays]
            check_close(gradients(ddp.module), {n: (locals_[0][n] + locals_[1][n]) / 2 for n in locals_[0]})
        return len(run.explain().entries)

    assert list(on_ranks(2, step)) == [1, 1]
