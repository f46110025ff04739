"""What ranks with a real GPU each do with NCCL; `python nccl_programs.py CASE...` under an MPI launcher.

Rank 0 prints a line a case: `ok` or `FAIL`, its name, what was seen. Exit code 1 if one failed. Each case has a group
of its own, so that one which breaks its communicator leaves the others alone.
"""

from __future__ import annotations

import atexit
import os
import random
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from collectives import Stamp, connect
from collectives.call import Task
from collectives.errors import (
    CollectiveError,
    CollectiveMismatchError,
    CollectiveTimeoutError,
    RankFailedError,
    SharedDeviceError,
)
from collectives.nccl.communicator import NcclCommunicator
from distcompile.engine_build import build_engine

LIMIT_S = 60.0
MIB = 1 << 20


def cupy() -> Any:
    from importlib import import_module

    return import_module("cupy")


def values(rank: int, n: int, dtype: str) -> Any:
    return ((np.arange(n) * (rank + 1) + rank) % 5 + 1).astype(np.dtype(dtype))


def right(c: NcclCommunicator) -> str:
    """Every kind and dtype gives what it gives in host memory."""
    cp, w, r, last, n = cupy(), c.world_size, c.rank, c.world_size - 1, 0
    for dtype in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "uint32", "uint64"):
        for op in ("sum", "avg", "max", "min", "prod"):
            if op == "avg" and "int" in dtype:
                continue
            host = values(r, 1001, dtype)
            array = cp.asarray(host)
            c.all_reduce(array, op)  # type: ignore[arg-type]
            c.all_reduce(host, op)  # type: ignore[arg-type]
            np.testing.assert_array_equal(array.get(), host, err_msg=f"{dtype} {op}")
            n += 1
    for place in (np.asarray, cp.asarray):
        source = values(r, 6 * w, "int16")
        made = {k: place(np.zeros(6 * w, np.int16)) for k in ("gathered", "exchanged", "rows")}
        part, kept = place(np.zeros(6, np.int16)), place(np.zeros(6))
        c.all_gather(made["gathered"], place(source[:6].copy()))
        c.all_to_all_async(made["exchanged"], place(source)).wait()
        c.scatter_async(part, place(source) if r == last else None, root=last).wait()
        c.gather_async(made["rows"] if r == 0 else None, part, root=0).wait()
        sent = [(r + peer) % 3 + 1 for peer in range(w)]
        uneven = place(np.zeros(sum(sent), np.int64))
        c.all_to_all_async(uneven, place(values(r, sum(sent), "int64")), splits=(sent, sent)).wait()
        spread, total = place(values(r, 5, "float64")), place(values(r, 7, "float32"))
        c.broadcast(spread, root=last)
        c.reduce_scatter(kept, place(values(r, 6 * w, "float64")), "max")
        c.reduce_async(total, "sum", root=last).wait()
        arrays = [*made.values(), part, uneven, spread, kept, total]
        if place is np.asarray:
            expected = arrays
    for mine, theirs in zip(expected, arrays):
        np.testing.assert_array_equal(mine, theirs.get())
    for wire in ("bfloat16", "float16"):
        host = (np.linspace(0.1, 3, 4099, dtype=np.float32)) * (r + 1)
        array = cp.asarray(host)
        c.all_reduce(array, wire=wire)  # type: ignore[arg-type]
        c.all_reduce(host, wire=wire)  # type: ignore[arg-type]
        np.testing.assert_array_equal(array.get(), host, err_msg=wire)
    pair = cp.full(3, r + 10.0)
    got = cp.zeros(3)
    receive = c.receive_async(got, (r + 1) % w)
    c.send_async(pair, (r + 1) % w).wait()
    receive.wait()
    c.barrier()
    assert got.get().tolist() == [(r + 1) % w + 10.0] * 3
    library = c.engine.library  # type: ignore[union-attr]
    return f"{n} reductions, 9 other kinds, 2 wires, messages; NCCL {library.version()}"


def speed(c: NcclCommunicator) -> str:
    """Times of an all-reduce by size: on the GPU, and what the host spends on it."""
    cp, lines = cupy(), []
    stream = cp.cuda.get_current_stream()
    for nbytes in (1 << 10, 1 << 16, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB):
        array, repeats = cp.zeros(nbytes // 4, cp.float32), 20 if nbytes <= 16 * MIB else 6
        for _ in range(3):
            c.all_reduce(array)
        c.barrier()
        first, last = cp.cuda.Event(), cp.cuda.Event()
        gate = c.open_gate((1,), 1)
        gate.wait()
        first.record(stream)
        began_s = time.perf_counter()
        works = [c.all_reduce_async(array, gate=gate, stamp=Stamp(1, 1, k)) for k in range(repeats)]
        works[-1].wait()
        host_us = (time.perf_counter() - began_s) / repeats * 1e6
        last.record(stream)
        last.synchronize()
        each_us = cp.cuda.get_elapsed_time(first, last) / repeats * 1e3
        began_s = time.perf_counter()
        for _ in range(repeats):
            c.all_reduce(array)
        roll_us = (time.perf_counter() - began_s) / repeats * 1e6
        rate = 2 * (c.world_size - 1) / c.world_size * nbytes / each_us * 1e-3
        lines.append(
            f"{nbytes / 1024:>9.0f} KiB {each_us:9.1f} us {rate:7.1f} GB/s; host a launch: {host_us:6.1f} us behind a "
            f"gate, {roll_us:6.1f} us with a roll call"
        )
    return "\n    " + "\n    ".join(lines)


def copied(c: NcclCommunicator) -> str:
    """Large sums are the copy engines', with the bits of a sum in rank order; times beside NCCL's."""
    cp, lines = cupy(), []
    c.all_reduce(cp.zeros(1))
    moves = c.engine.moves  # type: ignore[union-attr]
    assert moves is not None
    assert moves.copies is not None
    engines = moves.copies
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        for nbytes in (MIB, 3 * MIB + 8, 50 * MIB + 40):
            host = np.resize(np.random.default_rng(c.rank).standard_normal(300_007), nbytes // np.dtype(dtype).itemsize)
            host = host.astype(np.dtype(dtype))
            array, before = cp.asarray(host), engines.piece
            c.all_reduce(array, "avg")
            c.all_reduce(host, "avg")
            assert engines.piece > before
            np.testing.assert_array_equal(array.get(), host, err_msg=f"{dtype} {nbytes}")
    stream = cp.cuda.get_current_stream()
    for nbytes in (MIB, 4 * MIB, 25 * MIB, 100 * MIB):
        array, row = cp.zeros(nbytes // 4, cp.float32), []
        for moves.copies in (engines, None):
            for _ in range(3):
                c.all_reduce(array)
            c.barrier()
            gate = c.open_gate((1,), 1)
            gate.wait()
            first, last = cp.cuda.Event(), cp.cuda.Event()
            first.record(stream)
            works = [c.all_reduce_async(array, gate=gate, stamp=Stamp(1, 1, k)) for k in range(20)]
            works[-1].wait()
            last.record(stream)
            last.synchronize()
            c.barrier()
            row.append(cp.cuda.get_elapsed_time(first, last) / 20 * 1e3)
        lines.append(f"{nbytes / MIB:5.0f} MiB: {row[0]:8.1f} us by copies, {row[1]:8.1f} us by NCCL")
    moves.copies = engines
    return "\n    " + "\n    ".join(lines)


def launching(c: NcclCommunicator) -> str:
    """What the host spends on the parts of a launch, in microseconds, in a row."""
    cp = cupy()
    array = cp.zeros(1 << 18, cp.float32)
    c.all_reduce(array)
    c.barrier()
    engine = c.engine
    assert engine is not None
    assert engine.moves is not None
    cuda, library, comm, pointer = engine.cuda, engine.library, engine.moves.comm, engine.moves.pointer
    address = cuda.address(array)
    gate = c.open_gate((1,), 1)
    gate.wait()
    call, _ = c._all_reduce_call(array, "sum", "")
    event = cuda.record(cuda.current())
    parts: dict[str, Callable[[], Any]] = {
        "ncclAllReduce": lambda: library.all_reduce(address, address, array.size, 7, 0, comm, pointer),
        "event recorded": lambda: cuda.record(engine.stream),
        "event waited for": lambda: cuda.wait(engine.stream, event),
        "current stream": cuda.current,
        "launch behind a gate": lambda: c.launch(Task(call, array, array, gate=gate)),
        "launch and wait": lambda: c.launch(Task(call, array, array, gate=gate)).wait(),
    }
    said = []
    for name, function in parts.items():
        cp.cuda.Device().synchronize()
        c.barrier()
        began_s = time.perf_counter()
        for _ in range(100):
            function()
        said.append(f"{name} {(time.perf_counter() - began_s) * 1e4:.1f}")
    return ", ".join(said)


def streams(c: NcclCommunicator) -> str:
    """The host does not wait; what computes before and after is in order; times are the host's."""
    cp = cupy()
    c.all_reduce(cp.zeros(1))
    matrix = cp.ones((8192, 8192), cp.float32)
    product = cp.empty_like(matrix)
    cp.matmul(matrix, matrix, out=product)
    cp.cuda.Device().synchronize()
    array = cp.zeros(MIB, cp.float32)
    for _ in range(3):  # the first of a size may allocate, which waits for the device
        c.all_reduce(array)
        array += product[0, 0]
        array *= 2
    array[:] = 0
    c.barrier()
    gate = c.open_gate((1,), 1)
    gate.wait()
    began_s = time.perf_counter()
    for _ in range(20):
        cp.matmul(matrix, matrix, out=product)
    array += product[0, 0]
    work = c.all_reduce_async(array, gate=gate)
    launched_s = time.perf_counter()
    for _ in range(10):  # beside the collective
        cp.matmul(matrix, matrix, out=product)
    work.wait()
    array *= 2
    host_s = time.perf_counter() - began_s
    total = float(array[7])
    gpu_s = time.perf_counter() - began_s
    times = work.times
    assert total == 2.0 * 8192 * c.world_size, total
    assert host_s < gpu_s / 3, (host_s, gpu_s)
    assert launched_s < times.started_s < times.ended_s < began_s + gpu_s + 1e-3, (began_s, gpu_s, times)
    ms = [round((t - began_s) * 1e3, 2) for t in (times.launched_s, times.started_s, times.ended_s)]
    return f"host {host_s * 1e3:.2f} ms of {gpu_s * 1e3:.2f} ms; launched, started, ended at {ms} ms"


def raised(function: Callable[[], Any]) -> tuple[CollectiveError, float]:
    """The error that `function` ends with, and after how many seconds."""
    began_s = time.perf_counter()
    try:
        function()
    except CollectiveError as error:
        return error, time.perf_counter() - began_s
    raise AssertionError("no error was raised")


def mismatch(c: NcclCommunicator) -> str:
    """Ranks with other sizes: named on all, at once."""
    cp = cupy()
    error, after_s = raised(lambda: c.all_reduce(cp.ones(2 + c.rank)))
    assert isinstance(error, (CollectiveMismatchError, RankFailedError)), error
    return f"{type(error).__name__} after {after_s * 1e3:.0f} ms: {error.got or error.what}"


def missing(c: NcclCommunicator) -> str:
    """A rank does not come: the others are told which."""
    cp = cupy()
    c.all_reduce(cp.ones(2))
    if c.rank:
        time.sleep(1.5)
        return ""
    error, after_s = raised(lambda: c.all_reduce(cp.ones(2), timeout_s=1.0))
    assert isinstance(error, CollectiveTimeoutError), error
    assert "[1]" in error.got, error.got
    return f"{type(error).__name__} after {after_s:.2f} s: {error.got}"


def stuck(c: NcclCommunicator) -> str:
    """A rank launches fewer collectives than were agreed on: the kernel that waits on the GPU is aborted."""
    cp = cupy()
    c.all_reduce(cp.ones(2))
    c.timeout_s = 1.0
    gate = c.open_gate((1,), 1)
    gate.wait()
    if c.rank:
        time.sleep(2.5)
        error, after_s = raised(lambda: c.all_reduce(cp.ones(2)))
        return ""
    array = cp.ones(4 * MIB)
    work = c.launch(Task(c._all_reduce_call(array, "sum", "")[0], array, array, "bucket 0 of 1", gate=gate))
    error, after_s = raised(lambda: work.synchronize())  # type: ignore[attr-defined]
    assert isinstance(error, CollectiveTimeoutError), error
    assert after_s < 4, after_s
    assert float((cp.ones(3) * 2).sum()) == 6  # the device goes on
    return f"{type(error).__name__} after {after_s:.2f} s: {error.what}"


def shared(c: NcclCommunicator) -> str:
    """Both ranks on one GPU."""
    cp = cupy()
    with cp.cuda.Device(0):
        array = cp.ones(2)
        error, after_s = raised(lambda: c.all_reduce(array))
    assert isinstance(error, (SharedDeviceError, RankFailedError)), error
    return f"{type(error).__name__} after {after_s * 1e3:.0f} ms: {error.what}; {error.got}"


def messages(c: NcclCommunicator) -> str:
    """In any order on any rank, with tags, all-reduces and products in between; nothing waits for ever."""
    cp, w, r, count = cupy(), c.world_size, c.rank, 0
    a = cp.ones((512, 512), cp.float32)
    for step in range(20):
        plan, own = random.Random(step), random.Random(1000 * step + r)
        everyones = [
            (source, target, plan.randrange(3), 1 << plan.randrange(0, 22))
            for source in range(w)
            for target in range(w)
            for _ in range(plan.randrange(4))
            if source != target
        ]
        everyones = list({m[:3]: m for m in everyones}.values())  # one of a tag at a time: they may come in any order
        mine = [m for m in everyones if r in m[:2]]
        own.shuffle(mine)
        works: list[tuple[Any, Any, float]] = []
        for source, target, tag, n in mine:
            value = float(100 * step + 10 * source + target)
            array = cp.full(n, value if source == r else -1.0, cp.float32)
            work = c.send_async(array, target, tag=tag) if source == r else c.receive_async(array, source, tag=tag)
            works.append((work, array, value))
            a = a @ a / 512
        total = cp.full(1 << 20, float(r), cp.float32)
        works.append((c.all_reduce_async(total), total, w * (w - 1) / 2))
        own.shuffle(works)
        for work, array, value in works:
            work.wait()
            assert bool((array == value).all()), (step, work.what, float(array[0]), value)
            count += 1
    got = cp.zeros(4)
    if r == 0:
        for _ in range(1, w):
            work = c.receive_async(got, None, tag=9)
            work.wait()
            assert float(got[0]) == work.peer
        error, _ = raised(lambda: c.receive_async(cp.zeros(3), 1).wait())
        assert isinstance(error, CollectiveMismatchError), error
    else:
        c.send_async(cp.full(4, float(r)), 0, tag=9).wait()
        if r == 1:
            c.send_async(cp.zeros(5), 0).wait()
    c.barrier()
    return f"{count} messages and all-reduces, from any rank, a misfit"


def message_speed(c: NcclCommunicator) -> str:
    """A message there and back, by NCCL and through the host: what a pair of ranks sees; both ways at once."""
    cp, lines = cupy(), []
    if c.rank > 1:
        c.barrier()
        return ""
    for nbytes in (1 << 10, MIB, 16 * MIB, 256 * MIB):
        array, other, row = cp.ones(nbytes // 4, cp.float32), cp.empty(nbytes // 4, cp.float32), []
        for staged in (False, True):
            c.stages_messages = staged
            for both in (False, True):
                for repeat in range(8 if nbytes < 64 * MIB else 4):
                    if repeat == 2:
                        cp.cuda.get_current_stream().synchronize()
                        began_s = time.perf_counter()
                    if both:
                        works = [c.receive_async(other, 1 - c.rank), c.send_async(array, 1 - c.rank)]
                    else:
                        works = [(c.send_async if c.rank == 0 else c.receive_async)(array, 1 - c.rank)]
                        works[0].wait()
                        works = [(c.receive_async if c.rank == 0 else c.send_async)(array, 1 - c.rank)]
                    for work in works:
                        work.wait()
                    cp.cuda.get_current_stream().synchronize()
                each_us = (time.perf_counter() - began_s) / (repeat - 1) * 1e6
                row.append(f"{'both ways' if both else 'there and back'} {each_us:9.1f} us")
        lines.append(f"{nbytes / 1024:>9.0f} KiB: NCCL {row[0]}, {row[1]}; host {row[2]}, {row[3]}")
    c.stages_messages = False
    c.barrier()
    return "\n    " + "\n    ".join(lines)


CASES = {
    f.__name__: f
    for f in (right, copied, messages, launching, streams, mismatch, missing, stuck, shared, speed, message_speed)
}


def main(names: list[str]) -> int:
    """Run these cases on all ranks."""
    world = connect("nccl", timeout_s=LIMIT_S, build=build_engine)
    local = int(os.environ.get("LOCAL_RANK", os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", world.rank)))
    cupy().cuda.Device(local).use()
    failed = False
    dangling = []
    for name in names:
        group = world.subgroup(range(world.world_size))
        assert isinstance(group, NcclCommunicator)
        try:
            state, said = "ok", CASES[name](group)
        except Exception:  # noqa: BLE001 - told below
            state, said = "FAIL", traceback.format_exc()[-1500:]
        is_broken = group.engine is not None and group.engine.broken is not None
        everyones = world.all_gather_object((state, said, is_broken))
        for rank, (how, text, _) in enumerate(everyones):
            if world.rank == 0 and (rank == 0 or how != "ok"):
                print(f"{how:>4} {name} (rank {rank}): {text}", flush=True)
        failed |= any(how != "ok" for how, _, _ in everyones)
        if not any(broken for _, _, broken in everyones):
            group.close()
        else:  # broken on purpose: the ranks do not agree on a word any more, also not on the last
            atexit.unregister(group.close)
            atexit.unregister(group.host.close)
            dangling.append(group)
    world.close()
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:] or list(CASES)))
