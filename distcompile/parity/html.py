"""The parity report as one page: no script, nothing fetched.

In: a `ParityReport`. Out: HTML text: the verdict, the judges, a row a parameter with errors drawn on one logarithmic
scale, training step by step, where a failure comes from, and what could not be judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from distcompile.ddp.overlap.page import document
from distcompile.parity.judge import Comparison
from distcompile.parity.report import Finding, ParityReport, ParityRow, sampled

LEAST, MOST = -17.0, 1.0  # the scale's ends: powers of ten
EAGER, COMPILED = "#8fa3bf", "#2f80c8"
BAD = "#d64545"


def page(report: ParityReport) -> str:
    """The whole page."""
    verdict = f"<p class=lead><span class={'good' if report.ok else 'bad'}>{escape(report.verdict())}.</span></p>"
    body = [f"<h1>Gradient parity</h1>{verdict}", _cards(report)]
    if report.findings:
        body.append(f"<h2>Where it comes from</h2>{''.join(map(_finding, report.findings))}")
    body.append(f"<h2>Parameters</h2>{_legend()}{_rows(report)}")
    if report.training is not None:
        body.append(f"<h2>Training</h2><p>{escape(report.training.summary())}</p>{_training(report)}")
    body.append(_limits(report))
    return document("Gradient parity", body)


def _cards(report: ParityReport) -> str:
    rows = report.rows
    checked = sum(row.differences.checked for row in rows if row.differences is not None)
    joined = "—" if report.joined is None else report.joined.word
    steps = "—" if report.training is None else f"{report.training.steps} steps"
    training = "fails" if report.training is not None and report.training.failure else steps
    cards = [
        ("rows", f"{sum(not row.failure for row in rows)} of {len(rows)}", "hold"),
        ("ranks", str(report.world_size), f"shown: rank {report.rank}"),
        ("differences", str(checked), "samples, float64"),
        ("joined batch", joined, "against one rank alone"),
        ("training", training, "parameters after each step"),
    ]
    inside = "".join(
        f"<div class=card><span>{name}</span><b>{value}</b><small>{note}</small></div>" for name, value, note in cards
    )
    return f"<div class=cards>{inside}</div>"


def _finding(finding: Finding) -> str:
    place = f" at <code>{escape(finding.location)}</code>" if finding.location else ""
    op = f", op <b>{escape(finding.op)}</b>" if finding.op else ""
    graph = f"<pre>{escape(finding.graph)}</pre>" if finding.graph else ""
    return f"<p><b>{escape(finding.what)}</b>{op}{place}: {escape(finding.detail)}</p>{graph}"


def _legend() -> str:
    items = (("eager", EAGER), ("compiled", COMPILED), ("fails", BAD))
    dots = "".join(f'<span><i style="background:{colour}"></i>{name}</span>' for name, colour in items)
    return f"<p class=legend>{dots}<span>error against float64, 1e{LEAST:.0f} to 1e{MOST:.0f}</span></p>"


def _rows(report: ParityReport) -> str:
    head = "".join(
        f"<th>{name}</th>"
        for name in ("parameter", "numel", "local", "", "reduced", "", "differences", "ranks", "verdict")
    )
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in _cells(row))}</tr>" for row in report.rows)
    return f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _cells(row: ParityRow) -> Iterator[str]:
    yield f"<code>{escape(row.parameter)}</code>"
    yield str(row.numel)
    for comparison in (row.local, row.reduced):
        yield f"{comparison.compiled_error:.1e}"
        yield _scale(comparison)
    yield escape(sampled(row.differences))
    yield "equal" if row.ranks_equal else "<span class=bad>differ</span>"
    limits = f" <span class=warn>{escape('; '.join(row.limits))}</span>" if row.limits else ""
    yield (f"<span class=bad>{escape(row.failure)}</span>" if row.failure else "<span class=good>holds</span>") + limits


def _scale(comparison: Comparison) -> str:
    """Two marks on a line: eager above, compiled below."""
    colour = BAD if comparison.failure else COMPILED
    marks = ((comparison.eager_error, EAGER, 2), (comparison.compiled_error, colour, 9))
    drawn = "".join(
        f'<rect x="0" y="{y}" width="{_place(error):.1f}" height="5" rx="1.5" fill="{fill}"/>'
        for error, fill, y in marks
    )
    return f'<svg class=spark width="120" height="16">{drawn}</svg>'


def _place(error: float) -> float:
    if not math.isfinite(error):
        return 120.0
    power = math.log10(error) if error > 0 else LEAST
    return 120.0 * min(max((power - LEAST) / (MOST - LEAST), 0.0), 1.0)


def _training(report: ParityReport) -> str:
    """Errors after each step as two lines."""
    training = report.training
    if training is None or len(training.errors) < 2:
        return ""
    width, height = 560, 120
    lines = "".join(
        f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{_points(errors, width, height)}"/>'
        for errors, colour in ((training.eager_errors, EAGER), (training.errors, COMPILED))
    )
    label = f"error of the parameters, step 0 to {len(training.errors) - 1}, logarithmic"
    drawing = f'<svg class=spark width="{width}" height="{height}">{lines}</svg>'
    return f"<div class=wide>{drawing}</div><p class=small>{label}</p>"


def _points(errors: Sequence[float], width: int, height: int) -> str:
    step = width / (len(errors) - 1)
    return " ".join(f"{k * step:.1f},{height * (1 - _place(error) / 120.0):.1f}" for k, error in enumerate(errors))


def _limits(report: ParityReport) -> str:
    limits = report.limits()
    items = (
        "".join(f"<li>{escape(limit)}</li>" for limit in limits) or "<li>nothing: every judge reached every row</li>"
    )
    other = [report.joined.summary()] if report.joined is not None else []
    notes = "".join(f"<p>{escape(note)}</p>" for note in other)
    return f"{notes}<h2>What was not judged</h2><ul>{items}</ul>"
