"""The overlap report of one rank: for each bucket when it was ready, launched, moving, done; what was exposed, and why.

In: `StepTimes` of the last steps (perf_counter seconds of this rank). Out: `OverlapReport`: rows, a dict, a rich table.
Times in the report are medians over the recorded steps, in milliseconds after the backward began.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from compiler_core.showing.grid import of_rich
from distcompile.ddp.overlap.times import StepTimes, segment_names, why_not_overlapped

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class BucketRow:
    """One line of the report. Times in ms after the backward began; wait and moving are durations."""

    bucket: int
    segment: int
    parameters: int
    nbytes: int
    ready_ms: float
    launch_ms: float
    start_ms: float
    end_ms: float
    moving_ms: float
    wait_ms: float
    why: str
    graph: str = ""  # the compiled graph whose segment completed it


@dataclass(frozen=True, slots=True)
class OverlapReport:
    """One rank's communication: medians over its last steps, in milliseconds. Made by `overlap_report()`.

        hidden_share = 1 - (exposed_ms - late_ms)/moving_ms, at least 0; NaN without communication

    Fields:
        steps: how many synchronised backwards these are medians of.
        backward_ms: of computation, from the backward's beginning to its end.
        moving_ms: in which data moved.
        exposed_ms: for which the main thread stood waiting for buckets.
        late_ms: the part of exposed_ms in which a slower rank was waited for, not data.
        rows: for each bucket its size, when it was ready, launched, started and ended, and why it was waited for.
        unseen: how many steps since then nobody timed: each one graph, on one rank or run op by op.
    """

    rank: int
    steps: int
    backward_ms: float
    moving_ms: float
    exposed_ms: float
    late_ms: float
    rows: tuple[BucketRow, ...]
    unseen: int = 0

    @property
    def hidden_share(self) -> float:
        """The share of the moving time that computation hid, 0..1; NaN without communication."""
        if self.moving_ms <= 0:
            return math.nan
        return max(0.0, 1.0 - (self.exposed_ms - self.late_ms) / self.moving_ms)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {**asdict(self), "hidden_share": self.hidden_share}

    def table(self) -> Table:
        """For `rich.print`."""
        from rich.table import Table

        table = Table(title=f"Overlap on rank {self.rank} (medians of {self.steps} steps, ms after the backward began)")
        for name in ("bucket", "segment", "params", "KiB", "ready", "launch", "start", "end", "moving", "wait"):
            table.add_column(name, justify="right")
        table.add_column("why exposed")
        for r, segment in zip(self.rows, segment_names(self.rows)):
            times = (r.ready_ms, r.launch_ms, r.start_ms, r.end_ms, r.moving_ms, r.wait_ms)
            cells = (r.bucket, segment, r.parameters, f"{r.nbytes / 1024:.1f}", *(f"{t:.2f}" for t in times), r.why)
            table.add_row(*map(str, cells))
        table.caption = self.summary()
        return table

    def summary(self) -> str:
        """One sentence, and another of steps that are not in it."""
        told = f"{self.unseen} steps were not timed: each was one graph, on one rank or run op by op"
        if self.unseen and not self.steps:
            return told
        later = f"; since then {told}" if self.unseen else ""
        hidden = "" if math.isnan(self.hidden_share) else f", {self.hidden_share:.0%} hidden"
        parts = (("backward", self.backward_ms), ("communication", self.moving_ms), ("exposed", self.exposed_ms))
        late = f" ({self.late_ms:.2f} of it waiting for slower ranks)"
        return ", ".join(f"{name} {value:.2f} ms" for name, value in parts) + late + hidden + later

    def plot(self, path: str | Path) -> None:
        """Draw the timeline to an image file: the backward, and each bucket waiting and moving. Needs [plot]."""
        from distcompile.ddp.overlap.plot import plot_overlap

        plot_overlap(self, Path(path))

    def __str__(self) -> str:
        return shown(self.table())

    def __rich__(self) -> Table:
        return self.table()

    def _repr_html_(self) -> str:
        return of_rich(self.table()).html()


def shown(table: Table) -> str:
    """A table as plain text."""
    from rich.console import Console

    console = Console(width=140, no_color=True)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def make_report(rank: int, steps: Sequence[StepTimes], unseen: int = 0) -> OverlapReport:
    """The report over `steps` that all have the same buckets; of none, an empty report."""
    if not steps:
        return OverlapReport(rank, 0, 0.0, 0.0, 0.0, 0.0, (), unseen)

    def middle(values: Sequence[float]) -> float:
        return 1e3 * median(values)

    return OverlapReport(
        rank,
        len(steps),
        middle([s.ended_s - s.began_s for s in steps]),
        middle([s.moving_s for s in steps]),
        middle([s.exposed_s for s in steps]),
        middle([s.late_s for s in steps]),
        tuple(_row(steps, k) for k in range(len(steps[-1].buckets))),
        unseen,
    )


def _row(steps: Sequence[StepTimes], k: int) -> BucketRow:
    last = steps[-1].buckets[k]

    def after(name: str) -> float:
        return 1e3 * median([float(getattr(s.buckets[k], name)) - s.began_s for s in steps])

    reasons = [why_not_overlapped(step, k) for step in steps]
    return BucketRow(
        last.bucket,
        last.segment,
        last.parameters,
        last.nbytes,
        after("ready_s"),
        after("launched_s"),
        after("started_s"),
        after("ended_s"),
        1e3 * median([s.buckets[k].ended_s - s.buckets[k].started_s for s in steps]),
        1e3 * median([s.buckets[k].waited_s for s in steps]),
        max(reasons, key=reasons.count),
        last.graph,
    )
