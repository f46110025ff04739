"""What a mask selects: `x[mask]` in captured code, whose size only the data tells.

In: a traced tensor and a boolean one over its leading dims. Out: a handle that stands for the selection, without a
shape. Elementwise functions of selections of one mask, and of numbers and tensors that broadcast to an element, are
computed of all elements (`full`); written back through the same mask, that is a `where`; sum and mean are in the graph
too. Whatever else asks for it breaks the graph; at the end of the graph the selection itself is taken (`Outputs`): one
that is only handed on breaks nothing.
Where the mask is false, `full` holds 1, and so does a tensor beside it that takes a gradient: what is computed there
reaches nobody, and no gradient of it does, be it infinite or NaN.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

from compiler_core.dtype import bool_
from compiler_core.errors import GraphBreak
from compiler_core.graph.ir import Call, Constant, Node
from compiler_core.location import user_location
from compiler_core.ops import functional as F
from compiler_core.ops.registry import meta_of
from compiler_core.ops.rules import is_elementwise
from compiler_core.records import dataclass
from compiler_core.tensor.autograd.tape import TRACED
from compiler_core.tensor.memory.cell import Cell
from compiler_core.tensor.tensor import Tensor

NEEDS_DATA = "indexing by a mask needs the data of a traced tensor"
REMEDY = "use where, masked_fill, or multiply by the mask"
FACTS = frozenset({"dtype", "device", "requires_grad", "layout", "is_cuda", "is_leaf"})  # no data, and no shape
DEPTH = 6  # of two masks that are computed alike
AROUND = frozenset({"full", "expand", "reshape", "cast", "detach"})  # ops that only bring operands to one shape


class SelectionCell(Cell):
    """full: of every element, 1 where the mask does not hold. mask: what selects."""

    __slots__ = ("full", "mask")
    full: Tensor
    mask: Tensor

    def __init__(self, full: Tensor, mask: Tensor) -> None:
        self.full, self.mask = full, mask

    def unknown(self) -> Any:
        """What everything that does not know of selections comes to."""
        raise GraphBreak(NEEDS_DATA, where=user_location(), remedy=REMEDY)

    raw = value = property(unknown)
    version = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """A function of selections that needs the very elements."""


def is_selection(value: Any) -> bool:
    return isinstance(value, Tensor) and type(getattr(value, "_cell", None)) is SelectionCell


def elements(tensor: Tensor) -> Tensor:
    """A tensor of the same dtype, of which the shape is known."""
    cell = getattr(tensor, "_cell", None)  # none yet: a Parameter that is being made
    return cell.full if type(cell) is SelectionCell else tensor


class Selections:
    """Those of one segment. To be used under its trace."""

    def __init__(self) -> None:
        self.made: list[weakref.ref[Tensor]] = []

    def live(self) -> Iterator[Tensor]:
        """The handles that somebody still holds."""
        return (handle for ref in self.made if (handle := ref()) is not None and is_selection(handle))

    def take(self, tensor: Any, mask: Any, whole: bool = False) -> Tensor | None:
        """`tensor[mask]`; None for what is not selected by one mask over the leading dims (whole: over all)."""
        if not _selects(tensor, mask) or (whole and mask.ndim != tensor.ndim):
            return None
        return self._handle(_with_ones(tensor, mask), mask._snapshot())

    def _handle(self, full: Tensor, mask: Tensor) -> Tensor:
        handle = Tensor._from_cell(SelectionCell(full, mask), TRACED if full.requires_grad else None)
        self.made.append(weakref.ref(handle))
        return handle

    def put(self, tensor: Any, mask: Any, selection: Any) -> bool:
        """`tensor[mask] = selection`: whether it was done."""
        if not (is_selection(selection) and _selects(tensor, mask)):
            return False
        cell: Any = selection._cell
        if not _alike(mask._read(), cell.mask._read()) or meta_of(tensor) != meta_of(cell.full):
            return False
        tensor._check_in_place()
        tensor._assign(F.where(_over(mask, tensor), cell.full, tensor._snapshot()))
        return True

    def apply(self, body: list[Any], function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """`function(*args, **kwargs)`, of which some are selections; Refused, if it cannot be told. body: the trace's.

        Who calls takes back what it recorded, if it is refused.
        """
        given = [value for value in (*args, *kwargs.values()) if is_selection(value)]
        first: Any = given[0]._cell
        mask, full = first.mask, first.full
        for other in given:
            if other._cell.full.ndim != full.ndim or not _alike(mask._read(), other._cell.mask._read()):
                return Refused()
        name = getattr(function, "__name__", "")
        if function is getattr and args[1] in FACTS:
            return getattr(full, args[1])
        if name in ("sum", "mean") and len(args) == 1 and not kwargs:
            return _sum(full, mask, name)
        behind = full.ndim - mask.ndim
        others = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor) and not is_selection(value)]
        if any(other.ndim > behind for other in others) or name.startswith("new_"):  # of sizes that are given
            return Refused()
        before, shape = len(body), full.shape
        instead = {id(value): value._cell.full._snapshot() for value in given}
        beside = [other for other in others if other.requires_grad]
        if any(other.dtype is not full.dtype for other in beside) or (beside and name.endswith("_")):
            return Refused()  # over all elements it would be promoted otherwise; or is what is written to
        instead |= {id(other): _with_ones(other.expand(shape), mask) for other in beside}
        try:
            result = function(*(instead.get(id(arg), arg) for arg in args),
                              **{key: instead.get(id(value), value) for key, value in kwargs.items()})  # fmt: skip
        except GraphBreak:
            raise
        except Exception:  # noqa: BLE001 - of so many elements; whether the selection itself fits, it tells itself
            return Refused()
        elementwise = all(is_elementwise(call.op.lower) or call.op.name in AROUND for call in body[before:])
        if not isinstance(result, Tensor) or not elementwise or result.shape != shape or result._view is not None:
            return Refused()
        return self._result(result, mask, given, instead)

    def _result(self, result: Tensor, mask: Tensor, given: list[Any], instead: dict[int, Tensor]) -> Tensor:
        """A selection of `result`; or that which the function changed, and gave back."""
        full = _with_ones(result, mask)
        changed = next((value for value in given if instead[id(value)] is result), None)
        if changed is None:
            return self._handle(full, mask)
        changed._cell.full = full
        return changed  # type: ignore[no-any-return]


def _selects(tensor: Any, mask: Any) -> bool:
    if not (isinstance(tensor, Tensor) and isinstance(mask, Tensor)) or is_selection(tensor) or is_selection(mask):
        return False
    return mask.dtype is bool_ and mask.ndim > 0 and tuple(mask.shape) == tuple(tensor.shape)[: mask.ndim]


def _over(mask: Any, tensor: Any) -> Any:
    """The mask, over all of the tensor's dims."""
    return F.reshape(mask, (*mask.shape, *(1,) * (tensor.ndim - mask.ndim)))


def _with_ones(tensor: Any, mask: Any) -> Any:
    return tensor._snapshot() if tensor.dtype is bool_ else F.where(_over(mask, tensor), tensor, 1)


def _sum(full: Any, mask: Any, name: str) -> Any:
    if name == "mean" and not full.dtype.is_inexact:
        return Refused()
    total = F.where(_over(mask, full), full, 0).sum()
    if name == "sum":
        return total
    return total / (mask.sum() * (full.numel() // max(mask.numel(), 1)))


def _alike(one: Any, other: Any, depth: int = 0) -> bool:
    """Whether two nodes are the same, or computed alike of the same."""
    if one is other:
        return True
    if isinstance(one, Constant) and isinstance(other, Constant):
        return one.meta == other.meta and one.array.tobytes() == other.array.tobytes()
    if depth > DEPTH or not (isinstance(one, Call) and isinstance(other, Call)):
        return False
    if one.op is not other.op or one.op.random or one.attrs != other.attrs or len(one.args) != len(other.args):
        return False
    return all(_alike(a, b, depth + 1) for a, b in zip(one.args, other.args) if isinstance(a, Node))
