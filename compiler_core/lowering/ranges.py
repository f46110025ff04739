"""Between which numbers the integers of a graph lie: a place that is known to be inside an array is not checked.

In: the nodes of a graph in order (`Ranges.note`), an expression over them (`Ranges.of`). Out: inclusive (low, high), or
None where nothing is known. Known are constants, places that an op found in an array (argmax, sort, a running maximum),
and what minimum, maximum, sums, differences, products and choices make of known ones, if it fits their dtype; of truth
values, what comparisons (lt) decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from compiler_core.dtype import DType
from compiler_core.graph.ir import Call, Constant, Node
from compiler_core.loop_ir import expr as x
from compiler_core.ops import rules

Range: TypeAlias = tuple[int, int]
_PLACES = ("argmax", "argmin", "argsort", "topk_places", "rank_place", "cummax_places", "cummin_places")  # along `dim`
_SAME = ("gather", "take", "cast", "detach")  # an element is one of the first operand's
_TRUTH = (0, 1)
_MANY = 1 << 12  # elements of a constant that are looked at


class Ranges:
    """known: of the nodes noted so far, by name."""

    def __init__(self) -> None:
        self.known: dict[str, Range] = {}

    def note(self, node: Node) -> None:
        """Remember what is known of `node`, whose operands were noted."""
        found = self._made(node) if node.dtype.kind in "iub" else None
        if found is not None and _fits(found, node.dtype):
            self.known[node.name] = found
        elif node.dtype.kind == "b":
            self.known[node.name] = _TRUTH

    def _made(self, node: Node) -> Range | None:
        if isinstance(node, Constant):
            some = 0 < node.meta.numel <= _MANY
            return (int(node.array.min()), int(node.array.max())) if some else None
        if not isinstance(node, Call):
            return None
        name, first = node.op.name, node.args[0] if node.args else None
        if name == "full":
            return int(node.attrs["value"]), int(node.attrs["value"])
        if name in _PLACES and first is not None:
            dim = node.attrs["dims"][0] if "dims" in node.attrs else node.attrs["dim"]
            last = first.shape[dim] - 1
            return (0, last) if last >= 0 else None
        known = [self.known.get(arg.name) for arg in node.args]
        if name in _SAME or isinstance(node.op.lower, rules.Movement):
            return known[0]
        return _combined(name, known, node.dtype)

    def of(self, value: x.Expr) -> Range | None:
        """What is known of an integer expression."""
        match value:
            case x.Const(number, dtype):
                found = (int(number), int(number)) if dtype.kind in "iub" else None  # type: ignore[arg-type]
            case x.Load(buffer, _, _):
                found = self.known.get(buffer)
            case x.Cast(arg, _):
                found = self.of(arg)
            case x.Where(cond, then, other):
                found = _combined("where", [self.of(part) for part in (cond, then, other)], value.dtype)
            case x.ScalarCall(scalar, args, _):
                found = _combined(scalar, [self.of(arg) for arg in args], value.dtype)
            case _:
                found = _TRUTH if value.dtype.kind == "b" else None
        return found if found is not None and _fits(found, value.dtype) else None


def _ends(dtype: DType) -> Range:
    if dtype.kind == "b":
        return _TRUTH
    bits = 8 * dtype.itemsize
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype.kind == "i" else (0, (1 << bits) - 1)


def _fits(found: Range, dtype: DType) -> bool:
    low, high = _ends(dtype)
    return dtype.kind in "iub" and low <= found[0] and found[1] <= high


def _combined(name: str, known: Sequence[Range | None], dtype: DType) -> Range | None:
    """What a function of numbers in these ranges gives, of `dtype`."""
    match name, known:
        case "minimum" | "maximum", [a, b] if a or b:
            best = min if name == "minimum" else max
            (low, high), (other_low, other_high) = a or _ends(dtype), b or _ends(dtype)
            return best(low, other_low), best(high, other_high)
        case "add", [(low, high), (other_low, other_high)]:
            return low + other_low, high + other_high
        case "sub", [(low, high), (other_low, other_high)]:
            return low - other_high, high - other_low
        case "mul", [(low, high), (other_low, other_high)]:
            corners = (low * other_low, low * other_high, high * other_low, high * other_high)
            return min(corners), max(corners)
        case "where", [(is_it, may_be), then, other] if is_it == may_be:
            return then if is_it else other
        case "where", [_, (low, high), (other_low, other_high)]:
            return min(low, other_low), max(high, other_high)
        case "lt", [(_, high), (low, _)] if high < low:
            return 1, 1
        case "lt", [(low, _), (_, high)] if low >= high:
            return 0, 0
    return None
