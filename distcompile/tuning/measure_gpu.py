"""What measuring on GPUs needs: times are those of events, and computation is another stream's.

In: a communicator and the GPU of this rank. Out: `GpuBench`, a `Bench` (measure.py).
Method: an all-reduce's time is from where the communication stream began it to where it ended it. Contention: so many
matrix products that they last longer than the all-reduces beside them; what both took together, against each alone. The
host enqueues and waits once, so its own times do not count.
Limit: events are timed to a few microseconds (collectives/nccl/clock.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from collectives import Communicator
from compiler_core import cuda
from compiler_core.device import Device
from compiler_core.ops.registry import Array

MATRIX = 2048  # a product of a few hundred microseconds
LEAST_CALLS, MOST_CALLS = 4, 2000
LONGER = 2.0  # than the all-reduces beside it the computation lasts


class GpuBench:
    """All-reduces and products on `device`."""

    def __init__(self, communicator: Communicator, device: Device) -> None:
        self.communicator, self.device = communicator, device
        self._matrices: tuple[Any, Any] | None = None

    def array(self, nbytes: int) -> Array:
        """f32 zeros of `nbytes` in all."""
        made: Array = self.device.zeros((nbytes // 4,), np.dtype(np.float32))
        return made

    def timed(self, array: Array, depth: int) -> float:
        """Seconds of one all-reduce of `array` among `depth` that are queued together."""
        began_s, ended_s = self._reduce(array, depth, calls=0)[:2]
        return max(ended_s - began_s, 1e-9) / depth

    def factors(self, piece: Array, count: int, span_s: float) -> tuple[float, float]:
        """How much `count` all-reduces of `piece` slow computation beside them, and it them."""
        del span_s  # the host's way to say how long
        quiet_s = count * self.timed(piece, count)
        _, _, alone_s = self._reduce(piece, 0, calls=LEAST_CALLS)
        each_s = max(alone_s / LEAST_CALLS, 1e-9)
        calls = int(np.clip(LONGER * quiet_s / each_s + 1, LEAST_CALLS, MOST_CALLS))
        began_s, ended_s, busy_s = self._reduce(piece, count, calls)
        moving_s = max(ended_s - began_s, 1e-9)
        beside_s = min(moving_s, busy_s)
        progress_s = beside_s - max(0.0, busy_s - calls * each_s)  # of the computation, while data moved
        return beside_s / max(progress_s, beside_s / 100), moving_s / quiet_s

    def _reduce(self, array: Array, count: int, calls: int) -> tuple[float, float, float]:
        """When `count` all-reduces began and ended, and how long `calls` products beside them took, in seconds."""
        communicator = self.communicator
        with cuda.on(cuda.check_number(self.device.index)):
            communicator.barrier(label="tuning")
            first = communicator.mark(array)
            works = [communicator.all_reduce_async(array, "sum", label="tuning") for _ in range(count)]
            self._compute(calls)
            last = communicator.mark(array)
            for work in works:
                work.wait()
            self.device.xp.cuda.get_current_stream().synchronize()
        busy_s = 0.0 if first is None or last is None else max(last.time_s - first.time_s, 0.0)
        if not works:
            return 0.0, 0.0, busy_s
        return works[0].times.started_s, works[-1].times.ended_s, busy_s

    def _compute(self, calls: int) -> None:
        if self._matrices is None:
            a = self.device.xp.full((MATRIX, MATRIX), 0.5, np.float32)
            self._matrices = a, self.device.xp.empty_like(a)
            self.device.xp.matmul(a, a, out=self._matrices[1])  # warm-up
        a, out = self._matrices
        for _ in range(calls):
            self.device.xp.matmul(a, a, out=out)
