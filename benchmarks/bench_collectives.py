"""All-reduce through `collectives` against raw mpi4py, in one process, interleaved: latency, bandwidth, and the queue.

Run on ranks:  python -m launch -n 2 --bind core benchmarks/bench_collectives.py [--messages] [--json FILE]
For each size, blocks of calls of each side take turns; a number is the median over the blocks of the mean time a call.
Rows: MPI_Allreduce in place on ordinary memory (the peer); ours, blocking, on ordinary memory and on memory of
`Communicator.allocate`; then 64 calls of 1 KB queued at once, and 1 KB launched while the main thread runs pure Python
(from launch to end). Machines are noisy: a claim is a ratio out of one run, with its spread.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np

from collectives.over_mpi.transport import MpiCommunicator
from distcompile.engine_build import build_engine

SIZES = (1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 25 << 20, 100 << 20)
BLOCKS = 15
BLOCK_S = 0.02


def block(call: Callable[[], object], calls: int) -> float:
    """Mean seconds a call."""
    began_s = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - began_s) / calls


def compare(world: MpiCommunicator, nbytes: int) -> dict[str, list[float]]:
    """Seconds a call, one number a block, of each side."""
    raw, ours = np.zeros(nbytes // 4, np.float32), np.zeros(nbytes // 4, np.float32)
    allocated = world.allocate(nbytes // 4, np.dtype(np.float32))
    comm, in_place = world.buckets, world.mpi.IN_PLACE
    sides: dict[str, Callable[[], object]] = {
        "mpi4py": lambda: comm.Allreduce(in_place, raw),
        "ours": lambda: world.all_reduce(ours),
        "ours, allocated": lambda: world.all_reduce(allocated),
    }
    for call in sides.values():
        block(call, 3)
    calls = max(1, int(BLOCK_S / world.broadcast_object(block(sides["mpi4py"], 3))))
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(BLOCKS):
        for name, call in sides.items():
            world.barrier()
            times[name].append(block(call, calls))
    return times


def queued(world: MpiCommunicator, count: int = 64) -> float:
    """Seconds a call of 1 KB, of `count` launched at once."""
    arrays = [world.allocate(256, np.dtype(np.float32)) for _ in range(count)]

    def run() -> None:
        for work in [world.all_reduce_async(array) for array in arrays]:
            work.wait()

    run()
    times = []
    for _ in range(BLOCKS):
        world.barrier()
        times.append(block(run, 3) / count)
    return median(times)


def while_python_computes(world: MpiCommunicator, calls: int = 50) -> list[float]:
    """Seconds from launch to end of 1 KB, while the main thread runs a loop in pure Python."""
    array, times = world.allocate(256, np.dtype(np.float32)), []
    for _ in range(calls):
        world.barrier()
        work = world.all_reduce_async(array)
        total = 0
        while not work.is_done() and total < 1_000_000:
            for k in range(1000):
                total += k & 1
        work.wait()
        times.append(work.times.ended_s - work.times.launched_s)
    return times


def spread(times: list[float]) -> str:
    low, _, high = quantiles(times, n=4)
    return f"{1e6 * median(times):10.1f} ({1e6 * low:.1f}-{1e6 * high:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", action="store_true", help="no shared memory: as between hosts")
    parser.add_argument("--json", type=Path, help="write the numbers there (rank 0)")
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="bytes")
    options = parser.parse_args()
    world = MpiCommunicator(build=build_engine, share_memory=not options.messages)
    rows: dict[str, Any] = {}
    say: Callable[..., None] = print if world.rank == 0 else lambda *_, **__: None
    say(f"{world.mpi.Get_library_version().splitlines()[0]}, {world.world_size} ranks; us a call: median (quartiles)")
    for nbytes in (size for size in SIZES if size <= options.largest):
        times = compare(world, nbytes)
        rows[str(nbytes)] = {name: median(values) for name, values in times.items()}
        peer = median(times["mpi4py"])
        text = "  ".join(f"{name} {spread(values)} {median(values) / peer:5.2f}x" for name, values in times.items())
        say(f"{nbytes >> 10:7d} KiB  {text}", flush=True)
    rows["queued"] = queued(world)
    say(f"64 queued of 1 KiB: {1e6 * rows['queued']:.1f} us each")
    busy = while_python_computes(world)
    rows["while Python computes"] = median(busy)
    say(f"1 KiB while the main thread runs Python: {spread(busy)} us, longest {1e6 * max(busy):.0f}")
    if options.json is not None and world.rank == 0:
        options.json.write_text(json.dumps(rows, indent=1))
    world.close()


if __name__ == "__main__":
    main()
