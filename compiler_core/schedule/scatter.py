"""A Scatter -> one kernel: the base copied, then every source element put in its place, in order.

In: a Scatter definition. Out: `Built`. The source loop is serial, so repeated places add up (or overwrite) in index
order and the result is the same on any number of threads. Its innermost loop is a vector loop if the place moves with
the innermost axis only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler_core.loop_ir import expr as x
from compiler_core.loop_ir import ir
from compiler_core.lowering import definition as d
from compiler_core.meta import TensorMeta
from compiler_core.schedule.finish import KernelTable, ParamTable
from compiler_core.schedule.kernel import Built, built, loop_of
from compiler_core.schedule.translate import Translator
from compiler_core.symbolic.index import Axis, of_axis


def build_scatter(scatter: d.Scatter, metas: Mapping[str, TensorMeta], table: KernelTable) -> Built:
    """The kernel of one scatter."""
    params = ParamTable(metas)
    target = params.write(scatter.name)
    copy, n_scalars = copy_base(scatter, target, params)
    return built([*copy, *_put(scatter, target, params, n_scalars)], params, [scatter], table)


def _live(axes: Sequence[Axis]) -> list[Axis]:
    return [axis for axis in axes if axis.extent != 1]


def copy_base(
    scatter: d.Scatter, target: str, params: ParamTable, outer: ir.LoopKind = "serial"
) -> tuple[list[ir.Stmt], int]:
    """The loops that copy, if any, and how many scalars they named. outer: the kind of all loops but the innermost."""
    if scatter.in_place:
        return [], 0
    flat = d.flat_of(scatter.base_axes)
    one = Axis("", scatter.numel)
    contiguous = not isinstance(scatter.base, x.Load) or scatter.base.index == flat
    is_plain = isinstance(scatter.base, x.Const) or (isinstance(scatter.base, x.Load) and contiguous)
    axes = _live([one] if is_plain else scatter.base_axes)
    table = d.digits_of(of_axis(one), scatter.base_axes) if is_plain else {}
    base, place = d.substitute(scatter.base, table, {}), d.substitute_index(flat, table, {})
    rows: list[ir.Stmt] = []
    column: list[ir.Stmt] = []
    translate = Translator(tuple(axes[-1:]), lambda load: None, params.read)
    translate.enter(rows, column)
    column.append(ir.Store(target, place, translate(base)))
    return _nest(axes, rows, column, "vector", outer), translate.n_scalars


def _put(scatter: d.Scatter, target: str, params: ParamTable, n_scalars: int) -> list[ir.Stmt]:
    """The loops over the source. n_scalars: how many names are taken."""
    axes = _live(scatter.axes)
    rows: list[ir.Stmt] = []
    column: list[ir.Stmt] = []
    translate = Translator(tuple(axes[-1:]), lambda load: None, params.read)
    translate.n_scalars = n_scalars
    translate.enter(rows, column)
    place = translate.index(scatter.target, None)
    column.append(ir.Store(target, place, translate(scatter.value), scatter.mode))
    vector = bool(axes) and place.coefficient(axes[-1]) != 0 and not any(isinstance(s, ir.Check) for s in column)
    moves = [atom for data in d.data_atoms(scatter.target) for atom in d.axes_in_expr(d.data_value(data))]
    return _nest(axes, rows, column, "vector" if vector and axes[-1] not in moves else "serial")


def _nest(
    axes: list[Axis],
    rows: list[ir.Stmt],
    column: list[ir.Stmt],
    innermost: ir.LoopKind,
    outer: ir.LoopKind = "serial",
) -> list[ir.Stmt]:
    """Loops over all axes but the last around `rows`, and the last around `column`."""
    if not axes:
        return [*rows, *column]
    body = [*rows, loop_of(axes[-1], innermost, column)]
    for axis in reversed(axes[:-1]):
        body = [loop_of(axis, outer, body)]
    return body
