"""Communication hooks: the contract's errors, what a bucket shows, what PowerSGD keeps, when Python is not needed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from collectives import Communicator, run_ranks
from collectives.errors import CollectiveTimeoutError
from compiler_core import dtype as dtypes
from distcompile import distributed as dist
from distcompile import nn
from distcompile.ddp.comm_hook import GradBucket, NativeHook, PythonHook, make_hook
from distcompile.ddp.errors import CommHookError, RankDisagreementError
from distcompile.ddp.plan.bucket_plan import READY_ORDER, BucketPlan, Caps, ReadyParameter, make_plan
from distcompile.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, bf16_compress_hook
from distcompile.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import (
    PowerSGDState,
    batched_powerSGD_hook,
    orthogonalise,
    powerSGD_hook,
)
from distcompile.errors import ArgumentError
from distcompile.futures import Future, collect_all
from distcompile.nn.parallel import DistributedDataParallel


def on_ranks(function: Callable[[Communicator], Any], ranks: int = 2) -> list[Any]:
    def run(world: Communicator) -> Any:
        with dist.use_communicator(world):
            return function(world)

    return run_ranks(ranks, run)


def backward(hook: Any, state: Any = None) -> DistributedDataParallel:
    ddp = DistributedDataParallel(nn.Linear(3, 2))
    ddp.register_comm_hook(state, hook)
    ddp(dc.ones(4, 3)).sum().backward()
    return ddp


def finished(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


def test_only_hooks_that_return_futures_of_the_buckets_size_are_taken() -> None:
    def step(world: Communicator) -> None:
        with pytest.raises(CommHookError, match="callable"):
            backward("no hook")
        with pytest.raises(CommHookError, match="must return a Future"):
            backward(lambda state, bucket: bucket.buffer())
        with pytest.raises(CommHookError, match=r"(?s)wrong value.*elements"):
            backward(lambda state, bucket: finished(dc.zeros(1)))
        with pytest.raises(CommHookError, match="only once"):
            backward(allreduce_hook).register_comm_hook(None, allreduce_hook)

    on_ranks(step, ranks=1)


def test_ranks_must_register_one_hook() -> None:
    def step(world: Communicator) -> None:
        with pytest.raises(RankDisagreementError, match="communication hook"):
            backward(allreduce_hook if world.rank else bf16_compress_hook)

    on_ranks(step)


def test_hooks_that_only_say_how_the_average_travels_need_no_python() -> None:
    def step(world: Communicator) -> None:
        for state in (None, world):
            made = make_hook(state, bf16_compress_hook, world)
            assert isinstance(made, NativeHook)
            assert made.wire == "bfloat16"
        assert isinstance(make_hook(dist.new_group([0, 1]), bf16_compress_hook, world), PythonHook)
        assert isinstance(make_hook(None, lambda s, b: None, world), PythonHook)  # type: ignore[arg-type, return-value]

    on_ranks(step)


def test_an_error_in_a_hook_reaches_the_user() -> None:
    def broken(state: Any, bucket: GradBucket) -> Future[Any]:
        raise ZeroDivisionError("in the hook")

    with pytest.raises(ZeroDivisionError, match="in the hook"):
        on_ranks(lambda world: backward(broken), ranks=1)


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize(
    "future",
    [
        Future,
        lambda: Future().then(lambda done: done.value()),
        lambda: collect_all([finished(dc.ones(1)), Future()]).then(lambda done: done.value()[0].value()),
    ],
    ids=["bare", "then", "one of several"],
)
def test_a_future_that_never_comes_ends_at_the_time_limit(future: Callable[[], Any], is_compiled: bool) -> None:
    def step(world: Communicator) -> None:
        def hook(state: Any, bucket: GradBucket) -> Any:
            world.timeout_s = 0.3  # not before: ranks come late on a busy machine
            return future()

        ddp = DistributedDataParallel(nn.Linear(2, 1))
        ddp.register_comm_hook(None, hook)
        run = dc.compile(ddp, backend="aot_eager") if is_compiled else ddp
        with pytest.raises(CollectiveTimeoutError, match=r"bucket 0 of 1: the Future .* had no value within 0.3 s"):
            run(dc.ones(3, 2)).sum().backward()

    on_ranks(step)


def test_futures_end_by_a_deadline_or_not() -> None:
    first: Future[int] = Future()
    second = first.then(lambda done: done.value() + 1)
    both = collect_all([first, second])
    now = time.perf_counter()
    assert not second.ends_by(now)
    assert not both.ends_by(now + 0.01)
    first.set_result(1)
    assert second.ends_by(now)
    assert [future.value() for future in both.wait()] == [1, 2]
    failed = first.then(lambda done: 1 // 0)
    assert failed.ends_by(now)
    with pytest.raises(ZeroDivisionError):
        failed.wait()


def bucket_of(plan: BucketPlan, gradients: dict[str, np.ndarray]) -> GradBucket:
    (bucket,) = plan.buckets
    flat = np.zeros(bucket.numel, np.float32)
    for slot in bucket.slots:
        flat[slot.offset : slot.offset + slot.numel] = gradients[slot.name].reshape(-1)
    return GradBucket(plan, 0, flat, [], is_last=True)


def plan_of(gradients: dict[str, np.ndarray], order: list[str]) -> BucketPlan:
    ready = [ReadyParameter(n, gradients[n].shape, dtypes.float32, order.index(n)) for n in order]
    return make_plan(ready, Caps.from_mb(25), order=READY_ORDER)


def slots(bucket: GradBucket, array: np.ndarray) -> dict[str, np.ndarray]:
    planned = bucket.plan.buckets[0].slots
    return {s.name: array[s.offset : s.offset + s.numel].reshape(s.shape) for s in planned}


@pytest.mark.parametrize("hook", [powerSGD_hook, batched_powerSGD_hook])
def test_what_powersgd_loses_comes_back_also_under_another_plan(hook: Any) -> None:
    """Error feedback: the sum of the steps' results and the residual is the sum of the averages."""
    rng = np.random.default_rng(0)
    steps = [
        [
            {"w": rng.standard_normal((9, 7)), "b": rng.standard_normal(7), "v": rng.standard_normal((8, 8))}
            for _ in "ab"
        ]
        for _ in range(6)
    ]

    def step(world: Communicator) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        state = PowerSGDState(None, start_powerSGD_iter=2, min_compression_rate=1)
        state.iter = 2
        total: dict[str, Any] = {}
        for number, gradients in enumerate(steps):
            mine = gradients[world.rank]
            bucket = bucket_of(plan_of(mine, ["w", "b", "v"] if number < 3 else ["v", "w", "b"]), mine)
            result = hook(state, bucket).wait().numpy()
            total = {n: total.get(n, 0) + part.astype(np.float64) for n, part in slots(bucket, result).items()}
        return total, {name: residual.copy() for name, residual in state.error_dict.items()}

    results = on_ranks(step)
    for name in ("w", "b", "v"):
        np.testing.assert_array_equal(results[0][0][name], results[1][0][name])
        lost = sum(residuals[name] for _, residuals in results).reshape(results[0][0][name].shape) / 2
        average = sum(g[name] for gradients in steps for g in gradients) / 2
        np.testing.assert_allclose(results[0][0][name] + lost, average, atol=2e-5)


def test_powersgd_of_full_rank_is_the_average() -> None:
    rng = np.random.default_rng(0)
    gradients = [{"w": rng.standard_normal((6, 5)), "b": rng.standard_normal(5)} for _ in "ab"]

    def step(world: Communicator) -> np.ndarray:
        options = {"start_powerSGD_iter": 2, "min_compression_rate": 0.1, "matrix_approximation_rank": 5}
        state = PowerSGDState(None, **options)  # type: ignore[arg-type]
        state.iter = 2
        bucket = bucket_of(plan_of(gradients[world.rank], ["w", "b"]), gradients[world.rank])
        result = powerSGD_hook(state, bucket).wait().numpy()
        before, after = state.compression_stats()[1:]
        assert (before, after) == (35, 5 * (6 + 5) + 1 * (5 + 1))
        return slots(bucket, result)["w"].copy()

    for got in on_ranks(step):
        np.testing.assert_allclose(got, (gradients[0]["w"] + gradients[1]["w"]) / 2, atol=1e-5)


def test_powersgds_options_are_checked_and_zeros_stay_zeros() -> None:
    for options in ({"start_powerSGD_iter": 1}, {"matrix_approximation_rank": 0}):
        with pytest.raises(ArgumentError):
            PowerSGDState(None, **options)
    PowerSGDState(None, start_powerSGD_iter=0, use_error_feedback=False, warm_start=False)
    zeros = np.zeros((4, 2), np.float32)
    orthogonalise(zeros)
    assert not zeros.any()
