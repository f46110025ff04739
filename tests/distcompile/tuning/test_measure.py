"""Measurements agree on all ranks and have the size of what they measure; segment times are shared out as computed."""

from __future__ import annotations

import time

import numpy as np
import pytest

from collectives import Communicator
from collectives.threaded import run_ranks
from compiler_core.dtype import float32
from compiler_core.graph.parse import parse_graph
from distcompile.ddp.overlap.times import BucketTimes, StepTimes
from distcompile.ddp.plan.bucket_plan import ReadyParameter, plan_from_groups
from distcompile.tuning.cost import linear
from distcompile.tuning.measure import HostBench, host_signature, measure_contention, measure_costs, sizes_up_to
from distcompile.tuning.observe import lengths_alone
from distcompile.tuning.problem import Contention
from distcompile.tuning.profile import FLOPS, median_ends, spread_over_segments, static_costs_s


def test_sizes_reach_what_is_to_be_moved() -> None:
    assert sizes_up_to(100)[-1] == 4096
    assert sizes_up_to(3_000_000)[-1] == 3_000_000
    assert sizes_up_to(1 << 30)[-1] == 64 << 20
    assert sizes_up_to(80 << 20) == sorted(set(sizes_up_to(80 << 20)))


@pytest.mark.parametrize("ranks", [1, 3])
def test_all_ranks_have_the_same_fit_and_contention(ranks: int) -> None:
    def body(communicator: Communicator) -> tuple[object, object, str]:
        fit = measure_costs(HostBench(communicator), 1 << 16, budget_s=0.05)
        contention = measure_contention(HostBench(communicator), fit, 1 << 16, budget_s=0.1, rounds=1)
        return fit, contention, host_signature(communicator)

    results = run_ranks(ranks, body)
    assert all(result == results[0] for result in results)
    fit, contention, hosts = results[0]
    assert hosts == str(ranks)
    assert 0 < fit.seconds(1 << 16) < 60  # type: ignore[attr-defined]
    assert contention.compute >= 1  # type: ignore[attr-defined]
    assert contention.communication >= 1  # type: ignore[attr-defined]


def test_a_slow_channel_is_measured_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each all-reduce takes a nanosecond a byte, on top of a millisecond."""

    def slow(*arguments: object) -> None:
        task = arguments[0]
        first = task[0] if isinstance(task, list) else task
        call = getattr(first, "call", first)
        if call.kind == "all_reduce":  # type: ignore[attr-defined]
            time.sleep(1e-3 + 1e-9 * 4 * call.count)  # type: ignore[attr-defined]

    monkeypatch.setattr("collectives.threaded.perform", slow)
    fit = run_ranks(2, lambda c: measure_costs(HostBench(c), 4 << 20, budget_s=0.3))[0]
    for nbytes in (1 << 12, 1 << 20, 4 << 20):  # a busy machine sleeps longer, never shorter
        assert 0.7 < fit.seconds(nbytes) / (1e-3 + 1e-9 * nbytes) < 1e4


def test_static_costs_follow_the_closure() -> None:
    graph = parse_graph(
        """graph g(%x: f32[64, 64] input 'x', %w: f32[64, 64] parameter 'w') {
  %a: f32[64, 64] = matmul(%x, %w)
  %b: f32[64, 64] = permute(%a) dims=(1, 0)
  %c: f32[64, 64] = mul(%a, %x)
  %d: f32[64, 64] = tanh(%c)
  return %a, %b, %c, %d
}"""
    )
    gradients = [ReadyParameter(n, (64, 64), float32, place, place) for n, place in (("a", 2), ("b", 3), ("c", 4))]
    a, b, c, tail = static_costs_s(graph, gradients)
    assert a > c > 0
    assert b == 0  # a view: ready together with a
    assert tail > 0
    ready = spread_over_segments([a, b, c, tail], [0, 0, 0], [3.0], 4.0)
    assert ready[0] == ready[1] == pytest.approx(3.0 * a / (a + c))
    assert ready[2] == 3.0


def test_static_costs_count_the_operations_of_every_routine() -> None:
    graph = parse_graph(
        """graph g(%x: f32[1, 64, 16, 16] input 'x', %w: f32[64, 64, 3, 3] parameter 'w') {
  %a: f32[1, 64, 14, 14] = convolution(%x, %w) stride=(1, 1) low=(0, 0) high=(0, 0) dilation=(1, 1) groups=1
  return %a
}"""
    )
    (_, tail) = static_costs_s(graph, [ReadyParameter("x", (1, 64, 16, 16), float32, 0)])
    assert tail > 2 * 64 * 14 * 14 * 64 * 9 / FLOPS


def test_ready_times_meet_the_measured_segment_ends() -> None:
    ready = spread_over_segments([1.0, 3.0, 2.0, 0.0, 5.0], [0, 0, 1, 1], [8.0, 10.0], 12.0)
    assert ready == [2.0, 8.0, 10.0, 10.0]


def test_what_communication_took_from_a_segment_is_given_back() -> None:
    bucket = BucketTimes(0, 0, 1, 64, 1.0, 1.0, 1.0, 2.0, 0.0)
    second = BucketTimes(1, 1, 1, 64, 3.0, 3.0, 5.0, 6.0, 0.0)
    step = StepTimes(0, 0.0, 4.0, 6.0, (bucket, second))
    parameters = [ReadyParameter(n, (16,), float32, i) for i, n in enumerate("ab")]
    plan = plan_from_groups([["a"], ["b"]], parameters, order="test").with_segments([0, 1])
    assert lengths_alone(plan, step, Contention()) == [1.0, 2.0, 1.0]
    assert lengths_alone(plan, step, Contention(compute=2.0)) == [1.0, 1.5, 1.0]
    assert median_ends([[1.0, 2.0], [3.0, 2.0], [2.0, 9.0]]) == [2.0, 4.0]


def test_one_rank_alone_needs_no_one() -> None:
    fit = run_ranks(1, lambda c: measure_costs(HostBench(c), 1 << 12, budget_s=0.01))[0]
    assert np.isfinite(fit.seconds(1 << 20))
    assert linear(1.0, 0.0).seconds(5) == 1.0
