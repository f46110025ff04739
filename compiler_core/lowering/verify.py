"""Checks that definitions keep their invariants; every pass must leave some that this accepts.

In: `Defined`. Out: itself, or GraphError that names the definition and what is wrong. Checked: every value has a meta
of its definition's dtype and size; what is read is defined before, or an input; axes are of the domain, and an axis of
extent 1 stands in no index; expressions by the rules of loop IR (loop_ir/verify.py); loads that no test guards are
inside their value, as far as their index is linear; kept indices are a row-major part of the domain; operands of
products and routines lie inside their values; what is written into a value is one of its parts; outputs are defined,
each once.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import pairwise

from compiler_core.dtype import int64
from compiler_core.errors import GraphError
from compiler_core.loop_ir import expr as x
from compiler_core.loop_ir.verify import Names, check_expr, check_index
from compiler_core.lowering import definition as d
from compiler_core.lowering.print import print_definition


def verify_definitions(defined: d.Defined) -> d.Defined:
    """`defined`, if it is valid."""
    known = {name: defined.metas[name] for name in defined.inputs if name in defined.metas}
    check = _Check(defined)
    for name, definition in defined.definitions.items():
        if name != definition.name or name in known or name not in defined.metas:
            raise GraphError(f"definitions {defined.name}: {name} is defined twice, or has no meta or another name")
        check.definition(definition, known)
        known[name] = defined.metas[name]
    if len({*defined.outputs}) != len(defined.outputs) or not known.keys() >= {*defined.outputs}:
        raise GraphError(f"definitions {defined.name}: an output is not defined, or stands twice")
    if not known.keys() >= {*defined.storage.keys(), *defined.storage.values()}:
        raise GraphError(f"definitions {defined.name}: storage of what is not defined", got=str(defined.storage))
    return defined


class _Check:
    """One definition after the other."""

    def __init__(self, defined: d.Defined) -> None:
        self.defined, self.metas = defined, defined.metas

    def definition(self, one: d.Definition, known: Container[str]) -> None:
        """known: what may be read."""
        meta = self.metas[one.name]
        if meta.dtype is not one.dtype or meta.numel != one.numel:
            raise self._wrong(one, f"it has {one.numel} elements of {one.dtype.short}")
        unknown = [name for name in d.definition_reads(one) if name not in known]
        if unknown:
            raise self._wrong(one, f"it reads {', '.join(unknown)} before that is defined")
        match one:
            case d.Element():
                self._element(one)
            case d.Reduce():
                self._expressions(one, one.axes, one.value)
                self._kept(one)
            case d.Scatter():
                self._expressions(one, one.axes, one.value, x.IndexValue(one.target, int64))
                self._expressions(one, one.base_axes, one.base)
            case d.Scan():
                self._expressions(one, one.axes, *one.values)
                if one.line not in one.axes:
                    raise self._wrong(one, "it runs along an axis that is not its own")
            case d.Gemm():
                self._gemm(one)
            case d.LibraryCall():
                self._routine(one)
            case d.Assembly(_, _, parts):
                if len({self._home(part) for part in parts}) > 1:
                    raise self._wrong(one, "its parts are written into several values")

    def _wrong(self, one: d.Definition, why: str) -> GraphError:
        text = print_definition(one, self.metas[one.name])
        return GraphError(f"definitions {self.defined.name}: {one.name}: {why}", got=text)

    def _home(self, name: str) -> str:
        """The value in whose memory that of `name` is."""
        match self.defined.definitions[name]:
            case d.Gemm() as part:
                return part.out.source
            case d.Element(part=d.AssemblyPart(target, _, _)):
                return target
            case d.Assembly(parts=(first, *_)):
                return self._home(first)
        return name

    def _expressions(self, one: d.Definition, axes: d.Axes, *values: x.Expr) -> None:
        arrays = {name: meta.dtype for name, meta in self.metas.items()}
        names = Names(arrays, axes={axis: "serial" for axis in axes if axis.extent != 1}, may_read=True)
        for value in values:
            check_expr(value, names, f"definitions {self.defined.name}: {one.name}")
            for load in _unguarded(value):
                low, high = load.index.bounds
                if load.index.is_linear and not 0 <= low <= high < self.metas[load.buffer].numel:
                    raise self._wrong(one, f"{load.buffer}[{load.index}] leaves it")

    def _element(self, one: d.Element) -> None:
        self._expressions(one, one.axes, one.value)
        if one.value.dtype is not one.dtype:
            raise self._wrong(one, f"its value is {one.value.dtype.short}")
        if one.part is None:
            return
        target, (low, high) = self.metas.get(one.part.target), one.part.index.bounds
        if target is None or one.part.offset + low < 0 or one.part.offset + high >= target.numel:
            raise self._wrong(one, f"it leaves {one.part.target}")

    def _kept(self, one: d.Reduce) -> None:
        """Each place of the result is that of different values of the axes that stay."""
        names = Names(axes={axis: "serial" for axis in one.axes if axis.extent != 1})
        check_index(one.kept, names, one.value, f"definitions {self.defined.name}: {one.name}")
        steps = sorted((one.kept.coefficient(axis), axis.extent) for axis in d.axes_in(one.kept))
        full = all(outer == inner * extent for (inner, extent), (outer, _) in pairwise(steps))
        if not one.kept.is_linear or one.kept.const or (steps and steps[0][0] != 1) or not full:
            raise self._wrong(one, "its results are no row-major part of its domain")

    def _gemm(self, one: d.Gemm) -> None:
        for operand, rows, columns in ((one.a, one.m, one.k), (one.b, one.k, one.n), (one.out, one.m, one.n)):
            steps = [*zip(one.batch, operand.batch, strict=True), (rows, operand.row), (columns, operand.col)]
            last = operand.offset + sum((extent - 1) * stride for extent, stride in steps)
            if operand.source not in self.metas or last >= self.metas[operand.source].numel:
                raise self._wrong(one, f"it leaves {operand.source}")

    def _routine(self, one: d.LibraryCall) -> None:
        for view in one.operands:
            layout, meta = view.layout, self.metas[view.slot.buffer]
            if layout.dtype is not meta.dtype or view.slot.offset + layout.span > meta.numel:
                raise self._wrong(one, f"it leaves {view.slot.buffer}")
            if not one.routine.accepts(layout):
                raise self._wrong(one, f"{one.routine.name} does not accept {layout}")


def _unguarded(value: x.Expr) -> Iterator[x.Load]:
    """The loads that are made whatever the values are."""
    if isinstance(value, x.Load):
        yield value
    for child in (value.cond,) if isinstance(value, x.Where) else x.children(value):
        yield from _unguarded(child)
