"""Collectives of device arrays through a stand-in NCCL, whose streams are lazy: a missing wait gives wrong numbers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from collectives import Stamp, run_ranks
from collectives.call import Task
from collectives.errors import (
    CollectiveArgumentError,
    CollectiveError,
    CollectiveMismatchError,
    CollectiveTimeoutError,
    NcclError,
    RankFailedError,
    SharedDeviceError,
)
from collectives.nccl.communicator import NcclCommunicator
from collectives.nccl.cuda import Cuda
from tests.fake_cupy import install
from tests.fake_nccl import Fabric, nccl_ranks

cp: Any = install()
RANKS = (1, 2, 4)
FLOATS = ("float64", "float32", "float16", "bfloat16")
COMPLEX = ("complex64", "complex128")
WHOLE = ("int64", "int32", "int8", "uint8", "uint32", "uint64")


def values(rank: int, n: int = 12, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return ((np.arange(n) * (rank + 1) + rank) % 5 + 1).astype(np.dtype(dtype))


def on_device(array: np.ndarray[Any, Any]) -> Any:
    return cp.asarray(array)


@pytest.mark.parametrize("world", RANKS)
@pytest.mark.parametrize("op", ["sum", "avg", "max", "min", "prod"])
def test_all_reduce_is_what_it_is_on_the_cpu(world: int, op: Any) -> None:
    for dtype in (*FLOATS, *(WHOLE if op != "avg" else ()), *(COMPLEX if op in ("sum", "avg") else ())):

        def here(c: NcclCommunicator, dtype: str = dtype) -> tuple[Any, Any]:
            host, array = values(c.rank, dtype=dtype), on_device(values(c.rank, dtype=dtype))
            c.all_reduce(host, op)
            c.all_reduce(array, op)
            return host, array.get()

        for host, array in nccl_ranks(world, here):
            np.testing.assert_array_equal(host, array, err_msg=dtype)


def test_bools_are_any_and_all() -> None:
    def here(c: NcclCommunicator) -> Any:
        row = np.array([False, True, c.rank == 0, True])
        some, every = on_device(row), on_device(row)
        c.all_reduce(some, "sum")
        c.all_reduce(every, "prod")
        return some.get().tolist(), every.get().tolist()

    assert nccl_ranks(2, here) == [([False, True, True, True], [False, True, False, True])] * 2


@pytest.mark.parametrize("world", RANKS)
def test_every_kind_is_what_it_is_on_the_cpu(world: int) -> None:
    def here(c: NcclCommunicator, place: Callable[[Any], Any]) -> list[Any]:
        w, r, last = c.world_size, c.rank, c.world_size - 1
        wide = place(values(r, 3 * w, "int16"))
        made = [place(np.zeros(3 * w, np.int16)) for _ in range(3)]
        c.all_gather(made[0], wide[:3].copy())
        c.all_to_all_async(made[1], wide).wait()
        part = place(np.zeros(3, np.int16))
        c.scatter_async(part, wide if r == last else None, root=last).wait()
        c.gather_async(made[2] if r == last else None, part, root=last).wait()
        sent = [(r + peer) % 3 for peer in range(w)]
        uneven = place(np.zeros(sum(sent), np.int64))  # as many come as go: the table is symmetric
        c.all_to_all_async(uneven, place(values(r, sum(sent), "int64")), splits=(sent, sent)).wait()
        spread = place(values(r, 5, "float64"))
        c.broadcast(spread, root=last)
        kept, reduced = place(np.zeros(3)), place(values(r, 4, "float64"))
        c.reduce_scatter(kept, place(values(r, 3 * w, "float64")), "max")
        c.reduce_async(reduced, "sum", root=last).wait()
        return [*made, part, uneven, spread, kept, reduced]

    on_host = run_ranks(world, lambda c: here(c, lambda array: array))  # type: ignore[arg-type]
    for rank, arrays in enumerate(nccl_ranks(world, lambda c: [a.get() for a in here(c, on_device)])):
        for mine, theirs in zip(on_host[rank], arrays):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("wire", ["bfloat16", "float16"])
def test_a_sum_travels_as_a_16_bit_float(wire: Any) -> None:
    def here(c: NcclCommunicator) -> tuple[Any, Any]:
        row = np.linspace(0.1, 3, 7, dtype=np.float32) * (c.rank + 1)
        host, array = row.copy(), on_device(row)
        c.all_reduce(host, wire=wire)
        c.all_reduce(array, wire=wire)
        return host, array.get()

    for host, array in nccl_ranks(2, here):
        np.testing.assert_array_equal(host, array)


def test_the_stream_waits_and_the_host_does_not() -> None:
    def here(c: NcclCommunicator) -> tuple[list[float], list[float], bool]:
        array = on_device(np.full(2, c.rank + 1.0))
        work = c.all_reduce_async(array, label="sum")
        c.host.barrier()  # by now it is enqueued on both ranks, as both hosts have come
        early = array.get().tolist()
        work.wait()
        assert work.is_done()
        times = work.times
        assert times.launched_s <= times.ended_s
        assert times.started_s <= times.ended_s <= time.perf_counter() + 1e-3
        return early, array.get().tolist(), work.skipped

    assert nccl_ranks(2, here) == [([1.0, 1.0], [3.0, 3.0], False), ([2.0, 2.0], [3.0, 3.0], False)]


def test_a_rank_that_looks_at_nothing_keeps_nobody_waiting() -> None:
    def here(c: NcclCommunicator) -> Any:
        array = on_device(np.ones(2))
        work = c.all_reduce_async(array)
        if c.rank == 1:
            return c.host.all_gather_object(None)  # its own thread enqueues meanwhile
        work.synchronize()  # type: ignore[attr-defined]
        c.host.all_gather_object(None)
        return array.get().tolist()

    assert nccl_ranks(2, here)[0] == [2.0, 2.0]


def test_memory_is_free_for_the_next_use_once_a_stream_has_waited() -> None:
    def here(c: NcclCommunicator) -> bool:
        work = c.all_reduce_async(on_device(np.ones(2)))
        kept = work.task is not None  # type: ignore[attr-defined]
        work.wait()
        return kept and work.task is None  # type: ignore[attr-defined]

    assert nccl_ranks(2, here) == [True, True]


def test_memory_is_kept_while_only_another_stream_has_waited() -> None:
    """It goes back to the stream that it came from, whose next use would not wait."""

    def here(c: NcclCommunicator) -> list[bool]:
        work: Any = c.all_reduce_async(on_device(np.ones(2)))
        cuda = work.engine.cuda
        computes, cuda.computes = cuda.computes, cuda.new_stream()
        work.wait()
        cuda.computes, kept = computes, work.task is not None
        work.wait()
        return [kept, work.task is None]

    assert nccl_ranks(2, here) == [[True, True]] * 2


def test_behind_a_gate_there_is_no_roll_call_and_one_that_fails_skips_on_all_ranks() -> None:
    def here(c: NcclCommunicator) -> Any:
        first, second = on_device(np.ones(2)), on_device(np.ones(2))
        good, bad = c.open_gate((7, c.rank), 1), c.open_gate((7, c.rank), 2)
        works = [
            c.all_reduce_async(array, gate=gate, stamp=Stamp(1, 2, 3)) for array, gate in ((first, good), (second, bad))
        ]
        for work in works:
            work.wait()
        assert good.wait() == ((7, 0), (7, 1))
        assert [work.skipped for work in works] == [False, True]
        c.all_reduce(first)  # the tally leaves out what was skipped
        return first.get().tolist(), second.get().tolist()

    assert nccl_ranks(2, here) == [([4.0, 4.0], [1.0, 1.0])] * 2


def held(c: NcclCommunicator, array: Any) -> Any:
    call, flat = c._all_reduce_call(array, "sum", "")
    return c.launch(Task(call, flat, flat, gate=c.open_gate((1,), 1), held=True))


def test_held_works_start_when_they_are_released_and_after_what_was_computed_by_then() -> None:
    def here(c: NcclCommunicator) -> Any:
        array = on_device(np.zeros(2))
        work = held(c, array)
        assert work.is_held
        array += c.rank + 1.0
        events = c.events([[work]])
        events.signal(0)
        events.wait(0)
        given_up = held(c, array)
        given_up.cancel()
        given_up.wait()
        assert given_up.skipped
        c.all_reduce(array)
        return array.get().tolist()

    assert nccl_ranks(2, here) == [[6.0, 6.0]] * 2


def test_one_rank_that_gives_up_what_the_other_releases_is_told_at_the_next_roll_call() -> None:
    def here(c: NcclCommunicator) -> None:
        work = held(c, on_device(np.zeros(2)))
        if c.rank:
            work.cancel()
        else:
            work.release()
        c.all_reduce(on_device(np.zeros(2)))

    fails(CollectiveMismatchError, "rank 0: 1; rank 1: 0", here)


def fails(error: type[CollectiveError], match: str, function: Callable[[NcclCommunicator], Any], **k: Any) -> None:
    """`function` raises `error` on every rank."""

    def here(c: NcclCommunicator) -> str:
        with pytest.raises(CollectiveError) as raised:
            function(c)
        return f"{type(raised.value).__name__}: {raised.value}"

    for text in nccl_ranks(2, here, **k):
        assert error.__name__ in text or "RankFailedError" in text, text
        assert match in text or "RankFailedError" in text, text


def test_ranks_that_mean_different_things_are_named_errors_and_nothing_hangs() -> None:
    sizes = "all_reduce(float32[2], sum) on rank(s) [0]; all_reduce(float32[3], sum) on rank(s) [1]"
    fails(CollectiveMismatchError, sizes, lambda c: c.all_reduce(on_device(np.ones(2 + c.rank, np.float32))))
    mixed = "a collective of device arrays on rank(s)"

    def by_kind(c: NcclCommunicator) -> None:
        warm = on_device(np.ones(1))
        c.all_reduce(warm)
        c.all_reduce(np.ones(2) if c.rank else on_device(np.ones(2)))

    fails(CollectiveMismatchError, mixed, by_kind)
    stamps = "rank 0 is at step 5, bucket 0 of plan 0000000000000001; rank 1 is at step 6"
    fails(
        CollectiveMismatchError,
        stamps,
        lambda c: c.all_reduce_async(on_device(np.ones(2)), stamp=Stamp(1, 5 + c.rank, 0)).wait(),
    )
    splits = "what rank 0 sends is not what rank 1 expects"

    def uneven(c: NcclCommunicator) -> None:
        mine = ([1, 1], [1, 1]) if c.rank == 0 else ([1, 1], [2, 1])
        source, target = on_device(np.ones(2)), on_device(np.ones(sum(mine[1])))
        c.all_to_all_async(target, source, splits=mine).wait()

    fails(CollectiveMismatchError, splits, uneven)


def test_a_backward_that_ended_half_way_is_told_at_the_next_roll_call() -> None:
    def here(c: NcclCommunicator) -> None:
        gate = c.open_gate((1,), 1)
        for bucket in range(2 if c.rank else 1):
            c.all_reduce_async(on_device(np.ones(2)), gate=gate, stamp=Stamp(1, 1, bucket))
        try:
            c.open_gate((1,), 1).wait()
        finally:
            assert c.engine is not None
            assert c.engine.broken is not None  # and the kernel of rank 1, which waits for rank 0, has been ended

    fails(CollectiveMismatchError, "rank 0: 1; rank 1: 2", here)


def test_a_rank_that_does_not_come_is_named_when_the_time_is_over() -> None:
    is_over = threading.Event()

    def here(c: NcclCommunicator) -> str:
        if c.rank == 1:
            assert is_over.wait(60)
            return ""
        try:
            with pytest.raises(CollectiveTimeoutError) as raised:
                c.all_reduce(on_device(np.ones(2)), timeout_s=0.2)
            return str(raised.value)
        finally:
            is_over.set()

    assert "waiting for rank(s) [1]" in nccl_ranks(2, here)[0]


def test_a_kernel_that_waits_for_ever_is_aborted_and_the_other_ranks_learn() -> None:
    """A rank that launches fewer buckets than were agreed on: the others' kernels wait on the GPU."""

    def here(c: NcclCommunicator) -> Any:
        c.all_reduce(on_device(np.ones(1)))
        gate = c.open_gate((1,), 1)
        gate.wait()
        if c.rank == 0:
            c.timeout_s = 0.3
            work = c.all_reduce_async(on_device(np.ones(2)), gate=gate)
            with pytest.raises(CollectiveTimeoutError, match=r"did not finish within 0.3 s"):
                work.synchronize()  # type: ignore[attr-defined]
        else:
            until_s = time.perf_counter() + 60
            while c.host.world.failure is None and time.perf_counter() < until_s:  # type: ignore[attr-defined]
                time.sleep(0.01)
        with pytest.raises((CollectiveTimeoutError, RankFailedError)) as raised:
            c.all_reduce(on_device(np.ones(2)))
        return str(raised.value)

    texts = nccl_ranks(2, here)
    assert "did not finish" in texts[0]
    assert "rank 0 gave up" in texts[1]


def test_errors_that_nccl_tells_behind_our_back_end_everything_with_a_name() -> None:
    fabric = Fabric(2)

    def here(c: NcclCommunicator) -> str:
        c.all_reduce(on_device(np.ones(2)))
        c.host.barrier()
        fabric.errors[0] = "unhandled cuda error; peer gone"
        deadline = time.perf_counter() + 60

        def go_on() -> None:
            while time.perf_counter() < deadline:
                c.all_reduce(on_device(np.ones(2)))

        with pytest.raises((NcclError, RankFailedError)) as raised:
            go_on()
        return str(raised.value)

    texts = nccl_ranks(2, here, fabric=fabric)
    assert "peer gone" in texts[0]
    assert "rank 0 gave up" in texts[1]


def test_two_ranks_on_one_gpu_are_told_before_nccl_hangs() -> None:
    fails(
        SharedDeviceError,
        "ranks 0, 1 use one GPU",
        lambda c: c.all_reduce(on_device(np.ones(2))),
        fabric=Fabric(2, shared_gpus=1),
    )


def test_what_nccl_cannot_reduce_is_refused_before_anything_is_sent() -> None:
    def here(c: NcclCommunicator) -> None:
        with pytest.raises(CollectiveArgumentError, match="NCCL does not reduce by bxor"):
            c.all_reduce(on_device(np.ones(2, np.int32)), "bxor")
        with pytest.raises(CollectiveArgumentError, match="NCCL does not reduce int16"):
            c.all_reduce(on_device(np.ones(2, np.int16)))
        with pytest.raises(CollectiveArgumentError, match="in host memory and one on a GPU"):
            c.all_gather(np.ones(2 * c.world_size), on_device(np.ones(2)))
        c.all_reduce(on_device(np.ones(2)))

    nccl_ranks(2, here)


def test_groups_without_nccl_refuse_device_arrays() -> None:
    def here(c: Any) -> None:
        with pytest.raises(CollectiveArgumentError, match="no transport for arrays on a GPU"):
            c.all_reduce(on_device(np.ones(2)))
        with pytest.raises(CollectiveArgumentError, match="no transport for arrays on a GPU"):
            c.all_gather_async(on_device(np.ones(2)), on_device(np.ones(2)))

    run_ranks(1, here)


def test_subgroups_objects_messages_and_barriers() -> None:
    def here(c: NcclCommunicator) -> Any:
        pair = c.subgroup([1, 0])
        assert isinstance(pair, NcclCommunicator)
        array = on_device(np.full(3, float(c.rank)))
        pair.all_reduce(array)
        pair.engine.stop()  # type: ignore[union-attr]
        got = on_device(np.zeros(3))
        receive = c.receive_async(got, 1 - c.rank)
        c.send_async(on_device(np.full(3, c.rank + 10.0)), 1 - c.rank)
        receive.wait()
        assert receive.peer == 1 - c.rank
        c.barrier()
        return pair.rank, array.get().tolist(), got.get().tolist(), c.all_gather_object(c.rank)

    first = (1, [1.0] * 3, [11.0] * 3, [0, 1])
    assert nccl_ranks(2, here) == [first, (0, [1.0] * 3, [10.0] * 3, [0, 1])]


def test_closing_finishes_what_is_in_flight() -> None:
    arrays: dict[int, Any] = {}
    together = threading.Barrier(2)

    def here(c: NcclCommunicator) -> Any:
        arrays[c.rank] = on_device(np.ones(2))
        c.all_reduce_async(arrays[c.rank])
        c.engine.drain(5.0)  # type: ignore[union-attr]
        together.wait()
        c.close()
        with pytest.raises(CollectiveError):
            c.all_reduce(arrays[c.rank])

    nccl_ranks(2, here)
    assert [array.get().tolist() for array in arrays.values()] == [[2.0, 2.0]] * 2


def test_what_was_done_may_be_waited_for_after_the_end() -> None:
    """A gradient that nobody read before the program ended: its fence is settled when NCCL is gone."""

    def here(c: NcclCommunicator) -> Any:
        array = on_device(values(c.rank))
        work = c.all_reduce_async(array)
        work.synchronize()  # type: ignore[attr-defined]
        assert c.engine is not None
        c.engine.drain(5.0)
        c.engine.stop()
        c.host.barrier()
        c.engine.free()
        work.wait()
        with pytest.raises(NcclError, match="closed"):
            c.all_reduce_async(array)
        return array.get()

    for array in nccl_ranks(2, here):
        np.testing.assert_array_equal(array, values(0) + values(1))


@pytest.mark.parametrize(("told", "priority"), [("", 0), ("0", 0), ("1", -1), ("true", -1)])
def test_the_communication_streams_priority_is_torchs_switch(
    told: str, priority: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_NCCL_HIGH_PRIORITY", told)
    monkeypatch.setattr(Cuda, "__init__", lambda self, index: vars(self).update(cupy=cp, index=index))
    assert Cuda(0).new_stream().priority == priority
