"""The recorder: the last steps' raw times of one DDP instance, in ring buffers that never grow.

In: a span whenever the main thread ends something, a `FlightRecord` when a backward's buckets are all there. Out: on
demand `StepTimes`, and the spans. Recording is a tuple and an append, a fraction of a microsecond; everything else
happens when a report is asked for.
Invariant: step n is the n-th synchronised backward since the instance was made, so the same n on all ranks.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from collectives.work import Mark, TimesOfWork, WorkTimes
from compiler_core.config import config
from compiler_core.tensor.tensor import Tensor
from distcompile import watchdog
from distcompile.ddp.overlap.times import BucketTimes, Interval, Kind, Span, StepTimes, segment_ends
from distcompile.optim.optimizer import RECENT_STEPS

RECORDED_STEPS = 32
RECORDED_SPANS = 2048


Time: TypeAlias = float | Mark  # seconds of perf_counter, or a point in a GPU's work


def seconds_of(time: Time) -> float:
    """Seconds of perf_counter; NaN if a GPU is not there yet."""
    return time if isinstance(time, float) else time.time_s


class PlannedBucket(Protocol):
    """What a report tells of a bucket beside its times."""

    @property
    def segment(self) -> int: ...
    @property
    def slots(self) -> Sequence[object]: ...
    @property
    def nbytes(self) -> int: ...


class Planned(Protocol):
    """A BucketPlan, or what a graph launches."""

    @property
    def buckets(self) -> Sequence[PlannedBucket]: ...


class FlightRecord(NamedTuple):
    """The raw times of one synchronised backward; lists are indexed by launch order.

    ready_s: bucket -> when it was complete. waits: when the main thread began and ended its wait for each bucket.
    marks: of a backward on a GPU, where it began and ended; the works' times are then to be read later.
    order: the bucket launched at each place; empty: as planned. spread: whether waits were apart (overlap="step").
    graphs: bucket -> the compiled graph whose segment completed it; empty: not known. reached: on a GPU, where its
    stream began to wait for each bucket; empty: for all at the end of the backward.
    """

    plan: Planned
    began_s: float
    ended_s: float
    ready_s: Mapping[int, float]
    works: Sequence[TimesOfWork]
    waits: Sequence[Interval]
    order: Sequence[int] = ()
    spread: bool = False
    graphs: Sequence[str] = ()
    marks: tuple[Mark, Mark] | None = None
    reached: Sequence[Mark | None] = ()

    def on_host_clock(self) -> FlightRecord | None:
        """The same, of a GPU's work as the GPU did it; None if that is not done yet.

        The stream waits for the buckets in launch order, once the backward's own kernels are done, or where it did.
        """
        if self.marks is None:
            return self
        began_s, ended_s = (mark.time_s for mark in self.marks)
        times = [WorkTimes(w.launched_s, w.started_s, w.ended_s, w.released_s) for w in self.works]
        if any(math.isnan(t) for t in (began_s, ended_s, *(w.ended_s for w in times))):
            return None
        reached = [ended_s] * len(times)
        if self.reached:  # nobody came for a bucket: it kept nobody waiting
            reached = [w.ended_s if mark is None else mark.time_s for w, mark in zip(times, self.reached, strict=True)]
        if any(map(math.isnan, reached)):
            return None
        waits, now_s = [], ended_s
        for work, reached_s in zip(times, reached, strict=True):
            now_s = max(now_s, reached_s)
            waits.append((now_s, now_s := max(now_s, work.ended_s)))
        return self._replace(began_s=began_s, ended_s=ended_s, works=times, waits=waits)


class StepRecorder:
    """Times of one DDP instance on rank `rank`. is_on: DISTCOMPILE_RECORD; steps are counted in any case."""

    def __init__(self, rank: int) -> None:
        self.rank, self.count = rank, 0
        self.unseen = 0  # of the last steps, those that nobody has timed
        self.is_on = config.record_times
        self._flights: deque[tuple[int, FlightRecord]] = deque(maxlen=RECORDED_STEPS)
        self._spans: deque[tuple[Kind, int, Time, Time]] = deque(maxlen=RECORDED_SPANS)

    def span(self, kind: Kind, number: int, began: Time, ended: Time) -> None:
        """The main thread, or a GPU's stream, did something from `began` to `ended`."""
        if self.is_on:
            self._spans.append((kind, number, began, ended))

    def flight(self, record: FlightRecord) -> None:
        """The buckets of one backward are all there."""
        if self.is_on:
            self._flights.append((self.count, record))
        watchdog.end_step()
        self.count, self.unseen = self.count + 1, 0

    def untimed(self) -> None:
        """The buckets of one backward are all there, and nobody has looked at the clock."""
        watchdog.end_step()
        self.count, self.unseen = self.count + 1, self.unseen + 1

    def spans(self) -> list[Span]:
        """The last spans, the oldest first; without those that a GPU has not come to the end of."""
        timed = [Span(k, n, seconds_of(began), seconds_of(ended)) for k, n, began, ended in list(self._spans)]
        return [span for span in timed if not math.isnan(span.began_s + span.ended_s)]

    def steps(self) -> list[StepTimes]:
        """The last steps that had the buckets of the last one, the oldest first."""
        spans, done = self.spans(), [(number, record.on_host_clock()) for number, record in list(self._flights)]
        flights = [(number, record) for number, record in done if record is not None]
        last: Sequence[PlannedBucket] = flights[-1][1].plan.buckets if flights else ()
        start = len(flights)
        while start and flights[start - 1][1].plan.buckets == last:
            start -= 1
        return [step_times(self.rank, number, record, spans) for number, record in flights[start:]]

    def local_passes(self) -> list[tuple[float, tuple[float, ...]]]:
        """When the last backwards inside no_sync() began, and when each of their segments ended."""
        spans = self.spans()
        local = [span for span in spans if span.kind == "backward" and not span.number]
        return [(span.began_s, segment_ends(spans, span.began_s, span.ended_s)) for span in local]


def step_times(rank: int, number: int, record: FlightRecord, spans: Sequence[Span]) -> StepTimes:
    """A record in the form in which it is read."""
    order = record.order or range(len(record.works))
    rows = tuple(
        _row(record, bucket, work, wait) for bucket, work, wait in zip(order, record.works, record.waits, strict=True)
    )
    done_s = max((ended for _, ended in record.waits), default=record.ended_s)
    waits = tuple(wait for wait in record.waits if wait[1] > wait[0]) if record.spread else None
    ends = segment_ends(spans, record.began_s, record.ended_s) if record.marks is None else ()  # spans are the host's
    return StepTimes(rank, record.began_s, record.ended_s, max(done_s, record.ended_s), rows, number, waits, ends)


def _row(record: FlightRecord, k: int, times: TimesOfWork, wait: Interval) -> BucketTimes:
    bucket = record.plan.buckets[k]
    released_s = times.released_s  # of a bucket released by a signal from inside an artefact, or by a GPU's event
    return BucketTimes(
        bucket=k,
        segment=bucket.segment,
        parameters=len(bucket.slots),
        nbytes=bucket.nbytes,
        ready_s=record.ready_s[k] if math.isnan(released_s) else released_s,
        launched_s=times.launched_s if math.isnan(released_s) else max(times.launched_s, released_s),
        started_s=times.started_s,
        ended_s=times.ended_s,
        waited_s=wait[1] - wait[0],
        graph=record.graphs[k] if record.graphs else "",
    )


def optimizer_spans(parameters: Iterable[Tensor]) -> list[Span]:
    """The recent steps of optimizers that hold one of these parameters."""
    ours = {id(parameter) for parameter in parameters}
    spans = []
    for reference, began, ended in list(RECENT_STEPS):
        optimizer = reference()
        if optimizer is not None and any(id(p) in ours for group in optimizer.param_groups for p in group["params"]):
            spans.append(Span("optimizer", 0, seconds_of(began), seconds_of(ended)))
    return [span for span in spans if not math.isnan(span.began_s + span.ended_s)]
