"""torch 2.13's options of DistributedDataParallel: a cap for each bucket, buffers at the start and in forwards."""

from __future__ import annotations

from typing import Any

import pytest

import distcompile as dc
from collectives import Communicator, run_ranks
from distcompile import nn
from distcompile.distributed import use_communicator
from distcompile.nn.parallel import DistributedDataParallel


class Counting(nn.Module):
    """A weight, and a buffer that is the rank's own number at first and grows by 10 in each forward of rank 0 alone."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.weight, self.grows = nn.Parameter(dc.ones(2)), rank == 0
        self.register_buffer("count", dc.tensor(float(rank)))

    def forward(self, x: dc.Tensor) -> dc.Tensor:
        self.count += 10.0 * self.grows
        return (self.weight * x).sum()


@pytest.mark.parametrize(
    ("options", "at_start", "after_two"),
    [
        ({}, 0.0, 10.0),
        ({"broadcast_buffers": True}, 0.0, 10.0),
        ({"broadcast_buffers": False}, 1.0, 1.0),
        ({"forward_sync_buffers": False}, 0.0, 0.0),
        ({"forward_sync_buffers": True}, 0.0, 10.0),
        ({"forward_sync_buffers": False, "broadcast_buffers": True}, 0.0, 0.0),
        ({"forward_sync_buffers": True, "broadcast_buffers": False}, 0.0, 10.0),
        ({"forward_sync_buffers": False, "init_sync": False}, 1.0, 1.0),
        ({"init_sync": False}, 1.0, 10.0),
    ],
)
def test_buffers_of_rank_1_are_rank_0s_when_torch_has_them_so(
    options: dict[str, Any], at_start: float, after_two: float
) -> None:
    def train(communicator: Communicator) -> tuple[float, float]:
        with use_communicator(communicator):
            model = DistributedDataParallel(Counting(communicator.rank), **options)
            before = float(model.module.count)
            for _ in range(2):
                model(dc.ones(2)).backward()
            return before, float(model.module.count)

    assert run_ranks(2, train, timeout_s=60)[1] == (at_start, after_two)


def test_each_bucket_has_its_cap() -> None:
    def plan(communicator: Communicator) -> list[int]:
        with use_communicator(communicator):
            layers = nn.Sequential(*[nn.Linear(32, 32, bias=False) for _ in range(6)])  # 4 KiB each
            model = DistributedDataParallel(layers, bucket_cap_mb_list=[1 / 256, 2 / 256], batched_grad_copy=True)
            model(dc.ones(1, 32)).sum().backward()
            return [len(bucket.slots) for bucket in model._books.layout.plan.buckets]

    assert run_ranks(2, plan, timeout_s=60) == [[1, 2, 2, 1]] * 2
