"""The times of one synchronised backward pass, and what they say: what was exposed, and why.

In: seconds of `time.perf_counter` of one rank. Out: `StepTimes`, from which every report is made.
Exposed time is what the main thread stood waiting: after the backward, or (overlap="step") at the wait points of the
next forward. Idle gaps between buckets never count as overlap: hidden is what moved while nobody waited.
Invariant: buckets move one after the other, in the order of `buckets`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias

SLOWER_RANK = "waited for a slower rank"
NEGLIGIBLE_S = 50e-6  # a wait this short is a thread switch, not communication

Kind: TypeAlias = Literal["forward", "backward", "segment", "wait", "update", "optimizer"]
Interval: TypeAlias = tuple[float, float]


class Span(NamedTuple):
    """Something the main thread did. number: segment or bucket; of a backward: 1 if it was synchronised."""

    kind: Kind
    number: int
    began_s: float
    ended_s: float


@dataclass(frozen=True, slots=True)
class BucketTimes:
    """One bucket in one backward. Seconds of perf_counter; `waited_s` is a duration.

    segment: the one that completed it, counted through all graphs of the backward. graph: whose segment that is.
    """

    bucket: int
    segment: int
    parameters: int
    nbytes: int
    ready_s: float
    launched_s: float
    started_s: float
    ended_s: float
    waited_s: float
    graph: str = ""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """One synchronised backward on one rank: computation from began_s to ended_s, all buckets there at done_s.

    step: number of the synchronised backward, the same on all ranks; -1: not known. waits: when the main thread stood
    waiting for buckets; None: from ended_s to done_s. segment_ends_s: when each backward segment ended, if it is known.
    """

    rank: int
    began_s: float
    ended_s: float
    done_s: float
    buckets: tuple[BucketTimes, ...]
    step: int = -1
    waits: tuple[Interval, ...] | None = None
    segment_ends_s: tuple[float, ...] = ()

    @property
    def waited(self) -> tuple[Interval, ...]:
        """When the main thread stood waiting."""
        return ((self.ended_s, self.done_s),) if self.waits is None else self.waits

    @property
    def exposed_s(self) -> float:
        return sum(b - a for a, b in self.waited)

    @property
    def late_s(self) -> float:
        """The part of the exposed time in which the next bucket waited for a slower rank, not for data."""
        return sum(self.exposure_s(free_s, b.started_s) for free_s, b in zip(self.free_s(), self.buckets))

    @property
    def moving_s(self) -> float:
        """Time in which data moved (buckets move one after the other)."""
        return sum(b.ended_s - b.started_s for b in self.buckets)

    def free_s(self) -> list[float]:
        """For each bucket, when it would have moved had all ranks been there: launched, and the one before it gone."""
        ended = [b.ended_s for b in self.buckets]
        return [max(b.launched_s, ended[k - 1]) if k else b.launched_s for k, b in enumerate(self.buckets)]

    def exposure_s(self, began_s: float, ended_s: float) -> float:
        """How long the main thread stood waiting between these two times."""
        return sum(overlap(a, b, began_s, ended_s) for a, b in self.waited)


class Completed(Protocol):
    """A bucket's row in any report."""

    @property
    def segment(self) -> int: ...
    @property
    def graph(self) -> str: ...


def segment_names(rows: Sequence[Completed]) -> list[str]:
    """How tables name the segment that completed each bucket: with its graph, if there are several.

    "no graph" completed what eager operations did, or what this backward does not use.
    """
    several = len({row.graph for row in rows}) > 1
    return [f"{row.graph or 'no graph'}: {row.segment}" if several else str(row.segment) for row in rows]


def overlap(a0: float, a1: float, b0: float, b1: float) -> float:
    """The length of the intersection of two intervals."""
    return max(0.0, min(a1, b1) - max(a0, b0))


def why_not_overlapped(step: StepTimes, k: int) -> str:
    """What kept bucket `k` from being hidden behind computation; empty if nothing did."""
    row = step.buckets[k]
    if step.exposure_s(min(row.ready_s, row.launched_s), row.ended_s) <= NEGLIGIBLE_S:
        return ""
    previous_s = step.buckets[k - 1].ended_s if k else row.launched_s
    late_s = row.started_s - max(row.launched_s, previous_s)
    moving_s = row.ended_s - row.started_s
    if late_s > max(moving_s, NEGLIGIBLE_S):
        return SLOWER_RANK
    waited_s = step.waited[0][0] if step.waited else step.done_s
    if row.ready_s >= waited_s - NEGLIGIBLE_S:
        return "ready when the backward ended: nothing left to compute"
    if previous_s > max(row.launched_s, waited_s):
        return f"queued behind bucket {step.buckets[k - 1].bucket}"
    if row.ready_s >= step.ended_s - NEGLIGIBLE_S:
        return "ready when the backward ended, longer than the computation before it is needed"
    return "longer than the computation after it"


def segment_ends(spans: Sequence[Span], began_s: float, ended_s: float) -> tuple[float, ...]:
    """The ends of the segments that ran between these two times."""
    inside = (span for span in spans if span.kind == "segment" and began_s <= span.began_s <= span.ended_s <= ended_s)
    return tuple(span.ended_s for span in inside)
