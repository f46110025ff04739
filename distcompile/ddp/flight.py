"""Flight: one backward pass's buckets on their way: launched in plan order, waited for at the end, timed throughout.

In: the bucket buffers of this pass, and the news that a bucket is ready. Out: reduced buffers, and their times.
Invariants: bucket k is launched after bucket k-1 on every rank, whatever became ready first; every wait has the
communicator's time limit; gradients carry the factor 1/world_size already, so buckets are summed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from collectives import Communicator, Work
from distcompile.ddp.bucket_plan import BucketPlan
from distcompile.ddp.buffers import BucketBuffer
from distcompile.ddp.overlap import FlightRecord


class Flight:
    """The buckets of one synchronised backward pass."""

    def __init__(self, communicator: Communicator, plan: BucketPlan, buffers: Sequence[BucketBuffer]) -> None:
        self.communicator, self.plan, self.buffers = communicator, plan, buffers
        self.began_s = time.perf_counter()
        self.ready_s: dict[int, float] = {}
        self.works: list[Work] = []

    def ready(self, k: int) -> None:
        """Bucket `k` is complete: launch it, and those after it that waited for it."""
        self.ready_s[k] = time.perf_counter()
        while len(self.works) in self.ready_s:
            number = len(self.works)
            label = bucket_label(self.plan, number)
            self.works.append(self.communicator.all_reduce_async(self.buffers[number].flat, "sum", label=label))

    def wait(self) -> FlightRecord:
        """Wait for all buckets. Raises what the collectives raise (time-out, mismatch, failed rank)."""
        now_s = ended_s = time.perf_counter()
        waits = []
        for work in self.works:
            work.wait()
            waits.append((now_s, now_s := time.perf_counter()))
        times = [work.times for work in self.works]
        return FlightRecord(self.plan, self.began_s, ended_s, self.ready_s, times, waits)


def bucket_label(plan: BucketPlan, number: int) -> str:
    """What messages call a bucket."""
    return f"bucket {number} of {len(plan.buckets)}"
