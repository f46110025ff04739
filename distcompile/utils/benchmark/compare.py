"""`Compare`: measurements side by side, as torch prints them.

In: `Measurement`s. Out: a table for each label: a row for each sub-label (or statement), environment and number of
threads, a column for each description. Widths, units and rounding are torch's.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from distcompile.errors import ArgumentError
from distcompile.utils.benchmark.measurement import (
    Measurement,
    ordered_unique,
    select_unit,
    trim_sigfig,
    unit_to_english,
)

_BEST, _GOOD, _BAD, _VERY_BAD, _BOLD, _END = (
    "\033[92m", "\033[34m", "\033[2m\033[91m", "\033[31m", "\033[1m", "\033[0m",
)  # fmt: skip
_NOISE_S = 100e-9  # as good as the best, for colours
_SPREAD_WIDTH = 7
Cells = Sequence[Measurement | None]


class Colorize(enum.Enum):
    """Whose best a time is compared with, for its colour."""

    NONE = "none"
    COLUMNWISE = "columnwise"
    ROWWISE = "rowwise"


@dataclass(frozen=True)
class _Style:
    trims: bool = False
    colorize: Colorize = Colorize.NONE
    warns: bool = False


class _Column:
    """How the numbers of one column are written."""

    def __init__(self, cells: Cells, scale: float, style: _Style) -> None:
        here = [cell for cell in cells if cell is not None]
        self.scale, self.style = scale, style
        self.warns = style.warns and any(cell.has_warnings for cell in here)
        leading = [math.ceil(math.log10(cell.median / scale)) for cell in here]
        figures = (max(cell.significant_figures - digits, 0) for cell, digits in zip(here, leading, strict=True))
        self.decimals = min(figures) if style.trims else 1
        self.width = max(leading) + self.decimals + (1 if self.decimals else 0)

    def text(self, cell: Measurement | None) -> str:
        if cell is None:
            return " " * len(self._formatted(1.0, 1, ""))
        spread = f" (! {100 * cell.iqr / cell.median:.0f}%)" if self.warns and cell.has_warnings else ""
        return self._formatted(cell.median / self.scale, cell.significant_figures, spread)

    def _formatted(self, value: float, figures: int, spread: str) -> str:
        value = trim_sigfig(value, figures) if self.style.trims else value
        return f"{value:>{max(self.width, 0)}.{self.decimals}f}{spread:>{_SPREAD_WIDTH if self.warns else 0}}"


class _Table:
    """The results of one label."""

    def __init__(self, results: Sequence[Measurement], style: _Style) -> None:
        self.style, self.label = style, results[0].label
        self.unit, self.scale = select_unit(min(result.median for result in results))
        keys = ordered_unique(_row_key(result) for result in results)
        self.rows = sorted(keys, key=lambda key: key[:2])
        self.heads = ordered_unique(result.description for result in results)
        cells = {(_row_key(result), result.description): result for result in results}
        self.cells: list[Cells] = [[cells.get((row, head)) for head in self.heads] for row in self.rows]
        self.columns = [_Column(column, self.scale, style) for column in zip(*self.cells, strict=True)]
        self.envs = {result.env for result in results}
        self.env_width = max(len(env or "") for env in self.envs) + 4 if len(self.envs) > 1 else 4
        self.has_warnings = style.warns and any(result.has_warnings for result in results)

    def render(self) -> str:
        texts = [["", *(head or "" for head in self.heads)]]
        for (_, env, name), row, shows in zip(self.rows, self.cells, self._shown_envs(), strict=True):
            where = (f"({env})" if shows else "").ljust(self.env_width)
            texts.append([f"  {where}{name}", *(c.text(cell) for c, cell in zip(self.columns, row, strict=True))])
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        head = "  |  ".join(text.center(width) for text, width in zip(texts[0], widths, strict=True))
        lines = [f"[{f' {self.label or str()} '.center(len(head) - 2, '-')}]", head]
        place = 0
        for threads, group in groupby(self.rows, key=lambda key: key[0]):
            count = len(list(group))
            lines.append(f"{threads} threads: ".ljust(len(head), "-"))
            block = self.cells[place : place + count]
            lines += [self._line(texts[place + k + 1], widths, block, k) for k in range(count)]
            place += count
        lines += ["", f"Times are in {unit_to_english(self.unit)}s ({self.unit}).", ""]
        if self.has_warnings:
            lines.insert(-1, "(! XX%) Measurement has high variance, where XX is the IQR / median * 100.")
        return "\n".join(lines)

    def _shown_envs(self) -> list[bool]:
        """Where an environment is written: where it changes, if there are several."""
        before = [None, *((threads, env) for threads, env, _ in self.rows)]
        return [len(self.envs) > 1 and key[:2] != last for key, last in zip(self.rows, before, strict=False)]

    def _line(self, texts: Sequence[str], widths: Sequence[int], block: Sequence[Cells], number: int) -> str:
        parts = [texts[0].ljust(widths[0])]
        for column, (text, width, cell) in enumerate(zip(texts[1:], widths[1:], block[number], strict=True)):
            best = self._best(block, number, column)
            text = text.center(width)
            parts.append(text if cell is None or best is None else _coloured(text, cell.median, best))
        return "  |  ".join(parts)

    def _best(self, block: Sequence[Cells], number: int, column: int) -> float | None:
        if self.style.colorize is Colorize.NONE:
            return None
        is_row = self.style.colorize is Colorize.ROWWISE
        cells = block[number] if is_row else [row[column] for row in block]
        return min((cell.median for cell in cells if cell is not None), default=None)


def _row_key(result: Measurement) -> tuple[int, str, str]:
    return result.num_threads, result.env or "", result.as_row_name


def _coloured(text: str, value: float, best: float) -> str:
    if value <= best * 1.01 or value <= best + _NOISE_S:
        return f"{_BEST}{_BOLD}{text}{_END}{_END}"
    if value <= best * 1.1:
        return f"{_GOOD}{_BOLD}{text}{_END}{_END}"
    if value >= best * 5:
        return f"{_VERY_BAD}{_BOLD}{text}{_END}{_END}"
    return f"{_BAD}{text}{_END}{_END}" if value >= best * 2 else text


class Compare:
    """A table of `results`, printed by `print()` or `str`."""

    def __init__(self, results: Iterable[Measurement]) -> None:
        self._results: list[Measurement] = []
        self._style = _Style()
        self.extend_results(results)

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Add more. Raises ArgumentError for what is no Measurement."""
        found = list(results)
        for result in found:
            if not isinstance(result, Measurement):
                raise ArgumentError(f"Expected an instance of `Measurement`, got {type(result)} instead.")
        self._results += found

    def trim_significant_figures(self) -> None:
        """Write only digits that mean something."""
        self._style = _Style(True, self._style.colorize, self._style.warns)

    def colorize(self, rowwise: bool = False) -> None:
        """Colour times by how far they are from the best of their column, or row."""
        how = Colorize.ROWWISE if rowwise else Colorize.COLUMNWISE
        self._style = _Style(self._style.trims, how, self._style.warns)

    def highlight_warnings(self) -> None:
        """Mark times that vary much."""
        self._style = _Style(self._style.trims, self._style.colorize, True)

    def print(self) -> None:
        """Print it."""
        print(str(self))

    def __str__(self) -> str:
        merged = Measurement.merge(self._results)
        labels = ordered_unique(result.label for result in merged)
        return "\n".join(
            _Table([result for result in merged if result.label == label], self._style).render() for label in labels
        )
