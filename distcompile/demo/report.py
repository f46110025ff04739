"""The demo's last page: a sample, parity, overlap, and where the time went.

In: a finished `DemoRun`. Out: rich tables, and the verdict. Times are medians over this rank's steps after the first,
in milliseconds; "exposed" is the communication that the backward could not hide, and is part of the backward's time.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from compiler_core.steps import CODEGEN_STEPS, STEPS, compile_times
from distcompile import parity
from distcompile.demo.training import DemoRun, Trainer
from distcompile.parity import ParityReport
from distcompile.showing.progress import Say

if TYPE_CHECKING:
    from rich.panel import Panel
    from rich.table import Table

_MIN_WIDTH = 44
PARITY_ROWS = 6
PARTS = ("data", "forward", "backward", "optimizer")


def step_parts_ms(run: DemoRun) -> dict[str, float]:
    """Part of a step -> its median; and the step, and the exposed communication."""
    steps = run.times[1:] or run.times
    parts = {part: 1e3 * median(getattr(step, f"{part}_s") for step in steps) for part in PARTS}
    parts["step"] = 1e3 * median(sum(getattr(step, f"{part}_s") for part in PARTS) for step in steps)
    parts["exposed"] = run.model.overlap_report().exposed_ms
    return parts


def step_table(run: DemoRun) -> Table:
    """A row for each part of a step."""
    from rich.table import Table

    table = Table(title="Where a step's time went", title_justify="left", min_width=_MIN_WIDTH)
    for name in ("part", "ms", "share"):
        table.add_column(name, justify="left" if name == "part" else "right")
    parts = step_parts_ms(run)
    for part in PARTS:
        table.add_row(part, f"{parts[part]:.2f}", f"{parts[part] / parts['step']:.0%}")
        if part == "backward":
            table.add_row("  of it exposed communication", f"{parts['exposed']:.2f}", "")
    table.add_row("step", f"{parts['step']:.2f}", "")
    table.add_row("first step, compiling", f"{1e3 * run.first_step_s:.0f}", "")
    return table


def compile_table() -> Table:
    """A row for each step of the compiler's pipeline, summed over the graphs that this process compiled."""
    from rich.table import Table

    times = compile_times()
    title = f"Where compile time went ({len({t.graph for t in times})} graphs, those of the parity check included)"
    table = Table(title=title, title_justify="left", min_width=_MIN_WIDTH)
    table.add_column("pipeline step")
    table.add_column("ms", justify="right")
    for step in (*STEPS, *CODEGEN_STEPS):
        label = f"  of it {step}" if step in CODEGEN_STEPS else step
        table.add_row(label, f"{1e3 * sum(t.seconds for t in times if t.step == step):.0f}")
    return table


def sample_panel(prompt: str, continuation: str) -> Panel:
    """Generated text, the held-out prompt before it dimmed."""
    from rich.panel import Panel
    from rich.text import Text

    text = Text()
    text.append(prompt, style="dim")
    text.append("|", style="bold")
    text.append(continuation)
    return Panel(text, title="held-out text | what the model writes after it", title_align="left")


def check_parity(run: DemoRun, trainer: Trainer, say: Say) -> ParityReport:
    """Compiled against eager gradients of the trained model on one batch, both against float64.

    Finite differences go along one random direction through all elements of each parameter; see
    `parity/differences.py` for what that proves.
    """
    x, y = next(trainer.batches)
    settings = trainer.settings
    backend = "eager" if settings.backend == "none" else settings.backend
    judges = parity.Judges(samples=0)
    return parity.check(run.module, x, y, backend=backend, judges=judges, say=say, bucket_cap_mb=settings.bucket_cap_mb)


def parity_table(report: ParityReport) -> Table:
    """The rows that failed, else the loss and the gradients that are furthest off; and the verdict."""
    from rich.table import Table

    failed = [row for row in report.rows if row.failure]
    worst = sorted(report.rows[1:], key=lambda row: max(row.local.compiled_error, row.reduced.compiled_error))
    table = Table(
        title=f"Gradient parity, {report.backend}: error against float64, the furthest off of {len(report.rows)}"
    )
    for name in ("parameter", "local eager", "compiled", "reduced eager", "compiled", "ranks", "verdict"):
        table.add_column(name, justify="left" if name in ("parameter", "verdict") else "right", no_wrap=True)
    for row in failed or [report.rows[0], *worst[::-1][:PARITY_ROWS]]:
        errors = [e for kind in (row.local, row.reduced) for e in (kind.eager_error, kind.compiled_error)]
        ranks = "equal" if row.ranks_equal else "differ"
        table.add_row(row.parameter, *(f"{e:.1e}" for e in errors), ranks, row.failure or "ok")
    table.caption = report.verdict()
    return table


def tables(run: DemoRun) -> list[Table]:
    """Overlap, step, compilation."""
    return [run.model.overlap_report().table(), step_table(run), compile_table()]


def verdict(run: DemoRun, checked: ParityReport | None) -> tuple[str, bool]:
    """One sentence, and whether all is well."""
    (_, before), (_, after) = run.held_out[0], run.held_out[-1]
    fell = f"held-out loss {before:.3f} -> {after:.3f} nats a character, {run.tokens_per_s:,.0f} tokens/s"
    problems = [] if run.loss_fell else ["the loss did not fall"]
    if checked is not None and not checked.ok:
        problems.append(checked.verdict())
    return "; ".join([fell, *(problems or ["all is well"])]), not problems
