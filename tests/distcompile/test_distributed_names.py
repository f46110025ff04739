"""torch.distributed's names on Tensors, one rank a thread; and the life of the default group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TypeVar

import numpy as np
import pytest

from collectives import Communicator, run_ranks
from compiler_core.tensor.tensor import Tensor
from distcompile import distributed as dist
from distcompile.ddp.errors import NotInitializedError

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

    return run_ranks(world_size, run, timeout_s=30)


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
        assert work.wait(timedelta(seconds=20))
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
