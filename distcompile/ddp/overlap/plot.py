"""The overlap report as a picture: one bar for the backward, one line a bucket.

In: an `OverlapReport`. Out: an image file (format by its ending). Light: launched, not yet moving; dark: moving; the
red line is where the backward ended: what lies right of it is exposed. Needs matplotlib (the extra "plot").
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from distcompile.errors import MissingExtraError

if TYPE_CHECKING:
    from distcompile.ddp.overlap.report import OverlapReport


def plot_overlap(report: OverlapReport, path: Path) -> None:
    """Write the picture. Raises MissingExtraError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError(
            "the overlap picture needs matplotlib", got=str(error), remedy="pip install 'distcompile[plot]'"
        ) from error
    figure = Figure(figsize=(9, 1.2 + 0.35 * len(report.rows)), layout="constrained")
    axes = figure.subplots()
    labels = ["backward", *(f"bucket {r.bucket}: {r.nbytes / 1024:.0f} KiB" for r in report.rows)]
    axes.barh(0, report.backward_ms, color="tab:gray")
    for place, row in enumerate(report.rows, 1):
        axes.barh(place, row.start_ms - row.launch_ms, left=row.launch_ms, color="tab:blue", alpha=0.3)
        axes.barh(place, row.end_ms - row.start_ms, left=row.start_ms, color="tab:blue")
    axes.axvline(report.backward_ms, color="tab:red", linewidth=1)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xlabel("ms after the backward began")
    figure.suptitle(f"rank {report.rank}: {report.summary()}", fontsize=8)
    figure.savefig(path)
