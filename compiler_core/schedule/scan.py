"""A Scan -> one kernel: along the line one element after the other, what was carried in a local array.

In: a Scan definition. Out: `Built`. Two arrangements, by what lies behind the line:
    a line of columns   rows in groups of up to ROWS, whose chains of operations overlap; the line is a serial loop
    lines side by side  the dims behind the line in pieces of at most PIECE, as a vector loop within the serial one
The value is computed on the way; a running value has the definition's dtype `carried` and is rounded when it is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler_core.dtype import DType
from compiler_core.loop_ir import expr as x
from compiler_core.loop_ir import ir
from compiler_core.loop_ir.interpret import identity
from compiler_core.lowering import definition as d
from compiler_core.lowering.emitter import Emitter, call, cast
from compiler_core.meta import TensorMeta
from compiler_core.records import dataclass
from compiler_core.schedule.finish import KernelTable, ParamTable
from compiler_core.schedule.kernel import Built, built, loop_of
from compiler_core.schedule.places import beats, grouped, outer_loops, pieces
from compiler_core.schedule.translate import Translator
from compiler_core.symbolic.index import ZERO, Axis, Index, of_axis

ROWS = 8  # chains that hide each other's latency


@dataclass(frozen=True)
class _Lanes:
    """outer: loops around; lane: those that run side by side; moved: the definition's axes by these."""

    outer: tuple[Axis, ...]
    lane: Axis
    moved: Mapping[Axis, Index]
    is_vector: bool


def build_scan(scan: d.Scan, metas: Mapping[str, TensorMeta], table: KernelTable) -> Built:
    """The kernel of one scan."""
    lanes = _lanes(scan)
    params = ParamTable(metas)
    body = _line(scan, lanes, params)
    return built(outer_loops(lanes.outer, scan.numel, body, table.target), params, [scan], table)


def _lanes(scan: d.Scan) -> _Lanes:
    position = scan.axes.index(scan.line)
    before, behind = scan.axes[:position], scan.axes[position + 1 :]
    if d.domain_numel(behind) > 1:
        outer = tuple(axis for axis in before if axis.extent != 1)
        block, lane, moved = pieces(behind)
        return _Lanes((*outer, *block), lane, moved, True)
    rows = d.domain_numel(before)
    size = max(k for k in range(1, ROWS + 1) if rows % k == 0)
    block, lane, moved = grouped(before, size)
    return _Lanes(block, lane, moved, False)


def _line(scan: d.Scan, lanes: _Lanes, params: ParamTable) -> list[ir.Stmt]:
    """The loops over one group of lines."""
    lane, line = lanes.lane, scan.line
    moved = {**lanes.moved}
    if scan.reverse and line.extent != 1:
        moved[line] = of_axis(line) * -1 + (line.extent - 1)
    rows: list[ir.Stmt] = []
    column: list[ir.Stmt] = []
    translate = Translator((lane, line), lambda load: None, params.read)
    translate.enter(rows, column)
    values = [translate.let(column, translate(d.substitute(value, moved, {}))) for value in scan.values]
    at = of_axis(lane) if lane.extent != 1 else ZERO
    state, result = step(scan, values, at, translate, column, moved)
    target = d.substitute_index(d.flat_of(scan.axes), moved, {})
    column.append(ir.Store(params.write(scan.name), target, cast(result, scan.dtype)))
    kind: ir.LoopKind = "vector" if lanes.is_vector and _no_checks(column) else "serial"
    starts: list[ir.Stmt] = [ir.Store(name, at, start) for name, start in state]
    return [
        *(ir.Local(name, start.dtype, lane.extent) for name, start in state),
        *_each(lane, kind, starts),  # of one kind with the loop below: in Triton a name is lanes, or a number
        *rows,
        *_each(line, "serial", _each(lane, kind, column)),
    ]


def step(
    scan: d.Scan,
    values: Sequence[x.Expr],
    at: Index,
    translate: Translator,
    column: list[ir.Stmt],
    moved: Mapping[Axis, Index],
) -> tuple[list[tuple[str, x.Const]], x.Expr]:
    """The carried arrays with what they start from, and the result at this place; the step is added to `column`."""
    old = x.Load("s0", at, scan.carried)
    if not ir.REDUCING[scan.kind].is_place:
        zero = _constant(0, scan.carried)
        *factor, term = (cast(value, scan.carried) for value in values)
        none = _constant(-0.0 if scan.carried.is_floating_point else 0, scan.carried)  # leaves a term as it is
        before = Emitter().where(_is_first(scan), none, call("mul", (factor[0], old))) if factor else old
        new = translate.let(column, call("add", (before, term)))
        column.append(ir.Store("s0", at, new))
        return [("s0", zero)], new
    (value,) = values
    best = translate.let(column, old)
    line = moved.get(scan.line, of_axis(scan.line) if scan.line.extent != 1 else ZERO)
    better = translate.let(column, beats(value, best, scan.kind, last=True))
    place = translate.let(column, x.Where(better, x.IndexValue(line, scan.dtype), x.Load("s1", at, scan.dtype)))
    column.append(ir.Store("s0", at, x.Where(better, value, best)))
    column.append(ir.Store("s1", at, place))
    start = x.Const(identity(scan.kind, scan.carried).item(), scan.carried)
    return [("s0", start), ("s1", _constant(0, scan.dtype))], place


def _is_first(scan: d.Scan) -> x.Expr:
    """At the first place nothing comes before: no factor, not even an infinite one, counts there."""
    return Emitter().compare("eq", of_axis(scan.line) if scan.line.extent != 1 else ZERO, 0)


def _constant(value: float, dtype: DType) -> x.Const:
    return x.Const(dtype.numpy.type(value).item(), dtype)


def _no_checks(body: Sequence[ir.Stmt]) -> bool:
    return not any(isinstance(stmt, ir.Check) for stmt in body)


def _each(axis: Axis, kind: ir.LoopKind, body: list[ir.Stmt]) -> list[ir.Stmt]:
    return body if axis.extent == 1 else [loop_of(axis, kind, body)]
