"""The overlap report: durations, medians, and the reason why a bucket was exposed, on made-up timelines (seconds)."""

from __future__ import annotations

import json
import math
import sys

import pytest

from distcompile.ddp.overlap import BucketTimes, StepTimes, make_report, why_not_overlapped
from distcompile.errors import MissingExtraError


def bucket(
    k: int, ready: float, started: float, ended: float, waited: float = 0.0, launched: float | None = None
) -> BucketTimes:
    return BucketTimes(k, k, 2, 1 << 20, ready, ready if launched is None else launched, started, ended, waited)


def step(*buckets: BucketTimes, ended: float = 1.0, done: float = 1.5) -> StepTimes:
    return StepTimes(0, 0.0, ended, done, buckets)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (bucket(1, 0.5, 0.5, 0.9), ""),
        (bucket(1, 1.0, 1.0, 1.4), "ready when the backward ended: nothing left to compute"),
        (bucket(1, 0.9, 0.9, 1.4), "longer than the computation after it"),
        (bucket(1, 0.5, 1.3, 1.4), "waited for a slower rank"),
    ],
)
def test_the_reason_of_an_exposed_bucket(row: BucketTimes, reason: str) -> None:
    assert why_not_overlapped(step(bucket(0, 0.1, 0.1, 0.2), row), 1) == reason


def test_a_bucket_queued_behind_a_long_one_says_so() -> None:
    times = step(bucket(0, 0.1, 0.1, 1.3), bucket(1, 0.5, 1.3, 1.4))
    assert why_not_overlapped(times, 1) == "queued behind bucket 0"


def test_the_report_has_medians_in_milliseconds_after_the_backward_began() -> None:
    steps = [step(bucket(0, 0.1, 0.2, 0.2 + x), ended=1.0, done=1.0 + x) for x in (0.1, 0.3, 0.2)]
    report = make_report(0, steps)
    assert report.steps == 3
    assert report.moving_ms == pytest.approx(200)
    assert report.exposed_ms == pytest.approx(200)
    assert report.rows[0].start_ms == pytest.approx(200)
    assert report.rows[0].moving_ms == pytest.approx(200)
    assert report.hidden_share == pytest.approx(0)


def test_waiting_for_slower_ranks_is_told_apart_from_moving() -> None:
    times = step(bucket(0, 0.5, 0.6, 0.7), bucket(1, 0.9, 1.3, 1.5), ended=1.0, done=1.5)
    report = make_report(0, [times])
    assert report.exposed_ms == pytest.approx(500)
    assert report.late_ms == pytest.approx(300)  # from the backward's end until the other rank came
    assert report.hidden_share == pytest.approx(1 - 200 / 300)
    assert "300.00 of it waiting for slower ranks" in report.summary()


def test_a_report_is_data_text_and_empty_at_first() -> None:
    report = make_report(1, [step(bucket(0, 0.1, 0.2, 0.3), done=1.0)])
    assert json.loads(json.dumps(report.to_dict()))["hidden_share"] == 1.0
    assert "100% hidden" in str(report)
    empty = make_report(0, [])
    assert math.isnan(empty.hidden_share)
    assert "Overlap on rank 0" in str(empty)


def test_the_report_draws_a_bar_for_every_bucket(tmp_path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    report = make_report(0, [step(bucket(0, 0.1, 0.2, 0.4), bucket(1, 0.9, 1.0, 1.4))])
    with matplotlib.rc_context({"svg.fonttype": "none"}):  # text stays text
        report.plot(tmp_path / "overlap.svg")
    drawn = (tmp_path / "overlap.svg").read_text()
    assert "bucket 0: 1024 KiB" in drawn
    assert "bucket 1: 1024 KiB" in drawn


def test_without_matplotlib_the_error_names_the_extra(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match="distcompile\\[plot\\]"):
        make_report(0, [step(bucket(0, 0.1, 0.2, 0.4))]).plot(tmp_path / "overlap.png")
