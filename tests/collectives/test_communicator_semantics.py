"""What every collective does, on the threaded transport; NumPy over all ranks' arrays is the oracle."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from collectives import Communicator, run_ranks
from collectives.call import DTYPES, CollectiveCall
from collectives.errors import CollectiveArgumentError
from collectives.reduce import reduce_in_rank_order

ORACLE = {
    "sum": lambda x: x.sum(0), "avg": lambda x: x.mean(0), "max": lambda x: x.max(0),
    "min": lambda x: x.min(0), "prod": lambda x: x.prod(0),
}  # fmt: skip


def rank_array(rank: int, size: int, dtype: str = "float64") -> np.ndarray:
    return np.random.default_rng(rank).uniform(-2, 2, size).astype(dtype)


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
@pytest.mark.parametrize("op", ORACLE)
def test_all_reduce_is_the_reduction_over_ranks(world_size: int, op: str) -> None:
    def step(communicator: Communicator) -> np.ndarray:
        array = rank_array(communicator.rank, 12).reshape(3, 4)
        communicator.all_reduce(array, op)  # type: ignore[arg-type]
        return array

    expected = ORACLE[op](np.stack([rank_array(r, 12).reshape(3, 4) for r in range(world_size)]))
    for result in run_ranks(world_size, step):
        np.testing.assert_allclose(result, expected, rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_accumulate_in_float32_and_round_once(dtype: type) -> None:
    parts = [np.array([256.0], dtype), *[np.array([0.5], dtype)] * 4]
    assert float(reduce_in_rank_order(parts, "sum")[0]) == 258.0  # one by one in 16 bits, bf16 would lose every 0.5


def test_the_order_of_summation_is_the_rank_order() -> None:
    parts = [np.array([v]) for v in (1e16, 1.0, -1e16, 3.0)]  # in each other order another number
    assert reduce_in_rank_order(parts, "sum")[0] == ((1e16 + 1.0) - 1e16) + 3.0


def test_the_sources_of_a_reduction_are_not_written() -> None:
    parts = [np.ones(3), np.ones(3)]
    reduce_in_rank_order(parts, "avg")
    assert all((part == 1).all() for part in parts)


@pytest.mark.parametrize("root", [0, 2])
def test_broadcast_copies_the_root(root: int) -> None:
    def step(communicator: Communicator) -> np.ndarray:
        array = rank_array(communicator.rank, 5)
        communicator.broadcast(array, root=root)
        return array

    for result in run_ranks(3, step):
        np.testing.assert_array_equal(result, rank_array(root, 5))


def test_all_gather_stacks_by_rank() -> None:
    def step(communicator: Communicator) -> np.ndarray:
        target = np.empty((3, 2, 2))
        communicator.all_gather(target, rank_array(communicator.rank, 4).reshape(2, 2))
        return target

    expected = np.stack([rank_array(r, 4).reshape(2, 2) for r in range(3)])
    for result in run_ranks(3, step):
        np.testing.assert_array_equal(result, expected)


def test_reduce_scatter_keeps_this_ranks_part() -> None:
    def step(communicator: Communicator) -> np.ndarray:
        target = np.empty(2)
        communicator.reduce_scatter(target, rank_array(communicator.rank, 6), "max")
        return target

    expected = np.stack([rank_array(r, 6) for r in range(3)]).max(0)
    np.testing.assert_array_equal(np.concatenate(run_ranks(3, step)), expected)


def test_objects_travel_and_are_not_shared() -> None:
    def step(communicator: Communicator) -> tuple[list[list[int]], list[int]]:
        gathered = communicator.all_gather_object([communicator.rank])
        gathered[0].append(99)
        return gathered, communicator.broadcast_object([communicator.rank * 10], root=1)

    for gathered, sent in run_ranks(2, step):
        assert gathered == [[0, 99], [1]]
        assert sent == [10]


def test_works_end_in_launch_order_with_times_in_order() -> None:
    def step(communicator: Communicator) -> None:
        arrays = [np.full(4, float(i)) for i in range(3)]
        works = [communicator.all_reduce_async(a, label=f"bucket {i}") for i, a in enumerate(arrays)]
        for work in works:
            work.wait(60)
            assert work.is_done()
            assert work.times.launched_s <= work.times.started_s <= work.times.ended_s
        ends = [work.times.ended_s for work in works]
        assert ends == sorted(ends)
        assert [a[0] for a in arrays] == [0.0, 2.0, 4.0]

    run_ranks(2, step)


@pytest.mark.parametrize("dtype", DTYPES)
def test_calls_survive_the_wire(dtype: str) -> None:
    call = CollectiveCall("broadcast", "prod", dtype, 2**40, 3)
    assert CollectiveCall.decode(call.code) == call


def check_argument_error(mistake) -> str:  # type: ignore[no-untyped-def]
    with pytest.raises(CollectiveArgumentError) as caught:
        run_ranks(1, mistake)
    return str(caught.value)


def test_buffers_must_be_contiguous_writable_and_of_a_known_dtype() -> None:
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    assert "C-contiguous" in check_argument_error(lambda c: c.all_reduce(np.zeros((4, 4)).T[1:]))
    assert "writable" in check_argument_error(lambda c: c.all_reduce(frozen))
    assert "longdouble" in check_argument_error(lambda c: c.broadcast(np.zeros(2, np.longdouble))).replace(
        np.dtype(np.longdouble).name, "longdouble"
    )


def test_reductions_and_roots_must_exist_and_fit() -> None:
    assert "unknown reduction 'mean'" in check_argument_error(lambda c: c.all_reduce(np.zeros(2), "mean"))
    assert "not an integer" in check_argument_error(lambda c: c.all_reduce(np.zeros(2, int), "avg"))
    assert "not an integer" in check_argument_error(lambda c: c.all_reduce(np.zeros(2, bool), "avg"))
    assert "no rank 1" in check_argument_error(lambda c: c.broadcast(np.zeros(2), root=1))
    assert "world_size times" in check_argument_error(lambda c: c.all_gather(np.zeros(3), np.zeros(2)))
