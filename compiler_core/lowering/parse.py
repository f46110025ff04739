"""Text -> definitions: the inverse of `print.py`, for tests and for dumps edited by hand.

In: text. Out: `Defined`; its axes are new. Raises GraphError with the line that does not fit.
Limits: comments are dropped; a value whose name is a keyword of Python does not read back.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import get_args

from compiler_core.dtype import DType, by_name
from compiler_core.errors import GraphError
from compiler_core.graph.parse import parse_attrs
from compiler_core.loop_ir.expr_text import ExprReader, parsed
from compiler_core.loop_ir.ir import ReduceKind, StoreMode
from compiler_core.loop_ir.parse import read_slot, read_view
from compiler_core.lowering import definition as d
from compiler_core.meta import TensorMeta
from compiler_core.ops.routine import ROUTINES
from compiler_core.symbolic.index import Axis

_DECLARATION = re.compile(r"(\w+): (\w+) (\([^)]*\))(?: (\w+)(?: (.*))?)?$")
_AXES = r"\[([^\]]*)\]"
_ELEMENT = re.compile(rf"{_AXES}(?: into (\S+) at (.*))?$")
_REDUCE = re.compile(rf"(\w+) in (\w+) {_AXES} at (.*)$")
_SCATTER = re.compile(rf"(\w+) {_AXES} onto {_AXES}( in place)?$")
_SCAN = re.compile(rf"(\w+) in (\w+) {_AXES} along (\w+)( reverse)?$")
_MATRIX = r"(\S+) (\([^)]*\)) (\d+) (\d+)"
_GEMM = re.compile(rf"(\([^)]*\)) (\d+) (\d+) (\d+) a {_MATRIX} b {_MATRIX} out {_MATRIX}(.*)$")
_ROUTINE = re.compile(r"(\w+) \(((?:[^()]|\([^()]*\))*)\)(.*)$")
_STORAGE = re.compile(r"(\w+) in (\w+)$")
_KINDS: dict[str, ReduceKind] = {kind: kind for kind in get_args(ReduceKind)}
_MODES: dict[str, StoreMode] = {"set": "set", "add": "add"}  # of scatters


def parse_definitions(text: str) -> d.Defined:
    """The definitions that `text` spells."""
    head, *lines = [line.split("  # ")[0].strip() for line in text.splitlines() if line.strip()]
    word, _, name = head.partition(" ")
    if word != "definitions":
        raise GraphError("expected `definitions NAME`", got=head)
    defined, inputs = d.Defined(name=name), []
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "outputs":
            defined.outputs = tuple(name for name in rest.split(", ") if name)
        elif word == "storage":
            home = _matched(_STORAGE, rest)
            defined.storage[home[1]] = home[2]
        elif word == "input":
            inputs.append(_declare(rest.removesuffix(" share"), defined)[0])
            defined.shares |= {inputs[-1]} if rest.endswith(" share") else set()
        else:
            name, kind, rest = _declare(line, defined)
            defined.definitions[name] = _Line(name, defined).read(kind, rest)
    return defined


def _matched(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    match = pattern.match(text)
    if match is None:
        raise GraphError("not a line of definitions", got=text)
    return match


def _declare(text: str, defined: d.Defined) -> tuple[str, str, str]:
    """(name, kind of definition, rest) of a line; its meta is noted."""
    name, dtype, shape, kind, rest = _matched(_DECLARATION, text).groups(default="")
    defined.metas[name] = TensorMeta(ast.literal_eval(shape), by_name(dtype))
    return name, kind, rest


class _Line:
    """One definition: its name, and what is declared before it."""

    def __init__(self, name: str, defined: d.Defined) -> None:
        self.name, self.meta = name, defined.metas[name]
        self.reader = ExprReader({name: meta.dtype for name, meta in defined.metas.items()})

    @property
    def dtype(self) -> DType:
        return self.meta.dtype

    def read(self, kind: str, text: str) -> d.Definition:
        readers: dict[str, Callable[[str], d.Definition]] = {
            "element": self._element, "reduce": self._reduce, "scatter": self._scatter, "scan": self._scan,
            "gemm": self._gemm, "routine": self._routine, "assembly": self._assembly,
        }  # fmt: skip
        if kind not in readers:
            raise GraphError(f"{self.name}: there is no such definition", expected=", ".join(readers), got=kind)
        return readers[kind](text)

    def _axes(self, text: str) -> d.Axes:
        pairs = [part.split(":") for part in text.split(", ") if part]
        axes = {name: Axis(name, int(extent)) for name, extent in pairs}
        self.reader.axes |= axes
        return tuple(axes.values())

    def _split(self, text: str) -> tuple[str, list[ast.expr]]:
        """What stands before `=`, and the expressions behind it."""
        head, _, values = text.partition(" = ")
        tree = parsed(f"({values},)")
        return head, tree.elts if isinstance(tree, ast.Tuple) else [tree]

    def _element(self, text: str) -> d.Element:
        head, (value,) = self._split(text)
        found = _matched(_ELEMENT, head)
        axes, part = self._axes(found[1]), None
        if found[2]:
            slot = read_slot(found[2])
            part = d.AssemblyPart(slot.buffer, slot.offset, self.reader.index(found[3]))
        return d.Element(self.name, self.dtype, axes, self.reader.expr_of(value), part=part)

    def _reduce(self, text: str) -> d.Reduce:
        head, (value,) = self._split(text)
        kind, accumulate, axes, at = _matched(_REDUCE, head).groups()
        found, read = self._axes(axes), self.reader.expr_of(value)
        kept = self.reader.index(at)
        return d.Reduce(self.name, self.dtype, found, read, _KINDS[kind], kept, self.meta.numel, by_name(accumulate))

    def _scatter(self, text: str) -> d.Scatter:
        head, (value, target, base) = self._split(text)
        found = _matched(_SCATTER, head)
        axes, base_axes = self._axes(found[2]), self._axes(found[3])
        read = self.reader
        parts = read.expr_of(value), base_axes, read.expr_of(base), read.index_of(target), _MODES[found[1]]
        return d.Scatter(self.name, self.dtype, axes, *parts, in_place=bool(found[4]))

    def _scan(self, text: str) -> d.Scan:
        head, values = self._split(text)
        kind, carried, axes, line, reverse = _matched(_SCAN, head).groups()
        found = self._axes(axes)
        read = tuple(map(self.reader.expr_of, values))
        return d.Scan(self.name, self.dtype, found, read, kind, self.reader.axes[line], bool(reverse), by_name(carried))

    def _gemm(self, text: str) -> d.Gemm:
        batch, m, n, k, *matrices, rest = _matched(_GEMM, text).groups()
        a, b, out = (_operand(*matrices[at : at + 4]) for at in (0, 4, 8))
        more = dict(part.split("=") for part in rest.split())
        alpha = float(more.pop("alpha", "1.0"))
        return d.Gemm(self.name, self.dtype, ast.literal_eval(batch), int(m), int(n), int(k), a, b, out, alpha, **more)

    def _routine(self, text: str) -> d.LibraryCall:
        import compiler_core.ops.prims  # noqa: F401  registers the routines that the text names

        found = _matched(_ROUTINE, text)
        if found[1] not in ROUTINES:
            raise GraphError("expected `routine NAME (VIEWS) ATTRIBUTES`", got=text)
        operands = tuple(read_view(part) for part in found[2].split("; ") if part)
        attrs = tuple(sorted(parse_attrs(found[3]).items()))
        return d.LibraryCall(self.name, self.dtype, ROUTINES[found[1]], operands, self.meta.shape, attrs)

    def _assembly(self, text: str) -> d.Assembly:
        parts = tuple(name for name in text.strip("()").split(", ") if name)
        return d.Assembly(self.name, self.dtype, parts, self.meta.numel)


def _operand(place: str, batch: str, row: str, col: str) -> d.Operand:
    slot = read_slot(place)
    return d.Operand(slot.buffer, slot.offset, ast.literal_eval(batch), int(row), int(col))
