"""The report of all ranks as text: one line a rank, then one line a bucket.

In: a `JobReport`. Out: a rich table (two tables in a grid).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from distcompile.ddp.overlap.times import segment_names

if TYPE_CHECKING:
    from rich.table import Table

    from distcompile.ddp.overlap.job import JobReport


def job_table(report: JobReport) -> Table:
    """Both tables, one below the other."""
    from rich.table import Table

    grid = Table.grid()
    grid.add_row(_ranks(report))
    if report.buckets:
        grid.add_row(_buckets(report))
    grid.add_row(report.summary())
    return grid


def _ranks(report: JobReport) -> Table:
    from rich.table import Table

    table = Table(title="Overlap on all ranks (medians, ms)")
    table.add_column("rank", justify="right")
    table.add_column("host")
    for name in ("steps", "backward", "moving", "exposed", "for slower ranks", "hidden", "clock, us", "drift, ppm"):
        table.add_column(name, justify="right")
    for rank in report.ranks:
        r, clock = rank.report, rank.clock
        times = (r.backward_ms, r.moving_ms, r.exposed_ms, r.late_ms)
        hidden = "" if math.isnan(r.hidden_share) else f"{r.hidden_share:.0%}"
        offset = "" if rank.rank == 0 else f"{1e6 * clock.offset_s:+.0f} ± {1e6 * clock.uncertainty_s:.0f}"
        cells = (*(f"{t:.2f}" if rank.steps else "" for t in times), hidden, offset, f"{1e6 * clock.drift:.1f}")
        table.add_row(str(rank.rank), rank.host, str(len(rank.steps)), *cells)
    return table


def _buckets(report: JobReport) -> Table:
    from rich.table import Table

    table = Table(title="Buckets")
    for name in ("bucket", "segment", "params", "KiB", "moving", "exposed", "ranks apart", "last rank"):
        table.add_column(name, justify="right")
    table.add_column("why not overlapped")
    for b, segment in zip(report.buckets, segment_names(report.buckets)):
        last = "" if b.last_rank is None else str(b.last_rank)
        times = (f"{t:.2f}" for t in (b.moving_ms, b.exposed_ms, b.spread_ms))
        table.add_row(
            str(b.bucket), segment, str(b.parameters), f"{b.nbytes / 1024:.1f}", *times, last, b.why or "hidden"
        )
    return table
