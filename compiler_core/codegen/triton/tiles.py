"""How one launch is cut: rows and columns of a program, and its warps. The choice by rule, and others to measure.

In: `Shape`, the facts of a section (sections.py). Out: `Tile`; `choose(shape)` by rule; `candidates(shape)` for a
tuner, the rule's first. A tile is data: `print_module` takes a measured one in place of the rule's.

    columns independent    about AREA elements a program; 32 rows and more where memory runs along them (a transpose),
                           or where they are summed
    rows reduced           a whole row in registers up to LONGEST lanes, several rows where they are short; a longer row
                           in strips, read again from the L2 cache: so few programs at a time, each of many warps
A thread holds 16 elements of 16-bit arrays, 4 of wider ones, 8 where functions need many registers; 32 of columns that
are summed, 16 where rows of 16-bit arrays are stored, too. Loops whose turns store what they made, and strips, have the
next turns' loads in flight (`stages`): stores do not let the compiler move loads up. All as measured on an H200.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from compiler_core.records import dataclass

AREA = 1024  # elements of a program that has nothing to reduce
SUMMING = 4096  # of one that sums over rows, in registers
LONGEST = 16384  # lanes of a row that is kept in registers
STRIP = 8192  # lanes of a longer one
IN_FLIGHT = 65536  # bytes that a program's turns in flight may take of shared memory
_MANY = 128  # programs
_TOO_MANY = 1 << 15  # programs, from which each takes two rows, or twice the lanes: see _LIGHT
_LIGHT = 1 << 12  # bytes: a multiprocessor starts 6 programs a us; those that load less leave memory waiting
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
    along the columns. costly: whether it calls functions that need many registers. streams: whether rows store what
    stays. width: bytes of an element of the largest arrays. loaded: bytes that a lane loads in each row anew.
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
    streams: bool = False
    width: int = 4
    loaded: int = 8


def power_of_two(extent: int) -> int:
    """The least power of two that holds `extent` lanes."""
    return 1 << max(0, extent - 1).bit_length()


def choose(shape: Shape) -> Tile:
    """The tile by rule."""
    if not shape.columns:
        fewer = power_of_two(shape.rows * shape.outer // (4 * _MANY))
        rows = min(power_of_two(shape.rows), max(_WARP, min(fewer, AREA // 2)))
        return Tile(rows, 1, _warps(rows))
    if shape.independent:
        return _independent(shape)
    if shape.shared:
        lanes = min(power_of_two(shape.columns), 256)
        return _tile(_rows(shape, SUMMING // lanes), lanes, 16)
    return _reduced(shape)


def _rows(shape: Shape, wanted: int) -> int:
    return max(1, min(power_of_two(shape.rows) if shape.rows else 1, wanted))


def _tile(rows: int, lanes: int, each: int, stages: int = 0) -> Tile:
    """each: elements a thread."""
    return Tile(rows, lanes, _warps(rows * lanes, each), stages)


def _independent(shape: Shape) -> Tile:
    """Columns are shared out."""
    lanes = _independent_lanes(shape)
    if shape.summed and lanes < 64:
        return _tile(_rows(shape, SUMMING // 2 // lanes), lanes, 16)
    rows = _rows(shape, (SUMMING if shape.summed or shape.across else AREA) // lanes)
    if shape.summed:
        rows, each = min(rows, 32), 16 if shape.streams and shape.width <= 2 else 32
        return _tile(rows, lanes, each, _stages(shape, rows * lanes, 3 if shape.width <= 2 else 2))
    each = 8 if shape.costly else 16 if shape.width <= 2 or shape.across else 4
    programs = max(-(-shape.rows // rows), 1) * shape.outer * -(-shape.columns // lanes)
    if programs >= _TOO_MANY and rows * lanes * shape.loaded <= _LIGHT:
        more = 4 if programs >= 16 * _TOO_MANY else 2
        if shape.rows >= rows * more:
            rows *= more
        elif not shape.rows:
            lanes, each = min(2 * lanes, power_of_two(shape.columns)), max(each, 8 if shape.costly else 16)
    return _tile(rows, lanes, each)


def _reduced(shape: Shape) -> Tile:
    """Rows are reduced."""
    lanes = power_of_two(shape.columns)
    if lanes > LONGEST or not shape.again:
        lanes = min(lanes, STRIP if shape.again else 2048)
        if lanes == 2048 and not shape.summed:
            return Tile(1, lanes, 4, 3 if shape.columns > lanes else 0)
    rows = _rows(shape, (SUMMING // 2 if shape.summed and not shape.streams else AREA) // lanes)
    if lanes < shape.columns and shape.again:
        return Tile(rows, lanes, _MAX_WARPS)
    if shape.summed and shape.streams and shape.width > 2:
        return _tile(rows, lanes, 4 if lanes <= 4096 else 8, _stages(shape, rows * lanes, 3))
    if shape.summed and shape.streams:
        return _tile(rows, lanes, 32, _stages(shape, rows * lanes, 4))
    return _tile(rows, lanes, 8 if shape.costly else 32 if lanes <= 1024 and shape.width <= 2 else 16)


def _stages(shape: Shape, area: int, wanted: int) -> int:
    """Turns in flight: as many as shared memory holds, or 0."""
    fit = IN_FLIGHT // max(area * shape.loaded, 1)
    return min(wanted, fit) if min(wanted, fit) >= 2 else 0


def _independent_lanes(shape: Shape) -> int:
    """Columns of a program where they are not reduced: as many as leave an eighth of the lanes idle, or fewer."""
    if shape.summed:
        many = shape.columns * shape.outer >= 128 * _MANY
        return min((128 if shape.streams else 64) if many else 16, power_of_two(shape.columns))
    area = AREA if shape.width <= 2 or shape.costly else AREA // 2
    lanes = min(64 if shape.across else area, power_of_two(shape.columns))
    while lanes > 64 and -shape.columns % lanes * 8 > shape.columns:
        lanes //= 2
    return lanes


def _warps(area: int, each: int = 16) -> int:
    """each: elements a thread."""
    return max(1, min(_MAX_WARPS, area // (_WARP * each)))


def candidates(shape: Shape) -> Iterator[Tile]:
    """The rule's tile, then others: twice and half as many warps, rows, lanes; four times as many rows and lanes."""
    first = choose(shape)
    yield first
    for warps in (first.warps * 2, first.warps // 2):
        if 1 <= warps <= _MAX_WARPS:
            yield replace(first, warps=warps)
    for factor in (2, 4):
        if shape.independent and shape.columns >= first.lanes * factor and not shape.summed:
            yield replace(first, lanes=first.lanes * factor, warps=min(first.warps * factor, _MAX_WARPS))
        if shape.rows >= first.rows * factor:
            yield replace(first, rows=first.rows * factor, warps=min(first.warps * factor, _MAX_WARPS))
    if shape.rows > first.rows or shape.columns > first.lanes:
        yield from (replace(first, stages=stages) for stages in (2, 3))
        if shape.summed and first.stages:
            yield replace(first, warps=min(first.warps * 2, _MAX_WARPS), stages=3)
    if first.rows >= 2:
        yield replace(first, rows=first.rows // 2)
    if first.lanes >= 256 and (shape.independent or shape.columns > first.lanes):
        yield replace(first, lanes=first.lanes // 2)
