"""The overlap report of all ranks: every rank's recorded steps on one clock.

In: each rank's recorder (collective). Out: `JobReport`, equal on all ranks: medians a rank, buckets with what kept them
from being hidden and who came last, and the steps themselves for timelines (`perfetto.py`, `plot.py`, `html.py`).
Invariants: times are seconds of rank 0's clock since the first thing recorded; ranks may have recorded different
numbers of steps, or none. A rank is called the last only if it came later than the clocks' uncertainty can explain.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from collectives import Communicator
from compiler_core.showing.grid import of_rich
from distcompile.ddp.overlap.clocks import Clock, make_clock, measure
from distcompile.ddp.overlap.report import OverlapReport, make_report, shown
from distcompile.ddp.overlap.times import NEGLIGIBLE_S, SLOWER_RANK, BucketTimes, Span, StepTimes, why_not_overlapped

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class RankTimes:
    """What one rank sends to the others: its own clock."""

    rank: int
    host: str
    pid: int
    steps: tuple[StepTimes, ...]
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class RankTimeline:
    """One rank's steps on the common clock, and its own medians."""

    rank: int
    host: str
    pid: int
    clock: Clock
    report: OverlapReport
    steps: tuple[StepTimes, ...]
    spans: tuple[Span, ...]

    def step(self, number: int) -> StepTimes | None:
        """The step of that number, if this rank recorded it."""
        return next((step for step in self.steps if step.step == number), None)


@dataclass(frozen=True, slots=True)
class JobBucket:
    """One bucket over all ranks: medians over the common steps, milliseconds.

    exposed_ms: how long the rank that waited longest stood waiting while this bucket was the next to be done.
    spread_ms: from the first rank's readiness to the last's. last_rank: who came last; None: nobody stands out.
    """

    bucket: int
    segment: int
    parameters: int
    nbytes: int
    moving_ms: float
    exposed_ms: float
    spread_ms: float
    last_rank: int | None
    why: str
    graph: str = ""  # the compiled graph whose segment completed it


@dataclass(frozen=True, slots=True)
class JobReport:
    """All ranks. shown_step: the step that timelines of one step show; None if there is none."""

    ranks: tuple[RankTimeline, ...]
    buckets: tuple[JobBucket, ...]
    shown_step: int | None

    @property
    def world_size(self) -> int:
        return len(self.ranks)

    @property
    def uncertainty_ms(self) -> float:
        """The greatest uncertainty of a clock."""
        return 1e3 * max(rank.clock.uncertainty_s for rank in self.ranks)

    @property
    def exposed_ms(self) -> float:
        """Of the rank that waits longest: what communication costs a step."""
        return max(rank.report.exposed_ms for rank in self.ranks)

    def to_dict(self) -> dict[str, Any]:
        """Plain data: all steps too."""
        return asdict(self) | {"exposed_ms": self.exposed_ms, "uncertainty_ms": self.uncertainty_ms}

    def to_json(self, path: str | Path | None = None) -> str:
        """JSON text, also written to `path` if one is given. Not-a-numbers and infinities become null."""
        text = json.dumps(_finite(self.to_dict()), allow_nan=False)
        if path is not None:
            Path(path).write_text(text)
        return text

    def to_perfetto(self, path: str | Path) -> None:
        """Write a trace for ui.perfetto.dev or chrome://tracing."""
        from distcompile.ddp.overlap.perfetto import trace

        Path(path).write_text(json.dumps(trace(self), allow_nan=False))

    def to_html(self, path: str | Path) -> None:
        """Write one page that needs nothing else: no network, no script."""
        from distcompile.ddp.overlap.html import page

        Path(path).write_text(page(self), encoding="utf-8")

    def plot(self, path: str | Path) -> None:
        """Draw the timeline of all ranks to an image file. Needs [plot]."""
        from distcompile.ddp.overlap.plot import plot_job

        plot_job(self, Path(path))

    def table(self) -> Table:
        """Ranks and buckets, for `rich.print`."""
        from distcompile.ddp.overlap.tables import job_table

        return job_table(self)

    def summary(self) -> str:
        """One sentence."""
        counts = [len(rank.steps) for rank in self.ranks]
        if not any(counts):
            return f"no synchronised backward was recorded on {self.world_size} rank(s)"
        worst = max(self.ranks, key=lambda rank: rank.report.exposed_ms)
        moving = max(rank.report.moving_ms for rank in self.ranks)
        clocks = f", clocks within {1e3 * self.uncertainty_ms:.0f} us" if self.world_size > 1 else ""
        steps = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
        return (
            f"{self.world_size} rank(s), {steps} step(s): communication {moving:.2f} ms a step, exposed "
            f"{worst.report.exposed_ms:.2f} ms (rank {worst.rank}, {worst.report.late_ms:.2f} of it waiting for slower "
            f"ranks){clocks}"
        )

    def __str__(self) -> str:
        return shown(self.table())

    def __rich__(self) -> Table:
        return self.table()

    def _repr_html_(self) -> str:
        return of_rich(self.table()).html()


def gather_report(
    communicator: Communicator, steps: Sequence[StepTimes], spans: Sequence[Span], clock_rounds: int = 8
) -> JobReport:
    """Collective: everybody's steps on rank 0's clock."""
    passages = measure(communicator, rounds=clock_rounds) if communicator.world_size > 1 else []
    mine = RankTimes(communicator.rank, platform.node(), os.getpid(), tuple(steps), tuple(spans))
    everyones = communicator.all_gather_object((mine, passages))
    zero, zero_passages = everyones[0]
    clocks = [
        make_clock(zero_passages if one is zero else theirs, zero_passages, one.steps, zero.steps)
        for one, theirs in everyones
    ]
    return job_report([one for one, _ in everyones], clocks)


def job_report(recorded: Sequence[RankTimes], clocks: Sequence[Clock]) -> JobReport:
    """The report, from what each rank recorded on its own clock."""
    times = [
        clock.on_rank_0(t)
        for one, clock in zip(recorded, clocks)
        for t in (*(step.began_s for step in one.steps), *(span.began_s for span in one.spans))
    ]
    origin_s = min(times, default=0.0)
    ranks = tuple(_timeline(one, clock, origin_s) for one, clock in zip(recorded, clocks, strict=True))
    common = common_steps(ranks)
    return JobReport(ranks, _buckets(ranks, common), _representative(ranks, common))


def _timeline(one: RankTimes, clock: Clock, origin_s: float) -> RankTimeline:
    def at(t: float) -> float:
        return clock.on_rank_0(t) - origin_s

    def bucket(times: BucketTimes) -> BucketTimes:
        ready_s, launched_s, started_s = at(times.ready_s), at(times.launched_s), at(times.started_s)
        return replace(times, ready_s=ready_s, launched_s=launched_s, started_s=started_s, ended_s=at(times.ended_s))

    steps = tuple(
        replace(
            step,
            began_s=at(step.began_s),
            ended_s=at(step.ended_s),
            done_s=at(step.done_s),
            buckets=tuple(map(bucket, step.buckets)),
            waits=None if step.waits is None else tuple((at(a), at(b)) for a, b in step.waits),
            segment_ends_s=tuple(map(at, step.segment_ends_s)),
        )
        for step in one.steps
    )
    spans = tuple(Span(s.kind, s.number, at(s.began_s), at(s.ended_s)) for s in one.spans)
    return RankTimeline(one.rank, one.host, one.pid, clock, make_report(one.rank, one.steps), steps, spans)


def common_steps(ranks: Sequence[RankTimeline]) -> list[int]:
    """The steps that all ranks recorded, of those with as many buckets as the last one."""
    if not ranks or not all(rank.steps for rank in ranks):
        return []
    numbers = set.intersection(*({step.step for step in rank.steps} for rank in ranks))
    return sorted(n for n in numbers if len({len(step.buckets) for r in ranks if (step := r.step(n))}) == 1)


def _representative(ranks: Sequence[RankTimeline], common: Sequence[int]) -> int | None:
    """The step whose exposed time is the median; without a common one, the last that any rank recorded.

    The first step of all compiles, and is not shown if there are others enough.
    """
    if not common:
        return max((step.step for rank in ranks for step in rank.steps), default=None)
    common = [n for n in common if n] if len(common) > 2 else common
    exposed = {n: max(step.exposed_s for r in ranks if (step := r.step(n))) for n in common}
    return sorted(common, key=lambda n: (exposed[n], n))[len(common) // 2]


def _buckets(ranks: Sequence[RankTimeline], common: Sequence[int]) -> tuple[JobBucket, ...]:
    together = [[step for rank in ranks if (step := rank.step(n))] for n in common]
    if not together:  # no step in common: what each rank recorded, alone
        together = [[step] for rank in ranks for step in rank.steps[-1:]]
    count = min((len(step.buckets) for steps in together for step in steps), default=0)
    uncertainty_s = 2 * max((rank.clock.uncertainty_s for rank in ranks), default=0.0)
    return tuple(_bucket(together, k, uncertainty_s) for k in range(count))


def _bucket(together: Sequence[Sequence[StepTimes]], k: int, uncertainty_s: float) -> JobBucket:
    row = together[-1][0].buckets[k]
    last: list[int | None] = []
    spreads, exposed, moving = [], [], []
    for steps in together:
        ready = {step.rank: step.buckets[k].launched_s for step in steps}
        latest = max(ready, key=ready.__getitem__)
        spreads.append(ready[latest] - min(ready.values()))
        last.append(latest if spreads[-1] > max(uncertainty_s, NEGLIGIBLE_S) else None)
        exposed.append(max(step.exposure_s(step.free_s()[k], step.buckets[k].ended_s) for step in steps))
        moving.append(max(step.buckets[k].ended_s - step.buckets[k].started_s for step in steps))
    last_rank = max(last, key=last.count)
    why = _reason(together, k) if median(exposed) > NEGLIGIBLE_S else ""
    if why == SLOWER_RANK and last_rank is not None:
        why = f"waited for rank {last_rank}"
    return JobBucket(
        row.bucket,
        row.segment,
        row.parameters,
        row.nbytes,
        1e3 * median(moving),
        1e3 * median(exposed),
        1e3 * median(spreads),
        last_rank,
        why,
        row.graph,
    )


def _reason(together: Sequence[Sequence[StepTimes]], k: int) -> str:
    """What was the matter in most steps, on the rank that waited longest for bucket `k`."""
    reasons = []
    for steps in together:
        waiting = max(steps, key=lambda step: step.exposure_s(step.free_s()[k], step.buckets[k].ended_s))
        reasons.append(why_not_overlapped(waiting, k))
    return max(filter(None, reasons), key=reasons.count, default="")


def _finite(value: Any) -> Any:
    """`value` with null for what JSON cannot say."""
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    if isinstance(value, float) and not (abs(value) < float("inf")):
        return None
    return value
