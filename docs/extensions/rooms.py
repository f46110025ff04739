"""The directive {rooms}: a picture of which room of the code imports which, drawn from the imports.

In: the sources. Out: an SVG inside the page. A room is a folder of `compiler_core`, or one of OTHERS. What counts is an
import at the top of a file: one inside a function, or for type checkers, is not needed to load a room.
Method: rooms that import each other in a circle are one box. An arrow that follows from others is left out (a
transitive reduction). A room stands above all that it imports (longest path), so every arrow goes down.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]
OTHERS = (
    "distcompile/ddp",
    "distcompile/tuning",
    "distcompile/parity",
    "distcompile/nn",
    "distcompile/optim",
    "collectives",
)
WIDTH, HEIGHT, GAP_X, GAP_Y, LETTER = 1000, 26, 14, 44, 7.2

Edges = dict[str, set[str]]


def rooms() -> dict[str, list[Path]]:
    """Room -> its files, those of its own rooms too."""
    folders = [f"compiler_core/{path.name}" for path in sorted((ROOT / "compiler_core").iterdir()) if is_room(path)]
    return {room: sorted((ROOT / room).rglob("*.py")) for room in [*folders, *OTHERS]}


def is_room(path: Path) -> bool:
    return path.is_dir() and (path / "__init__.py").exists()


def imported(path: Path) -> Iterator[str]:
    """Dotted modules that a file imports at its top."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def edges() -> Edges:
    """Room -> the rooms that it imports."""
    found = rooms()
    return {
        room: {
            other
            for path in files
            for module in imported(path)
            for other in found
            if other != room and f"{module}.".startswith(other.replace("/", ".") + ".")
        }
        for room, files in found.items()
    }


def reached(graph: Mapping[str, set[str]]) -> Edges:
    """Room -> all rooms below it, by any number of steps."""
    below = {room: set(direct) for room, direct in graph.items()}
    for middle in graph:  # Warshall
        for room in graph:
            if middle in below[room]:
                below[room] |= below[middle]
    return below


def without_circles(graph: Edges) -> dict[tuple[str, ...], set[tuple[str, ...]]]:
    """Circles joined to one box each; then only the arrows that do not follow from others."""
    below = reached(graph)
    box_of = {room: tuple(sorted({room} | {r for r in below[room] if room in below[r]})) for room in graph}
    boxes = {box: {box_of[r] for member in box for r in graph[member]} - {box} for box in set(box_of.values())}
    far = {box: {box_of[r] for r in below[box[0]]} - {box} for box in boxes}
    return {box: {b for b in direct if not any(b in far[c] for c in direct if c != b)} for box, direct in boxes.items()}


def levels(boxes: Mapping[tuple[str, ...], set[tuple[str, ...]]]) -> dict[tuple[str, ...], int]:
    """How many boxes stand below each, at most in one line; 0: imports none of them."""
    height: dict[tuple[str, ...], int] = {}

    def of(box: tuple[str, ...]) -> int:
        if box not in height:
            height[box] = 1 + max((of(b) for b in boxes[box]), default=-1)
        return height[box]

    for box in boxes:
        of(box)
    return height


def name_of(box: tuple[str, ...]) -> str:
    return " + ".join(room.removeprefix("compiler_core/") for room in box)


def places(height: Mapping[tuple[str, ...], int]) -> dict[tuple[str, ...], tuple[float, float, float]]:
    """Box -> left, top, width. A level is as many rows as its names need."""
    found: dict[tuple[str, ...], tuple[float, float, float]] = {}
    top = 10.0
    for level in sorted(set(height.values()), reverse=True):
        row: list[tuple[str, ...]] = []
        for box in [*sorted(b for b, h in height.items() if h == level), ()]:
            taken = sum(width_of(b) + GAP_X for b in row)
            if row and (not box or taken + width_of(box) > WIDTH):
                left = (WIDTH - taken + GAP_X) / 2
                for placed in row:
                    found[placed] = (left, top, width_of(placed))
                    left += width_of(placed) + GAP_X
                row, top = [], top + HEIGHT + GAP_Y / 2
            if box:
                row.append(box)
        top += GAP_Y / 2
    return found


def width_of(box: tuple[str, ...]) -> float:
    return LETTER * len(name_of(box)) + 16


def draw() -> str:
    """The picture."""
    boxes = without_circles(edges())
    at = places(levels(boxes))
    bottom = max(y for _, y, _ in at.values()) + HEIGHT + 10
    lines = [
        f'<line x1="{at[a][0] + at[a][2] / 2:.0f}" y1="{at[a][1] + HEIGHT:.0f}" '
        f'x2="{at[b][0] + at[b][2] / 2:.0f}" y2="{at[b][1]:.0f}">'
        f"<title>{name_of(a)} imports {name_of(b)}</title></line>"
        for a, below in sorted(boxes.items())
        for b in sorted(below)
    ]
    shapes = [
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{HEIGHT}" rx="4" '
        f'class="{"core" if box[0].startswith("compiler_core/") else "other"}"/>'
        f'<text x="{x + width / 2:.0f}" y="{y + 17:.0f}">{escape(name_of(box))}</text>'
        for box, (x, y, width) in sorted(at.items())
    ]
    style = (
        ".rooms line{stroke:#94a3b8}.rooms .core{fill:#dbe4f0}.rooms .other{fill:#f4dcae}"
        ".rooms rect{stroke:#5a7190}.rooms text{font:12px monospace;text-anchor:middle;fill:#1e293b}"
    )
    inside = "".join([f"<style>{style}</style>", *lines, *shapes])
    return f'<svg class="rooms" viewBox="0 0 {WIDTH} {bottom:.0f}">{inside}</svg>'


class Rooms(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        return [nodes.raw("", draw(), format="html")]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("rooms", Rooms)
    return {"parallel_read_safe": True}
