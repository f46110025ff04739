"""In which order a result's elements lie in memory, as far as the user can see: `stride()`, `view`, `is_contiguous`.

In: operands' cells, memory formats. Out: an order of dims, outermost first; cells whose elements lie in that order.
The strides are torch's. A fresh result of most functions is row-major; an elementwise one lies as its operands do, by
the rule of torch's TensorIterator (`order_of`); some functions say themselves how theirs lies (`ops/lying.py`). What
lies in another order is a view by `permute` of a root that is row-major, of which nobody has a handle; autograd knows
nothing of it. These are strides that are told: values lie as whoever computed them left them, and only memory that is
lent lies as its strides say (`lent.py`).
`Cell.is_ordered` is a fact of cells that are row-major but for gaps and repeats, so that nobody looks at strides for
them: of a root it is true.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler_core.errors import ShapeError
from compiler_core.forward import level
from compiler_core.memory_format import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    memory_format,
    preserve_format,
)
from compiler_core.meta import Shape
from compiler_core.ops.aliasing import Strides, contiguous_strides, is_contiguous
from compiler_core.ops.lying import Rule
from compiler_core.ops.registry import OPS, Attrs, Value, bind, current_trace
from compiler_core.tensor.memory.cell import Cell, DeviceCell, ViewCell, view_in

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor

Order = tuple[int, ...]
_PERMUTE = OPS["permute"]
_LAST: dict[memory_format, Order] = {channels_last: (0, 2, 3, 1), channels_last_3d: (0, 2, 3, 4, 1)}


def order_of(shape: Shape, strides: Sequence[Strides]) -> Order:
    """The order of the dims of an elementwise result, outermost first. strides: of each operand, 0 where it repeats."""
    if all(is_contiguous(shape, steps) for steps in strides):
        return tuple(range(len(shape)))
    dims = list(range(len(shape)))[::-1]  # fastest first
    for i in range(1, len(dims)):
        place = i
        for before in range(i - 1, -1, -1):
            comes = _compare(dims[before], dims[place], shape, strides)
            if comes < 0:
                break
            if comes > 0:
                dims[before], dims[place], place = dims[place], dims[before], before
    return tuple(reversed(dims))


def _compare(a: int, b: int, shape: Shape, strides: Sequence[Strides]) -> int:
    """-1 if dim a is faster than dim b, 1 if it is slower, 0 if no operand tells."""
    for steps in strides:
        if steps[a] and steps[b]:
            if steps[a] != steps[b]:
                return -1 if steps[a] < steps[b] else 1
            if shape[a] > shape[b]:
                return 1
    return 0


def cell_as(cell: Cell, operands: Sequence[Any]) -> Cell:
    """`cell`, that of an elementwise result of these operands (Tensors and arrays), in the order that it has."""
    shape = tuple(cell.raw.shape)
    if len(shape) < 2:
        return cell
    strides = [_strides(v) for v in operands if len(v.shape) == len(shape)]
    return laid(cell, order_of(shape, [steps for steps in strides if steps]))


def cell_of_grad(cell: Cell, leaf: Cell) -> Cell:
    """`cell`, that of the first gradient of a leaf, in the order of the leaf where that is dense: torch's contract."""
    shape, steps = tuple(cell.raw.shape), leaf.strides()
    order = order_of(shape, [steps])
    is_dense = is_contiguous(tuple(shape[d] for d in order), tuple(steps[d] for d in order))
    return laid(cell, order) if is_dense else cell


def _strides(value: Any) -> Strides:
    found = getattr(value, "_cell", None)
    if found is not None:
        return found.strides()  # type: ignore[no-any-return]
    return tuple(step // value.itemsize for step in value.strides) if isinstance(value, np.ndarray) else ()


def laid(cell: Cell, order: Order) -> Cell:
    """`cell`, fresh and a root, as one whose dims lie in this order, outermost first."""
    attrs = _backs.get(order)
    if attrs is None:
        back = tuple(order.index(d) for d in range(len(order)))
        attrs = _backs[order] = {"dims": back} if back != tuple(range(len(order))) else {}
    if not attrs:
        return cell
    value: Value = cell.raw
    root = type(cell)(_turned(value, order))
    root.version = cell.version
    return view_in(_new(ViewCell), root, _PERMUTE, attrs, value)


_backs: dict[Order, Attrs] = {}  # by order: the attributes of the permutation back, none of rows
_new: Callable[..., Any] = object.__new__  # a class that is called calls its `__init__` the long way


def _turned(value: Value, order: Order) -> Value:
    if current_trace() is None:
        return value.transpose(order) if hasattr(value, "transpose") else bind(_PERMUTE, value, dims=order)
    return bind(_PERMUTE, value, dims=order)


# ---- memory formats


def order_for(cell: Cell, wanted: object) -> Order:
    """The order in which a copy of `cell` lies, if this memory format is asked for; None: preserve_format.

    Raises ShapeError for a format of other numbers of dims.
    """
    shape = tuple(cell.raw.shape)
    if wanted is None or wanted is preserve_format:
        return tuple(range(len(shape))) if cell.is_ordered else order_of(shape, [cell.strides()])
    return order_in(wanted, len(shape))


def order_in(wanted: object, ndim: int) -> Order:
    """The order of the dims in a memory format that names one. Raises ShapeError for other numbers of dims."""
    if wanted in _LAST:
        order = _LAST[wanted]
        if len(order) != ndim:
            raise ShapeError(f"required rank {len(order)} tensor to use {wanted!r} format", got=f"{ndim} dims")
        return order
    if wanted is not contiguous_format:
        raise ShapeError(f"unsupported memory format {wanted!r}", expected="contiguous_format, channels_last, ...")
    return tuple(range(ndim))


def lies_in(cell: Cell, wanted: object) -> bool:
    """Whether the elements of `cell` lie in a memory format, without gaps. Raises ShapeError for preserve_format."""
    shape = tuple(cell.raw.shape)
    if wanted is None or wanted is contiguous_format:
        return cell.is_dense or is_contiguous(shape, cell.strides())
    order = _LAST.get(wanted)  # type: ignore[call-overload]
    if order is None:
        raise ShapeError(f"unsupported memory format {wanted!r}", expected="contiguous_format, channels_last, ...")
    if len(order) != len(shape):
        return False
    steps = cell.strides()
    return is_contiguous(tuple(shape[d] for d in order), tuple(steps[d] for d in order))


def suggested(cell: Cell) -> memory_format:
    """The memory format that functions of images keep: channels_last if the strides say so, and not otherwise."""
    shape = tuple(cell.raw.shape)
    wanted = {4: channels_last, 5: channels_last_3d}.get(len(shape))
    if wanted is None or (cell.is_ordered and 1 not in shape):
        return contiguous_format
    return wanted if is_last(shape, cell.strides()) else contiguous_format


def is_last(shape: Shape, steps: Strides) -> bool:
    """Whether the strides of images are taken for channels last; where both would do they are not."""
    least = 0
    if steps[1] == 0:
        return False
    for d in (1, *range(len(shape) - 1, 1, -1), 0):
        if shape[d] == 0 or steps[d] < least or (d == 0 and least == steps[1]):
            return False
        least = steps[d] * max(shape[d], 1)
    return True


# ---- functions that say how their results lie


def lay(result: Tensor, rule: Rule, operands: tuple[Any, ...]) -> Tensor:
    """`Tensor.__lay__`: a result of a function of these operands, lying by a rule of `ops/lying.py`."""
    cell = result._cell
    if type(cell) in _ROOTS and (rule in _FRESH or (rule != "columns" and _are_ordered(operands))):
        return result
    others = [v._cell for v in operands if hasattr(v, "_cell")]
    if any(other.root is cell.root for other in others):
        return result.clone(memory_format=contiguous_format) if rule == "new" else result
    shape = tuple(cell.raw.shape)
    if isinstance(rule, str):
        order = _RULES[rule](shape, others)
    else:
        order = order_of(shape, rule([_strides(v) for v in operands]))
    if cell.strides() == tuple(_dense(shape, order)):
        return result
    return relaid(result, order)


def cell_by(rule: str, cell: Cell, operands: Sequence[Any]) -> Cell:
    """`cell`, fresh and a root, that of a result of these operands, lying by a rule of `ops/lying.py`."""
    return laid(cell, _RULES[rule](tuple(cell.raw.shape), [v._cell for v in operands if hasattr(v, "_cell")]))


def _are_ordered(values: tuple[Any, ...]) -> bool:
    return bool(values) and all(v._cell.is_ordered if hasattr(v, "_cell") else is_rows(v) for v in values)


def is_rows(value: Any) -> bool:
    """Whether an array, or what is none, lies row-major."""
    return not isinstance(value, np.ndarray) or value.flags.c_contiguous


def relaid(result: Tensor, order: Order) -> Tensor:
    """A tensor that was computed just now, which nobody else has, lying in this order."""
    cell = result._cell
    fresh = (DeviceCell if isinstance(cell.root, DeviceCell) else Cell)(cell.current())
    fresh.version = cell.version
    made: Tensor = type(result)._from_cell(laid(fresh, order), result._node)
    made._requires_grad = result._requires_grad
    if level.on:
        level.carry(result, made)
    return made


_ROOTS = (Cell, DeviceCell)
_FRESH = ("rows", "new")


def _dense(shape: Shape, order: Order) -> list[int]:
    """The strides of elements that lie in this order without gaps."""
    steps = contiguous_strides(tuple(shape[d] for d in order))
    return [steps[order.index(d)] for d in range(len(order))]


def _rows(shape: Shape, others: Sequence[Cell]) -> Order:
    return tuple(range(len(shape)))


def _columns(shape: Shape, others: Sequence[Cell]) -> Order:
    n = len(shape)
    if n < 2 or n < max((len(other.raw.shape) for other in others[:1]), default=0):
        return _rows(shape, others)
    return *range(n - 2), n - 1, n - 2


def _images(shape: Shape, others: Sequence[Cell]) -> Order:
    if len(shape) != len(others[0].raw.shape):
        return _rows(shape, others)
    return order_in(suggested(others[0]), len(shape))


def _signals(shape: Shape, others: Sequence[Cell]) -> Order:
    n, steps = tuple(others[0].raw.shape), others[0].strides()
    if len(shape) == len(n) == 3 and is_last((*n[:2], 1, n[2]), (*steps[:2], n[2] * steps[2], steps[2])):
        return 0, 2, 1
    return _rows(shape, others)


def _convolved(shape: Shape, others: Sequence[Cell]) -> Order:
    found = _images(shape, others)
    return _images(shape, others[1:]) if found == _rows(shape, others) else found


def _convolved_signals(shape: Shape, others: Sequence[Cell]) -> Order:
    """A signal is copied in row-major order first; a weight is taken as it lies."""
    takes = others if lies_in(others[0], contiguous_format) else others[1:]
    return next(
        (found for one in takes if (found := _signals(shape, [one])) != _rows(shape, others)), _rows(shape, others)
    )


def _joined(shape: Shape, others: Sequence[Cell]) -> Order:
    formats = {suggested(other) for other in others}
    return order_in(formats.pop(), len(shape)) if len(formats) == 1 else _rows(shape, others)


def _first(shape: Shape, others: Sequence[Cell]) -> Order:
    return _alike(shape, others[:1])


def _attended(shape: Shape, others: Sequence[Cell]) -> Order:
    """As the queries do, where torch has one kernel for all: of four dims, the last of which lies densely."""
    ends = {(len(other.raw.shape), other.raw.shape[-1], other.strides()[-1]) for other in others}
    return _first(shape, others) if ends == {(4, shape[-1], 1)} else _rows(shape, others)


def _alike(shape: Shape, others: Sequence[Cell]) -> Order:
    return order_of(shape, [_repeated(other, shape) for other in others])


def _repeated(cell: Cell, shape: Shape) -> Strides:
    """The strides of a cell that is broadcast to `shape`."""
    mine, steps = tuple(cell.raw.shape), cell.strides()
    more = len(shape) - len(mine)
    return (*(0,) * more, *(step if n == m else 0 for step, n, m in zip(steps, mine, shape[more:])))


_RULES = {
    "rows": _rows, "new": _rows, "columns": _columns, "images": _images, "signals": _signals, "convolved": _convolved,
    "convolved signals": _convolved_signals, "joined": _joined, "first": _first, "alike": _alike, "attended": _attended,
}  # fmt: skip


__all__ = [
    "cell_as",
    "cell_by",
    "contiguous_strides",
    "is_rows",
    "laid",
    "lay",
    "lies_in",
    "order_for",
    "order_in",
    "order_of",
    "relaid",
    "suggested",
]
