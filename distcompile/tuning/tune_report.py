"""What `distcompile tune` found: a table of candidates, a verdict that never rests on noise, a plan to recommend.

In: candidates with predicted and measured times. Out: `TuneReport`: rich table, one sentence, dict for JSON, plan file.
Times are milliseconds, the slowest rank's of each step, medians over rounds; a spread is half the distance of the
quartiles. `gain` compares with the default within each round, so drift of the machine cancels out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from compiler_core.showing.grid import of_rich
from distcompile.ddp.plan.bucket_plan import MIB, BucketPlan
from distcompile.tuning.observe import spread
from distcompile.tuning.plan_file import Place, PlanRecord
from distcompile.tuning.problem import Problem
from distcompile.tuning.rivals import fixed_caps
from distcompile.tuning.simulate import simulate

if TYPE_CHECKING:
    from rich.table import Table

DEFAULT = "default"
CHANCE = 0.05  # of recommending a plan that is not faster


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan and what the simulator says of it. backward_ms: until all buckets are there."""

    name: str
    plan: BucketPlan
    backward_ms: float
    exposed_ms: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured step. Seconds: the whole step; backward until all buckets are there; exposed."""

    step_s: float
    backward_s: float
    exposed_s: float


@dataclass(frozen=True, slots=True)
class Row:
    """A candidate, measured. gain_ms: how much shorter its step is than the default's."""

    candidate: Candidate
    step_ms: float
    spread_ms: float
    backward_ms: float
    exposed_ms: float
    gain_ms: float
    gain_spread_ms: float

    @property
    def name(self) -> str:
        return self.candidate.name


def make_rows(candidates: Sequence[Candidate], samples: Sequence[Sequence[Sample]]) -> list[Row]:
    """samples[c][r]: of candidate c in round r. The first candidate is the default."""
    rows = []
    for candidate, column in zip(candidates, samples, strict=True):
        gains = [default.step_s - sample.step_s for default, sample in zip(samples[0], column, strict=True)]
        steps = [sample.step_s for sample in column]
        rows.append(
            Row(
                candidate,
                1e3 * median(steps),
                1e3 * spread(steps),
                1e3 * median(sample.backward_s for sample in column),
                1e3 * median(sample.exposed_s for sample in column),
                1e3 * median(gains),
                1e3 * spread(gains),
            )
        )
    return rows


def best_of(rows: Sequence[Row]) -> Row:
    """The row that gained most on the default."""
    return max(rows, key=lambda row: row.gain_ms)


def is_won(gains_ms: Sequence[float]) -> bool:
    """Whether gains prove a gain: their median exceeds their spread, and a sign test's chance is at most CHANCE."""
    count, wins = len(gains_ms), sum(gain > 0 for gain in gains_ms)
    if not count or median(gains_ms) <= spread(gains_ms):
        return False
    chance: float = sum(math.comb(count, k) for k in range(wins, count + 1)) / 2**count
    return chance <= CHANCE


@dataclass(frozen=True, slots=True)
class TuneReport:
    """rows: the default first. problem: what was measured of model and communicator. rounds: of all candidates.

    duel_ms: how much faster than the default the best row's plan was, in fresh pairs of rounds after it was chosen: the
    best of many is the best partly by chance, so what chose it cannot prove it. cut_s: what one more segment would cost
    if the backward were cut there; the problem's gamma is how boundaries are told now. left_out: candidates that there
    was no time to measure.
    """

    rows: tuple[Row, ...]
    problem: Problem
    place: Place
    rounds: int
    duel_ms: tuple[float, ...] = ()
    cut_s: float = 0.0
    left_out: tuple[Candidate, ...] = ()

    @property
    def default(self) -> Row:
        return self.rows[0]

    @property
    def best(self) -> Row:
        """The one that gained most within the rounds. The default gains nothing on itself."""
        return best_of(self.rows)

    @property
    def recommended(self) -> Row:
        """The best, if it won the duel: by more than the spread, and too often for chance; else the default."""
        return self.best if is_won(self.duel_ms) else self.default

    @property
    def rest_ms(self) -> float:
        """The part of a step that plans do not touch: forward, optimizer."""
        return median(row.step_ms - row.backward_ms for row in self.rows)

    def verdict(self) -> str:
        """The recommendation in a sentence, with its margin over the default, or why there is none."""
        best, default = self.best, self.default
        if best is default:
            return f"keep the default ({default.step_ms:.2f} ms a step): no candidate was faster"
        margin = median(self.duel_ms) if self.duel_ms else 0.0
        wins = f"faster in {sum(d > 0 for d in self.duel_ms)} of {len(self.duel_ms)} fresh comparisons"
        amount = f"{margin:.2f} ms ({margin / default.step_ms:.1%}), spread {spread(self.duel_ms):.2f} ms, {wins}"
        if self.recommended is default:
            return f"keep the default: the gain of {best.name} is within the noise: {amount}"
        buckets = len(best.candidate.plan.buckets)
        return f"recommended: {best.name}, {buckets} buckets: less than the default by {amount}"

    def accuracy(self) -> float:
        """The greatest difference of predicted and measured exposed time, as a share of the step."""
        return max(abs(r.candidate.exposed_ms - r.exposed_ms) / r.step_ms for r in self.rows)

    def record(self) -> PlanRecord:
        """The recommended plan, for a file."""
        row = self.recommended.candidate
        return PlanRecord(row.plan, self.place, self.problem.fit, row.exposed_ms, row.backward_ms)

    def curve(self) -> list[tuple[float, float]]:
        """(bucket cap in MiB, predicted step in ms), for caps from 1/128 of all gradients to all of them."""
        whole_mb = self.problem.nbytes(range(len(self.problem.gradients))) / MIB
        caps = [whole_mb * 2 ** (k / 4 - 7) for k in range(29)]
        return [
            (cap, self.rest_ms + 1e3 * simulate(self.problem, fixed_caps(self.problem, cap)).done_s) for cap in caps
        ]

    def facts(self) -> list[str]:
        """What was measured before any candidate was."""
        problem = self.problem
        factors = problem.contention
        nbytes = problem.nbytes(range(len(problem.gradients)))
        return [
            f"{len(problem.gradients)} gradients, {nbytes / MIB:.1f} MiB, on {self.place.world_size} ranks "
            f"({self.place.transport}, by host {self.place.hosts})",
            f"all-reduce: {problem.fit}",
            f"backward alone: {1e3 * problem.backward_s:.2f} ms; one more segment: {1e3 * problem.gamma_s:.3f} ms, "
            f"if the backward is cut there: {1e3 * self.cut_s:.3f} ms",
            f"at the same time, computation takes {factors.compute:.2f} times as long, "
            f"communication {factors.communication:.2f} times",
        ]

    def not_measured(self) -> list[str]:
        """Which candidates there was no time for, if any."""
        names = (f"{c.name} (predicted {self.rest_ms + c.backward_ms:.0f} ms)" for c in self.left_out)
        return [f"not measured, for want of time (--budget-s): {', '.join(names)}"] if self.left_out else []

    def table(self) -> Table:
        """For `rich.print`."""
        from rich.table import Table

        table = Table(title=f"Bucket plans (ms; medians of {self.rounds} interleaved rounds, ± half quartile distance)")
        for name in ("plan", "buckets", "largest MiB", "predicted", "measured", "±", "exposed: predicted", "measured",
                     "gain", "±"):  # fmt: skip
            table.add_column(name, justify="left" if name == "plan" else "right")
        for row in self.rows:
            plan = row.candidate.plan
            largest = max(bucket.nbytes for bucket in plan.buckets) / MIB
            times = (self.rest_ms + row.candidate.backward_ms, row.step_ms, row.spread_ms)
            exposed = (row.candidate.exposed_ms, row.exposed_ms, row.gain_ms, row.gain_spread_ms)
            cells = (row.name, str(len(plan.buckets)), f"{largest:.2f}", *(f"{t:.2f}" for t in (*times, *exposed)))
            table.add_row(*cells, style="bold" if row is self.recommended else "")
        return table

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        rows = [
            {
                **{k: v for k, v in asdict(row).items() if k != "candidate"},
                "name": row.name,
                "predicted_step_ms": self.rest_ms + row.candidate.backward_ms,
                "predicted_exposed_ms": row.candidate.exposed_ms,
                "buckets_nbytes": [bucket.nbytes for bucket in row.candidate.plan.buckets],
                "plan_hash": row.candidate.plan.hash,
            }
            for row in self.rows
        ]
        return {
            "verdict": self.verdict(),
            "recommended": self.recommended.name,
            "rounds": self.rounds,
            "duel_ms": self.duel_ms,
            "cut_gamma_ms": 1e3 * self.cut_s,
            "rows": rows,
            "not_measured": [candidate.name for candidate in self.left_out],
            "curve": self.curve(),
            "place": asdict(self.place),
            "problem": asdict(self.problem),
        }

    def __rich__(self) -> Table:
        return self.table()

    def _repr_html_(self) -> str:
        return of_rich(self.table()).html()

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=140, no_color=True)
        with console.capture() as capture:
            console.print(*self.facts(), sep="\n", highlight=False)
            console.print(self.table())
            console.print(*self.not_measured(), sep="\n", end="\n" if self.left_out else "", highlight=False)
            console.print(self.verdict(), highlight=False)
        return capture.get()
