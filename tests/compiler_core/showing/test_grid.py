"""Tables in notebooks and on terminals: what is in them is what was given, and nothing is read as markup."""

from __future__ import annotations

from html.parser import HTMLParser

from rich.console import Console
from rich.table import Table

import distcompile as dc
from compiler_core.showing.grid import Grid, of_rich
from distcompile import debug, nn, parity

ROWS = (("a[b]<c>", "1.5", "12 %"), ("[bold]", "-2e-3", "nan"))
GRID = Grid("A & B", ("name", "number", "share"), ROWS, "x < y")


class Cells(HTMLParser):
    """The texts of a page, by the tag that they stand in; unbalanced tags are an error."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: dict[str, list[str]] = {}
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.found.setdefault(self.open[-1], []).append(data)


def on_terminal(thing: object) -> str:
    console = Console(width=160, no_color=True)
    with console.capture() as capture:
        console.print(thing)
    return capture.get()


def test_every_cell_is_in_the_html() -> None:
    found = Cells(GRID.html()).found
    assert found["td"] == [cell for row in ROWS for cell in row]
    assert found["th"] == ["name", "number", "share"]
    assert found["b"] == ["A & B"]
    assert found["p"] == ["x < y"]


def test_every_cell_is_in_the_rich_table() -> None:
    text = on_terminal(GRID.rich())
    assert all(cell in text for row in ROWS for cell in row)


def test_numbers_stand_on_the_right() -> None:
    assert GRID.sides() == ["left", "right", "right"]
    assert Grid("", ("empty",), ()).sides() == ["left"]


def test_a_rich_table_keeps_its_cells() -> None:
    table = Table(title="T", caption="c")
    for name in ("[i]left[/i]", "right"):
        table.add_column(name)
    table.add_row("[bold]x[/bold]", "1")
    assert of_rich(table) == Grid("T", ("left", "right"), (("x", "1"),), "c")


def net() -> nn.Module:
    dc.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh())


def test_a_parity_report_shows_its_rows_and_notes() -> None:
    report = parity.check(net(), dc.ones(2, 4), judges=parity.Judges(samples=None))
    found = Cells(report._repr_html_()).found
    assert [row.parameter for row in report.rows] == found["td"][:: len(found["th"])]
    assert "no finite differences" in found["pre"][0]
    text = on_terminal(report)
    assert "0.weight" in text
    assert "no finite differences" in text


def test_an_explanation_shows_breaks_and_entries() -> None:
    @dc.compile
    def broken(x: dc.Tensor) -> dc.Tensor:
        x = x * 2
        if x.sum() > 0:
            return x + 1
        return x - 1

    broken(dc.ones(3))
    cells = Cells(broken.explain()._repr_html_()).found["td"]
    assert "graph break" in cells
    assert "bool() needs the data of a traced tensor" in cells
    assert any("test_grid.py" in cell for cell in cells)
    assert "graph break" in on_terminal(broken.explain())


def test_a_profile_shows_its_steps() -> None:
    compiled = dc.compile(net())
    compiled(dc.ones(2, 4))
    with debug.profiling() as profile:
        compiled(dc.ones(2, 4))
    found = Cells(profile._repr_html_()).found
    assert profile.rows
    assert all(f"{row.label}  {row.note}".rstrip() in found["td"] for row in profile.rows)
    assert "GFLOP/s" in on_terminal(profile)


def test_an_overlap_report_shows_its_buckets() -> None:
    model = nn.parallel.DistributedDataParallel(net(), process_group=parity.case.alone())
    dc.compile(model)(dc.ones(2, 4)).sum().backward()
    report = model.overlap_report()
    assert Cells(report._repr_html_()).found["td"][0] == "0"
    assert "Overlap on rank 0" in on_terminal(report)
