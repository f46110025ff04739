"""The trace that ui.perfetto.dev and chrome://tracing read: one process a rank, one track a kind of thing.

In: a `JobReport`. Out: the JSON object of the Trace Event Format (Google, "Trace Event Format", 2016): complete events
"X" with microseconds of rank 0's clock, metadata "M" that names processes and tracks, and flow arrows "s"/"f" from the
end of what made a bucket ready to where its data begin to move. All recorded steps are in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distcompile.ddp.overlap.job import JobReport, RankTimeline
from distcompile.ddp.overlap.times import BucketTimes, Span, StepTimes

Event = dict[str, Any]

TRACKS = {"forward": 1, "backward": 2, "segment": 3, "wait": 4, "optimizer": 5, "update": 6}
NAMES = {1: "forward", 2: "backward", 3: "backward segments", 4: "waits (exposed)", 5: "optimizer", 6: "bucket updates"}
FIRST_BUCKET_TRACK = 10


def trace(report: JobReport) -> dict[str, Any]:
    """The whole trace."""
    events = [event for rank in report.ranks for event in _rank_events(rank)]
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"summary": report.summary()}}


def _rank_events(rank: RankTimeline) -> Iterator[Event]:
    buckets = max((len(step.buckets) for step in rank.steps), default=0)
    yield _meta(rank.rank, 0, "process_name", f"rank {rank.rank} on {rank.host}, pid {rank.pid}")
    yield {"ph": "M", "pid": rank.rank, "tid": 0, "name": "process_sort_index", "args": {"sort_index": rank.rank}}
    names = NAMES | {FIRST_BUCKET_TRACK + k: f"bucket {k}" for k in range(buckets)}
    for track, name in names.items():
        yield _meta(rank.rank, track, "thread_name", name)
        yield {"ph": "M", "pid": rank.rank, "tid": track, "name": "thread_sort_index", "args": {"sort_index": track}}
    for span in rank.spans:
        if span.kind != "wait":
            yield _slice(rank.rank, TRACKS[span.kind], _span_name(span), span.began_s, span.ended_s)
    for step in rank.steps:
        yield from _step_events(rank.rank, step)


def _step_events(rank: int, step: StepTimes) -> Iterator[Event]:
    for began_s, ended_s in step.waited:
        yield _slice(rank, TRACKS["wait"], "wait for buckets", began_s, ended_s, step=step.step)
    for bucket, free_s in zip(step.buckets, step.free_s()):
        yield from _bucket_events(rank, step.step, bucket, free_s)


def _bucket_events(rank: int, step: int, bucket: BucketTimes, free_s: float) -> Iterator[Event]:
    track = FIRST_BUCKET_TRACK + bucket.bucket
    facts: dict[str, int | str] = {
        "step": step,
        "bytes": bucket.nbytes,
        "parameters": bucket.parameters,
        "segment": bucket.segment,
    }
    facts |= {"graph": bucket.graph} if bucket.graph else {}
    free_s = min(free_s, bucket.started_s)
    yield {"ph": "i", "s": "t", "pid": rank, "tid": track, "name": "ready", "ts": 1e6 * bucket.ready_s, "args": facts}
    phases = (
        ("queued", bucket.ready_s, free_s),
        ("waiting for ranks", free_s, bucket.started_s),
        ("moving", bucket.started_s, bucket.ended_s),
    )
    for name, began_s, ended_s in phases:
        if ended_s > began_s:
            yield _slice(rank, track, name, began_s, ended_s, **facts)
    number = f"{rank}.{step}.{bucket.bucket}"
    flow = {"cat": "bucket", "name": "ready to moving", "id": number, "pid": rank}
    yield {**flow, "ph": "s", "tid": TRACKS["segment"], "ts": 1e6 * bucket.ready_s}
    yield {**flow, "ph": "f", "bp": "e", "tid": track, "ts": 1e6 * bucket.started_s}


def _span_name(span: Span) -> str:
    if span.kind == "backward":
        return "backward" if span.number else "backward, not synchronised"
    return f"{span.kind} {span.number}" if span.kind in ("segment", "update") else span.kind


def _slice(rank: int, track: int, name: str, began_s: float, ended_s: float, **facts: Any) -> Event:
    times = {"ts": 1e6 * began_s, "dur": max(0.0, 1e6 * (ended_s - began_s))}
    return {
        "ph": "X",
        "cat": NAMES.get(track, "bucket"),
        "pid": rank,
        "tid": track,
        "name": name,
        **times,
        "args": facts,
    }


def _meta(rank: int, track: int, kind: str, name: str) -> Event:
    return {"ph": "M", "pid": rank, "tid": track, "name": kind, "args": {"name": name}}
