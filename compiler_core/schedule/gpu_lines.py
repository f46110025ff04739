"""Scans, and places sought across rows -> one loop-IR kernel for a GPU: lines side by side, each by one lane.

In: a Scan, or a Reduce of kind argmax or argmin whose result moves with its last axes. Out: `Built`. Every axis but the
line's is independent: one is a block loop, the one behind the line if there is one, so that lanes read side by side,
the others are parallel; the line is a serial loop, and what is carried along it stays in registers.
Limits: a line is gone along one element after the other; few lines, and long ones, leave most of a GPU idle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler_core.loop_ir import expr as x
from compiler_core.loop_ir import ir
from compiler_core.lowering import definition as d
from compiler_core.lowering.emitter import cast
from compiler_core.meta import TensorMeta
from compiler_core.schedule.finish import KernelTable, ParamTable
from compiler_core.schedule.kernel import Built, built, loop_of
from compiler_core.schedule.places import grouped
from compiler_core.schedule.scan import step
from compiler_core.schedule.translate import Translator
from compiler_core.symbolic.index import ZERO, Axis, Index, of_axis


def build_places(reduction: d.Reduce, metas: Mapping[str, TensorMeta], table: KernelTable) -> Built:
    """The kernel of one search along a dim that is not the last."""
    kept = d.axes_in(reduction.kept)
    line = next(axis for axis in reduction.axes if axis not in kept and axis.extent != 1)
    outer, lane, moved = _lanes(reduction.axes, line)
    params = ParamTable(metas)
    column: list[ir.Stmt] = []
    translate = Translator((), lambda load: None, params.read)
    translate.enter(column, None)
    value = translate(d.substitute(reduction.value, moved, {}))
    column.append(ir.Accumulate("a0", value, of_axis(line)))
    found = cast(x.Var("a0", reduction.dtype), reduction.dtype)
    body: list[ir.Stmt] = [
        ir.Accumulator("a0", reduction.accumulate, reduction.kind),
        loop_of(line, "serial", column),
        ir.Store(params.write(reduction.name), d.substitute_index(reduction.kept, moved, {}), found),
    ]
    return built(_nest(outer, lane, body), params, [reduction], table)


def build_scan(scan: d.Scan, metas: Mapping[str, TensorMeta], table: KernelTable) -> Built:
    """The kernel of one scan."""
    outer, lane, moved = _lanes(scan.axes, scan.line)
    params = ParamTable(metas)
    along = {**moved}
    if scan.reverse and scan.line.extent != 1:
        along[scan.line] = of_axis(scan.line) * -1 + (scan.line.extent - 1)
    column: list[ir.Stmt] = []
    translate = Translator((), lambda load: None, params.read)
    translate.enter(column, None)
    values = [translate.let(column, translate(d.substitute(value, along, {}))) for value in scan.values]
    state, result = step(scan, values, ZERO, translate, column, along)
    target = d.substitute_index(d.flat_of(scan.axes), along, {})
    column.append(ir.Store(params.write(scan.name), target, cast(result, scan.dtype)))
    body: list[ir.Stmt] = [ir.Local(name, start.dtype, 1) for name, start in state]
    body += [ir.Store(name, ZERO, start) for name, start in state]
    body += column if scan.line.extent == 1 else [loop_of(scan.line, "serial", column)]
    return built(_nest(outer, lane, body), params, [scan], table)


def _lanes(axes: d.Axes, line: Axis) -> tuple[Sequence[Axis], Axis, Mapping[Axis, Index]]:
    """(parallel axes, the one whose lanes stand side by side, `axes` by these)."""
    position = axes.index(line)
    before = tuple(axis for axis in axes[:position] if axis.extent != 1)
    behind = axes[position + 1 :]
    if d.domain_numel(behind) > 1:
        _, lane, moved = grouped(behind, d.domain_numel(behind))
        return before, lane, moved
    _, lane, moved = grouped(before, d.domain_numel(before))
    return (), lane, moved


def _nest(outer: Sequence[Axis], lane: Axis, body: list[ir.Stmt]) -> list[ir.Stmt]:
    body = [loop_of(lane, "block", body)] if lane.extent != 1 else body
    for axis in reversed(outer):
        body = [loop_of(axis, "parallel", body)]
    return body
