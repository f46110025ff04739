"""Which params of a kernel may name the same memory, though one of them is written.

In: a kernel. Out: pairs (written param, read param). A pair is safe if the written one is stored once, by `=`, at an
index that moves with every loop around it, every load of the read one is at that same index, and all those loads stand
before the store or in its value: then each element is read for the last time before it is overwritten, whatever the
order of rows. Nests that do the same on different arrays (schedule/batch.py) run side by side on a GPU: all these
accesses must be in one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

from compiler_core.loop_ir import expr as x
from compiler_core.loop_ir import ir
from compiler_core.records import dataclass
from compiler_core.symbolic.index import Axis, Index


@dataclass(frozen=True, slots=True)
class _Touch:
    """One access, in the order of the text. nest: the place of its nest of one turn in the kernel; -1: in none."""

    buffer: str
    index: Index
    is_store: bool = False
    is_set_once: bool = False
    nest: int = -1


@cache
def safe_pairs(kernel: ir.Kernel) -> tuple[tuple[str, str], ...]:
    """(written, read) params of equal size and dtype that may share memory."""
    touches = [
        replace(touch, nest=k if isinstance(stmt, ir.Loop) and stmt.kind == "serial" and stmt.extent == 1 else -1)
        for k, stmt in enumerate(kernel.body)
        for touch in _touches((stmt,))
    ]
    params = {param.name: param for param in kernel.params}
    pairs = []
    for written in (p for p in kernel.params if p.access != "in"):
        stores = [k for k, t in enumerate(touches) if t.buffer == written.name and t.is_store]
        if len(stores) != 1 or not touches[stores[0]].is_set_once:
            continue
        for read in (p for p in kernel.params if p.access == "in"):
            same = (params[read.name].numel, read.dtype) == (written.numel, written.dtype)
            loads = [k for k, t in enumerate(touches) if t.buffer == read.name]
            index, nest = touches[stores[0]].index, touches[stores[0]].nest
            in_step = all(touches[k].index == index and touches[k].nest == nest for k in loads)
            if same and loads and max(loads) < stores[0] and in_step:
                pairs.append((written.name, read.name))
    return tuple(pairs)


def _touches(body: Sequence[ir.Stmt], axes: frozenset[Axis] = frozenset()) -> Iterator[_Touch]:
    for stmt in body:
        match stmt:
            case ir.Loop(axis, _, inner):
                yield from _touches(inner, axes | {axis} if axis.extent != 1 else axes)
            case ir.Let(_, value) | ir.Accumulate(_, value, _):
                yield from _loads(value)
            case ir.Check(condition, _):
                yield from _loads(condition)
            case ir.Store(buffer, index, value, mode):
                yield from _loads(value)
                moves = axes <= index.variables
                yield _Touch(buffer, index, is_store=True, is_set_once=mode == "set" and moves)


def _loads(value: x.Expr) -> Iterator[_Touch]:
    for part in x.walk_expr(value):
        if isinstance(part, x.Load):
            yield _Touch(part.buffer, part.index)
