"""Layout: one bucket plan made ready for use: where each gradient lies, and the buffers in which it does.

In: a plan and the parameters that it covers. Out: places (name -> bucket, slot), buffer pools, and the word by which
ranks know the plan. Eager and compiled backwards fill the same layout; where a compiled backward is cut is its own
affair (`strategy.py`), so the word leaves segments out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from collectives import Communicator
from collectives.call import CollectiveCall, ReduceOp
from compiler_core import dtype as dtypes
from compiler_core.device import Device
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.buffers import BucketBuffer, BufferPool
from distcompile.ddp.plan.bucket_plan import Bucket, BucketPlan
from distcompile.ddp.plan.pieces import Flown, Took, flown

BY_REGISTRATION, BY_GRAPH, BY_STEP = range(3)  # what a plan is made from: nothing, one graph, all graphs of a step
Version: TypeAlias = tuple[int, int]  # how often plans were replaced on purpose; what this one is made from
WORD_MASK = (1 << 63) - 1


def word_of(text: str) -> int:
    """A hash that fits a gate's word: 63 bits."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") & WORD_MASK


def reduction_on(device: Device) -> ReduceOp:
    """How buckets on `device` are reduced: NCCL divides as it adds; on the CPU who makes a gradient divides it."""
    return "sum" if device.is_host else "avg"


def call_of(bucket: Bucket, op: ReduceOp) -> CollectiveCall:
    """The reduction of a bucket; complex gradients travel as their real and imaginary parts (`BucketBuffer.sent`)."""
    dtype = dtypes.by_name(bucket.dtype)
    return CollectiveCall("all_reduce", op, dtype.real.name, bucket.numel * (2 if dtype.kind == "c" else 1))


class Layout:
    """A plan in use. instance: the number of the DDP instance, so that two with equal plans are told apart.

    averages: whether the buckets' reduction is the average over all ranks, and not the sum.
    """

    def __init__(
        self,
        plan: BucketPlan,
        version: Version,
        parameters: Mapping[str, Tensor],
        communicator: Communicator,
        instance: int,
    ) -> None:
        self.plan, self.version = plan, version
        self.order = plan.launch_order
        self.groups = tuple(bucket.names for bucket in plan.buckets)
        self.word = word_of(f"{instance} {self.order} {[(b.dtype, b.slots, b.numel) for b in plan.buckets]}")
        self.places = {name: (b, s) for b, names in enumerate(self.groups) for s, name in enumerate(names)}
        self.counts = [len(names) for names in self.groups]
        op = reduction_on(next(iter(parameters.values())).device) if parameters else "sum"
        self.averages = op == "avg"
        self.calls = [call_of(bucket, op) for bucket in plan.buckets]
        self.labels = [f"bucket {number} of {len(plan.buckets)}" for number in range(len(plan.buckets))]
        self.pools = [
            BufferPool(bucket, [parameters[name] for name in bucket.names], communicator, f"bucket {k}")
            for k, bucket in enumerate(plan.buckets)
        ]
        self._flown: tuple[Sequence[Took], Flown] | None = None  # the last

    def flown(self, took: Sequence[Took]) -> Flown:
        """The plan as these compiled calls, in this order, carried it out."""
        if self._flown is None or self._flown[0] != took:
            self._flown = list(took), flown(self, took)
        return self._flown[1]

    @property
    def last_flown(self) -> Flown | None:
        """How several compiled calls carried out the plan in the last synchronised backward; None if it was another."""
        return self._flown[1] if self._flown is not None and len(self._flown[0]) > 1 else None

    def acquire(self) -> list[BucketBuffer]:
        """A buffer of each bucket, to write one pass's gradients to."""
        return [pool.acquire() for pool in self.pools]
