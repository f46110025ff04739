"""One step of all ranks as boxes in lanes: what picture and page both draw.

In: a `JobReport`. Out: a `Scene`: for each rank a lane of what its main thread did and a lane a bucket; milliseconds
since the scene began. Kinds of boxes are the keys of `COLOURS`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from distcompile.ddp.overlap.job import JobReport, RankTimeline
from distcompile.ddp.overlap.times import BucketTimes, Span, StepTimes

Kind: TypeAlias = Literal["forward", "segment", "backward", "optimizer", "update", "wait", "queued", "late", "moving"]

COLOURS: dict[Kind, str] = {
    "forward": "#8fa3bf",
    "segment": "#5b7392",
    "backward": "#5b7392",
    "optimizer": "#9a86c4",
    "update": "#9a86c4",
    "wait": "#d64545",
    "queued": "#cfd8e3",
    "late": "#f0b33c",
    "moving": "#2f80c8",
}
LEGEND: dict[Kind, str] = {
    "forward": "forward",
    "segment": "backward segments",
    "optimizer": "optimizer",
    "wait": "rank stands waiting (exposed)",
    "queued": "bucket ready, queued",
    "late": "bucket waits for other ranks",
    "moving": "bucket's data move",
}


@dataclass(frozen=True, slots=True)
class Box:
    """Something that took from `began` to `ended`, in ms. label: short, to stand in it; title: the whole story."""

    kind: Kind
    began: float
    ended: float
    label: str
    title: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One line of the picture. is_main: of the main thread, and drawn higher."""

    name: str
    is_main: bool
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class RankLanes:
    """One rank. backward_ended: ms, where what is still to come is exposed; NaN: it did not record this step."""

    rank: int
    host: str
    lanes: tuple[Lane, ...]
    backward_ended: float
    exposed_ms: float


@dataclass(frozen=True, slots=True)
class Scene:
    """All ranks in one step. span_ms: its length."""

    step: int | None
    span_ms: float
    ranks: tuple[RankLanes, ...]


def make_scene(report: JobReport) -> Scene:
    """The scene of the step that the report shows."""
    number = report.shown_step
    steps = [(rank, rank.step(number) if number is not None else None) for rank in report.ranks]
    windows = [_window(rank, step) for rank, step in steps if step is not None]
    began_s = min((began for began, _ in windows), default=0.0)
    ended_s = max((ended for _, ended in windows), default=1e-3)
    return Scene(
        number, 1e3 * (ended_s - began_s), tuple(_rank_lanes(rank, step, began_s, ended_s) for rank, step in steps)
    )


def _window(rank: RankTimeline, step: StepTimes) -> tuple[float, float]:
    """From the forward before the backward to the optimizer's end after it."""
    index = rank.steps.index(step)
    after_s = rank.steps[index - 1].done_s if index else -math.inf
    before_s = rank.steps[index + 1].began_s if index + 1 < len(rank.steps) else math.inf
    forwards = [s.began_s for s in rank.spans if s.kind == "forward" and after_s <= s.began_s < step.began_s]
    updates = [
        s.ended_s for s in rank.spans if s.kind in ("optimizer", "update") and step.ended_s <= s.began_s < before_s
    ]
    waits = [ended for _, ended in step.waited]
    return min([step.began_s, *forwards[-1:]]), max([step.done_s, *updates, *waits])


def _rank_lanes(rank: RankTimeline, step: StepTimes | None, began_s: float, ended_s: float) -> RankLanes:
    if step is None:
        return RankLanes(rank.rank, rank.host, (), math.nan, math.nan)
    main = sorted(_main_boxes(rank, step, began_s, ended_s), key=lambda box: box.began)
    lanes = [Lane("compute", is_main=True, boxes=tuple(main))]
    for bucket, free_s in zip(step.buckets, step.free_s()):
        boxes = tuple(_bucket_boxes(bucket, min(free_s, bucket.started_s), began_s))
        lanes.append(Lane(f"bucket {bucket.bucket}", is_main=False, boxes=boxes))
    return RankLanes(rank.rank, rank.host, tuple(lanes), 1e3 * (step.ended_s - began_s), 1e3 * step.exposed_s)


def _main_boxes(rank: RankTimeline, step: StepTimes, began_s: float, ended_s: float) -> Iterator[Box]:
    inside = [s for s in rank.spans if s.ended_s > began_s and s.began_s < ended_s]
    has_segments = any(s.kind == "segment" and s.began_s >= step.began_s for s in inside)
    for span in inside:
        if span.kind != "wait" and not (span.kind == "backward" and has_segments):
            yield _box(span.kind, max(span.began_s, began_s), min(span.ended_s, ended_s), began_s, *_words(span))
    for begin_s, end_s in step.waited:
        if end_s > begin_s:
            yield _box("wait", begin_s, end_s, began_s, "wait", f"stands waiting for buckets {_ms(end_s - begin_s)}")


def _words(span: Span) -> tuple[str, str]:
    numbered = {"segment": f"segment {span.number}", "update": f"update of bucket {span.number}"}
    name = numbered.get(span.kind, span.kind)
    label = f"s{span.number}" if span.kind == "segment" else span.kind
    return label, f"{name}: {_ms(span.ended_s - span.began_s)}"


def _bucket_boxes(bucket: BucketTimes, free_s: float, began_s: float) -> Iterator[Box]:
    what = f"bucket {bucket.bucket}, {bucket.nbytes / 1024:.0f} KiB, {bucket.parameters} parameter(s)"
    if free_s > bucket.ready_s:
        yield _box("queued", bucket.ready_s, free_s, began_s, "", f"{what}: queued {_ms(free_s - bucket.ready_s)}")
    if bucket.started_s > free_s:
        late_s = bucket.started_s - free_s
        yield _box("late", free_s, bucket.started_s, began_s, "", f"{what}: waits for other ranks {_ms(late_s)}")
    moving_s = bucket.ended_s - bucket.started_s
    yield _box("moving", bucket.started_s, bucket.ended_s, began_s, "", f"{what}: moves {_ms(moving_s)}")


def _box(kind: Kind, begin_s: float, end_s: float, origin_s: float, label: str, title: str) -> Box:
    return Box(kind, 1e3 * (begin_s - origin_s), 1e3 * (end_s - origin_s), label, title)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms" if seconds >= 1e-4 else f"{1e6 * seconds:.0f} us"


def ticks(span_ms: float, most: int = 12) -> list[float]:
    """Round numbers from 0 to `span_ms`, at most `most`."""
    if not span_ms > 0:
        return [0.0]
    raw = span_ms / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(f * power for f in (1, 2, 5, 10) if f * power >= raw)
    return [step * k for k in range(int(span_ms / step) + 1)]
