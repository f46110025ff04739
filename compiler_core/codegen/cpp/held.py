"""Sums that a loop adds to again and again, row upon row: kept in registers until it ends.

In: a serial loop. Out: the stores that add to one short row, the same in every iteration, which nothing else of the
loop reads or writes. The row becomes a local array meanwhile, which the compiler unrolls and keeps in registers:
through a pointer, which may be that of any other array, it loads and stores it each time. The order of the sums stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from compiler_core.dtype import DType, float32, float64
from compiler_core.loop_ir.expr import Load, walk_expr
from compiler_core.loop_ir.ir import Accumulate, Check, Let, Local, Loop, Stmt, Store, walk
from compiler_core.records import dataclass
from compiler_core.symbolic.index import Axis

_MOST_NBYTES = 512  # of all rows: 8 registers of 32
_LEAST = 8  # iterations, for which it pays


@dataclass(frozen=True, slots=True)
class Held:
    """A store, and the innermost loop that it stands in, which goes along the row."""

    columns: Loop
    store: Store


def find_held(loop: Loop, dtypes: Mapping[str, DType]) -> list[Held]:
    """What can be held while `loop` runs. dtypes: of the arrays."""
    if loop.kind != "serial" or loop.part_of is not None or loop.extent < _LEAST:
        return []
    inner = [stmt for stmt in loop.body if isinstance(stmt, Loop)]
    if any(isinstance(stmt, Loop) for one in inner for stmt in one.body):
        return []
    found = [held for one in inner for held in _along(one, loop, dtypes)]
    if not found:
        return []
    seen = Counter(_touched(loop.body))
    own = {stmt.name for stmt in walk(loop.body) if isinstance(stmt, Local)}
    found = [held for held in found if seen[held.store.buffer] == 1 and held.store.buffer not in own]
    nbytes = sum(int(held.columns.extent) * dtypes[held.store.buffer].itemsize for held in found)
    return found if nbytes <= _MOST_NBYTES else []


def _along(inner: Loop, loop: Loop, dtypes: Mapping[str, DType]) -> Iterator[Held]:
    if inner.kind != "vector" or inner.part_of is not None:
        return
    for stmt in inner.body:
        if isinstance(stmt, Store) and stmt.mode == "add" and dtypes.get(stmt.buffer) in (float32, float64):
            rest = [atom for atom in stmt.index.terms if atom != inner.axis]
            stays = all(isinstance(atom, Axis) and atom != loop.axis for atom in rest)
            if stays and stmt.index.terms.get(inner.axis) == 1:
                yield Held(inner, stmt)


def _touched(body: tuple[Stmt, ...]) -> Iterator[str]:
    """The arrays that statements read or write, as often as they do."""
    for stmt in walk(body):
        if isinstance(stmt, Store):
            yield stmt.buffer
        if isinstance(stmt, Let | Store | Accumulate):
            yield from (e.buffer for e in walk_expr(stmt.value) if isinstance(e, Load))
        elif isinstance(stmt, Check):
            yield from (e.buffer for e in walk_expr(stmt.condition) if isinstance(e, Load))
