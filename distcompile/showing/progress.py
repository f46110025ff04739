"""A console, and how far a long task is: a bar on a terminal or in a notebook, lines elsewhere.

In: (what is being done, share behind us), as often as one likes. Out: a bar that is redrawn; where nothing can be
redrawn, a line at most every few seconds, or nothing. Under distcompile-run a prefix stands before every line; the
launcher then says in DISTCOMPILE_RUN_COLUMNS how wide a bar may be on its terminal.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

Say = Callable[[str, float], None]  # what is being done, and the share that is behind us: 0 to 1


def nothing(what: str, share: float) -> None:
    """A `Say` that says nothing."""


def make_console(*, stderr: bool = False) -> Console:
    """A console as wide as what is left of the terminal, and 110 columns where there is none."""
    from rich.console import Console

    columns = os.environ.get("DISTCOMPILE_RUN_COLUMNS")
    if columns:
        return Console(stderr=stderr, force_terminal=True, width=int(columns), highlight=False)
    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=110)


def can_redraw(console: Console) -> bool:
    return console.is_terminal or console.is_jupyter


@contextmanager
def progress(console: Console | None, *, lines_every_s: float | None) -> Iterator[Say]:
    """What to call. console: None on ranks that show nothing. lines_every_s: where nothing can be redrawn, seconds
    between two lines at least; None: no lines."""
    if console is None or (lines_every_s is None and not can_redraw(console)):
        yield nothing
    elif not can_redraw(console):
        yield _Lines(console, lines_every_s or 0.0).say
    else:
        yield from _bar(console)


class _Lines:
    """Lines, not too many."""

    def __init__(self, console: Console, every_s: float) -> None:
        self.console, self.every_s, self.said_s, self.last = console, every_s, time.monotonic(), ""

    def say(self, what: str, share: float) -> None:
        now_s = time.monotonic()
        if what != self.last and now_s - self.said_s >= self.every_s:
            self.said_s, self.last = now_s, what
            self.console.print(f"{share:4.0%} {what}", markup=False)


def _bar(console: Console) -> Iterator[Say]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=1.0)
        yield lambda what, share: bar.update(task, description=what, completed=share)
