"""Expressions of the loop IR as Triton, one line of text each.

In: an `Expr`, the index printer, what is block-valued, the masks in force. Out: text of the register type of
`expr.dtype`. A value is a scalar or a block of lanes (one per iteration of the running vector loop).
Invariant: no load leaves its buffer: loads are masked by the loop's own mask, and by every `Where` around them whose
condition depends on the place, because Triton evaluates both sides of a selection.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field

from compiler_core.codegen.index import IndexPrinter
from compiler_core.codegen.triton.scalars import emit_scalar
from compiler_core.codegen.triton.types import literal, register_type
from compiler_core.dtype import DType, bfloat16, bool_, float32, int64
from compiler_core.errors import LoweringError
from compiler_core.loop_ir.expr import (
    Cast,
    Const,
    Expr,
    IndexCompare,
    IndexValue,
    Load,
    ScalarCall,
    Var,
    Where,
    children,
)
from compiler_core.records import dataclass
from compiler_core.symbolic.index import Div, Index, Mod

SINE_BOUND = 65536.0  # of arguments whose quarter turns dc_sine32 takes off without loss
_AXIS = re.compile(r"i\d+")  # the name of one


class TritonIndexPrinter(IndexPrinter):
    """Index expressions in Python's syntax. Triton's // and % truncate: helpers serve what may be negative."""

    __slots__ = ()

    def _division(self, atom: Div | Mod) -> str:
        dividend, divisor = self.text(atom.arg), atom.n
        operator, helper = ("//", "floor_div") if isinstance(atom, Div) else ("%", "floor_mod")
        if atom.arg.bounds[0] < 0:
            self.helpers.update((helper, "floor_div"))
            return f"dc_{helper}(tl.full((), 0, tl.int64) + ({dividend}), tl.full((), {divisor}, tl.int64))"
        return f"(({dividend}) {operator} {divisor})"


Dims = frozenset[str]  # the lane axes along which a value differs
_SAME: Dims = frozenset()


@dataclass(slots=True)
class Scope:
    """What the printer knows at a place. lanes: names that differ from lane to lane, and along which axes.

    axes: the running block and vector loops, outermost first, each with the mask of its lanes, or "" if all count.
    registers: locals kept in registers. masks: text and dims of the conditions in force; choices: of those that are on
    numbers alone, so no place is in bounds because of them, unless it is a number itself. lets: names of values ->
    whether they depend on where they are computed, not on numbers alone.
    constant: buffers that nobody stores to: what was loaded of them is kept under a name. loaded: those names, by text.
    before: lines that must stand before the statement at hand. depth: how many blocks are open.
    """

    lanes: dict[str, Dims] = field(default_factory=dict)
    axes: dict[str, str] = field(default_factory=dict)
    registers: dict[str, Dims] = field(default_factory=dict)
    masks: list[tuple[str, Dims]] = field(default_factory=list)
    choices: list[tuple[str, Dims]] = field(default_factory=list)
    lets: dict[str, bool] = field(default_factory=dict)
    constant: set[str] = field(default_factory=set)
    loaded: dict[str, str] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)
    n_loaded: int = 0
    depth: int = 0


@dataclass(frozen=True, slots=True)
class ExprPrinter:
    """Prints expressions in a Scope. dtypes: of every buffer."""

    index: TritonIndexPrinter
    helpers: set[str]
    dtypes: Mapping[str, DType]
    scope: Scope

    def dims(self, expr: Expr) -> Dims:
        """The lane axes along which the value differs."""
        match expr:
            case Var(name, _):
                return self.scope.lanes.get(name, _SAME)
            case Load(buffer, index, _):
                return self.scope.registers[buffer] if buffer in self.scope.registers else self.load_dims(index)
            case IndexValue(index, _):
                return self.index_dims(index)
            case IndexCompare(_, left, right):
                return self.index_dims(left) | self.index_dims(right)
            case _:
                return _SAME.union(*map(self.dims, children(expr)))

    def index_dims(self, index: Index) -> Dims:
        return _SAME.union(*(self.scope.lanes.get(name, _SAME) for name in index.names))

    def load_dims(self, index: Index) -> Dims:
        """The axes along which what is loaded from there is a block: the masks in force are its masks."""
        return self.index_dims(index).union(*(mask_dims for _, mask_dims in self.masks_of(index)))

    def masks_of(self, index: Index) -> list[tuple[str, Dims]]:
        """The conditions without which a load from there could leave its buffer."""
        if not index.names.isdisjoint(self.scope.lets):  # a place that was computed
            return [*self.scope.masks, *self.scope.choices]
        return self.scope.masks

    def text(self, expr: Expr) -> str:
        match expr:
            case Const(value, dtype):
                return literal(value, dtype)
            case Var(name, _):
                return name
            case Load(buffer, index, dtype):
                return self._load(buffer, index, dtype)
            case IndexValue(index, dtype):
                return self.convert(f"(tl.full((), 0, tl.int64) + ({self.index.text(index)}))", int64, dtype)
            case IndexCompare(op, left, right):
                compared = self.index.compare(op, left, right)
                if self.dims(expr):
                    return compared
                return compared.replace("(", "(tl.full((), 0, tl.int64) + ", 1)  # of Python numbers: no tensor
            case ScalarCall("sin" | "cos" as scalar, (arg,), dtype) if dtype is float32 and self.dims(arg):
                return self._sine(scalar, self.text(arg))
            case ScalarCall(scalar, args, _):
                return emit_scalar(scalar, args, [self.text(arg) for arg in args], args[0].dtype, self.helpers)
            case Cast(arg, dtype):
                return self.convert(self.text(arg), arg.dtype, dtype)
            case Where(cond, then, other):
                return self._where(cond, then, other)
        raise LoweringError(f"no Triton for the expression {expr!r}")

    def convert(self, text: str, source: DType, target: DType) -> str:
        """`text` of dtype `source` as `target`."""
        if source is target:
            return text
        if bfloat16 in (source, target) and float32 not in (source, target):  # the interpreter knows no other way
            return self.convert(self.convert(text, source, float32), float32, target)
        return f"({text} != 0)" if target is bool_ else f"({text}).to({register_type(target)})"

    def _sine(self, scalar: str, arg: str) -> str:
        """Of a block: without branches, unless some lane is beyond what that is exact for."""
        self.helpers.update((f"{scalar}32", "beyond"))
        return f"dc_{scalar}32({arg}, {self._named(f'dc_beyond({arg}, {SINE_BOUND})')})"

    def _where(self, cond: Expr, then: Expr, other: Expr) -> str:
        taken = self.text(cond)
        dims = self.dims(cond)
        conditions = self.scope.masks if self.depends_on_place(cond) else self.scope.choices
        sides = []
        for side, mask in ((then, taken), (other, f"(~{taken})")):
            conditions.append((mask, dims))
            sides.append(self.text(side))
            conditions.pop()
        return f"tl.where({taken}, {sides[0]}, {sides[1]})"

    def depends_on_place(self, expr: Expr) -> bool:
        """Whether the value tells where it is computed, beside what numbers are there."""
        match expr:
            case IndexValue() | IndexCompare():
                return True
            case Var(name, _):
                return self.scope.lets.get(name, True)
            case _:
                return any(map(self.depends_on_place, children(expr)))

    def lane_masks(self, dims: Dims) -> list[str]:
        """The masks of the lanes along `dims`."""
        return [mask for axis, mask in self.scope.axes.items() if axis in dims and mask]

    def spread(self, text: str, dims: Dims) -> str:
        """`text`, an integer, as a block along `dims` too."""
        return " + ".join([text, *(f"0 * {axis}" for axis in self.scope.axes if axis in dims)])

    def address(self, buffer: str, index: Index) -> tuple[str, str]:
        """Pointer and mask (or empty) of buffer[index] here."""
        dims, place = self.index_dims(index), self.index.text(index)
        wanted, masks = self.load_dims(index), self.masks_of(index)
        if wanted != dims:  # a place under a mask that differs along more axes: a block along these, too
            place = self.spread(f"({place})", wanted - dims)
        return f"{buffer} + {place}", self.mask(wanted, masks)

    def mask(self, dims: Dims, masks: list[tuple[str, Dims]], *more: str) -> str:
        """The mask of a block along `dims`: of its lanes, of `masks`, and `more`; "" if there is none."""
        lanes, conditions = self.lane_masks(dims), list(dict.fromkeys(text for text, _ in masks))
        if dims and any(not mask_dims or self._is_one_number(text) for text, mask_dims in masks):
            # the interpreter takes a truth value of one number, as a block, for a number
            lanes = lanes or [f"({axis} >= 0)" for axis in self.scope.axes if axis in dims]
            return f"({' & '.join([*more, *lanes, *conditions])}) != 0"
        return " & ".join([*more, *lanes, *conditions])

    def _is_one_number(self, condition: str) -> bool:
        """Whether a comparison of axes, as simplified, mentions none that is a block here."""
        names = set(re.findall(r"[a-z_]\w*", condition))
        return bool(names) and names.isdisjoint(self.scope.axes) and all(map(_AXIS.fullmatch, names))

    def _load(self, buffer: str, index: Index, dtype: DType) -> str:
        if buffer in self.scope.registers:
            return buffer
        pointer, mask = self.address(buffer, index)
        text = f"tl.load({pointer}, mask={mask}, other=0)" if mask else f"tl.load({pointer})"
        text = f"({text} != 0)" if dtype is bool_ else text
        return self._named(text) if buffer in self.scope.constant else text

    def _named(self, text: str) -> str:
        """The name of what is loaded: once for all loads of one text."""
        if text not in self.scope.loaded:
            name = f"v{self.scope.n_loaded}"
            self.scope.n_loaded += 1
            self.scope.before.append(f"{name} = {text}")
            self.scope.loaded[text] = name
        return self.scope.loaded[text]
