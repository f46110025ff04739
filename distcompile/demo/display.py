"""What a person sees while it works: on a terminal a bar that moves, elsewhere a line every few seconds.

In: steps, losses, tokens a second, what is being done. Out: text on rank 0; the other ranks stay silent.
Where nothing can be redrawn, what is being done is said again after SILENCE_S without a line, so that a long
compilation does not look like a job that hangs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from distcompile.showing.progress import Say, can_redraw, make_console, progress

SILENCE_S = 3.0


class Display:
    """The progress of one run; a context manager. Methods do nothing on ranks other than 0."""

    def __init__(self, steps: int, rank: int) -> None:
        self.steps, self.active = steps, rank == 0
        self.held_out = float("nan")
        self.bar: Any = None
        self.doing, self.said_s, self.begun_s = "compiling", time.monotonic(), time.monotonic()
        self.ended = threading.Event()
        if self.active:
            self.console = make_console()

    def __enter__(self) -> Display:
        if self.active and can_redraw(self.console):
            self.bar = self._make_bar()
            self.bar.start()
        elif self.active:
            threading.Thread(target=self._break_silence, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.ended.set()
        self._end_bar()

    def _make_bar(self) -> Any:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (BarColumn(None), MofNCompleteColumn(), TextColumn("{task.fields[text]}"), TimeElapsedColumn())
        bar = Progress(*columns, console=self.console, refresh_per_second=5, expand=True)
        self.task = bar.add_task("", total=self.steps, text=self.doing)
        return bar

    def _end_bar(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def _break_silence(self) -> None:
        """Runs in a thread of its own, where nothing can be redrawn."""
        while not self.ended.wait(SILENCE_S / 6):
            if time.monotonic() - self.said_s >= SILENCE_S:
                self._line(f"{self.doing}, {time.monotonic() - self.begun_s:.0f} s so far")

    def _line(self, thing: Any) -> None:
        self.said_s = time.monotonic()
        self.console.print(thing)

    def step(self, step: int, loss: float, tokens_per_s: float) -> None:
        """After every training step."""
        self.doing = f"step {step:>4}/{self.steps}   loss {loss:.3f}   {tokens_per_s:,.0f} tokens/s"
        if self.bar is not None:
            text = f"loss {loss:.3f}  held-out {self.held_out:.3f}  {tokens_per_s:,.0f} tokens/s"
            self.bar.update(self.task, completed=step, text=text)

    def evaluation(self, step: int, held_out: float, tokens_per_s: float) -> None:
        """After every evaluation."""
        self.held_out = held_out
        if self.active and self.bar is None:
            speed = f"   {tokens_per_s:,.0f} tokens/s" if tokens_per_s else ""
            self._line(f"step {step:>4}/{self.steps}   held-out loss {held_out:.3f}{speed}")

    @contextmanager
    def task_of(self, doing: str) -> Iterator[Say]:
        """What follows the training: a bar of its own, or lines. doing: said before anything is known of how far."""
        self._end_bar()
        self.doing, self.begun_s = doing, time.monotonic()
        with progress(self.console if self.active else None, lines_every_s=None) as bar:

            def say(what: str, share: float) -> None:
                self.doing = f"{share:4.0%} {what}"
                bar(what, share)

            say(doing, 0.0)
            yield say

    def say(self, *things: Any) -> None:
        """Text or tables, on rank 0; above the bar, if there is one."""
        for thing in things if self.active else ():
            self._line(thing)
