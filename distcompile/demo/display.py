"""What a person sees while it trains: on a terminal one progress bar, elsewhere a line at every evaluation.

In: steps, losses, tokens a second. Out: text on rank 0; the other ranks stay silent. Under distcompile-run a prefix
stands before every line; the launcher then says in DISTCOMPILE_RUN_COLUMNS how wide a bar may be on its terminal.
"""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_REDRAW_S = 0.2


def make_console() -> Console:
    """A console as wide as what is left of the terminal."""
    from rich.console import Console

    columns = os.environ.get("DISTCOMPILE_RUN_COLUMNS")
    if columns:
        return Console(force_terminal=True, width=int(columns), highlight=False)
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=110)


class Display:
    """The progress of one run; a context manager. Methods do nothing on ranks other than 0."""

    def __init__(self, steps: int, rank: int) -> None:
        self.steps, self.active = steps, rank == 0
        self.held_out = float("nan")
        self.drawn_at = 0.0
        if self.active:
            self.console = make_console()
            self.progress: Any = self._make_bar() if self.console.is_terminal else None

    def _make_bar(self) -> Any:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (BarColumn(None), MofNCompleteColumn(), TextColumn("{task.fields[text]}"), TimeRemainingColumn())
        progress = Progress(*columns, console=self.console, auto_refresh=False, expand=True)
        self.task = progress.add_task("", total=self.steps, text="compiling")
        return progress

    def __enter__(self) -> Display:
        if self.active and self.progress is not None:
            self.progress.start()
            self.progress.refresh()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.active and self.progress is not None:
            self.progress.refresh()
            self.progress.stop()

    def step(self, step: int, loss: float, tokens_per_s: float) -> None:
        """After every training step; redraws five times a second."""
        if not self.active or self.progress is None:
            return
        now = time.perf_counter()
        text = f"loss {loss:.3f}  held-out {self.held_out:.3f}  {tokens_per_s:,.0f} tokens/s"
        self.progress.update(self.task, completed=step, text=text)
        if now - self.drawn_at > _REDRAW_S or step == self.steps:
            self.drawn_at = now
            self.progress.refresh()

    def evaluation(self, step: int, held_out: float, tokens_per_s: float) -> None:
        """After every evaluation."""
        self.held_out = held_out
        if self.active and self.progress is None:
            speed = f"   {tokens_per_s:,.0f} tokens/s" if tokens_per_s else ""
            self.console.print(f"step {step:>4}/{self.steps}   held-out loss {held_out:.3f}{speed}")

    def say(self, *things: Any) -> None:
        """Text or tables, on rank 0."""
        if self.active:
            for thing in things:
                self.console.print(thing)
