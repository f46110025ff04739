"""All-reduce by copy engines on real GPUs, without NCCL; `python copies_programs.py CASE...` under an MPI launcher.

Ranks meet over MPI, so that two of them may share one GPU, as NCCL would not let them: `--one-gpu`, or a machine that
has no more. Prints and exit code as nccl_programs.py. `killed` needs no launcher: it starts its own two processes, one
of which is killed in the middle.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import ml_dtypes  # noqa: F401 - makes np.dtype("bfloat16") known
import numpy as np

from collectives import connect
from collectives.nccl.copies import CopyEngines
from collectives.nccl.copies_opening import open_copies
from collectives.nccl.cuda import Cuda
from collectives.reduce import reduce_in_rank_order
from distcompile.engine_build import build_engine

MIB = 1 << 20
LIMIT_S = 60.0
ROUNDS = 200
DTYPES = ("float32", "float64", "float16", "bfloat16")


def cupy() -> Any:
    from importlib import import_module

    return import_module("cupy")


class Rank:
    """Copy engines on a GPU. gather: every rank's bytes, to all."""

    def __init__(self, rank: int, world_size: int, index: int, gather: Callable[[bytes], list[bytes]]) -> None:
        self.rank, self.world_size, self.gather = rank, world_size, gather
        self.cuda = Cuda(index)
        self.cuda.use()
        self.stream = self.cuda.new_stream()
        made = open_copies(self.cuda, self.stream, rank, world_size, gather)
        assert isinstance(made, CopyEngines), made
        self.copies = made

    def reduce(self, array: Any, op: str = "sum") -> None:
        """`array` was made on our stream, or is done."""
        self.copies.all_reduce(int(array.data.ptr), array.size, np.dtype(array.dtype).name, op)

    def barrier(self) -> None:
        self.gather(b"")

    def finish(self, limit_s: float = LIMIT_S) -> None:
        """Have the host wait for our stream. Raises AssertionError when the time is over."""
        until_s = time.perf_counter() + limit_s
        while not self.stream.done:
            assert time.perf_counter() < until_s, "the stream hangs"
            time.sleep(1e-4)

    def close(self) -> None:
        self.finish()
        self.copies.close()
        self.barrier()
        self.copies.free()


def values(rank: int, n: int, dtype: str) -> Any:
    base = np.random.default_rng(rank).standard_normal(min(n, 300_007)).astype(np.float32)
    return np.resize(base, n).astype(np.dtype(dtype))


def right(me: Rank) -> str:
    """Every float's sums and means have the bits that the host gets, whatever the size and wherever the array lies."""
    cp, n = cupy(), 0
    for dtype in DTYPES:
        itemsize = np.dtype(dtype).itemsize
        sizes = [
            (MIB // itemsize, 0),
            (MIB // itemsize + 1, 1),
            (5 * MIB // itemsize + 7, 3),
            (40 * MIB // itemsize, 1),
        ]
        sizes += [(100 * MIB // itemsize + 5, 0)] if dtype == "float32" else []
        for (count, shift), op in zip(sizes, ("sum", "avg", "sum", "avg", "avg")):
            everyones = [values(rank, count, dtype) for rank in range(me.world_size)]
            with me.stream:
                room = cp.zeros(count + shift, np.dtype(dtype))
                room[shift:] = cp.asarray(everyones[me.rank])
                me.reduce(room[shift:], op)
                me.finish()
                got = room.get()
            wanted = reduce_in_rank_order(everyones, op)  # type: ignore[arg-type]
            np.testing.assert_array_equal(got[shift:].view(np.uint8), wanted.view(np.uint8), err_msg=f"{dtype} {count}")
            assert not got[:shift].any()
            n += 1
    return f"{n} arrays, bit for bit"


def rounds(me: Rank) -> str:
    """Back to back, of many sizes, on ranks that are late at random; looked at on the GPU, in the same stream."""
    cp, own, plan = cupy(), random.Random(me.rank), random.Random(7)
    with me.stream:
        busy = cp.ones((1024, 1024), cp.float32)
        wrong = cp.zeros((), cp.int64)
        for k in range(ROUNDS):
            count = plan.randrange(MIB // 4, 3 * MIB)
            at = cp.arange(count, dtype=cp.int32)
            array = ((at * (me.rank + 1) + 13 * k) % 1000).astype(cp.float32)
            if own.random() < 0.2:
                time.sleep(own.random() * 3e-3)
            if own.random() < 0.3:
                for _ in range(own.randrange(10)):
                    busy = busy @ busy / 1024
            me.reduce(array)
            wanted = sum(((at * (rank + 1) + 13 * k) % 1000).astype(cp.float32) for rank in range(me.world_size))
            wrong += (array != wanted).sum()
        me.finish()
        assert int(wrong) == 0, int(wrong)
    return f"{ROUNDS} arrays, all right"


def gives_up(me: Rank) -> str:
    """The last rank stays away: the others' streams come to their end, what they waited for is NaN."""
    cp = cupy()
    with me.stream:
        first, second = cp.ones(3 * MIB, cp.float32), cp.ones(20 * MIB, cp.float32)
    me.reduce(first)
    me.finish()
    if me.rank == me.world_size - 1:
        me.barrier()
        with me.stream:
            later = cp.ones(MIB, cp.float32)
        me.reduce(later)  # after it was told: nothing that it computes is right any more
        me.copies.abort()
        me.finish(10)
    else:
        me.reduce(second)
        me.reduce(first)
        time.sleep(0.3)
        assert not me.stream.done
        began_s = time.perf_counter()
        me.copies.abort()
        me.finish(5)
        after_ms = (time.perf_counter() - began_s) * 1e3
        with me.stream:
            assert bool(cp.isnan(second).all())
            assert bool(cp.isnan(first).all())
            assert float((cp.ones(3) * 2).sum()) == 6  # the device goes on
        me.barrier()
    until_s = time.perf_counter() + 10
    while not me.copies.is_ended:
        assert time.perf_counter() < until_s
        time.sleep(0.01)
    if me.rank == me.world_size - 1:
        with me.stream:
            assert bool(cp.isnan(later).all())
        return ""
    return f"ended {after_ms:.1f} ms after the abort, all NaN"


def speed(me: Rank) -> str:
    """Times by size, on the GPU and on the host; the part of the seal."""
    cp, lines = cupy(), []
    seal = me.copies.memory.seal
    for nbytes in (MIB, 4 * MIB, 25 * MIB, 100 * MIB):
        row = []
        for sealed in (True, False):
            me.copies.memory.seal = seal if sealed else lambda *a: None  # type: ignore[method-assign]
            with me.stream:
                array = cp.zeros(nbytes // 4, cp.float32)
            for _ in range(3):
                me.reduce(array)
            me.finish()
            me.barrier()
            first, last = me.cuda.record(me.stream), None
            began_s, repeats = time.perf_counter(), 30
            for _ in range(repeats):
                me.reduce(array)
            host_us = (time.perf_counter() - began_s) / repeats * 1e6
            last = me.cuda.record(me.stream)
            me.finish()
            row.append((me.cuda.elapsed_s(first, last) / repeats * 1e6, host_us))
        (us, host_us), (bare_us, _) = row
        rate = 2 * (me.world_size - 1) / me.world_size * nbytes / us * 1e-3
        lines.append(
            f"{nbytes / MIB:5.0f} MiB {us:8.1f} us {rate:7.1f} GB/s ({bare_us:.1f} us unsealed); host {host_us:.1f} us"
        )
    me.copies.memory.seal = seal  # type: ignore[method-assign]
    return "\n    " + "\n    ".join(lines)


CASES: dict[str, Callable[[Rank], str]] = {f.__name__: f for f in (right, rounds, gives_up, speed)}


def main(names: list[str], one_gpu: bool) -> int:
    """Run these cases on all ranks."""
    world = connect("host", timeout_s=60.0, build=build_engine)
    local = int(os.environ.get("LOCAL_RANK", os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", world.rank)))
    index = 0 if one_gpu else local % cupy().cuda.runtime.getDeviceCount()
    failed = False
    for name in names:
        try:
            me = Rank(world.rank, world.world_size, index, world.all_gather_object)
            state, said = "ok", CASES[name](me)
            if not me.copies.is_aborted:
                me.close()
        except Exception:  # noqa: BLE001 - told below
            state, said = "FAIL", traceback.format_exc()[-1500:]
        everyones = world.all_gather_object((state, said))
        for rank, (how, text) in enumerate(everyones):
            if world.rank == 0 and (rank == 0 or how != "ok"):
                print(f"{how:>4} {name} (rank {rank}): {text}", flush=True)
        if any(how != "ok" for how, _ in everyones):
            failed = True
            break
    world.close()
    return int(failed)


# -- a rank that is killed


def _half(rank: int, connection: Any, index: int) -> None:
    """One of the two processes. Rank 1 is killed in the middle, rank 0 sees that and gives up."""

    def gather(said: bytes) -> list[bytes]:
        connection.send_bytes(b"." + said)
        other = connection.recv_bytes()[1:]
        return [said, other] if rank == 0 else [other, said]

    cp = cupy()
    me = Rank(rank, 2, index, gather)
    with me.stream:
        arrays = [cp.full(2 * MIB + k, float(k + rank), cp.float32) for k in range(60)]
    me.finish()
    me.barrier()
    if rank == 1:
        for array in arrays[:40]:
            me.reduce(array)
            time.sleep(1e-3)
        os.kill(os.getpid(), signal.SIGKILL)
    for array in arrays:
        me.reduce(array)
    try:
        connection.recv_bytes()
        raise AssertionError("rank 1 goes on")
    except (EOFError, ConnectionError):
        me.copies.abort()
    me.finish(10)
    with me.stream:
        are_nan = [bool(cp.isnan(array).all()) for array in arrays]
        are_right = [bool((array == 2 * k + 1).all()) for k, array in enumerate(arrays)]
    assert all(a or b for a, b in zip(are_nan, are_right)), (are_nan, are_right)
    assert all(are_nan[40:])
    print(f"  ok killed: {sum(are_right)} arrays right, {sum(are_nan)} NaN, the stream ended", flush=True)


def killed(one_gpu: bool) -> int:
    """Two processes of our own."""
    context = multiprocessing.get_context("spawn")
    ends = context.Pipe()
    devices = [0, 0] if one_gpu or cupy().cuda.runtime.getDeviceCount() < 2 else [0, 1]
    halves = [context.Process(target=_half, args=(rank, ends[rank], devices[rank])) for rank in range(2)]
    for half in halves:
        half.start()
    for end in ends:
        end.close()  # so that one sees the other's end
    for half in halves:
        half.join(60)
    codes = [half.exitcode for half in halves]
    for half in halves:
        half.kill()
    if codes != [0, -signal.SIGKILL]:
        print(f"FAIL killed: exit codes {codes}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    asked = [name for name in sys.argv[1:] if name != "--one-gpu"]
    alone = "--one-gpu" in sys.argv
    raise SystemExit(killed(alone) if asked == ["killed"] else main(asked or list(CASES), alone))
