"""Expressions of the loop IR as Triton, one line of text each.

In: an `Expr`, the index printer, what is block-valued, the masks in force. Out: text of the register type of
`expr.dtype`. A value is a scalar or a block of lanes (one per iteration of the running vector loop).
Invariant: no load leaves its buffer: loads are masked by the loop's own mask and by every `Where` around them, because
Triton evaluates both sides of a selection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compiler_core.codegen.index import IndexPrinter
from compiler_core.codegen.triton.scalars import emit_scalar
from compiler_core.codegen.triton.types import literal, register_type
from compiler_core.dtype import DType, bfloat16, bool_, float32, int64
from compiler_core.errors import LoweringError
from compiler_core.loop_ir.expr import (
    Call,
    Cast,
    Const,
    Expr,
    Index,
    IndexCompare,
    IndexValue,
    Load,
    Var,
    Where,
    children,
)
from compiler_core.symbolic.functions import FloorDiv


class TritonIndexPrinter(IndexPrinter):
    """Index expressions in Python's syntax. Triton's // and % truncate: helpers serve what may be negative."""

    __slots__ = ()

    def _division(self, index: Index) -> str:
        dividend, divisor = index.args
        operator, helper = ("//", "floor_div") if isinstance(index, FloorDiv) else ("%", "floor_mod")
        of = self.bounds(dividend)
        if of is None or of[0] < 0 or not divisor.is_Integer:
            self.helpers.update((helper, "floor_div"))
            as_tensor = f"tl.full((), 0, tl.int64) + ({self.text(dividend)})"
            return f"dc_{helper}({as_tensor}, tl.full((), {self.text(divisor)}, tl.int64))"
        return f"(({self.text(dividend)}) {operator} {int(divisor)})"


@dataclass(slots=True)
class Scope:
    """What the printer knows at a place. lanes: block-valued names. axis: the running vector loop's, or empty.

    registers: locals kept as one block of registers. masks: (text, is it a block?) of the conditions in force.
    """

    lanes: set[str] = field(default_factory=set)
    axis: str = ""
    registers: set[str] = field(default_factory=set)
    masks: list[tuple[str, bool]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ExprPrinter:
    """Prints expressions in a Scope. dtypes: of every buffer."""

    index: TritonIndexPrinter
    helpers: set[str]
    dtypes: Mapping[str, DType]
    scope: Scope

    def is_block(self, expr: Expr) -> bool:
        """Whether the value differs from lane to lane."""
        match expr:
            case Var(name, _):
                return name in self.scope.lanes
            case Load(buffer, index, _):
                return buffer in self.scope.registers or self.is_block_index(index)
            case IndexValue(index, _):
                return self.is_block_index(index)
            case IndexCompare():
                return bool(self.scope.axis)
            case _:
                return any(map(self.is_block, children(expr)))

    def is_block_index(self, index: Index) -> bool:
        return any(symbol.name in self.scope.lanes for symbol in index.free_symbols)

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
                axis = self.scope.axis  # a comparison of Python numbers would be no tensor
                zero = f"0 * {axis}" if axis else "tl.full((), 0, tl.int64)"
                return self.index.compare(op, left, right).replace("(", f"({zero} + ", 1)
            case Call(scalar, args, _):
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

    def _where(self, cond: Expr, then: Expr, other: Expr) -> str:
        taken = self.text(cond)
        is_block = self.is_block(cond)
        sides = []
        for side, mask in ((then, taken), (other, f"(~{taken})")):
            self.scope.masks.append((mask, is_block))
            sides.append(self.text(side))
            self.scope.masks.pop()
        return f"tl.where({taken}, {sides[0]}, {sides[1]})"

    def address(self, buffer: str, index: Index) -> tuple[str, str]:
        """Pointer and mask (or empty) of buffer[index] here."""
        is_block = self.is_block_index(index)
        place = self.index.text(index)
        masks = [text for text, block in self.scope.masks if is_block or not block]
        if not is_block and len(masks) < len(
            self.scope.masks
        ):  # a scalar place under a mask of lanes: a block after all
            place, is_block = f"({place}) + 0 * {self.scope.axis}", True
            masks = [text for text, _ in self.scope.masks]
        if is_block and self.scope.axis:
            masks.insert(0, f"{self.scope.axis}_mask")
        return f"{buffer} + {place}", " & ".join(masks)

    def _load(self, buffer: str, index: Index, dtype: DType) -> str:
        if buffer in self.scope.registers:
            return buffer
        pointer, mask = self.address(buffer, index)
        text = f"tl.load({pointer}, mask={mask}, other=0)" if mask else f"tl.load({pointer})"
        return f"({text} != 0)" if dtype is bool_ else text
