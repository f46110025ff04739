"""argmax and argmin over a dim that is not the last -> one kernel: a row of running bests.

In: a Reduce of kind argmax or argmin whose result moves with its last axes. Out: `Built`. The result's last dims are
cut into pieces of at most PIECE, if they divide; for each, the best value and its place so far stand in two local
arrays, and the lines along the reduced dim are offered one after the other, side by side in a vector loop. Ties keep
the first place, NaN wins, as in an accumulator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler_core.dtype import bool_, int32, int64
from compiler_core.loop_ir import expr as x
from compiler_core.loop_ir import ir
from compiler_core.loop_ir.interpret import identity
from compiler_core.lowering import definition as d
from compiler_core.lowering.emitter import call, cast
from compiler_core.lowering.target import Target
from compiler_core.meta import TensorMeta
from compiler_core.schedule.chunks import SHORT_ROW, is_worth_threads
from compiler_core.schedule.finish import KernelTable, ParamTable
from compiler_core.schedule.kernel import Built, built, loop_of
from compiler_core.schedule.translate import Translator
from compiler_core.symbolic.index import ZERO, Axis, Index, of_axis

PIECE = 1024  # elements of a line that are offered together: their bests and places stay in the L1 cache


def build_places(reduction: d.Reduce, metas: Mapping[str, TensorMeta], table: KernelTable) -> Built:
    """The kernel of one such reduction."""
    kept = d.axes_in(reduction.kept)
    line = next(axis for axis in reduction.axes if axis not in kept and axis.extent != 1)
    position = reduction.axes.index(line)
    outer = [axis for axis in reduction.axes[:position] if axis.extent != 1]
    inner = reduction.axes[position + 1 :]
    block, lane, moved = pieces(inner)
    params = ParamTable(metas)
    body = _search(reduction, line, lane, moved, params)
    body = outer_loops([*outer, *block], d.domain_numel(reduction.axes), body, table.target)
    return built(body, params, [reduction], table)


def pieces(axes: d.Axes) -> tuple[tuple[Axis, ...], Axis, Mapping[Axis, Index]]:
    """`axes`, row-major, in pieces of at most PIECE elements if they divide: see `grouped`."""
    length = d.domain_numel(axes)
    return grouped(axes, max((k for k in range(SHORT_ROW, PIECE + 1) if length % k == 0), default=length))


def grouped(axes: d.Axes, size: int) -> tuple[tuple[Axis, ...], Axis, Mapping[Axis, Index]]:
    """(an axis over the groups, if there are several; one over the `size` elements of each; `axes` by these two)."""
    block, lane = Axis("", d.domain_numel(axes) // size), Axis("", size)
    flat = (of_axis(block) * size if block.extent != 1 else ZERO) + (of_axis(lane) if size != 1 else ZERO)
    moved = {axis: digit for axis, digit in d.digits_of(flat, axes).items() if axis.extent != 1}
    return (block,) if block.extent != 1 else (), lane, moved


def outer_loops(axes: Sequence[Axis], numel: int, body: list[ir.Stmt], target: Target) -> list[ir.Stmt]:
    """Loops over independent axes around `body`; the first is parallel where `numel` elements are worth it."""
    for depth, axis in reversed([*enumerate(axes)]):
        parallel = depth == 0 and is_worth_threads(numel, target)
        body = [loop_of(axis, "parallel" if parallel else "serial", body)]
    return body


def _search(
    reduction: d.Reduce, line: Axis, lane: Axis, moved: Mapping[Axis, Index], params: ParamTable
) -> list[ir.Stmt]:
    """The statements for one piece of a line."""
    dtype = reduction.accumulate
    place = int32 if dtype.itemsize <= 4 and line.extent < 1 << 31 else int64
    at = of_axis(lane)
    best, best_place = x.Load("s0", at, dtype), x.Load("s1", at, place)
    start = x.Const(identity(reduction.kind, dtype).item(), dtype)
    rows: list[ir.Stmt] = []
    column: list[ir.Stmt] = []
    translate = Translator((lane,), lambda load: None, params.read)
    translate.enter(rows, column)
    value = translate.let(column, translate(d.substitute(reduction.value, moved, {})))
    old = translate.let(column, best)
    better = translate.let(column, beats(value, old, reduction.kind))
    column.append(ir.Store("s0", at, x.Where(better, value, old)))
    column.append(ir.Store("s1", at, x.Where(better, x.IndexValue(of_axis(line), place), best_place)))
    vector: ir.LoopKind = "serial" if any(isinstance(stmt, ir.Check) for stmt in column) else "vector"
    target = d.substitute_index(reduction.kept, moved, {})
    return [
        ir.Local("s0", dtype, lane.extent),
        ir.Local("s1", place, lane.extent),
        loop_of(lane, "vector", [ir.Store("s0", at, start), ir.Store("s1", at, x.Const(0, place))]),
        loop_of(line, "serial", [*rows, loop_of(lane, vector, column)]),
        loop_of(lane, "vector", [ir.Store(params.write(reduction.name), target, cast(best_place, reduction.dtype))]),
    ]


def beats(value: x.Expr, old: x.Expr, kind: str, *, last: bool = False) -> x.Expr:
    """Whether `value`, which comes later, takes the place of `old`. last: also where they are equal, or both NaN."""
    dtype = value.dtype
    if dtype is bool_:
        there, here = (value, old) if ir.REDUCING[kind].beats == ">" else (old, value)
        return call("bitwise_or" if last else "bitwise_and", (there, call("logical_not", (here,))))
    sign = {">": ("gt", "ge"), "<": ("lt", "le")}[ir.REDUCING[kind].beats][last]
    better = call(sign, (value, old))
    if not dtype.is_floating_point:
        return better
    is_nan, was_number = call("ne", (value, value)), call("eq", (old, old))
    return call("bitwise_or", (better, is_nan if last else call("bitwise_and", (is_nan, was_number))))
