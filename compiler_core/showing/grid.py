"""A table of texts, for people: as HTML in a notebook, as a rich table on a terminal.

In: a title, names of columns, rows of texts. Out: `html()`, which needs no style sheet and suits light and dark pages,
and `rich()`. Columns of numbers are aligned to the right.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compiler_core.records import dataclass

if TYPE_CHECKING:
    from rich.table import Table

_NUMBER = re.compile(r"[-+]?[\d,.]*\d[\d.]*(e[-+]?\d+)?( ?(%|[KMG]iB|ms|s))?|nan|-?inf|-?|")
_CELL = "padding:0.1em 0.6em;text-align:"


@dataclass(frozen=True, slots=True)
class Grid:
    """rows: each as long as `columns`. caption: a sentence below."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""

    def sides(self) -> list[str]:
        """How each column is aligned: "right" or "left"."""
        cells = list(zip(*self.rows)) if self.rows else [() for _ in self.columns]
        return ["right" if column and all(map(_NUMBER.fullmatch, column)) else "left" for column in cells]

    def html(self) -> str:
        """A <table>."""
        from html import escape

        sides = self.sides()
        head, body = row_html(self.columns, sides, "th"), "".join(row_html(row, sides) for row in self.rows)
        title = f'<caption style="text-align:left"><b>{escape(self.title)}</b></caption>' if self.title else ""
        below = f"<p>{escape(self.caption)}</p>" if self.caption else ""
        return f"<table>{title}<thead>{head}</thead><tbody>{body}</tbody></table>{below}"

    def rich(self) -> Table:
        """For `rich.print`."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title=self.title or None, title_justify="left", caption=self.caption or None)
        for name, side in zip(self.columns, self.sides()):
            table.add_column(name, justify="right" if side == "right" else "left")
        for row in self.rows:
            table.add_row(*map(Text, row))
        return table


def row_html(cells: Sequence[str], sides: Sequence[str], tag: str = "td") -> str:
    """A <tr>."""
    from html import escape

    made = (f'<{tag} style="{_CELL}{side}">{escape(cell)}</{tag}>' for cell, side in zip(cells, sides))
    return f"<tr>{''.join(made)}</tr>"


def of_rich(table: Table) -> Grid:
    """What a rich table holds."""
    columns = [[_plain(cell) for cell in column.cells] for column in table.columns]
    names = tuple(_plain(column.header) for column in table.columns)
    return Grid(_plain(table.title), names, tuple(zip(*columns)), _plain(table.caption))


def _plain(cell: Any) -> str:
    """A cell's text: rich's own texts without their markup."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        from rich.text import Text

        return Text.from_markup(cell).plain
    return str(getattr(cell, "plain", cell))


def details(summary: str, text: str) -> str:
    """A text that is folded until it is asked for."""
    from html import escape

    return f"<details><summary>{escape(summary)}</summary><pre>{escape(text)}</pre></details>"
