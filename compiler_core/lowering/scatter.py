"""Scatters that are really pointwise.

Each result element knows from its own index whether, and from where, it is written.

In: a scatter's source axes, value, base and target, per dimension. Out: the equivalent expression over base_axes, or
None. Two cases. A strided region (`slice_scatter`): target dimension k is start + step * axis. One element a line (the
adjoint of picking a class's logit): one dimension's place is data, the source has extent 1 there, all others are the
identity. Everything else (repeated rows in an embedding's gradient) really scatters, in order.
"""

from __future__ import annotations

from compiler_core.dtype import bool_
from compiler_core.loop_ir import expr as x
from compiler_core.lowering import definition as d
from compiler_core.lowering.emitter import Emitter, call
from compiler_core.symbolic.index import Axis, Data, Index, of_axis

_TRUE = x.Const(True, bool_)


def scatter_as_element(
    axes: d.Axes, value: x.Expr, base_axes: d.Axes, base: x.Expr, target: tuple[Index, ...], mode: str
) -> x.Expr | None:
    """The result element at base_axes, if it can be told from its index."""
    table: dict[Axis, Index] = {}
    condition: x.Expr = _TRUE
    told: x.Expr = _TRUE  # by data, which is read only where the rest of the index lies within it
    for position, (place, out) in enumerate(zip(target, base_axes)):
        # target dim k is written from source dim k, or from none
        source = axes[position] if position < len(axes) else None
        if (by_data := _solve_data(place, source, out)) is not None:
            told = _both(told, by_data)
            continue
        solved = _solve_affine(place, source, out, table)
        if solved is None:
            return None
        condition = _both(condition, solved)
    if any(axis.extent != 1 and axis not in table for axis in axes):
        return None
    condition = _both(condition, told)
    memo: dict[x.Expr, x.Expr] = {}
    condition, value = d.substitute(condition, table, memo), d.substitute(value, table, memo)
    written = call("add", (base, value)) if mode == "add" else value
    return Emitter().where(condition, written, base)


def _both(left: x.Expr, right: x.Expr) -> x.Expr:
    if isinstance(left, x.Const):
        return right if left.value else left
    if isinstance(right, x.Const):
        return left if right.value else right
    return x.Where(left, right, x.Const(False, bool_))


def _solve_data(place: Index, source: Axis | None, out: Axis) -> x.Expr | None:
    """place is one Data and the source has one element along this dimension."""
    if source is None or source.extent != 1 or len(place.terms) != 1 or place.const:
        return None
    (atom, coefficient), *_ = place.terms.items()
    if not isinstance(atom, Data) or coefficient != 1:
        return None
    return x.IndexCompare("eq", of_axis(out), place)


def _solve_affine(place: Index, source: Axis | None, out: Axis, table: dict[Axis, Index]) -> x.Expr | None:
    """place = start + step * source: the source index as a function of `out`, and when it exists."""
    e = Emitter()
    if place.is_const:
        return e.compare("eq", of_axis(out), place.const)
    if source is None or set(place.terms) != {source} or source in table:
        return None
    step, start = place.terms[source], place.const
    offset = (of_axis(out) - start) * (1 if step > 0 else -1)
    step = abs(step)
    table[source] = offset // step
    inside = _both(e.compare("ge", offset, 0), e.compare("le", offset, (source.extent - 1) * step))
    return inside if step == 1 else _both(inside, e.compare("eq", offset % step, 0))
