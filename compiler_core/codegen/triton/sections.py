"""A kernel cut into sections, each one Triton launch, and the grid that each is launched on.

In: a loop-IR `Kernel`. Out: `Section`s, in order. Statements that share scalars stay together; a lone loop nest is a
section of its own, and where its iterations are independent they become programs of the grid:

    Grid(parallel loops)    leading perfectly nested `parallel` loops: one program an iteration
    Grid(row blocks)        a `block` loop alone inside them: one program for `tile.rows` iterations
    Grid(column blocks)     vector loops of one axis whose lanes never meet: one program for `tile.lanes` of them.
                            Everything around them is run by each: no stores stand there.
Launches of one stream run in order, so sections see what earlier ones stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from compiler_core.codegen.triton.tiles import Shape, Tile
from compiler_core.loop_ir.expr import Expr, IndexCompare, IndexValue, Load, ScalarCall, Var, walk_expr
from compiler_core.loop_ir.ir import (
    Accumulate,
    Accumulator,
    Check,
    Kernel,
    Let,
    Local,
    Loop,
    Param,
    Stmt,
    Store,
    walk,
)
from compiler_core.records import dataclass
from compiler_core.symbolic.index import Index
from compiler_core.symbolic.index_text import show_index

_COSTLY = {"tanh", "erf", "expm1", "log1p", "log10", "sin", "cos", "pow", "erfc", "asin", "acos", "atan", "atan2",
           "philox", "normal32", "normal64"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Section:
    """One launch. parallel: loops whose iterations are programs, outermost first; body: what each program runs.

    rows: the block loop whose blocks are programs too, or None. columns: the axis of all vector loops if its blocks are
    programs (innermost in the grid), or "".
    """

    parallel: tuple[Loop, ...]
    rows: Loop | None
    columns: str
    body: tuple[Stmt, ...]

    @property
    def loops(self) -> list[Loop]:
        """All loops that a program runs."""
        return [stmt for stmt in walk(self.body) if isinstance(stmt, Loop)]

    @property
    def blocks(self) -> list[Loop]:
        return [loop for loop in self.loops if loop.kind == "block"]

    @property
    def vectors(self) -> list[Loop]:
        return [loop for loop in self.loops if loop.kind == "vector"]

    def programs(self, tile: Tile) -> int:
        """Size of the grid."""
        return self.row_blocks(tile) * self.column_blocks(tile) * math.prod(loop.extent for loop in self.parallel)

    def row_blocks(self, tile: Tile) -> int:
        return 1 if self.rows is None else -(-self.rows.extent // tile.rows)

    def column_blocks(self, tile: Tile) -> int:
        return -(-self.vectors[0].extent // tile.lanes) if self.columns else 1


def cut(kernel: Kernel) -> list[Section]:
    """The sections of `kernel`, in order."""
    return [_section(group) for group in _groups(kernel.body)]


def _groups(body: tuple[Stmt, ...]) -> Iterator[tuple[Stmt, ...]]:
    """Runs of top-level statements that share names: from the first that defines one to the last that reads it."""
    start = 0
    while start < len(body):
        end = start + 1
        while readers := _readers(body, start, end):
            end = readers[-1] + 1
        yield body[start:end]
        start = end


def _readers(body: tuple[Stmt, ...], start: int, end: int) -> list[int]:
    """Places from `end` on that read a name defined in body[start:end]."""
    defined: set[str] = set().union(*map(_defined, body[start:end]))
    return [k for k in range(end, len(body)) if defined & _read(body[k])]


def _defined(stmt: Stmt) -> set[str]:
    """Names that `stmt` itself brings into the block it stands in."""
    return {stmt.name} if isinstance(stmt, Let | Local | Accumulator) else set()


def _read(stmt: Stmt) -> set[str]:
    """Names of scalars and arrays that `stmt` mentions anywhere."""
    names: set[str] = set()
    for inner in walk((stmt,)):
        for expr in expressions(inner):
            names |= {e.name for e in walk_expr(expr) if isinstance(e, Var)}
            names |= {e.buffer for e in walk_expr(expr) if isinstance(e, Load)}
            names |= {name for e in walk_expr(expr) for name in index_names(e)}
        if isinstance(inner, Store):
            names |= {inner.buffer, *inner.index.names}
        if isinstance(inner, Accumulate):
            names.add(inner.name)
        if isinstance(inner, Loop) and inner.span:
            names |= {name for end in inner.span for name in end.names}
    return names


def expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions that stand directly in `stmt`."""
    match stmt:
        case Let(_, value) | Accumulate(_, value, _):
            return (value,)
        case Store():
            return (stmt.value,)
        case Check(condition, _):
            return (condition,)
        case _:
            return ()


def index_names(expr: Expr) -> set[str]:
    """Names in the indices that stand directly in `expr`."""
    match expr:
        case Load(_, index, _) | IndexValue(index, _):
            return index.names
        case IndexCompare(_, left, right, _):
            return left.names | right.names
        case _:
            return set()


def _section(group: tuple[Stmt, ...]) -> Section:
    parallel: list[Loop] = []
    body = group
    while len(body) == 1 and isinstance(body[0], Loop) and body[0].kind == "parallel":
        parallel.append(body[0])
        body = body[0].body
    alone = (
        len(body) == 1
        and isinstance(body[0], Loop)
        and body[0].kind == "block"
        and not body[0].part_of
        and not body[0].span
    )
    return Section(tuple(parallel), body[0] if alone else None, _columns(body), body)  # type: ignore[arg-type]


def _columns(body: tuple[Stmt, ...]) -> str:
    """The axis of the vector loops of `body`, if their lanes never meet; else ""."""
    loops = [stmt for stmt in walk(body) if isinstance(stmt, Loop)]
    vectors = [loop for loop in loops if loop.kind == "vector"]
    axes = {(loop.axis, loop.part_of) for loop in vectors}
    inside = {id(stmt) for loop in vectors for stmt in loop.body}
    if len(axes) != 1 or vectors[0].part_of or any(isinstance(s, Accumulate | Accumulator) for s in walk(body)):
        return ""
    if any(isinstance(stmt, Store) and id(stmt) not in inside for stmt in walk(body)):
        return ""
    axis, numel = vectors[0].axis.name, vectors[0].extent
    local = {stmt.name for stmt in walk(body) if isinstance(stmt, Local)}
    if not all(stays_in_lane(body, name, axis, numel) for name in local):
        return ""
    outer = [loop for loop in loops if loop.kind != "vector"]
    stores = [stmt for stmt in walk(body) if isinstance(stmt, Store) and stmt.buffer not in local]
    parts = (e for stmt in walk(body) for expr in expressions(stmt) for e in walk_expr(expr))
    read = {e.buffer for e in parts if isinstance(e, Load)}
    reads_back = any(store.buffer in read for store in stores)
    moves = any(_moves(store, axis) for store in stores if store.mode != "set")
    return "" if (outer or len(vectors) > 1) and (reads_back or moves) else axis


def shape_of(section: Section, params: Sequence[Param] = ()) -> Shape:
    """The facts that decide about the tile of a section. params: the kernel's."""
    blocks, vectors = section.blocks, section.vectors
    local = {stmt.name for stmt in walk(section.body) if isinstance(stmt, Local)}
    added = {s.buffer for loop in blocks for s in walk(loop.body) if isinstance(s, Store) and s.mode != "set"}
    rows, columns = {loop.axis.name for loop in blocks}, {loop.axis.name for loop in vectors}
    anew = {load for load in _lane_loads(vectors, local) if not rows or _differs(load, rows)}
    return Shape(
        rows=max((int(loop.share) for loop in blocks), default=0),
        columns=max((int(loop.share) for loop in vectors), default=0),
        independent=bool(section.columns),
        summed=bool(local & added),
        outer=math.prod(loop.extent for loop in section.parallel),
        shared=bool(blocks) and _is_shared(vectors, rows),
        again=_goes_over_rows_again(vectors),
        costly=not _COSTLY.isdisjoint(scalars_of(section.body)),
        across=any(_runs_across(index, rows, columns) for index in _indices(section.body)),
        streams=any(_streams(loop, local) for loop in blocks),
        width=_width(section.body, params),
        loaded=sum(load.dtype.itemsize for load in anew),
    )


def _streams(loop: Loop, local: set[str]) -> bool:
    """Whether iterations of a block loop store, in vector loops, what stays."""
    inside = (stmt for inner in walk(loop.body) if isinstance(inner, Loop) for stmt in inner.body)
    return any(isinstance(stmt, Store) and stmt.buffer not in local for stmt in inside)


def _width(body: tuple[Stmt, ...], params: Sequence[Param]) -> int:
    """Bytes of an element of the widest among the large arrays that are touched."""
    touched = {e.buffer for e in _parts(body) if isinstance(e, Load)}
    touched |= {stmt.buffer for stmt in walk(body) if isinstance(stmt, Store)}
    sizes = {param: int(param.numel) for param in params if param.name in touched}
    largest = max(sizes.values(), default=0)
    return max((p.dtype.itemsize for p, numel in sizes.items() if 2 * numel >= largest), default=4)


def _lane_loads(vectors: list[Loop], local: set[str]) -> Iterator[Load]:
    inside = (stmt for loop in vectors for stmt in loop.body)
    parts = (e for stmt in inside for expr in expressions(stmt) for e in walk_expr(expr))
    return (e for e in parts if isinstance(e, Load) and e.buffer not in local)


def _differs(load: Load, rows: set[str]) -> bool:
    """Whether rows load different places: others are loaded once, or are in a cache."""
    return not rows.isdisjoint(index_names(load))


def _goes_over_rows_again(vectors: list[Loop]) -> bool:
    """Whether two vector loops touch one buffer."""
    seen: set[str] = set()
    for loop in vectors:
        parts = (e for stmt in loop.body for expr in expressions(stmt) for e in walk_expr(expr))
        touched = {e.buffer for e in parts if isinstance(e, Load)}
        if touched & seen:
            return True
        seen |= touched | {stmt.buffer for stmt in loop.body if isinstance(stmt, Store)}
    return False


def _is_shared(vectors: list[Loop], rows: set[str]) -> bool:
    """Whether vector loops load the same for all rows, and store nothing."""
    inside = [stmt for loop in vectors for stmt in loop.body]
    indices = [e.index for stmt in inside for expr in expressions(stmt) for e in walk_expr(expr) if isinstance(e, Load)]
    moves = any(not rows.isdisjoint(index.names) for index in indices)
    return bool(indices) and not moves and not any(isinstance(stmt, Store) for stmt in inside)


def _parts(body: tuple[Stmt, ...]) -> Iterator[Expr]:
    for stmt in walk(body):
        for expr in expressions(stmt):
            yield from walk_expr(expr)


def scalars_of(body: tuple[Stmt, ...]) -> set[str]:
    """The names of the scalar functions in it."""
    return {e.scalar for e in _parts(body) if isinstance(e, ScalarCall)}


def _indices(body: tuple[Stmt, ...]) -> Iterator[Index]:
    for stmt in walk(body):
        if isinstance(stmt, Store):
            yield stmt.index
        for expr in expressions(stmt):
            yield from (e.index for e in walk_expr(expr) if isinstance(e, Load))


def _runs_across(index: Index, rows: set[str], columns: set[str]) -> bool:
    """Whether memory is contiguous along a row axis, and not along the columns."""
    steps = {one.name: index.coefficient(one) for one in index.variables}
    along = [steps[name] for name in columns if name in steps]
    return any(steps.get(name) == 1 for name in rows) and bool(along) and 1 not in along


def _moves(store: Store, axis: str) -> bool:
    """Whether the place of a store depends on more than the lane."""
    return not store.index.names <= {axis}


def stays_in_lane(body: tuple[Stmt, ...], name: str, axis: str, numel: int) -> bool:
    """Whether local `name` is touched in vector loops along `axis` only, each lane at its own element of `numel`."""
    declared = [s for s in walk(body) if isinstance(s, Local) and s.name == name]
    vectors = [s for s in walk(body) if isinstance(s, Loop) and s.kind == "vector"]
    touching = [s for s in walk(body) if not isinstance(s, Loop) and _touches(s, name)]
    inside = {id(stmt) for loop in vectors if loop.axis.name == axis for stmt in loop.body}
    places = [e.index for s in touching for expr in expressions(s) for e in _loads(expr, name)]
    places += [s.index for s in touching if isinstance(s, Store) and s.buffer == name]
    sized = all(int(s.numel) == numel for s in declared)
    return sized and all(id(s) in inside for s in touching) and all(show_index(place) == axis for place in places)


def is_scalar_of_block(body: tuple[Stmt, ...], name: str) -> bool:
    """Whether local `name` is one element of each iteration of a block loop, never touched in a vector loop."""
    blocks = [s for s in walk(body) if isinstance(s, Loop) and s.kind == "block"]
    inside = {id(s) for loop in blocks for s in walk(loop.body)}
    in_vectors = {id(s) for v in walk(body) if isinstance(v, Loop) and v.kind == "vector" for s in v.body}
    touching = [s for s in walk(body) if not isinstance(s, Loop) and _touches(s, name)]
    touching += [s for s in walk(body) if isinstance(s, Local) and s.name == name]
    return all(id(s) in inside and id(s) not in in_vectors for s in touching)


def _loads(expr: Expr, name: str) -> list[Load]:
    return [e for e in walk_expr(expr) if isinstance(e, Load) and e.buffer == name]


def _touches(stmt: Stmt, name: str) -> bool:
    stores = isinstance(stmt, Store) and stmt.buffer == name
    return stores or any(_loads(expr, name) for expr in expressions(stmt))
