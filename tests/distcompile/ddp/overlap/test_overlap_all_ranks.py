"""The overlap report of all ranks: clocks that are off and drift, other numbers of steps, and its four forms."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace

import numpy as np
import pytest

import distcompile as dc
from collectives import Communicator, run_ranks
from distcompile import nn
from distcompile.ddp import DistributedDataParallel
from distcompile.ddp.overlap.clocks import Clock, make_clock, measure, offset_bounds
from distcompile.ddp.overlap.job import JobReport, RankTimes, job_report
from distcompile.ddp.overlap.times import BucketTimes, Span, StepTimes, why_not_overlapped
from distcompile.distributed import use_communicator

SAME = Clock(0.0, 0.0, 0.0)


def bucket(k: int, ready: float, started: float, ended: float) -> BucketTimes:
    return BucketTimes(k, k, 2, 1 << 20, ready, ready, started, ended, 0.0)


def step(rank: int, number: int, *buckets: BucketTimes, began: float = 0.0, ended: float = 1.0) -> StepTimes:
    return StepTimes(rank, began, ended, max(ended, buckets[-1].ended_s), buckets, number)


def shifted(times: StepTimes, by_s: float) -> StepTimes:
    """The same step by a clock that is `by_s` ahead."""
    moved = tuple(
        replace(b, ready_s=b.ready_s + by_s, launched_s=b.launched_s + by_s, started_s=b.started_s + by_s,
                ended_s=b.ended_s + by_s) for b in times.buckets
    )  # fmt: skip
    began, ended, done = times.began_s + by_s, times.ended_s + by_s, times.done_s + by_s
    return replace(times, began_s=began, ended_s=ended, done_s=done, buckets=moved)


# -- clocks


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_clocks_that_are_off_are_found_within_the_stated_uncertainty(world_size: int) -> None:
    skews_s = [0.0, 5.0, -3.25, 1e4][:world_size]

    def passages(communicator: Communicator) -> list[tuple[float, float]]:
        skew_s = skews_s[communicator.rank]
        return measure(communicator, clock=lambda: time.perf_counter() + skew_s)

    everyones = run_ranks(world_size, passages)
    for rank, skew_s in enumerate(skews_s):
        clock = make_clock(everyones[rank], everyones[0], [], [])
        assert abs(clock.offset_s - skew_s) <= clock.uncertainty_s + 1e-9
        assert clock.uncertainty_s < 1  # a loaded machine; idle it is tens of microseconds


def test_offset_bounds_come_from_who_was_last() -> None:
    mine, zero = [(10.0, 10.5), (11.0, 11.3)], [(0.2, 0.5), (0.9, 1.3)]
    low_s, high_s = offset_bounds(mine, zero)  # the true offset is 10
    assert (low_s, high_s) == (pytest.approx(9.7), pytest.approx(10.3))


def test_drift_is_found_from_the_recorded_all_reduces() -> None:
    drift = 200e-6
    steps = [step(0, n, bucket(0, n - 10, n - 9.9999, n - 9.9998), began=n - 10.0, ended=n - 9.99) for n in range(10)]
    mine = [shifted(s, 4.0 + drift * s.done_s) for s in steps]  # at time 0 the clock is 4 s ahead
    clock = make_clock([(4.0, 4.00001)], [(0.0, 0.00001)], mine, steps)
    assert clock.drift == pytest.approx(drift, abs=30e-6)
    assert clock.drift_range[0] <= drift <= clock.drift_range[1]
    assert clock.on_rank_0(mine[0].buckets[0].ended_s) == pytest.approx(steps[0].buckets[0].ended_s, abs=5e-4)


def test_no_drift_is_claimed_where_the_steps_allow_none() -> None:
    steps = [step(0, 0, bucket(0, -5.0, -4.9, -4.8), began=-5.0, ended=-4.9)]
    clock = make_clock([(4.0, 4.1)], [(0.0, 0.1)], [shifted(steps[0], 4.0)], steps)
    assert clock.drift == 0.0
    assert clock.drift_range[0] < 0.0 < clock.drift_range[1]


# -- the report on made-up steps


def two_ranks() -> JobReport:
    """Rank 1 comes 0.3 s late to bucket 1; its clock is 7 s ahead. Rank 0 recorded a step more."""
    zero = [step(0, n, bucket(0, 0.1, 0.2, 0.4), bucket(1, 0.9, 1.2, 1.3)) for n in (0, 1)]
    one = step(1, 1, bucket(0, 0.1, 0.2, 0.4), bucket(1, 1.2, 1.2, 1.3), ended=1.25)
    spans = (Span("forward", 0, -0.4, -0.1), Span("segment", 0, 0.0, 0.1), Span("segment", 1, 0.1, 1.0))
    late = tuple(Span(s.kind, s.number, s.began_s + 7, s.ended_s + 7) for s in spans)
    recorded = [RankTimes(0, "a", 1, tuple(zero), spans), RankTimes(1, "b", 2, (shifted(one, 7.0),), late)]
    return job_report(recorded, [SAME, Clock(7.0, 1e-4, 8.0)])


def test_the_last_rank_is_named_and_idle_gaps_are_no_overlap() -> None:
    report = two_ranks()
    assert report.shown_step == 1
    assert (report.buckets[0].last_rank, report.buckets[1].last_rank) == (None, 1)
    assert report.buckets[1].why == "waited for rank 1"
    assert report.buckets[1].spread_ms == pytest.approx(300)
    assert report.ranks[0].report.exposed_ms == pytest.approx(300)
    assert report.ranks[0].report.late_ms == pytest.approx(200)
    assert report.exposed_ms == pytest.approx(300)


def test_a_rank_that_recorded_nothing_is_shown_as_such(tmp_path) -> None:
    recorded = [RankTimes(0, "a", 1, (step(0, 0, bucket(0, 0.1, 0.2, 1.4)),), ()), RankTimes(1, "a", 2, (), ())]
    report = job_report(recorded, [SAME, SAME])
    assert report.shown_step == 0
    assert len(report.buckets) == 1
    check_forms(report, tmp_path)
    assert "nothing recorded" in (tmp_path / "o.html").read_text()
    check_forms(job_report([RankTimes(0, "a", 1, (), ())], [SAME]), tmp_path)


def test_waits_inside_the_next_forward_are_the_exposed_time() -> None:
    times = replace(
        step(0, 0, bucket(0, 0.5, 0.6, 1.5), bucket(1, 1.0, 1.5, 1.9)), done_s=2.0, waits=((1.3, 1.5), (1.8, 1.9))
    )
    assert times.exposed_s == pytest.approx(0.3)
    assert why_not_overlapped(times, 0) == "longer than the computation after it"
    assert why_not_overlapped(times, 1).startswith("queued behind bucket 0")
    hidden = replace(times, waits=())
    assert hidden.exposed_s == 0.0
    assert why_not_overlapped(hidden, 1) == ""


def check_forms(report: JobReport, folder) -> None:
    """All forms exist, parse, and need nothing from outside."""
    report.to_html(folder / "o.html")
    report.to_perfetto(folder / "o.perfetto.json")
    data = json.loads(report.to_json(folder / "o.json"))
    assert len(data["ranks"]) == report.world_size
    page = (folder / "o.html").read_text()
    assert "<script" not in page
    assert not re.search(r"(src|href)\s*=|url\(|@import", page)
    events = json.loads((folder / "o.perfetto.json").read_text())["traceEvents"]
    assert {event["pid"] for event in events} == set(range(report.world_size))
    assert all(event["dur"] >= 0 for event in events if event["ph"] == "X")
    assert str(report)


def test_the_trace_has_a_track_for_everything_a_rank_does(tmp_path) -> None:
    report = two_ranks()
    check_forms(report, tmp_path)
    events = json.loads((tmp_path / "o.perfetto.json").read_text())["traceEvents"]
    mine = [event for event in events if event["pid"] == 1]
    slices = {event["name"] for event in mine if event["ph"] == "X"}
    assert {"forward", "segment 0", "segment 1", "waiting for ranks", "moving", "wait for buckets"} <= slices
    moving = next(e for e in mine if e["name"] == "moving" and e["args"]["segment"] == 1)
    forward = next(e for e in mine if e["name"] == "forward")
    assert moving["ts"] - forward["ts"] == pytest.approx(1.6e6)  # the clock's 7 s are gone


def test_the_picture_shows_every_rank(tmp_path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        two_ranks().plot(tmp_path / "job.svg")
    drawn = (tmp_path / "job.svg").read_text()
    assert "rank 0" in drawn
    assert "rank 1   exposed" in drawn
    assert "bucket waits for other ranks" in drawn


# -- recorded for real


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
@pytest.mark.parametrize("compiled", [False, True])
def test_all_ranks_get_one_report_of_a_real_run(world_size: int, compiled: bool, tmp_path) -> None:
    x = dc.from_numpy(np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32))

    def train(communicator: Communicator) -> JobReport:
        with use_communicator(communicator):
            dc.manual_seed(0)
            ddp = DistributedDataParallel(
                nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)), bucket_cap_mb=1e-5
            )
            run = dc.compile(ddp) if compiled else ddp
            optimizer = dc.optim.SGD(ddp.parameters(), lr=0.1)
            for _ in range(3):
                optimizer.zero_grad()
                run(x).sum().backward()
                optimizer.step()
            return ddp.overlap_report(all_ranks=True)

    reports = run_ranks(world_size, train)
    assert all(report.to_json() == reports[0].to_json() for report in reports)
    report = reports[0]
    check_forms(report, tmp_path)
    assert report.world_size == world_size
    for rank in report.ranks:
        assert [s.step for s in rank.steps] == [0, 1, 2]
        kinds = [span.kind for span in rank.spans]
        assert kinds.count("optimizer") == kinds.count("forward") == 3
        for times in rank.steps:
            assert times.began_s <= times.ended_s <= times.done_s
            if compiled:
                assert times.began_s < times.segment_ends_s[-1] <= times.ended_s
            for other in report.ranks:  # nobody's bucket ends before everybody launched it
                theirs = other.step(times.step)
                assert theirs is not None
                slack_s = rank.clock.uncertainty_s + other.clock.uncertainty_s
                for mine, its in zip(times.buckets, theirs.buckets, strict=True):
                    assert mine.ended_s >= its.launched_s - slack_s - 1e-6


def test_local_passes_are_timed_apart() -> None:
    def train(communicator: Communicator) -> None:
        with use_communicator(communicator):
            ddp = DistributedDataParallel(nn.Linear(4, 2))
            run = dc.compile(ddp)
            with ddp.no_sync():
                run(dc.ones(3, 4)).sum().backward()
            run(dc.ones(3, 4)).sum().backward()
            recorder = ddp._books.recorder
            assert len(recorder.steps()) == 1
            ((began_s, ends_s),) = recorder.local_passes()
            assert began_s < ends_s[-1] < recorder.steps()[0].began_s

    run_ranks(2, train)


def test_recording_costs_microseconds() -> None:
    from distcompile.ddp.overlap.recorder import StepRecorder

    recorder = StepRecorder(0)
    best_s = float("inf")
    for _ in range(20):
        began_s = time.thread_time()
        for k in range(100):
            recorder.span("segment", k, began_s, time.perf_counter())
        best_s = min(best_s, (time.thread_time() - began_s) / 100)
    assert best_s < 5e-6  # 0.2 us on an idle core
    for _ in range(50):
        recorder.span("segment", 0, 0.0, 1.0)
    assert len(recorder.spans()) <= 2048


def test_recording_can_be_turned_off() -> None:
    from compiler_core.config import config

    def train(communicator: Communicator) -> None:
        with use_communicator(communicator):
            ddp = DistributedDataParallel(nn.Linear(4, 2))
            ddp(dc.ones(3, 4)).sum().backward()
            assert ddp.overlap_report().steps == 0
            assert "no synchronised backward was recorded" in ddp.overlap_report(all_ranks=True).summary()

    with config.patch(record_times=False):
        run_ranks(2, train)


def test_across_the_step_nothing_waits_before_the_forward_does() -> None:
    """What DDP looks at before a forward leaves updates that are on their way alone."""
    from compiler_core.tensor.memory.fence import anything_waits

    def train(communicator: Communicator) -> None:
        with use_communicator(communicator):
            dc.manual_seed(0)
            ddp = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), overlap="step")
            run, optimizer = dc.compile(ddp), dc.optim.SGD(ddp.parameters(), lr=0.1)
            run(dc.ones(3, 4)).sum().backward()
            optimizer.step()
            assert anything_waits()
            ddp._census.take()
            assert anything_waits()
            assert all(np.isfinite(p.detach().numpy()).all() for p in ddp.parameters())  # and now it has waited
            assert len(ddp.overlap_report(all_ranks=True).ranks[0].steps) == 1

    run_ranks(2, train)
