"""A kernel cut into sections, each one Triton launch, and the grid that each is launched on.

In: a loop-IR `Kernel`. Out: `Section`s, in order. Statements that share scalars stay together; a lone loop nest is a
section of its own, and where its iterations are independent they become programs of the grid:

    Grid(parallel loops)    leading perfectly nested `parallel` loops: one program an iteration
    Grid(blocks)            a vector loop that feeds no accumulator, alone in its nest: one program a block of lanes.
                            Serial loops around it stay inside the program: a lane never meets another lane.
Launches of one stream run in order, so sections see what earlier ones stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compiler_core.loop_ir.expr import Expr, IndexCompare, IndexValue, Load, Var, walk_expr
from compiler_core.loop_ir.ir import (
    Accumulate,
    Accumulator,
    Check,
    Kernel,
    Let,
    Local,
    Loop,
    Stmt,
    Store,
    walk,
)

MAX_LANES = 4096  # lanes of one block; a longer vector loop runs in strips
GRID_LANES = 1024  # lanes of one program, where blocks of a vector loop are the grid


@dataclass(frozen=True, slots=True)
class Section:
    """One launch. parallel: loops whose iterations are programs, outermost first; body: what each program runs.

    spread: the vector loop whose blocks are programs too (innermost in the grid), or None.
    """

    parallel: tuple[Loop, ...]
    spread: Loop | None
    body: tuple[Stmt, ...]

    @property
    def blocks(self) -> int:
        """Programs along the spread loop."""
        return 1 if self.spread is None else -(-int(self.spread.extent) // GRID_LANES)

    @property
    def programs(self) -> int:
        """Size of the grid."""
        count = self.blocks
        for loop in self.parallel:
            count *= int(loop.extent)
        return count


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
            names |= {inner.buffer, *(s.name for s in inner.index.free_symbols)}
        if isinstance(inner, Accumulate):
            names.add(inner.name)
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
            return {symbol.name for symbol in index.free_symbols}
        case IndexCompare(_, left, right, _):
            return {symbol.name for symbol in left.free_symbols | right.free_symbols}
        case _:
            return set()


def _section(group: tuple[Stmt, ...]) -> Section:
    parallel: list[Loop] = []
    body = group
    while len(body) == 1 and isinstance(body[0], Loop) and body[0].kind == "parallel":
        parallel.append(body[0])
        body = body[0].body
    return Section(tuple(parallel), _spread(body), body)


def _spread(body: tuple[Stmt, ...]) -> Loop | None:
    """The vector loop of a perfect nest whose lanes never meet, or None."""
    serial: list[str] = []
    while len(body) == 1 and isinstance(body[0], Loop) and body[0].kind != "vector":
        serial.append(body[0].axis)
        body = body[0].body
    if len(body) != 1 or not isinstance(body[0], Loop):
        return None
    loop = body[0]
    if any(isinstance(stmt, Accumulate) for stmt in loop.body):
        return None
    stores = [stmt for stmt in loop.body if isinstance(stmt, Store)]
    written = {store.buffer for store in stores}
    reads_back = any(
        isinstance(e, Load) and e.buffer in written
        for stmt in loop.body
        for expr in expressions(stmt)
        for e in walk_expr(expr)
    )
    moves = any(symbol.name in serial for store in stores for symbol in store.index.free_symbols)
    return None if serial and (reads_back or (moves and any(s.mode != "set" for s in stores))) else loop
