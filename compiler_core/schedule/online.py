"""Long rows gone over once: the sum of exponentials beside the maximum, and a picked element instead of a masked sum.

In: a group's members and its `LoopShape`. Out: members that mean the same, for a GPU whose registers do not hold a row.

    sum over a row of exp(u - max u)              -> an accumulator of kind "expsum", fed with u beside the maximum's
    sum over a row of where(column == k, v, 0)    -> v at column k, if k is a column; else 0
    what nobody reads any more                    -> dropped
Source: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax". So a cross-entropy's forward reads its
logits once. Rows up to LONGEST stay as they are: they are read once anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from compiler_core.dtype import int64
from compiler_core.loop_ir import expr as x
from compiler_core.lowering import definition as d
from compiler_core.lowering.emitter import cast
from compiler_core.schedule.legality import Info, LoopShape, Read, is_row_reduction, level_of
from compiler_core.symbolic.index import Axis, Data, Index, of_axis, of_data

LONGEST = 16384  # columns


def gone_over_once(infos: Mapping[str, Info], shape: LoopShape, stored: Collection[str]) -> Mapping[str, Info]:
    """`infos` after the rewrite; itself if there is nothing to do."""
    if shape.cols is None or shape.cols <= LONGEST:
        return infos
    rewrite = _Rewrite(infos, shape)
    made = {name: rewrite.visit(info) for name, info in infos.items()}
    return _needed(made, stored) if rewrite.changed else infos


def _needed(infos: Mapping[str, Info], stored: Collection[str]) -> dict[str, Info]:
    """What is stored, or read by what is needed."""
    live = {*stored}
    kept = []
    for name, info in reversed([*infos.items()]):
        if name in live:
            live |= _sources(info)
            kept.append(name)
    return {name: infos[name] for name in reversed(kept)}


def _sources(info: Info) -> set[str]:
    return {read.source for read in info.reads}


class _Rewrite:
    def __init__(self, infos: Mapping[str, Info], shape: LoopShape) -> None:
        self.infos, self.shape, self.changed = infos, shape, False

    def visit(self, info: Info) -> Info:
        definition = info.definition
        if not isinstance(definition, d.Reduce) or definition.kind != "sum":
            return info
        if not is_row_reduction(info, self.shape):
            return info
        value = self._expanded(definition.value, definition.axes)
        made = self._exponentials(info, definition, value) or self._picked(info, definition, value)
        self.changed |= made is not None
        return made or info

    def _expanded(self, value: x.Expr, axes: d.Axes) -> x.Expr:
        """`value` with the members that stand for every element written out."""
        flat = d.flat_of(axes)
        pending = True
        while pending:
            pending = False
            for load in dict.fromkeys(d.loads(value)):
                element = self._element(load.buffer)
                if element is not None and load.index == flat:
                    value = d.replace_load(value, load, d.value_at(element, flat))
                    pending = True
        return value

    def _element(self, name: str) -> d.Element | None:
        info = self.infos.get(name)
        if info is None or level_of(info, self.shape) != "full" or not isinstance(info.definition, d.Element):
            return None
        return info.definition

    def _exponentials(self, info: Info, total: d.Reduce, value: x.Expr) -> Info | None:
        """If `value` is exp(u - max u): the sum as an accumulator that knows the maximum so far."""
        match value:
            case x.ScalarCall("exp", (x.ScalarCall("sub", (u, x.Load(name, _, _)), _),), dtype):
                greatest = self.infos.get(name)
            case _:
                return None
        if greatest is None or not isinstance(greatest.definition, d.Reduce) or greatest.definition.kind != "max":
            return None
        maximum = greatest.definition
        same_rows = is_row_reduction(greatest, self.shape) and maximum.accumulate is dtype is total.accumulate
        fed = self._expanded(d.value_at(maximum, d.flat_of(total.axes)), total.axes)
        if not same_rows or fed != u:
            return None
        definition = replace(total, kind="expsum", value=d.value_at(maximum, d.flat_of(total.axes)))
        return replace(info, definition=definition, reads=greatest.reads)

    def _picked(self, info: Info, total: d.Reduce, value: x.Expr) -> Info | None:
        """If `value` is 0 but in one column: the element there."""
        match value:
            case x.Where(x.ScalarCall("eq", (x.IndexValue(index, _), key), _), then, x.Const(0, _)):
                pass
            case _:
                return None
        column = total.axes[-1]
        rows = tuple(axis for axis in total.axes if axis in d.axes_in(total.kept))
        whole = total.axes == (*rows, column) and column.extent == self.shape.cols
        if not whole or index != of_axis(column) or column in d.axes_in_expr(key) or key.dtype.kind != "i":
            return None
        place = of_data(Data(cast(key, int64)))
        zero = x.Const(0.0, then.dtype)
        inside = x.Where(x.IndexCompare("lt", place, Index({}, column.extent)), self._moved(then, column, place), zero)
        guarded = x.Where(x.IndexCompare("ge", place, Index({}, 0)), inside, zero)
        element = d.Element(total.name, total.dtype, rows, cast(guarded, total.dtype), total.note)
        reads = dict.fromkeys(Read(load.buffer, load.index, self._cols(load, rows)) for load in d.loads(element.value))
        return Info(element, d.domain_numel(rows), tuple(reads), None, d.domain_numel(rows))

    def _moved(self, value: x.Expr, column: Axis, place: Index) -> x.Expr:
        return d.substitute(value, {column: place}, {})

    def _cols(self, load: x.Load, rows: d.Axes) -> int | None:
        return None if load.index == d.flat_of(rows) else 0
