"""Clipping and fused updates beside DDP, whose gradients are views of bucket buffers: two ranks equal one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile as dc
from collectives import run_ranks
from distcompile import distributed, nn

STEPS = 6
X = np.random.default_rng(0).standard_normal((STEPS, 8, 6)).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 4, (STEPS, 8))


def make() -> Any:
    dc.manual_seed(7)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))
    model[2].weight.data = model[2].weight.detach() * 3.0
    return model


def train(model: Any, call: Any, rows: slice, accumulate: int, fused: bool) -> list[Any]:
    optimizer = dc.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1, fused=fused)
    schedule = dc.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    norms = []
    for step in range(STEPS):
        loss = nn.functional.cross_entropy(call(dc.tensor(X[step, rows])), dc.tensor(Y[step, rows]))
        (loss / accumulate).backward()
        if (step + 1) % accumulate == 0:
            norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 0.2)))
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
    return [*(p.detach().numpy().copy() for p in model.parameters()), np.array(norms)]


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("backend", [None, "aot_eager", "codegen"])
def test_two_ranks_equal_one_on_the_joined_batch(backend: str | None, accumulate: int) -> None:
    model = make()
    expected = train(model, model, slice(0, 8), accumulate, fused=False)

    def rank_main(communicator: Any) -> list[Any]:
        with distributed.use_communicator(communicator):
            model = make()
            ddp = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.001)
            call = ddp if backend is None else dc.compile(ddp, backend=backend)
            rows = slice(4 * communicator.rank, 4 * communicator.rank + 4)
            return train(model, call, rows, accumulate, fused=backend == "codegen")

    ranks = run_ranks(2, rank_main)
    for first, second, want in zip(*ranks, expected, strict=True):
        np.testing.assert_array_equal(first, second)
        np.testing.assert_allclose(first, want, rtol=2e-4, atol=2e-5)
    assert expected[-1].min() > 0.2, "the norms were clipped"
