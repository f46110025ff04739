"""The parity report: what each judge found, a table, a verdict that names the first failure.

In: comparisons by parameter (`judge.py`), samples of finite differences, the joined batch, training steps, a bisection.
Out: frozen data; text, JSON, HTML. Invariant: whatever could not be judged is in `limits()`, so that silence never
stands for "checked".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler_core.ops.registry import Array
from compiler_core.showing.grid import details, of_rich
from distcompile.parity.judge import Comparison, Tolerance, error_of, judge

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from distcompile.parity.joined import JoinedBatch
    from distcompile.parity.training import Training

__all__ = ["Comparison", "Differences", "ParityReport", "ParityRow", "Tolerance", "compare", "error_of"]

Gradients = Mapping[str, Array | None]


def compare(
    what: str, name: str, reference: Gradients, eager: Gradients, compiled: Gradients, tolerance: Tolerance
) -> Comparison:
    """Judge parameter `name`'s gradient. what: "local" or "reduced"."""
    return judge(what, reference.get(name), eager.get(name), compiled.get(name), tolerance)


@dataclass(frozen=True, slots=True)
class Differences:
    """What finite differences said of one parameter: samples checked, largest relative error, failure, marks."""

    checked: int
    error: float
    failure: str
    marks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """Where a difference comes from. stage: "backward rule", a backend's stage, or "reduction". what: in words.

    op, location: the op (or Function) and the user's file:line, where one is to blame. graph: text to reproduce it.
    """

    stage: str
    what: str
    op: str
    location: str
    detail: str
    graph: str = ""

    def summary(self) -> str:
        """One line, and the graph if there is one."""
        op = f", op {self.op}" if self.op and self.op not in self.what else ""
        place = f" at {self.location}" if self.location else ""
        return f"found: {self.what}{op}{place}: {self.detail}" + (f"\n{self.graph}" if self.graph else "")


@dataclass(frozen=True, slots=True)
class ParityRow:
    """One parameter. ranks_equal: whether the reduced compiled gradient has the same bits on all ranks."""

    parameter: str
    numel: int
    local: Comparison
    reduced: Comparison
    ranks_equal: bool
    differences: Differences | None = None

    @property
    def failure(self) -> str:
        """What is wrong with this parameter; empty if nothing."""
        disagreement = "" if self.ranks_equal else "ranks hold different bits after the reduction"
        sampled = "" if self.differences is None else self.differences.failure
        return "; ".join(filter(None, (self.local.failure, self.reduced.failure, disagreement, sampled)))

    @property
    def limits(self) -> tuple[str, ...]:
        """What could not be judged."""
        marks = () if self.differences is None else self.differences.marks
        return tuple(filter(None, (self.local.note, self.reduced.note, *marks)))


@dataclass(frozen=True, slots=True)
class ParityReport:
    """All parameters, on this rank. The first row of `rows` is the loss."""

    backend: str
    rank: int
    world_size: int
    rows: tuple[ParityRow, ...]
    joined: JoinedBatch | None = None
    training: Training | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether everything passed."""
        return not self.failures

    @property
    def failures(self) -> list[str]:
        """Every failure, the rows' first, in registration order."""
        found = [f"{row.parameter} ({row.failure})" for row in self.rows if row.failure]
        others = (("joined batch", self.joined), ("training", self.training))
        return found + [f"{name} ({part.failure})" for name, part in others if part is not None and part.failure]

    @property
    def first_failure(self) -> ParityRow | None:
        """The first row that failed, in registration order."""
        return next((row for row in self.rows if row.failure), None)

    def limits(self) -> list[str]:
        """What could not be judged, so that nobody takes it for checked."""
        rows = [f"{row.parameter}: {limit}" for row in self.rows for limit in row.limits]
        parts = [self.joined.note] if self.joined is not None and self.joined.note else []
        if all(row.differences is None for row in self.rows):
            parts.append("no finite differences: a wrong backward rule that eager shares would not be seen")
        return rows + parts

    def verdict(self) -> str:
        """One sentence."""
        failures = self.failures
        if failures:
            count = sum(bool(row.failure) for row in self.rows)
            return f"parity fails on {count} of {len(self.rows)} rows; first: {failures[0]}"
        against = f"{self.backend} against eager and float64 on {self.world_size} rank(s)"
        samples = sum(row.differences.checked for row in self.rows if row.differences is not None)
        more = f", {samples} samples by finite differences" if samples else ""
        more += f", {self.training.steps} training steps" if self.training is not None else ""
        return f"parity holds: {len(self.rows)} rows, {against}{more}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {**asdict(self), "ok": self.ok, "verdict": self.verdict(), "limits": self.limits()}

    def to_json(self, path: str | Path | None = None) -> str:
        """JSON text, also written to `path` if one is given. An infinite error is the text "inf"."""
        text = json.dumps(_plain(self.to_dict()), allow_nan=False)
        if path is not None:
            Path(path).write_text(text)
        return text

    def to_html(self, path: str | Path) -> None:
        """Write one page that needs nothing else: no network, no script."""
        from distcompile.parity.html import page

        Path(path).write_text(page(self), encoding="utf-8")

    def table(self) -> Table:
        """For `rich.print`."""
        from rich.table import Table

        table = Table(title=f"Gradient parity of {self.backend} (rank {self.rank} of {self.world_size})")
        table.add_column("parameter", no_wrap=True)
        table.add_column("numel", justify="right")
        for kind in ("local", "reduced"):
            table.add_column(f"{kind} eager", justify="right")
            table.add_column(f"{kind} compiled", justify="right")
        table.add_column("differences", justify="right")
        table.add_column("ranks")
        table.add_column("verdict")
        for row in self.rows:
            local, reduced = row.local, row.reduced
            errors = (local.eager_error, local.compiled_error, reduced.eager_error, reduced.compiled_error)
            ranks = "equal" if row.ranks_equal else "differ"
            cells = (*(f"{e:.1e}" for e in errors), sampled(row.differences), ranks, row.failure or "ok")
            table.add_row(row.parameter, str(row.numel), *cells)
        table.caption = self.verdict()
        return table

    def notes(self) -> list[str]:
        """Everything that is not in the table, a line each."""
        parts = [part.summary() for part in (self.joined, self.training, *self.findings) if part is not None]
        return parts + [f"not judged: {limit}" for limit in self.limits()]

    def __rich__(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        return Group(self.table(), *map(Text, self.notes()))

    def _repr_html_(self) -> str:
        return of_rich(self.table()).html() + details("notes", "\n".join(self.notes()))

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=160, no_color=True)
        with console.capture() as capture:
            console.print(self.table())
            for note in self.notes():
                console.print(note, markup=False, highlight=False, soft_wrap=True)
        return capture.get()


def sampled(differences: Differences | None) -> str:
    """A cell: the largest error and how many samples it is of."""
    if differences is None or not differences.checked:
        return "-"
    return f"{differences.error:.0e} of {differences.checked}"


def _plain(value: Any) -> Any:
    """`value` with text for what JSON cannot say."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and not (abs(value) < float("inf")):
        return str(value)
    return value


def merge_failures(reports: Iterable[ParityReport]) -> ParityReport:
    """Of all ranks' reports the one to show: of a rank whose own gradients are wrong, else of any that failed."""
    listed = list(reports)
    own = (r for r in listed if any(row.local.failure or _sampled_failure(row) for row in r.rows))
    reduced = (r for r in listed if any(row.reduced.failure for row in r.rows))
    failed = (report for report in listed if not report.ok)
    return next(own, next(reduced, next(failed, listed[0])))


def _sampled_failure(row: ParityRow) -> str:
    return "" if row.differences is None else row.differences.failure
