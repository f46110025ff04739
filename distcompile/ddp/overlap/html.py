"""The overlap report of all ranks as one page: inline SVG and tables, no script, nothing fetched.

In: a `JobReport`. Out: HTML text. Sections: what it comes to; one step of all ranks as a timeline; exposed time by
rank; every bucket and why it was not hidden; exposed time step by step. Boxes tell their story when pointed at.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from distcompile.ddp.overlap.job import JobReport, RankTimeline
from distcompile.ddp.overlap.page import document
from distcompile.ddp.overlap.scene import COLOURS, LEGEND, Box, Kind, RankLanes, Scene, make_scene, ticks
from distcompile.ddp.overlap.times import segment_names

WIDTH, LEFT, RIGHT = 1120, 118, 16
MAIN_HEIGHT, RANK_GAP, AXIS = 30, 20, 22


def page(report: JobReport) -> str:
    """The whole page."""
    scene = make_scene(report)
    step = "" if scene.step is None else f", step {scene.step}"
    body = [
        f"<h1>Overlap of communication and computation</h1><p class=lead>{escape(report.summary())}.</p>",
        _cards(report),
        f"<h2>One step of all ranks{step}</h2>{_legend()}{_timeline(scene)}",
        f"<h2>Exposed time by rank</h2>{_rank_table(report)}",
        f"<h2>Buckets</h2>{_bucket_table(report)}",
        f"<h2>Exposed time, step by step</h2>{_history(report)}",
        _notes(report),
    ]
    return document("Overlap report", body)


def _cards(report: JobReport) -> str:
    worst = max(report.ranks, key=lambda rank: rank.report.exposed_ms)
    hidden = [r.report.hidden_share for r in report.ranks if not math.isnan(r.report.hidden_share)]
    cards = [
        ("backward", f"{max(r.report.backward_ms for r in report.ranks):.2f} ms", "slowest rank, median"),
        ("communication", f"{max(r.report.moving_ms for r in report.ranks):.2f} ms", "data moving, median"),
        ("hidden", f"{min(hidden):.0%}" if hidden else "—", "of the moving time, worst rank"),
        ("exposed", f"{report.exposed_ms:.2f} ms", f"rank {worst.rank} waits longest"),
        ("for slower ranks", f"{worst.report.late_ms:.2f} ms", "of the exposed time"),
    ]
    inside = "".join(
        f"<div class=card><span>{name}</span><b>{value}</b><small>{note}</small></div>" for name, value, note in cards
    )
    return f"<div class=cards>{inside}</div>"


def _legend() -> str:
    items = (f'<span><i style="background:{COLOURS[kind]}"></i>{text}</span>' for kind, text in LEGEND.items())
    return f"<p class=legend>{''.join(items)}</p>"


# -- the timeline


def _timeline(scene: Scene) -> str:
    scale = (WIDTH - LEFT - RIGHT) / max(scene.span_ms, 1e-9)
    parts: list[str] = []
    y = float(AXIS)
    for rank in scene.ranks:
        drawn, height = _rank(rank, y, scale)
        parts.append(drawn)
        y += height + RANK_GAP
    axis = "".join(_tick(t, LEFT + t * scale, y - RANK_GAP) for t in ticks(scene.span_ms))
    drawing = f'<svg viewBox="0 0 {WIDTH} {y}" role="img" aria-label="timeline">{axis}{"".join(parts)}</svg>'
    return f"<div class=wide>{drawing}</div>"


def _tick(ms: float, x: float, bottom: float) -> str:
    line = f'<line class=grid x1="{x:.1f}" x2="{x:.1f}" y1="{AXIS - 6}" y2="{bottom}"/>'
    return f'{line}<text class=tick x="{x:.1f}" y="{AXIS - 9}">{ms:g}{"" if ms else " ms"}</text>'


def _rank(rank: RankLanes, y: float, scale: float) -> tuple[str, float]:
    """One rank's lanes from `y` on, and their height."""
    exposed = "no such step recorded" if math.isnan(rank.exposed_ms) else f"exposed {rank.exposed_ms:.2f} ms"
    name = f'<text class=rank x="0" y="{y + 11}">rank {rank.rank}</text>'
    name += f'<text class=small x="0" y="{y + 24}">{exposed}</text>'
    buckets = sum(not lane.is_main for lane in rank.lanes)
    row = min(15.0, max(4.0, 150.0 / max(buckets, 1)))
    parts, top = [name], y
    for lane in rank.lanes:
        height = MAIN_HEIGHT if lane.is_main else row
        if not lane.is_main and row >= 9:
            parts.append(f'<text class=lane x="{LEFT - 6}" y="{top + row - 4:.1f}">{lane.name}</text>')
        parts += [_svg_box(box, top, height - (7 if lane.is_main else 1), scale) for box in lane.boxes]
        top += height
    if not math.isnan(rank.backward_ended):
        x = LEFT + rank.backward_ended * scale
        parts.append(f'<line class=end x1="{x:.1f}" x2="{x:.1f}" y1="{y - 3}" y2="{top}"/>')
    return "".join(parts), max(top - y, 28)


def _svg_box(box: Box, y: float, height: float, scale: float) -> str:
    x, width = LEFT + box.began * scale, max((box.ended - box.began) * scale, 0.8)
    rect = (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{min(2.5, width / 3):.1f}" '
        f'fill="{COLOURS[box.kind]}"><title>{escape(box.title)}</title></rect>'
    )
    if box.label and width > 7 * len(box.label) + 4 and height > 12:
        rect += f'<text class=in x="{x + width / 2:.1f}" y="{y + height / 2 + 4:.1f}">{escape(box.label)}</text>'
    return rect


# -- the tables


def _rank_table(report: JobReport) -> str:
    longest = max(max(r.report.exposed_ms, r.report.moving_ms) for r in report.ranks) or 1.0
    head = (
        "rank",
        "host",
        "steps",
        "backward",
        "moving",
        "exposed",
        "for slower ranks",
        "hidden",
        "",
        "clock to rank 0",
    )
    rows = []
    for rank in report.ranks:
        r = rank.report
        hidden = "—" if math.isnan(r.hidden_share) else f"{r.hidden_share:.0%}"
        bar = _bar(
            [
                ("moving", "hidden", max(0.0, r.moving_ms - (r.exposed_ms - r.late_ms))),
                ("wait", "exposed: data", r.exposed_ms - r.late_ms),
                ("late", "exposed: slower ranks", r.late_ms),
            ],
            longest,
        )
        times = (f"{t:.2f} ms" for t in (r.backward_ms, r.moving_ms, r.exposed_ms, r.late_ms))
        cells = [str(rank.rank), escape(rank.host), str(len(rank.steps))]
        cells += [*times, hidden, bar, _clock(rank)] if rank.steps else ["nothing recorded", *[""] * 5, _clock(rank)]
        rows.append(cells)
    return _table(head, rows)


def _clock(rank: RankTimeline) -> str:
    clock = rank.clock
    if rank.rank == 0:
        return "reference"
    low, high = (f"{1e6 * d:+.1f}" if math.isfinite(d) else "?" for d in clock.drift_range)
    offset = f"{1e6 * clock.offset_s:+.0f} µs" if abs(clock.offset_s) < 1 else f"{clock.offset_s:+.6f} s"
    return f"{offset} ± {1e6 * clock.uncertainty_s:.0f} µs, drift {1e6 * clock.drift:+.1f} ppm ({low} … {high})"


def _bucket_table(report: JobReport) -> str:
    if not report.buckets:
        return "<p>No synchronised backward was recorded.</p>"
    longest = max(max(b.moving_ms, b.exposed_ms) for b in report.buckets) or 1.0
    head = (
        "bucket",
        "segment",
        "parameters",
        "KiB",
        "moving",
        "exposed",
        "",
        "ranks apart",
        "last",
        "why not overlapped",
    )
    rows = []
    for b, segment in zip(report.buckets, segment_names(report.buckets)):
        bar = _bar([("moving", "moving", b.moving_ms)], longest) + _bar([("wait", "exposed", b.exposed_ms)], longest)
        last = "" if b.last_rank is None else f"rank {b.last_rank}"
        times = (f"{b.moving_ms:.2f} ms", f"{b.exposed_ms:.2f} ms", bar, f"{b.spread_ms:.2f} ms", last)
        facts = (str(b.bucket), escape(segment), str(b.parameters), f"{b.nbytes / 1024:.1f}")
        rows.append([*facts, *times, escape(b.why) or "<span class=good>hidden</span>"])
    return _table(head, rows)


def _bar(parts: Sequence[tuple[Kind, str, float]], longest: float) -> str:
    inside = "".join(
        f'<i style="width:{100 * max(ms, 0) / longest:.1f}%;background:{COLOURS[kind]}" title="{name} {ms:.2f} ms"></i>'
        for kind, name, ms in parts
    )
    return f"<div class=bar>{inside}</div>"


def _table(head: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f"<th>{name}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<div class=wide><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"


# -- step by step


def _history(report: JobReport) -> str:
    """For each rank a row of thin bars: exposed time of every recorded step, one scale for all."""
    longest = max((1e3 * step.exposed_s for rank in report.ranks for step in rank.steps), default=0.0) or 1.0
    numbers = sorted({step.step for rank in report.ranks for step in rank.steps})
    if not numbers:
        return "<p>No synchronised backward was recorded.</p>"
    rows = [f"<tr><td>rank {rank.rank}</td><td>{_spark(rank, numbers, longest)}</td></tr>" for rank in report.ranks]
    caption = (
        f"steps {numbers[0]} to {numbers[-1]}; the tallest bar is {longest:.2f} ms; red: data, amber: slower ranks"
    )
    return f"<table class=history><tbody>{''.join(rows)}</tbody></table><p class=small>{caption}</p>"


def _spark(rank: RankTimeline, numbers: Sequence[int], longest: float) -> str:
    width, height = 26, 34
    bars = "".join(_spark_bars(rank, numbers, longest, width, height))
    return f'<svg class=spark width="{width * len(numbers)}" height="{height}">{bars}</svg>'


def _spark_bars(rank: RankTimeline, numbers: Sequence[int], longest: float, width: int, height: int) -> Iterator[str]:
    for place, number in enumerate(numbers):
        step = rank.step(number)
        if step is None:
            continue
        y = float(height)
        parts: tuple[tuple[Kind, float], ...] = (("wait", step.exposed_s - step.late_s), ("late", step.late_s))
        for kind, seconds in parts:
            ms = 1e3 * seconds
            tall = max(ms, 0.0) / longest * height
            y -= tall
            yield (
                f'<rect x="{place * width + 2}" y="{y:.1f}" width="{width - 4}" height="{tall:.1f}" '
                f'fill="{COLOURS[kind]}"><title>step {number}: {ms:.2f} ms</title></rect>'
            )


NOTES = (
    "The dashed line in each rank is where its backward ended. A red box is the rank standing still for a bucket: the "
    "exposed time. Gaps between buckets are idle, and count neither as hidden nor as exposed.",
    "Amber: this rank was ready, another one was not yet. The bucket table names who came last, if it came later than "
    "the clocks' uncertainty can explain.",
    "Clocks were aligned to rank 0's by barriers; offsets hold within {uncertainty:.0f} µs. Drift is bounded by the "
    "recorded all-reduces, which nobody leaves before all have entered.",
    "Numbers in tables are medians over the recorded steps; the timeline shows the step of median exposed time.",
)


def _notes(report: JobReport) -> str:
    items = "".join(f"<li>{note.format(uncertainty=1e3 * report.uncertainty_ms)}</li>" for note in NOTES)
    return f"<details><summary>How to read this</summary><ul>{items}</ul></details>"
