"""What every transport must do, as functions of one rank's communicator: run on threads and on MPI ranks alike.

The definition is `collectives.reduce`; data are small integers, so that every order of summation gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from postman_case import messages_of_gpus_are_put_into_one_order

from collectives import Communicator
from collectives.call import BITWISE_OPS, DTYPES, REDUCE_OPS
from collectives.errors import CollectiveArgumentError, CollectiveMismatchError
from collectives.reduce import reduce_in_rank_order, reduce_on_wire

SIZE = 1003  # not a multiple of any number of ranks used


def arrays(world: Communicator, dtype: str, size: int = SIZE) -> list[np.ndarray]:
    """Every rank's array, by rank."""
    return [np.random.default_rng(r).integers(0, 3, size).astype(dtype) for r in range(world.world_size)]


def is_defined(op: str, dtype: str) -> bool:
    is_whole = np.dtype(dtype).kind in "iub"
    return is_whole if op in BITWISE_OPS else not (op == "avg" and is_whole)


def reduce_reaches_the_root_only(world: Communicator) -> None:
    root = world.world_size - 1
    for op in REDUCE_OPS:
        for dtype in filter(lambda d: is_defined(op, d), DTYPES):
            everyones = arrays(world, dtype, 37)
            mine = everyones[world.rank].copy()
            world.reduce_async(mine, op, root=root).wait()
            expected = reduce_in_rank_order(everyones, op) if world.rank == root else everyones[world.rank]
            np.testing.assert_array_equal(mine.view(np.uint8), expected.view(np.uint8), f"{op} {dtype}")


def bitwise_and_bool_reductions_are_torchs(world: Communicator) -> None:
    for op in REDUCE_OPS:
        for dtype in filter(lambda d: is_defined(op, d), ("bool", "int64", "uint8")):
            everyones = arrays(world, dtype)
            mine = everyones[world.rank].copy()
            world.all_reduce(mine, op)
            np.testing.assert_array_equal(mine, reduce_in_rank_order(everyones, op), f"{op} {dtype}")
    anybody = np.array([world.rank == 0, True, False])
    everybody = anybody.copy()
    world.all_reduce(anybody, "sum")
    world.all_reduce(everybody, "prod")
    assert anybody.tolist() == [True, True, False]
    assert everybody.tolist() == [world.world_size == 1, True, False]
    with pytest.raises(CollectiveArgumentError, match="not defined on float32"):
        world.all_reduce(np.zeros(2, np.float32), "bor")


def gather_and_scatter_move_rows(world: Communicator) -> None:
    for root in range(world.world_size):
        for dtype in ("float32", "bfloat16", "bool"):
            everyones = arrays(world, dtype)
            rows = np.empty((world.world_size, SIZE), dtype) if world.rank == root else None
            world.gather_async(rows, everyones[world.rank], root=root).wait()
            if rows is not None:
                np.testing.assert_array_equal(rows, np.stack(everyones))
            part = np.empty(SIZE, dtype)
            world.scatter_async(part, rows, root=root).wait()
            np.testing.assert_array_equal(part, everyones[world.rank])


def all_to_all_transposes(world: Communicator) -> None:
    n, rank = world.world_size, world.rank
    source = np.arange(n)[:, None] * 1000.0 + rank * 100 + np.arange(7)
    target = np.empty((n, 7))
    world.all_to_all_async(target, source).wait()
    np.testing.assert_array_equal(target, rank * 1000.0 + np.arange(n)[:, None] * 100 + np.arange(7))
    sent = [(rank + r) % 3 for r in range(n)]  # zero elements for some
    received = sent  # it is symmetric
    uneven = np.repeat(10.0 * rank + np.arange(n), sent)
    arrived = np.empty(sum(received))
    world.all_to_all_async(arrived, uneven, splits=(sent, received)).wait()
    np.testing.assert_array_equal(arrived, np.repeat(10.0 * np.arange(n) + rank, received))


def splits_that_do_not_fit_are_an_error_on_every_rank(world: Communicator) -> None:
    n = world.world_size
    sent = [2 if world.rank == 0 and r == n - 1 else 1 for r in range(n)]
    with pytest.raises(CollectiveMismatchError, match=f"what rank 0 sends is not what rank {n - 1} expects"):
        world.all_to_all_async(np.empty(n), np.zeros(sum(sent)), splits=(sent, [1] * n)).wait()


def a_narrow_wire_rounds_twice(world: Communicator) -> None:
    for dtype, wire, op in (
        ("float32", "bfloat16", "avg"),
        ("float32", "float16", "sum"),
        ("float64", "bfloat16", "max"),
    ):
        everyones = [np.random.default_rng(r).standard_normal(SIZE).astype(dtype) for r in range(world.world_size)]
        for memory in (world.allocate(SIZE, np.dtype(dtype)), np.empty(SIZE, dtype)):
            memory[...] = everyones[world.rank]
            world.all_reduce(memory, op, wire=wire)  # type: ignore[arg-type]
            np.testing.assert_array_equal(memory, reduce_on_wire(everyones, op, wire))  # type: ignore[arg-type]
    with pytest.raises(CollectiveArgumentError, match="cannot travel as"):
        world.all_reduce(np.zeros(3, np.int64), wire="bfloat16")


def messages_arrive_in_order_by_tag_and_sender(world: Communicator) -> None:
    n, rank = world.world_size, world.rank
    following, before = (rank + 1) % n, (rank - 1) % n
    for size in (0, 3, 5000, 300_000):  # with the header, and apart from it
        sends = [world.send_async(np.full(size, 10.0 * rank + k), following, tag=k % 2) for k in range(4)]
        got = [np.empty(size) for _ in range(4)]
        receives = [world.receive_async(got[k], before, tag=k % 2) for k in (1, 0, 3, 2)]
        for work in (*receives, *sends):
            work.wait()
        assert all((got[k] == 10 * before + k).all() for k in range(4))
        assert {work.peer for work in receives} == {before}


def a_message_from_any_rank_tells_whose_it_is(world: Communicator) -> None:
    if world.rank == 0:
        senders = []
        for _ in range(1, world.world_size):
            got = np.empty(2, np.int64)
            work = world.receive_async(got, None, tag=5)
            work.wait()
            assert work.peer == got[0]
            senders.append(work.peer)
        assert sorted(senders) == list(range(1, world.world_size))
    else:
        world.send_async(np.array([world.rank, 1]), 0, tag=5).wait()
    world.barrier()


def a_large_message_moves_while_its_sender_waits_in_a_collective(world: Communicator) -> None:
    if world.rank == 0:
        work = world.send_async(np.ones(1 << 20), 1)
        world.barrier()
        work.wait()
    elif world.rank == 1:
        got = np.empty(1 << 20)
        world.receive_async(got, 0).wait()
        world.barrier()
        assert got.all()
    else:
        world.barrier()


def a_message_of_another_size_is_named_and_the_next_one_arrives(world: Communicator) -> None:
    last = world.world_size - 1
    for size in (3, 100_000):
        if world.rank == 0:
            for array in (np.zeros(size, np.float32), np.ones(2)):
                world.send_async(array, last).wait()
        elif world.rank == last:
            got = np.empty(2)
            with pytest.raises(CollectiveMismatchError, match=rf"(?s)from rank 0.*float64\[2\].*float32\[{size}\]"):
                world.receive_async(got, 0).wait()
            world.receive_async(got, 0).wait()
            assert got.all()


def subgroups_are_full_communicators(world: Communicator) -> None:
    last = world.world_size - 1
    group, alone = world.subgroup([last, 0]), world.subgroup([world.world_size - 1])
    if group is not None:
        assert (group.rank, group.world_size) == ((0, 2) if world.rank == last else (1, 2))
        mine = np.full(5, world.rank + 1.0)
        group.all_reduce(mine)
        assert (mine == last + 2).all()
        assert group.all_gather_object(world.rank) == [last, 0]
        inner = group.subgroup([1])
        assert (inner is None) == (world.rank == last)
        if inner is not None:
            inner.close()
        group.close()
    else:
        assert world.rank not in (0, last)
    if alone is not None:
        alone.barrier()
        alone.close()
    with pytest.raises(CollectiveMismatchError, match="asked for different subgroups"):
        world.subgroup([world.rank])
    with pytest.raises(CollectiveArgumentError, match="no rank twice"):
        world.subgroup([0, 0])


CASES: list[Callable[[Communicator], None]] = [
    reduce_reaches_the_root_only,
    bitwise_and_bool_reductions_are_torchs,
    gather_and_scatter_move_rows,
    all_to_all_transposes,
    a_narrow_wire_rounds_twice,
    messages_arrive_in_order_by_tag_and_sender,
    a_message_from_any_rank_tells_whose_it_is,
    a_large_message_moves_while_its_sender_waits_in_a_collective,
    a_message_of_another_size_is_named_and_the_next_one_arrives,
    subgroups_are_full_communicators,
    messages_of_gpus_are_put_into_one_order,
]
BREAKING = [splits_that_do_not_fit_are_an_error_on_every_rank]  # the communicator is not to be used afterwards
