"""The picture of a tuning: step time against bucket size, the predicted curve and the measured points.

In: a `TuneReport`. Out: an image file (format by its ending). Needs matplotlib (the extra "plot").
"""

from __future__ import annotations

from pathlib import Path

from distcompile.ddp.plan.bucket_plan import MIB
from distcompile.errors import MissingExtraError
from distcompile.tuning.tune_report import Row, TuneReport


def plot_tuning(report: TuneReport, path: str | Path) -> None:
    """Write the picture. Raises MissingExtraError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError(
            "the picture of a tuning needs matplotlib", got=str(error), remedy="pip install 'distcompile[plot]'"
        ) from error
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(*zip(*report.curve()), color="tab:gray", label="predicted, by bucket_cap_mb")
    for row in report.rows:
        is_cap = row.name.endswith("MiB") or row is report.default
        color = "tab:red" if row is report.recommended else "tab:blue" if is_cap else "tab:green"
        axes.errorbar(_x(row), row.step_ms, yerr=row.spread_ms, fmt="o" if is_cap else "s", color=color, capsize=3)
        axes.annotate(row.name, (_x(row), row.step_ms), textcoords="offset points", xytext=(6, 4), fontsize=7)
        axes.plot(_x(row), report.rest_ms + row.candidate.backward_ms, "x", color=color, markersize=5)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("largest bucket, MiB  (dots: measured caps, squares: measured plans, crosses: predicted)")
    axes.set_ylabel("step, ms")
    axes.legend(loc="best", fontsize=8)
    figure.suptitle(report.verdict(), fontsize=8)
    figure.savefig(path)


def _x(row: Row) -> float:
    return max(bucket.nbytes for bucket in row.candidate.plan.buckets) / MIB
