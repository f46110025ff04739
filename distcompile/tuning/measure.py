"""Measurements on the live communicator: what all-reduces cost by size, and what each side costs the other.

In: a `Bench`: a `Communicator` that is idle on all ranks, and where the model is. Out: a `CostFit` and a `Contention`,
the same on all ranks: rank 0's. Here is how it is done on the CPU; on GPUs: measure_gpu.py.
All functions are collective. Repeats are fixed by rank 0 before they begin, so that no rank waits for another's clock.
Method: costs are those of buckets in a backward: queued in the background, one behind the other, medians of repeats,
sizes interleaved so that drift hits all alike. Contention is measured with matrix products, which are most of a
backward, on the core that the rank has: alone, then for as long as all-reduces are under way.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from statistics import median, quantiles
from typing import Protocol

import numpy as np

from collectives import Communicator
from compiler_core.device import Device
from compiler_core.ops.registry import Array
from distcompile.tuning.cost import CostFit, CostPoint, fit_costs
from distcompile.tuning.measure_gpu import GpuBench
from distcompile.tuning.problem import Contention

SMALLEST_NBYTES = 1 << 10
LARGEST_NBYTES = 64 << 20
DEPTH = 2  # all-reduces queued at once: the second finds the channel busy, as most buckets do
LEAST_REPEATS, MOST_REPEATS = 3, 25
LEAST_SIZES = 6
LARGEST_SHARE = 0.06  # of the budget, for one all-reduce of the largest size measured
LIMIT_OF_FACTOR = 8.0  # a contention beyond this is an accident of the measurement
PIECE_NBYTES = 4 << 20  # of the all-reduces that contention is measured with
MATRIX = 384


def sizes_up_to(nbytes: int) -> list[int]:
    """The sizes to measure for gradients of `nbytes` in all: powers of four, then of two from 256 KiB."""
    limit = min(max(nbytes, 4 * SMALLEST_NBYTES), LARGEST_NBYTES)
    sizes = [s for k in range(10, 27) if (s := 1 << k) <= limit and (k % 2 == 0 or k > 18)]
    return sizes if limit - sizes[-1] < limit // 8 else [*sizes, limit // 64 * 64]


class Bench(Protocol):
    """Where it is measured."""

    @property
    def communicator(self) -> Communicator: ...
    def array(self, nbytes: int) -> Array:
        """f32 zeros of `nbytes` in all, to be reduced."""

    def timed(self, array: Array, depth: int) -> float:
        """Seconds of one all-reduce of `array` among `depth` that are queued together. Collective."""

    def factors(self, piece: Array, count: int, span_s: float) -> tuple[float, float]:
        """How much `count` all-reduces of `piece` slow computation beside them, and it them. Collective.

        span_s: for how long computation alone is measured.
        """


def bench_of(communicator: Communicator, device: Device) -> Bench:
    """Where the gradients of a model on `device` are reduced."""
    return HostBench(communicator) if device.is_host else GpuBench(communicator, device)


def measure_costs(bench: Bench, nbytes: int, budget_s: float = 1.0) -> CostFit:
    """The fit of all-reduce costs up to `nbytes`. Collective. Takes a few times `budget_s` seconds at most.

    On a slow link sizes that take more than a share of the budget are left to the last piece of the fit.
    """
    communicator = bench.communicator
    arrays: dict[int, Array] = {}
    wanted: dict[int, int] = {}
    sizes = sizes_up_to(nbytes)
    for size in sizes:
        arrays[size] = bench.array(size)
        bench.timed(arrays[size], DEPTH)  # warm-up
        pilot_s = communicator.broadcast_object(bench.timed(arrays[size], DEPTH))
        wanted[size] = int(np.clip(budget_s / len(sizes) / DEPTH / pilot_s, LEAST_REPEATS, MOST_REPEATS))
        if pilot_s > budget_s * LARGEST_SHARE and len(wanted) >= LEAST_SIZES:
            break
    times: dict[int, list[float]] = {size: [] for size in wanted}
    for number in range(max(wanted.values())):
        for size, repeats in wanted.items():
            if number < repeats:
                times[size].append(bench.timed(arrays[size], DEPTH))
    return communicator.broadcast_object(fit_costs([_point(size, seen) for size, seen in times.items()]))


def _point(nbytes: int, times_s: Sequence[float]) -> CostPoint:
    lower, _, upper = quantiles(times_s, n=4)
    return CostPoint(nbytes, median(times_s), (upper - lower) / 2)


def matrix_product() -> Callable[[], None]:
    """A computation to be disturbed: one single-precision matrix product of a few hundred microseconds."""
    a = np.full((MATRIX, MATRIX), 0.5, np.float32)
    out = np.empty_like(a)

    def compute() -> None:
        np.matmul(a, a, out=out)

    return compute


def measure_contention(bench: Bench, fit: CostFit, nbytes: int, budget_s: float = 0.6, rounds: int = 3) -> Contention:
    """How much computation and communication slow each other down. Collective; about `budget_s` seconds."""
    piece = bench.array(max(4, min(nbytes, PIECE_NBYTES)))
    count = int(np.clip(budget_s / (2 * rounds) / max(fit.seconds(piece.nbytes), 1e-6), 1, 200))
    factors = [bench.factors(piece, count, budget_s / (4 * rounds)) for _ in range(rounds)]
    mine = [float(np.clip(median(values), 1.0, LIMIT_OF_FACTOR)) for values in zip(*factors)]
    return Contention(*bench.communicator.broadcast_object(mine))


class HostBench:
    """All-reduces and products in the host's memory."""

    def __init__(self, communicator: Communicator) -> None:
        self.communicator, self._product = communicator, matrix_product()

    def array(self, nbytes: int) -> Array:
        return self.communicator.allocate(nbytes // 4, np.dtype(np.float32))

    def timed(self, array: Array, depth: int) -> float:
        self.communicator.barrier(label="tuning")
        began_s = time.perf_counter()
        works = [self.communicator.all_reduce_async(array, "sum", label="tuning") for _ in range(depth)]
        for work in works:
            work.wait()
        return (time.perf_counter() - began_s) / depth

    def factors(self, piece: Array, count: int, span_s: float) -> tuple[float, float]:
        alone_s = _compute_alone(self._product, span_s)
        quiet_s = self.timed(piece, count)
        calls, busy_s = _both(self.communicator, self._product, piece, count, alone_s)
        return busy_s / max(calls * alone_s, 1e-9), busy_s / (count * quiet_s)


def _compute_alone(compute: Callable[[], None], span_s: float) -> float:
    compute()
    times: list[float] = []
    end_s = time.perf_counter() + span_s
    while not times or time.perf_counter() < end_s:
        began_s = time.perf_counter()
        compute()
        times.append(time.perf_counter() - began_s)
    return median(times)


def _both(
    communicator: Communicator, compute: Callable[[], None], array: Array, count: int, alone_s: float
) -> tuple[float, float]:
    """Compute until `count` all-reduces are done: how many calls' worth was computed by then, and the seconds."""
    communicator.barrier(label="tuning")
    began_s = time.perf_counter()
    works = [communicator.all_reduce_async(array, "sum", label="tuning") for _ in range(count)]
    calls = 0
    while not works[-1].is_done():
        compute()
        calls += 1
    works[-1].wait()
    ended_s = works[-1].times.ended_s
    beyond_s = max(0.0, time.perf_counter() - ended_s)  # of the last call, after the channel fell quiet
    return max(calls - min(1.0, beyond_s / alone_s), 0.1), max(ended_s - began_s, 1e-9)


def host_signature(communicator: Communicator) -> str:
    """How many ranks share each host (a network namespace counts as one), in rank order: "2" or "1+1". Collective."""
    try:
        network = os.stat("/proc/self/ns/net").st_ino
    except OSError:
        network = 0  # no such thing on this system: the name tells hosts apart
    counts: dict[tuple[str, int], int] = {}
    for host in communicator.all_gather_object((socket.gethostname(), network)):
        counts[host] = counts.get(host, 0) + 1
    return "+".join(map(str, counts.values()))
