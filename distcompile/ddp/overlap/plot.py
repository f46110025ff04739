"""The overlap reports as pictures: of one rank the medians, of all ranks one step on one clock.

In: an `OverlapReport` or a `JobReport`. Out: an image file (format by its ending). The dashed line is where the
backward ended; a red box is a rank standing still. Needs matplotlib (the extra "plot").
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcompile.ddp.overlap.scene import COLOURS, LEGEND, Lane, RankLanes, make_scene
from distcompile.errors import MissingExtraError

if TYPE_CHECKING:
    from distcompile.ddp.overlap.job import JobReport
    from distcompile.ddp.overlap.report import OverlapReport

SOFT = "#64748b"
MOST_LABELS = 12  # buckets of a rank that get a name of their own
LETTERS_OF_WIDTH = 190  # how many letters fit side by side


def new_figure(width: float, height: float) -> Any:
    """A matplotlib figure, inches. Raises MissingExtraError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError(
            "the overlap picture needs matplotlib", got=str(error), remedy="pip install 'distcompile[plot]'"
        ) from error
    return Figure(figsize=(width, height), layout="constrained")


def plot_overlap(report: OverlapReport, path: Path) -> None:
    """One rank: a bar for the backward, a line a bucket (light: launched, dark: moving)."""
    figure = new_figure(9, 1.2 + 0.35 * len(report.rows))
    axes = figure.subplots()
    labels = ["backward", *(f"bucket {r.bucket}: {r.nbytes / 1024:.0f} KiB" for r in report.rows)]
    axes.barh(0, report.backward_ms, color=COLOURS["segment"])
    for place, row in enumerate(report.rows, 1):
        axes.barh(place, row.start_ms - row.launch_ms, left=row.launch_ms, color=COLOURS["late"])
        axes.barh(place, row.end_ms - row.start_ms, left=row.start_ms, color=COLOURS["moving"])
    axes.axvline(report.backward_ms, color=COLOURS["wait"], linewidth=1)
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xlabel("ms after the backward began")
    figure.suptitle(f"rank {report.rank}: {report.summary()}", fontsize=8)
    figure.savefig(path)


def plot_job(report: JobReport, path: Path) -> None:
    """All ranks: for each what its main thread did, and below it a line a bucket."""
    from matplotlib.patches import Patch

    scene = make_scene(report)
    heights = [_height(rank) for rank in scene.ranks]
    figure = new_figure(12, 1.5 + 0.26 * sum(heights))
    axes = figure.subplots(len(scene.ranks), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for rank, panel in zip(scene.ranks, axes):
        _draw_rank(rank, panel, scene.span_ms)
    axes[-1].set_xlim(0, scene.span_ms)
    axes[-1].set_xlabel("ms", color=SOFT)
    figure.legend(
        handles=[Patch(color=COLOURS[kind], label=text) for kind, text in LEGEND.items()],
        loc="outside lower center",
        ncols=len(LEGEND),
        fontsize=7.5,
        frameon=False,
        handlelength=1,
    )
    step = "" if scene.step is None else f"  ·  step {scene.step} is shown"
    figure.suptitle(report.summary() + step, fontsize=9, x=0.01, ha="left")
    figure.savefig(path, dpi=150)


def _height(rank: RankLanes) -> float:
    """Of a rank's panel, in main lanes."""
    buckets = sum(not lane.is_main for lane in rank.lanes)
    return 2.2 + min(0.6 * buckets, 9.0)


def _draw_rank(rank: RankLanes, panel: Any, span_ms: float) -> None:
    buckets = sum(not lane.is_main for lane in rank.lanes)
    row = min(0.6, 9.0 / max(buckets, 1))
    top, places, names = 0.0, [], []
    for lane in rank.lanes:
        height = 1.4 if lane.is_main else row
        _draw_lane(lane, panel, top, height, span_ms)
        if lane.is_main or buckets <= MOST_LABELS:
            places.append(top + height / 2)
            names.append(lane.name)
        top += height
    panel.set_ylim(max(top, 1.0), 0)
    panel.set_yticks(places, names, fontsize=6.5, color=SOFT)
    exposed = "did not record this step" if math.isnan(rank.exposed_ms) else f"exposed {rank.exposed_ms:.2f} ms"
    panel.set_title(f"rank {rank.rank}   {exposed}", loc="left", fontsize=8.5, fontweight="bold")
    panel.grid(axis="x", color="#e5e9ee", linewidth=0.7)
    panel.set_axisbelow(True)
    panel.tick_params(length=0, labelsize=7, colors=SOFT)
    for side in panel.spines.values():
        side.set_visible(False)
    if not math.isnan(rank.backward_ended):
        panel.axvline(rank.backward_ended, color="#1d2733", linewidth=0.9, linestyle=(0, (3, 3)))


def _draw_lane(lane: Lane, panel: Any, top: float, height: float, span_ms: float) -> None:
    gap = 0.06 * height
    for box in lane.boxes:
        where = [(box.began, box.ended - box.began)]
        edge = {"linewidth": 0.4, "edgecolor": "white"} if lane.is_main else {"linewidth": 0}
        panel.broken_barh(where, (top + gap, height - 2 * gap), facecolors=COLOURS[box.kind], **edge)
        if box.label and (box.ended - box.began) * LETTERS_OF_WIDTH > (len(box.label) + 1) * span_ms:
            style = {"ha": "center", "va": "center", "fontsize": 6.5, "color": "white"}
            panel.text((box.began + box.ended) / 2, top + height / 2, box.label, **style)
