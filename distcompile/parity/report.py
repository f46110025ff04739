"""The parity report: per parameter, how far eager and compiled gradients are from the float64 reference, and the
verdict.

In: gradients by parameter name (reference in float64). Out: frozen rows, a table, a verdict that names the first
failure. Error measure: max |g - ref| / max |ref|, per parameter (absolute where the reference is zero). A compiled
gradient passes if err(compiled) <= factor * err(eager) + tiny, with tiny = `ulps` units of rounding of the parameter's
dtype: eager is the yardstick, so no tolerance has to be guessed for a model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from compiler_core.ops.registry import Array

if TYPE_CHECKING:
    from rich.table import Table

Gradients = Mapping[str, Array | None]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """err(compiled) <= factor * err(eager) + ulps * eps(dtype)."""

    factor: float = 4.0
    ulps: float = 32.0

    def limit(self, eager_error: float, dtype: np.dtype[Any]) -> float:
        return self.factor * eager_error + self.ulps * float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]


def error_of(gradient: Array, reference: Array) -> float:
    """Largest deviation, relative to the reference's largest element. inf where NaNs or infinities differ."""
    if gradient.size == 0:
        return 0.0
    a, b = gradient.astype(np.float64), reference.astype(np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return math.inf
    finite = np.isfinite(b)
    if not finite.any():
        return 0.0
    scale = float(np.abs(b[finite]).max())
    return float(np.abs(a - b)[finite].max()) / (scale or 1.0)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One kind of gradient of one parameter. failure: empty, or what is wrong."""

    eager_error: float
    compiled_error: float
    failure: str


def compare(
    what: str, name: str, reference: Gradients, eager: Gradients, compiled: Gradients, tolerance: Tolerance
) -> Comparison:
    """Judge parameter `name`'s gradient. what: "local" or "reduced"."""
    ref, mine, theirs = reference.get(name), compiled.get(name), eager.get(name)
    if ref is None or mine is None or theirs is None:
        present = [who for who, g in (("reference", ref), ("eager", theirs), ("compiled", mine)) if g is not None]
        failure = f"{what}: only {' and '.join(present)} gave a gradient" if present else ""
        return Comparison(0.0, 0.0, failure)
    eager_error, compiled_error = error_of(theirs, ref), error_of(mine, ref)
    limit = tolerance.limit(eager_error, mine.dtype)
    failure = "" if compiled_error <= limit else f"{what}: error {compiled_error:.2e} > {limit:.2e}"
    return Comparison(eager_error, compiled_error, failure)


@dataclass(frozen=True, slots=True)
class ParityRow:
    """One parameter. ranks_equal: whether the reduced compiled gradient has the same bits on all ranks."""

    parameter: str
    numel: int
    local: Comparison
    reduced: Comparison
    ranks_equal: bool

    @property
    def failure(self) -> str:
        """What is wrong with this parameter; empty if nothing."""
        disagreement = "" if self.ranks_equal else "ranks hold different bits after the reduction"
        return "; ".join(filter(None, (self.local.failure, self.reduced.failure, disagreement)))


@dataclass(frozen=True, slots=True)
class ParityReport:
    """All parameters, on this rank. The first row of `rows` is the loss."""

    backend: str
    rank: int
    world_size: int
    rows: tuple[ParityRow, ...]

    @property
    def ok(self) -> bool:
        """Whether everything passed."""
        return self.first_failure is None

    @property
    def first_failure(self) -> ParityRow | None:
        """The first row that failed, in registration order."""
        return next((row for row in self.rows if row.failure), None)

    def verdict(self) -> str:
        """One sentence."""
        first = self.first_failure
        if first is None:
            against = f"{self.backend} against eager and float64 on {self.world_size} rank(s)"
            return f"parity holds: {len(self.rows)} rows, {against}"
        count = sum(bool(row.failure) for row in self.rows)
        return f"parity fails on {count} of {len(self.rows)} rows; first: {first.parameter} ({first.failure})"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {**asdict(self), "ok": self.ok, "verdict": self.verdict()}

    def table(self) -> Table:
        """For `rich.print`."""
        from rich.table import Table

        table = Table(title=f"Gradient parity of {self.backend} (rank {self.rank} of {self.world_size})")
        table.add_column("parameter", no_wrap=True)
        table.add_column("numel", justify="right")
        for kind in ("local", "reduced"):
            table.add_column(f"{kind} eager", justify="right")
            table.add_column(f"{kind} compiled", justify="right")
        table.add_column("ranks")
        table.add_column("verdict")
        for row in self.rows:
            local, reduced = row.local, row.reduced
            errors = (local.eager_error, local.compiled_error, reduced.eager_error, reduced.compiled_error)
            ranks = "equal" if row.ranks_equal else "differ"
            table.add_row(row.parameter, str(row.numel), *(f"{e:.1e}" for e in errors), ranks, row.failure or "ok")
        table.caption = self.verdict()
        return table

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=150, no_color=True)
        with console.capture() as capture:
            console.print(self.table())
        return capture.get()


def merge_failures(reports: Iterable[ParityReport]) -> ParityReport:
    """Of all ranks' reports the one to show: of a rank whose own gradients are wrong, else of any that failed."""
    listed = list(reports)
    own = (report for report in listed if any(row.local.failure for row in report.rows))
    failed = (report for report in listed if not report.ok)
    return next(own, next(failed, listed[0]))
