"""torch.distributed's names on Tensors, one rank a thread; and the life of the default group."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TypeVar

import numpy as np
import pytest

from collectives import Communicator, run_ranks
from collectives.errors import ClosedError, CollectiveMismatchError, CollectiveTimeoutError
from compiler_core.capture import compile
from compiler_core.errors import GraphBreak
from compiler_core.tensor.tensor import Tensor
from distcompile import distributed as dist
from distcompile.ddp.errors import NotInitializedError
from distcompile.distributed.errors import GroupRankError, TensorListError
from distcompile.errors import ArgumentError
from distcompile.futures import Future, collect_all, wait_all

T = TypeVar("T")


@pytest.fixture
def no_group() -> Iterator[None]:
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def on_ranks(world_size: int, function: Callable[[], T]) -> list[T]:
    def run(communicator: Communicator) -> T:
        with dist.use_communicator(communicator):
            return function()

    return run_ranks(world_size, run, timeout_s=60)


def full(value: float, *shape: int) -> Tensor:
    return Tensor._wrap(np.full(shape, value, np.float64))


def values(tensor: Tensor) -> list[float]:
    return tensor._cell.current().tolist()


def test_the_default_group_lives_between_init_and_destroy(no_group: None) -> None:
    assert dist.is_available()
    assert not dist.is_initialized()
    with pytest.raises(NotInitializedError, match="init_process_group"):
        dist.get_rank()
    dist.init_process_group("threaded", timeout=timedelta(seconds=7))
    assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (0, 1, "threaded")
    assert dist.group_or_default(None).timeout_s == 7
    with pytest.raises(NotInitializedError, match="already"):
        dist.init_process_group()
    dist.barrier()
    dist.destroy_process_group()
    assert not dist.is_initialized()


def test_backends_of_other_devices_are_refused() -> None:
    with pytest.raises(NotInitializedError, match="nccl"):
        dist.init_process_group("nccl")


def test_all_reduce_gives_the_tensor_a_new_value_and_leaves_the_old_array_alone() -> None:
    def step() -> None:
        x = full(1.0 + dist.get_rank(), 2)
        before = x._cell.value
        assert dist.all_reduce(x, op=dist.ReduceOp.AVG) is None
        assert values(x) == [1.5, 1.5]
        assert before.tolist() == [1.0 + dist.get_rank()] * 2

    on_ranks(2, step)


def test_an_asynchronous_collective_delivers_in_wait() -> None:
    def step() -> None:
        x = full(float(dist.get_rank()), 2)
        work = dist.broadcast(x, src=1, async_op=True)
        assert work is not None
        assert work.wait(timedelta(seconds=60))
        assert work.is_completed()
        assert values(x) == [1.0, 1.0]

    on_ranks(2, step)


def test_gathers_and_scatters() -> None:
    def step() -> None:
        rank = float(dist.get_rank())
        out, parts, part = full(-1, 2, 2), [full(-1, 2), full(-1, 2)], full(-1, 1)
        dist.all_gather_into_tensor(out, full(rank, 2))
        dist.all_gather(parts, full(rank, 2))
        dist.reduce_scatter_tensor(part, full(rank + 1, 2))
        assert values(out) == [[0, 0], [1, 1]]
        assert [values(p) for p in parts] == [[0, 0], [1, 1]]
        assert values(part) == [3]

    on_ranks(2, step)


def test_objects() -> None:
    def step() -> None:
        gathered, sent = [None, None], [dist.get_rank(), "x"]
        dist.all_gather_object(gathered, dist.get_rank())
        dist.broadcast_object_list(sent, src=1)
        assert (gathered, sent) == ([0, 1], [1, "x"])

    on_ranks(2, step)


def test_lists_that_do_not_fit_are_named_before_anything_is_sent() -> None:
    def step() -> None:
        x = full(1, 2)
        for call, said in (
            (lambda: dist.all_gather([x], x), "a tensor for each rank"),
            (lambda: dist.all_gather([full(0, 2), full(0, 3)], x), "another shape"),
            (lambda: dist.all_to_all_single(x, full(0, 3)), "equal parts"),
            (lambda: dist.all_to_all_single(x, x, [1, 2], [1, 1]), "add up to 2"),
            (lambda: dist.reduce_scatter(x, [x, Tensor._wrap(np.zeros(2, np.int64))]), "another dtype"),
            (
                lambda: dist.gather_object(1, None if dist.get_rank() == 0 else [0, 0], dst=0),
                "on other ranks|on the root",
            ),
        ):
            with pytest.raises(TensorListError, match=said):
                call()
        dist.barrier()

    on_ranks(2, step)


def test_all_to_all_takes_lists_of_any_sizes() -> None:
    def step() -> None:
        rank, n = dist.get_rank(), dist.get_world_size()
        outputs = [full(-1, rank + 1, peer) for peer in range(n)]
        dist.all_to_all(outputs, [full(10 * rank + peer, peer + 1, rank) for peer in range(n)])
        assert [values(o) for o in outputs] == [values(full(10 * p + rank, rank + 1, p)) for p in range(n)]

    on_ranks(3, step)


def test_a_handle_tells_its_error_and_a_message_its_sender() -> None:
    def step() -> None:
        if dist.get_rank() == 0:
            dist.isend(full(1, 3), dst=1).wait()
            dist.send(full(2, 2), dst=1)
            return
        wrong = dist.irecv(full(0, 2), src=0)
        with pytest.raises(CollectiveMismatchError, match="from rank 0"):
            wrong.wait()
        assert isinstance(wrong.exception(), CollectiveMismatchError)
        assert not wrong.is_success()
        right = dist.irecv(full(0, 2))
        assert values(right.result()[0]) == [2, 2]
        assert right.source_rank() == 0
        assert right.is_success()

    on_ranks(2, step)


def test_subgroups_close_with_their_group_and_keep_their_time_limit() -> None:
    def step() -> None:
        mine, groups = dist.new_subgroups(2, timeout=3)
        assert len(groups) == 2
        assert dist.get_process_group_ranks(mine) == ([0, 1] if dist.get_rank() < 2 else [2, 3])
        assert dist.group_or_default(mine).timeout_s == 3
        x = full(dist.get_rank(), 1)
        dist.all_reduce(x, group=mine)
        assert values(x) == ([1] if dist.get_rank() < 2 else [5])
        dist.destroy_process_group(mine)
        with pytest.raises(ClosedError):
            dist.barrier(group=mine)
        with pytest.raises(GroupRankError, match="groups of 3"):
            dist.new_subgroups(3)
        with pytest.raises(GroupRankError, match="not part of the group"):
            dist.broadcast(x, src=7)
        dist.barrier()

    on_ranks(4, step)


def test_a_monitored_barrier_names_who_is_missing() -> None:
    def step() -> None:
        if dist.get_rank() == 0:
            with pytest.raises(CollectiveTimeoutError, match=r"rank\(s\) \[1\]"):
                dist.monitored_barrier(timeout=0.2)
            dist.send(full(0, 1), dst=1)
        else:
            dist.recv(full(0, 1), src=0)
            dist.monitored_barrier(timeout=60)

    on_ranks(2, step)


@pytest.mark.parametrize("wait_all_ranks", [False, True])
def test_a_monitored_barrier_names_all_that_are_missing(wait_all_ranks: bool) -> None:
    def step() -> None:
        if dist.get_rank() == 0:
            with pytest.raises(CollectiveTimeoutError, match=r"rank\(s\) \[1, 2, 3\]"):
                dist.monitored_barrier(timeout=0.2, wait_all_ranks=wait_all_ranks)
            for rank in (1, 2, 3):
                dist.send(full(0, 1), dst=rank)
        else:
            dist.recv(full(0, 1), src=0)
            dist.monitored_barrier(timeout=60)

    on_ranks(4, step)


def test_futures_are_torchs() -> None:
    future: Future[int] = Future()
    seen: list[int] = []
    chained = future.then(lambda f: f.wait() + 1)
    future.add_done_callback(lambda f: seen.append(f.value()))
    with pytest.raises(ArgumentError, match="no value yet"):
        future.value()
    future.set_result(1)
    assert (seen, chained.wait(), future.done()) == ([1], 2, True)
    with pytest.raises(ArgumentError, match="already"):
        future.set_result(2)
    failing = future.then(lambda f: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        failing.wait()
    assert [f.value() for f in collect_all([future, chained]).wait()] == wait_all([future, chained]) == [1, 2]


@pytest.mark.parametrize(
    "talk",
    [lambda x: dist.barrier(), lambda x: dist.all_gather_object([None, None], 1), lambda x: dist.new_group([0])],
    ids=["barrier", "all_gather_object", "new_group"],
)
def test_what_talks_to_other_ranks_happens_at_every_call_of_compiled_code(talk: Callable[[Tensor], object]) -> None:
    def double(x: Tensor) -> Tensor:
        talk(x)
        return x * 2

    def step() -> None:
        with pytest.raises(GraphBreak):
            compile(double, fullgraph=True)(full(1, 2))
        run = compile(double)
        for _ in range(3):
            assert run(full(1, 2)).shape == (2,)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        on_ranks(2, step)


def test_tensors_travel_at_every_call_of_compiled_code() -> None:
    def step() -> None:
        for run in (compile(exchanged, fullgraph=True), compile(exchanged)):
            for value in range(1, 4):
                mine = full(value + dist.get_rank(), 2)
                assert run(mine).tolist() == [10.0 * (2 * value + 1) + value + 1 - dist.get_rank()] * 2

    def exchanged(x: Tensor) -> Tensor:
        other, came = 1 - dist.get_rank(), x * 0
        dist.send(x, dst=other)
        dist.recv(came, src=other)
        dist.all_reduce(x)
        return x * 10 + came

    on_ranks(2, step)
