"""Messages of device arrays through a stand-in NCCL, whose streams are lazy and whose unmatched kernels hang."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import pytest

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
from tests.fake_cupy import install
from tests.fake_nccl import Fabric, nccl_ranks

cp: Any = install()


def full(value: float, n: int = 3, dtype: str = "float32") -> Any:
    return cp.asarray(np.full(n, value).astype(np.dtype(dtype)))


def sends(fabric_library: Any) -> int:
    return int(fabric_library.calls.count("group"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool"])
@pytest.mark.parametrize("world", [2, 3])
def test_a_ring_goes_by_nccl(world: int, dtype: str) -> None:
    def here(c: NcclCommunicator) -> Any:
        r, w = c.rank, c.world_size
        got = full(0, dtype=dtype)
        receive = c.receive_async(got, (r - 1) % w)
        send = c.send_async(full(r + 1, dtype=dtype), (r + 1) % w)
        receive.wait()
        send.wait()
        assert (receive.peer, send.peer) == ((r - 1) % w, (r + 1) % w)
        assert c.engine is None  # a message is a matter of two ranks
        assert c.postman is not None
        return got.get().astype("f4").tolist(), sends(c.postman.library)

    for rank, (got, count) in enumerate(nccl_ranks(world, here)):
        value = np.array((rank - 1) % world + 1).astype(np.dtype(dtype)).astype("f4")
        assert (got, count) == ([value] * 3, 2)


def test_the_stream_waits_and_the_host_does_not() -> None:
    def here(c: NcclCommunicator) -> Any:
        got = full(0)
        receive = c.receive_async(got, 1 - c.rank)
        work = c.send_async(full(c.rank + 1), 1 - c.rank)
        while c.postman.known or c.postman.tokens:  # type: ignore[union-attr]
            time.sleep(1e-3)
        c.host.barrier()
        early = got.get().tolist()
        c.host.barrier()
        receive.wait()
        work.wait()
        assert receive.is_done()
        return early, got.get().tolist(), receive.array is None, work.array is None  # type: ignore[attr-defined]

    assert nccl_ranks(2, here) == [([0.0] * 3, [2.0] * 3, True, True), ([0.0] * 3, [1.0] * 3, True, True)]


def test_tags_tell_messages_apart_and_any_rank_may_be_first() -> None:
    def here(c: NcclCommunicator) -> Any:
        if c.rank:
            works = [c.send_async(full(10 * c.rank + k, n=k + 1), 0, tag=k) for k in (0, 1, 2)]
            [work.wait() for work in works]
            return None
        got = {(rank, k): full(0, n=k + 1) for rank in (1, 2) for k in (2, 0)}
        works = [c.receive_async(got[rank, k], rank, tag=k) for rank, k in got]
        anyone = [full(0, n=2), full(0, n=2)]
        late = [c.receive_async(array, tag=1) for array in anyone]
        [work.wait() for work in (*late, *works)]
        for work, array in zip(late, anyone):
            assert array.get().tolist() == [10 * work.peer + 1.0] * 2  # type: ignore[operator]
        assert {work.peer for work in late} == {1, 2}
        return {key: array.get().tolist() for key, array in got.items()}

    found = nccl_ranks(3, here)[0]
    assert found == {(rank, k): [10.0 * rank + k] * (k + 1) for rank in (1, 2) for k in (2, 0)}


def test_arrays_of_the_host_have_tags_of_their_own() -> None:
    def here(c: NcclCommunicator) -> Any:
        on_host, on_gpu, words = np.zeros(5, np.int64), full(0), np.zeros(22, np.int64)
        works = [c.receive_async(array, 1 - c.rank) for array in (on_host, on_gpu, words)]
        values = (full(c.rank), np.full(5, c.rank + 5), np.full(22, c.rank + 7))
        works += [c.send_async(array, 1 - c.rank) for array in values]
        [work.wait() for work in works]
        return on_host[0], on_gpu.get().tolist()[0], words[0]

    assert nccl_ranks(2, here) == [(6, 1.0, 8), (5, 0.0, 7)]


@pytest.mark.parametrize("receiver", [0, 1])
def test_a_misfit_is_the_receivers_error_and_the_next_message_arrives(receiver: int) -> None:
    def here(c: NcclCommunicator) -> Any:
        if c.rank != receiver:
            wrong = c.send_async(full(1, n=4), receiver)
            c.send_async(full(2), receiver).wait()
            wrong.wait()
            return wrong.skipped
        with pytest.raises(CollectiveMismatchError, match=r"expected: float32\[3\][\s\S]*got: float32\[4\]"):
            c.receive_async(full(0), 1 - receiver).wait()
        got = full(0)
        c.receive_async(got, 1 - receiver).wait()
        return got.get().tolist()

    assert nccl_ranks(2, here)[receiver] == [2.0] * 3


@pytest.mark.parametrize("seed", range(6))
def test_no_order_of_messages_and_collectives_hangs(seed: int) -> None:
    """Every rank launches its messages of a round in an order of its own, an all-reduce between, waits in another."""
    plan = random.Random(seed)
    world = 4
    rounds = [
        [(a, b, plan.randrange(3), plan.randrange(1, 6)) for a in range(world) for b in range(world) if a != b]
        for _ in range(3)
    ]
    rounds = [[m for m in messages if plan.random() < 0.7] for messages in rounds]

    def here(c: NcclCommunicator) -> list[str]:
        own, wrong = random.Random(100 * seed + c.rank), []
        for number, messages in enumerate(rounds):
            mine = [m for m in messages if c.rank in m[:2]]
            own.shuffle(mine)
            total, works = full(1), []
            at = own.randrange(len(mine) + 1)
            for place, (source, target, tag, n) in enumerate([*mine[:at], (-1, -1, 0, 0), *mine[at:]]):
                if source == -1:
                    works.append((c.all_reduce_async(total), total, float(world), f"all_reduce {place}"))
                elif source == c.rank:
                    value = full(100 * number + 10 * source + target, n=n)
                    works.append((c.send_async(value, target, tag=tag), None, 0.0, ""))
                else:
                    got = full(-1, n=n)
                    work = c.receive_async(got, source, tag=tag)
                    works.append((work, got, 100.0 * number + 10 * source + target, f"{source} to {target}"))
            own.shuffle(works)
            for work, array, expected, what in works:
                work.wait()
                if array is not None and set(array.get().tolist()) != {expected}:
                    wrong.append(f"{what}: {array.get().tolist()}, not {expected}")
        return wrong

    assert nccl_ranks(world, here) == [[]] * world


def test_many_in_flight_and_nobody_waits_in_between() -> None:
    def here(c: NcclCommunicator) -> Any:
        got = [full(-1) for _ in range(20)]
        works = [c.send_async(full(100 * c.rank + k), 1 - c.rank) for k in range(20)]
        works += [c.receive_async(array, 1 - c.rank) for array in got]
        works[-1].wait()
        [work.wait() for work in works]
        return [array.get().tolist()[0] for array in got]

    assert nccl_ranks(2, here) == [[100.0 + k for k in range(20)], [float(k) for k in range(20)]]


def test_a_receive_that_nothing_comes_for_is_named() -> None:
    def here(c: NcclCommunicator) -> str:
        if c.rank:
            return ""
        with pytest.raises(CollectiveTimeoutError) as raised:
            c.receive_async(full(0), 1, tag=4).wait(0.2)
        return str(raised.value)

    text = nccl_ranks(2, here)[0]
    assert "receive(float32[3], from rank 1, tag 4) did not finish within 0.2 s" in text
    assert "waiting for a message from rank 1" in text


def test_a_send_waits_for_its_receiver() -> None:
    def here(c: NcclCommunicator) -> Any:
        got = full(0)
        if c.rank:
            with pytest.raises(CollectiveTimeoutError, match="waiting for the receiver"):
                c.send_async(full(4), 0).wait(0.1)
        c.host.barrier()
        if not c.rank:
            c.receive_async(got, 1).wait()  # it is under way still
        c.host.barrier()
        return got.get().tolist()

    assert nccl_ranks(2, here)[0] == [4.0] * 3


def ends(error: tuple[type[CollectiveError], ...], words: str, fabric: Fabric, function: Any) -> None:
    def here(c: NcclCommunicator) -> str:
        with pytest.raises(error) as raised:
            function(c)
        return str(raised.value)

    assert words in " ".join(nccl_ranks(2, here, fabric=fabric))


def exchange(c: NcclCommunicator) -> None:
    receive = c.receive_async(full(0), 1 - c.rank)
    c.send_async(full(1), 1 - c.rank).wait()
    receive.wait()


def test_two_ranks_on_one_gpu_are_told_before_nccl_hangs() -> None:
    errors = (SharedDeviceError, RankFailedError)
    ends(errors, "ranks 0, 1 use one GPU", Fabric(2, shared_gpus=1), exchange)


def test_errors_that_nccl_tells_behind_our_back_end_all_messages() -> None:
    fabric = Fabric(2)

    def go_on(c: NcclCommunicator) -> None:
        exchange(c)
        c.host.barrier()
        fabric.errors[0] = "peer gone"
        for _ in range(10_000):
            exchange(c)

    ends((NcclError, RankFailedError), "peer gone", fabric, go_on)


def test_an_error_of_a_collective_ends_messages_too() -> None:
    def mixed(c: NcclCommunicator) -> None:
        waits = c.receive_async(full(0), 1 - c.rank)
        with pytest.raises(CollectiveError):
            c.all_reduce(full(1, n=2 + c.rank))
        waits.wait()

    errors = (CollectiveMismatchError, RankFailedError)
    ends(errors, "ranks met in different collectives", Fabric(2), mixed)


def test_closing_finishes_what_was_matched_and_ends_what_was_not() -> None:
    arrays: dict[int, Any] = {}

    def here(c: NcclCommunicator) -> Any:
        arrays[c.rank] = full(0)
        c.receive_async(arrays[c.rank], 1 - c.rank)
        c.send_async(full(c.rank + 1), 1 - c.rank)
        lost = c.receive_async(full(0), 1 - c.rank, tag=9)
        c.host.barrier()
        c.postman.drain(5.0)  # type: ignore[union-attr]
        with pytest.raises(CollectiveError, match="closed before receive"):
            lost.wait()
        c.postman.stop()  # type: ignore[union-attr]

    nccl_ranks(2, here)
    assert [arrays[rank].get().tolist() for rank in (0, 1)] == [[2.0] * 3, [1.0] * 3]


def test_what_is_refused() -> None:
    def here(c: NcclCommunicator) -> None:
        with pytest.raises(CollectiveArgumentError, match="no message can have the tag -1"):
            c.send_async(full(1), 1 - c.rank, tag=-1)
        with pytest.raises(CollectiveArgumentError, match="no message can have the tag -2"):
            c.receive_async(np.ones(2), 1 - c.rank, tag=-2)
        with pytest.raises(CollectiveArgumentError, match="cannot be sent"):
            c.send_async(np.zeros(1, np.longdouble), 1 - c.rank)

    nccl_ranks(2, here)


def test_through_the_host_where_that_is_asked_for() -> None:
    def here(c: NcclCommunicator) -> Any:
        c.stages_messages = True
        got = full(0)
        receive = c.receive_async(got, 1 - c.rank)
        c.send_async(full(c.rank + 1), 1 - c.rank).wait()
        receive.wait()
        return got.get().tolist(), c.postman.thread  # type: ignore[union-attr]

    assert nccl_ranks(2, here) == [([2.0] * 3, None), ([1.0] * 3, None)]
