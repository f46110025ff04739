"""Finds loops over rows that are too short to be worth a vector each, and prints them with LANES rows side by side.

In: a loop. Out: `SideBySide`, or None; its C++ text. A row of ten numbers fills no vector, and what is summed up in one
must then be added across: cross entropy of ten classes is four times as fast with sixteen rows in a vector (measured:
2.15 and 0.51 ms for 65,536 rows; softmax of 4, 10, 16: twelve times, 2.4, 2.8; sums alone gain little). A tile is
LANES rows: what lies along the rows is turned into a local array first, scalars become arrays of LANES, and each run of
statements, or step of an inner loop, is one loop over the lanes. Rows that are left stand as they were written.

A loop qualifies if it holds only Lets, Stores, Accumulators, Checks, scratch arrays and short vector loops, of which
one gains by it and reads along the rows; it loads only from what it does not store to; it reduces only within a row;
and no two rows store to one place, unless they combine in a place that is the same for all: that is done row by row, in
order. Where a lane fails a Check, the tile ends. Tiles are cut from the loop's start, whoever runs them: the same bits
on any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field

from compiler_core.codegen.cpp.expressions import ExprPrinter
from compiler_core.codegen.cpp.tiling import is_injective, strides_of, unconditional_loads
from compiler_core.codegen.cpp.types import register_type, storage_type
from compiler_core.dtype import DType
from compiler_core.loop_ir.expr import SCALARS, Expr, IndexCompare, IndexValue, Load, ScalarCall, Var, walk_expr
from compiler_core.loop_ir.ir import (
    REDUCING,
    Accumulate,
    Accumulator,
    Check,
    Let,
    Local,
    Loop,
    Param,
    Stmt,
    Store,
    walk,
)
from compiler_core.records import dataclass
from compiler_core.symbolic.index import Axis, Index

LANES = 16  # rows of a tile
SHORT = 16  # elements of a row that is worth no vectors of its own
TILES_NBYTES = 16 * 1024  # of all local arrays of a tile

Place = tuple[str, Index]  # of a store


@dataclass(frozen=True, slots=True)
class SideBySide:
    """loop: over the rows. loads, stores: those that go through a local array, and the axis they follow in memory."""

    loop: Loop
    loads: dict[Load, Axis]
    stores: dict[Place, Axis]


# ---- which loops


def find_side_by_side(loop: Loop, params: Mapping[str, Param]) -> SideBySide | None:
    """How to print the rows of `loop` side by side; None if it does not qualify or gains nothing.

    params: the kernel's.
    """
    if loop.kind == "vector" or loop.part_of is not None or loop.span is not None or loop.extent < 2 * LANES:
        return None
    inner = [stmt for stmt in loop.body if isinstance(stmt, Loop)]
    own = {stmt.name for stmt in walk(loop.body) if isinstance(stmt, Let | Accumulator | Local)}
    kinds = {stmt.name: stmt.kind for stmt in loop.body if isinstance(stmt, Accumulator)}
    if not inner or not all(map(_is_short, inner)) or any(_is_unusual(stmt, own) for stmt in walk(loop.body)):
        return None
    if not any(_pays(stmt, row, kinds) for row in inner for stmt in row.body) or not _any_order(loop, own, params):
        return None
    along, across = _loads(loop, inner, own)
    nbytes = sum(LANES * axis.extent * load.dtype.itemsize for load, axis in along.items())
    nbytes += sum(LANES * stmt.numel * stmt.dtype.itemsize for stmt in loop.body if isinstance(stmt, Local))
    if not (along or across) or nbytes > TILES_NBYTES:
        return None
    return SideBySide(loop, along, dict(_stores(loop, inner, own)))


def _loads(loop: Loop, inner: list[Loop], own: set[str]) -> tuple[dict[Load, Axis], bool]:
    """The loads along a row, and whether there are some across the rows."""
    along: dict[Load, Axis] = {}
    across = False
    for row in inner:
        for load in unconditional_loads(row.body):
            strides = strides_of(load.index, [loop, row])
            if strides is None or load.buffer in own or not own.isdisjoint(load.index.names):
                continue
            across = across or strides[loop.axis] == 1
            if strides[row.axis] == 1 and strides[loop.axis] not in (0, 1):
                along[load] = row.axis
    return along, across


def _stores(loop: Loop, inner: list[Loop], own: set[str]) -> Iterator[tuple[Place, Axis]]:
    """The stores along a row."""
    for row in inner:
        for store in (stmt for stmt in row.body if isinstance(stmt, Store)):
            strides = strides_of(store.index, [loop, row])
            if strides is None or store.buffer in own or not own.isdisjoint(store.index.names):
                continue
            if strides[row.axis] == 1 and strides[loop.axis] != 1:
                yield (store.buffer, store.index), row.axis


def _is_short(loop: Loop) -> bool:
    plain = all(isinstance(stmt, Let | Store | Accumulate) for stmt in loop.body)
    return plain and loop.kind == "vector" and loop.part_of is None and loop.extent <= SHORT


def _pays(stmt: Stmt, row: Loop, kinds: Mapping[str, str]) -> bool:
    """Whether a row's vectors are bad at it: costly functions, maxima, and sums of rows that are turned by shuffles."""
    if isinstance(stmt, Accumulate) and (not REDUCING[kinds[stmt.name]].operator or row.extent in (4, 8, 16)):
        return True
    parts = (e for expr in _exprs(stmt) for e in walk_expr(expr))
    return any(isinstance(part, ScalarCall) and SCALARS[part.scalar].costly for part in parts)


def _is_unusual(stmt: Stmt, own: set[str]) -> bool:
    """Whether it reduces into something that is no sum, maximum or the like of one row."""
    if isinstance(stmt, Accumulate):
        return stmt.name not in own
    return isinstance(stmt, Accumulator) and (REDUCING[stmt.kind].is_place or stmt.dtype.is_complex)


def _any_order(loop: Loop, own: set[str], params: Mapping[str, Param]) -> bool:
    """Whether the rows may be taken side by side, statement by statement."""
    if any(isinstance(stmt, Accumulate) for stmt in loop.body):
        return False
    readable = own | {name for name, param in params.items() if param.access == "in"}
    parts = (e for stmt in walk(loop.body) for expr in _exprs(stmt) for e in walk_expr(expr))
    if not all(part.buffer in readable for part in parts if isinstance(part, Load)):
        return False
    nests = [([loop], loop.body), *(([loop, row], row.body) for row in loop.body if isinstance(row, Loop))]
    stores = [(stmt, nest) for nest, body in nests for stmt in body if isinstance(stmt, Store)]
    return all(store.buffer in own or _is_apart(store, nest, own) for store, nest in stores)


def _is_apart(store: Store, nest: list[Loop], own: set[str]) -> bool:
    """Whether rows store to different places, or all combine in one."""
    if store.mode == "set":
        return is_injective(store.index, nest)
    return len(nest) == 1 and store.index.names.isdisjoint({nest[0].axis.name, *own})


def _exprs(stmt: Stmt) -> tuple[Expr, ...]:
    match stmt:
        case Let(_, value) | Store(_, _, value) | Accumulate(_, value):
            return (value,)
        case Check(condition):
            return (condition,)
    return ()


def _names(stmts: Iterable[Stmt]) -> set[str]:
    """The scalars that statements read or reduce into."""
    found: set[str] = set()
    for stmt in walk(tuple(stmts)):
        if isinstance(stmt, Store):
            found |= stmt.index.names
        if isinstance(stmt, Accumulate):
            found.add(stmt.name)
        for part in (e for expr in _exprs(stmt) for e in walk_expr(expr)):
            match part:
                case Var(name):
                    found.add(name)
                case Load(_, index) | IndexValue(index):
                    found |= index.names
                case IndexCompare(_, left, right):
                    found |= left.names | right.names
    return found


# ---- as C++


@dataclass
class LanePrinter:
    """Prints one tile. print_block: statements as they stand in one row; accumulator_type: the C++ type of one.

    moved: (buffer, index) -> where a store goes instead; from_tiles: the same of loads. dtypes: of arrays. types: of
    the scalars so far, in C++.
    """

    found: SideBySide
    print_block: Callable[[tuple[Stmt, ...], str], Iterator[str]]
    accumulator_type: Callable[[Accumulator], str]
    number: Callable[[str], int]
    expr: ExprPrinter
    from_tiles: dict[Load, str]
    moved: dict[Place, str]
    dtypes: dict[str, DType]
    types: dict[str, str] = field(default_factory=dict)

    def tile(self, pad: str) -> Iterator[str]:
        """The tile that begins at `{axis}_tile`."""
        body = self.found.loop.body
        yield from self._arrays(body, pad)
        for position, group in _groups(body):
            if isinstance(group[0], Loop):
                yield from self._inner(group[0], pad)
            elif isinstance(group[0], Check):
                yield from self._check(group[0], pad)
            elif not isinstance(group[0], Local):
                rest = [stmt for k, stmt in enumerate(body) if not position <= k < position + len(group)]
                yield from self._lanes(group, _names(rest), pad)
        self.from_tiles.clear()
        self.moved.clear()

    def _arrays(self, body: tuple[Stmt, ...], pad: str) -> Iterator[str]:
        """The local arrays, and what is read along the rows."""
        for local in (stmt for stmt in body if isinstance(stmt, Local)):
            self.dtypes[local.name] = local.dtype
            yield f"{pad}alignas(64) {storage_type(local.dtype)} {local.name}[{max(local.numel, 1)}][{LANES}];"
            for stmt in walk(body):
                if isinstance(stmt, Store) and stmt.buffer == local.name:
                    self.moved[stmt.buffer, stmt.index] = self._at(local.name, stmt.index)
                for part in (e for expr in _exprs(stmt) for e in walk_expr(expr)):
                    if isinstance(part, Load) and part.buffer == local.name:
                        self.from_tiles[part] = self._at(local.name, part.index)
        for number, (load, axis) in enumerate(self.found.loads.items()):
            place = f"tile{number}[{axis.name}][lane]"
            yield f"{pad}alignas(64) {storage_type(load.dtype)} tile{number}[{axis.extent}][{LANES}];"
            yield from self._rows(axis, f"{place} = {load.buffer}[{self.expr.index.text(load.index)}];", pad)
            self.from_tiles[load] = place

    def _at(self, name: str, index: Index) -> str:
        return f"{name}[{self.expr.index.text(index)}][lane]"

    def _rows(self, axis: Axis, line: str, pad: str) -> Iterator[str]:
        """`line` for all elements of a tile, row by row."""
        yield f"{pad}for (int64_t lane = 0; lane < {LANES}; ++lane) {{"
        yield f"{pad}  const int64_t {self.found.loop.axis.name} = {self._row};"
        yield f"{pad}  for (int64_t {axis.name} = 0; {axis.name} < {axis.extent}; ++{axis.name}) {line}"
        yield f"{pad}}}"

    @property
    def _row(self) -> str:
        return f"{self.found.loop.axis.name}_tile + lane"

    def _lanes(self, group: tuple[Stmt, ...], read_later: set[str], pad: str) -> Iterator[str]:
        """Statements of a row, for every lane."""
        made: dict[str, str] = {}
        for stmt in group:
            if isinstance(stmt, Accumulator):
                made[stmt.name] = self.accumulator_type(stmt)
            elif isinstance(stmt, Let) and stmt.name in read_later:
                made[stmt.name] = register_type(stmt.value.dtype)
        for name, ctype in made.items():
            yield f"{pad}alignas(64) {ctype} {name}_lanes[{LANES}];"
        in_order = isinstance(group[0], Store) and group[0].mode != "set"
        yield from self._loop(group, [*made], pad, simd=not in_order)
        self.types |= made

    def _loop(self, body: tuple[Stmt, ...], changed: list[str], pad: str, *, simd: bool = True) -> Iterator[str]:
        """The loop over the lanes. changed: the scalars whose values are kept."""
        if simd:
            yield f"{pad}#pragma omp simd"
        yield f"{pad}for (int64_t lane = 0; lane < {LANES}; ++lane) {{"
        yield from self._bound(body, changed, pad + "  ")
        yield from self.print_block(body, pad + "  ")
        for name in changed:
            yield f"{pad}  {name}_lanes[lane] = {name};"
        yield f"{pad}}}"

    def _bound(self, body: tuple[Stmt, ...], changed: list[str], pad: str) -> Iterator[str]:
        """The row, and the scalars that statements read, of one lane."""
        read = _names(body)
        if self.found.loop.axis.name in read:
            yield f"{pad}const int64_t {self.found.loop.axis.name} = {self._row};"
        for name in (name for name in self.types if name in read):
            const = "" if name in changed else "const "
            yield f"{pad}{const}{self.types[name]} {name} = {name}_lanes[lane];"

    def _inner(self, loop: Loop, pad: str) -> Iterator[str]:
        """A short loop: its steps one after another, each for every lane."""
        staged = [(place, axis) for place, axis in self.found.stores.items() if axis == loop.axis]
        staged = [(place, axis) for place, axis in staged if any(_is_at(stmt, place) for stmt in loop.body)]
        yield f"{pad}{{"
        for number, ((buffer, index), axis) in enumerate(staged):
            ctype = storage_type(self.dtypes[buffer])
            yield f"{pad}  alignas(64) {ctype} out{number}[{axis.extent}][{LANES}];"
            self.moved[buffer, index] = f"out{number}[{axis.name}][lane]"
        head = f"int64_t {loop.axis.name} = 0; {loop.axis.name} < {loop.extent}; ++{loop.axis.name}"
        yield f"{pad}  for ({head}) {{"
        reduced = dict.fromkeys(stmt.name for stmt in loop.body if isinstance(stmt, Accumulate))
        yield from self._loop(loop.body, [*reduced], pad + "    ")
        yield f"{pad}  }}"
        for (buffer, index), axis in staged:
            line = f"{buffer}[{self.expr.index.text(index)}] = {self.moved.pop((buffer, index))};"
            yield from self._rows(axis, line, pad + "  ")
        yield f"{pad}}}"

    def _check(self, check: Check, pad: str) -> Iterator[str]:
        yield f"{pad}{{"
        yield f"{pad}  bool holds = true;"
        yield f"{pad}  for (int64_t lane = 0; lane < {LANES}; ++lane) {{"
        yield from self._bound((check,), [], pad + "    ")
        yield f"{pad}    holds &= {self.expr.text(check.condition)};"
        yield f"{pad}  }}"
        yield f"{pad}  if (!holds) {{"
        yield f"{pad}    status = {1 + self.number(check.message)};  // {check.message}"
        yield f"{pad}    continue;"
        yield f"{pad}  }}"
        yield f"{pad}}}"


def _is_at(stmt: Stmt, place: Place) -> bool:
    return isinstance(stmt, Store) and (stmt.buffer, stmt.index) == place


def _groups(body: tuple[Stmt, ...]) -> Iterator[tuple[int, tuple[Stmt, ...]]]:
    """Runs of Lets, Accumulators and plain Stores; each other statement alone. Each with its position."""
    start = 0
    while start < len(body):
        end = start
        while end < len(body) and _may_join(body[end]):
            end += 1
        end = max(end, start + 1)
        yield start, body[start:end]
        start = end


def _may_join(stmt: Stmt) -> bool:
    return isinstance(stmt, Let | Accumulator) or (isinstance(stmt, Store) and stmt.mode == "set")
