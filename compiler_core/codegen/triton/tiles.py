"""How one launch is cut: rows and columns of a program, and its warps. The choice by rule, and others to measure.

In: `Shape`, the facts of a section (sections.py). Out: `Tile`; `choose(shape)` by rule; `candidates(shape)` for a
tuner, the rule's first. A tile is data: `print_module` takes a measured one in place of the rule's.

    columns independent    about AREA elements a program; 32 rows and more where memory runs along them (a transpose),
                           or where they are summed
    rows reduced           a whole row in registers up to LONGEST lanes, several rows where they are short; a longer row
                           in strips, read again from the L2 cache: so few programs at a time, each of many warps
A thread holds 16 elements, two 16-byte accesses of bf16 or four of f32; 32 of columns that are summed; 8 where
functions need many registers: as measured on an H200.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

AREA = 1024  # elements of a program that has nothing to reduce
SUMMING = 4096  # of one that sums over rows, in registers
LONGEST = 16384  # lanes of a row that is kept in registers
STRIP = 8192  # lanes of a longer one
_MANY = 128  # programs
_WARP = 32
_MAX_WARPS = 32


@dataclass(frozen=True, slots=True)
class Tile:
    """rows: iterations of the block loop that stand side by side. lanes: of a vector loop; a longer one runs in strips.

    Both are powers of two. warps: of 32 threads each. stages: turns of a loop over blocks or strips whose loads are in
    flight at once, through shared memory; 0: as the compiler has it.
    """

    rows: int
    lanes: int
    warps: int
    stages: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """What decides about a tile. rows: iterations of the block loop in one program's part, 0 if there is none.

    columns: of the longest vector loop, 0 if there is none. independent: its blocks are programs. summed: rows are
    added up in registers. outer: programs of the parallel loops around. shared: whether all rows load the same columns.
    again: whether a row is gone over several times. across: memory is contiguous along the rows somewhere, and not
    along the columns. costly: whether it calls functions that need many registers.
    """

    rows: int
    columns: int
    independent: bool
    summed: bool
    outer: int
    shared: bool
    again: bool
    across: bool
    costly: bool = False


def power_of_two(extent: int) -> int:
    """The least power of two that holds `extent` lanes."""
    return 1 << max(0, extent - 1).bit_length()


def choose(shape: Shape) -> Tile:
    """The tile by rule."""
    if not shape.columns:
        fewer = power_of_two(shape.rows * shape.outer // (4 * _MANY))
        rows = min(power_of_two(shape.rows), max(_WARP, min(fewer, AREA // 2)))
        return Tile(rows, 1, _warps(rows))
    most_rows = power_of_two(shape.rows) if shape.rows else 1
    if shape.independent:
        lanes = _independent_lanes(shape)
        area = SUMMING if shape.summed or shape.across else AREA
    elif shape.shared:
        lanes, area = min(power_of_two(shape.columns), 256), SUMMING
    else:
        lanes = power_of_two(shape.columns)
        if lanes > LONGEST or not shape.again:
            lanes = min(lanes, STRIP if shape.again else 2048)
            if lanes == 2048 and not shape.summed:
                return Tile(1, lanes, 8)
        area = SUMMING // 2 if shape.summed else AREA
    rows = max(1, min(most_rows, area // lanes))
    if not shape.independent and lanes < shape.columns and shape.again:
        return Tile(rows, lanes, _MAX_WARPS)
    if shape.costly:
        each = 16 if shape.summed else 8
    else:
        each = 32 if shape.summed and shape.independent else 16
    return Tile(rows, lanes, _warps(rows * lanes, each))


def _independent_lanes(shape: Shape) -> int:
    """Columns of a program where they are not reduced: as many as leave an eighth of the lanes idle, or fewer."""
    if shape.summed:
        return min(128 if shape.columns * shape.outer >= 128 * _MANY else 32, power_of_two(shape.columns))
    lanes = min(64 if shape.across else AREA, power_of_two(shape.columns))
    while lanes > 64 and -shape.columns % lanes * 8 > shape.columns:
        lanes //= 2
    return lanes


def _warps(area: int, each: int = 16) -> int:
    """each: elements a thread."""
    return max(1, min(_MAX_WARPS, area // (_WARP * each)))


def candidates(shape: Shape) -> Iterator[Tile]:
    """The rule's tile, then others: twice and half as many warps, rows, lanes."""
    first = choose(shape)
    yield first
    for warps in (first.warps * 2, first.warps // 2):
        if 1 <= warps <= _MAX_WARPS:
            yield replace(first, warps=warps)
    for factor in (2, 4):
        if shape.rows >= first.rows * factor:
            yield replace(first, rows=first.rows * factor, warps=min(first.warps * factor, _MAX_WARPS))
    if shape.rows > first.rows or shape.columns > first.lanes:
        yield from (replace(first, stages=stages) for stages in (2, 3))
    if first.rows >= 2:
        yield replace(first, rows=first.rows // 2)
    if first.lanes >= 256 and (shape.independent or shape.columns > first.lanes):
        yield replace(first, lanes=first.lanes // 2)
