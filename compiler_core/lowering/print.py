"""Definitions -> text, a line each; the grammar is in definition.py. The text parses back to equal text (`parse.py`).

In: `Defined`. Out: text. Axes are named d0, d1, ... in each line, those of a scatter's base b0, b1, ...
notes: the graph's nodes and the user's lines, as comments.
"""

from __future__ import annotations

from collections.abc import Iterator

from compiler_core.graph.print import print_attr
from compiler_core.loop_ir.expr_text import ExprPrinter
from compiler_core.loop_ir.ir import Slot
from compiler_core.loop_ir.print import print_slot, print_view
from compiler_core.lowering import definition as d
from compiler_core.meta import TensorMeta
from compiler_core.symbolic.index import Variable


def print_definitions(defined: d.Defined, *, notes: bool = False) -> str:
    """All lines, ending in a newline."""
    lines = [f"definitions {defined.name}"]
    for name in defined.inputs:
        share = " share" if name in defined.shares else ""
        lines.append(f"  input {_declared(name, defined.metas[name])}{share}")
    for definition in defined.definitions.values():
        note = f"  # {definition.note}" if notes and definition.note else ""
        lines.append(f"  {print_definition(definition, defined.metas[definition.name])}{note}")
    lines += [f"  storage {name} in {home}" for name, home in defined.storage.items()]
    lines.append(f"  outputs {', '.join(defined.outputs)}".rstrip())
    return "\n".join([*lines, ""])


def _declared(name: str, meta: TensorMeta) -> str:
    return f"{name}: {meta.dtype.short} {meta.shape}"


def print_definition(definition: d.Definition, meta: TensorMeta) -> str:
    """One line."""
    return f"{_declared(definition.name, meta)} {_Line(definition).text}"


class _Line:
    """What stands behind the declaration. names: of the axes."""

    def __init__(self, definition: d.Definition) -> None:
        self.names: dict[Variable, str] = {}
        self._printer = ExprPrinter(variable=lambda variable: self.names[variable])
        self.text = self._text(definition)

    def _text(self, definition: d.Definition) -> str:
        expr, index = self._printer.text, self._printer.index
        match definition:
            case d.Element(_, _, axes, value, _, part):
                into = "" if part is None else f" into {print_slot(Slot(part.target, part.offset))}"
                return f"element {self._axes(axes)}{into}{f' at {index(part.index)}' if part else ''} = {expr(value)}"
            case d.Reduce(_, _, axes, value, kind, kept, _, accumulate):
                return f"reduce {kind} in {accumulate.short} {self._axes(axes)} at {index(kept)} = {expr(value)}"
            case d.Scatter():
                source, base = self._axes(definition.axes), self._axes(definition.base_axes, "b")
                parts = (expr(definition.value), index(definition.target), expr(definition.base))
                place = " in place" if definition.in_place else ""
                return f"scatter {definition.mode} {source} onto {base}{place} = {', '.join(parts)}"
            case d.Scan(_, _, axes, values, kind, line, reverse, carried):
                along = f"{self._axes(axes)} along {self.names[line]}{' reverse' if reverse else ''}"
                return f"scan {kind} in {carried.short} {along} = {', '.join(map(expr, values))}"
            case d.Gemm():
                return " ".join(_gemm(definition))
            case d.LibraryCall(_, _, routine, operands, _, attrs):
                attributes = "".join(f" {key}={print_attr(value)}" for key, value in attrs)
                return f"routine {routine.name} ({'; '.join(map(print_view, operands))}){attributes}"
            case d.Assembly(_, _, parts):
                return f"assembly ({', '.join(parts)})"

    def _axes(self, axes: d.Axes, letter: str = "d") -> str:
        self.names |= {axis: f"{letter}{k}" for k, axis in enumerate(axes)}
        return f"[{', '.join(f'{self.names[axis]}:{axis.extent}' for axis in axes)}]"


def _gemm(gemm: d.Gemm) -> Iterator[str]:
    yield f"gemm {gemm.batch} {gemm.m} {gemm.n} {gemm.k}"
    for name, one in (("a", gemm.a), ("b", gemm.b), ("out", gemm.out)):
        yield f"{name} {print_slot(Slot(one.source, one.offset))} {one.batch} {one.row} {one.col}"
    if gemm.alpha != 1.0:
        yield f"alpha={gemm.alpha!r}"
    for key, value in (("scale", gemm.scale), ("onto", gemm.onto), ("bias", gemm.bias)):
        if value:
            yield f"{key}={value}"
