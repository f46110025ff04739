"""Flight: one backward pass's buckets on their way: launched in plan order behind a gate, waited for, timed throughout.

In: the bucket buffers of this pass, and the news that a bucket is ready. Out: reduced buffers, and their times.
Invariants: buckets are launched in the plan's launch order on every rank, whatever became ready first; each carries its
stamp (plan, round, bucket), so that buckets of different steps are never paired; none moves unless the gate at the
start of the pass found all ranks at the same plan, round and forward; every wait has the communicator's time limit.
On the CPU gradients carry the factor 1/world_size, and buckets are summed; on GPUs NCCL averages. There a bucket
starts after the kernels that fill it, `wait` has the stream wait and not the host, and the times are those of events.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Protocol

from collectives import Communicator, Gate, Stamp, Work
from collectives.call import ReduceOp, Task
from collectives.work import Mark, WorkTimes
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.buffers import BucketBuffer
from distcompile.ddp.overlap import FlightRecord
from distcompile.ddp.plan.bucket_plan import BucketPlan
from distcompile.ddp.plan.layout import Layout
from distcompile.ddp.plan.pieces import Flown


class BucketWork(Protocol):
    """A bucket on its way: a collective's `Work`, or what a communication hook made of it."""

    def wait(self, timeout_s: float | None = None) -> None:
        """Block until the bucket holds the result; a second time does nothing, or raises the same error."""

    @property
    def times(self) -> WorkTimes: ...


class CommHook(Protocol):
    """What replaces the all-reduce of a bucket (comm_hook.py).

    wants_raw: it gets local gradients, not divided by the number of ranks, and averages them itself. is_python: it runs
    Python, and collectives that know no gate: it is called only once the gate has passed.
    """

    wants_raw: bool
    is_python: bool

    def launch(
        self,
        communicator: Communicator,
        plan: BucketPlan,
        number: int,
        buffer: BucketBuffer,
        parameters: Sequence[Tensor],
        *,
        label: str,
        stamp: Stamp,
        gate: Gate | None,
        op: ReduceOp,
    ) -> BucketWork:
        """Start reducing bucket `number`. op: how it is reduced without a hook."""


class Flight:
    """The buckets of one synchronised backward pass. gate: None if all ranks are known to agree."""

    def __init__(
        self,
        communicator: Communicator,
        layout: Layout,
        buffers: Sequence[BucketBuffer],
        *,
        step: int,
        gate: Gate | None,
        hook: CommHook | None = None,
    ) -> None:
        self.communicator, self.layout, self.buffers = communicator, layout, buffers
        self.step, self.gate, self.hook = step, gate, hook
        self.began_s = time.perf_counter()
        self.began = self.mark()  # on a GPU, the host's times say little
        self.ended_s = math.nan  # when the backward ended: what the main thread waits for from then on is exposed
        self.ready_s: dict[int, float] = {}
        self.works: list[BucketWork] = []

    def mark(self) -> Mark | None:
        """Where the stream is now; None if buckets are in the host's memory."""
        return self.communicator.mark(self.buffers[0].flat) if self.buffers else None

    def ready(self, k: int) -> None:
        """Bucket `k` is complete: launch it, and those after it that waited for it."""
        self.ready_s[k] = time.perf_counter()
        order = self.layout.order
        while len(self.works) < len(order) and order[len(self.works)] in self.ready_s:
            if self.hook is not None and self.hook.is_python and not self.passes():
                return
            self.works.append(self._launch(order[len(self.works)]))

    def _launch(self, number: int) -> BucketWork:
        layout, buffer = self.layout, self.buffers[number]
        label, stamp = layout.labels[number], Stamp(layout.word, self.step, number)
        if self.hook is None:  # all_reduce_async, without looking again at what the layout has made
            flat = buffer.sent
            return self.communicator.launch(Task(layout.calls[number], flat, flat, label, None, stamp, self.gate))
        parameters = layout.pools[number].parameters
        return self.hook.launch(
            self.communicator,
            layout.plan,
            number,
            buffer,
            parameters,
            label=label,
            stamp=stamp,
            gate=self.gate,
            op=layout.calls[number].op,
        )

    def passes(self) -> bool:
        """Wait for the gate. False: the ranks do not agree, and no bucket moved on any of them."""
        if self.gate is None:
            return True
        self.gate.wait()
        return bool(self.gate.passed)

    def wait(self, flown: Flown) -> FlightRecord:
        """Wait for all buckets. flown: the segments of this pass, for the record."""
        if math.isnan(self.ended_s):
            self.ended_s = time.perf_counter()
        now_s, waits = self.ended_s, []
        ended = None if self.began is None else self.mark()
        for work in self.works:
            work.wait()
            waits.append((now_s, now_s := time.perf_counter()))
        times = [work.late_times() if isinstance(work, Work) else work.times for work in self.works]
        marks = None if self.began is None or ended is None else (self.began, ended)
        return FlightRecord(
            flown.plan,
            self.began_s,
            self.ended_s,
            self.ready_s,
            times,
            waits,
            self.layout.order,
            graphs=flown.graphs,
            marks=marks,
        )
