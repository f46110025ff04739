"""Views of eager tensors, made at once: one look at the array, and the handle that the ops would give.

In: a Tensor and the arguments of a method that gives a view. Out: the view, with the cells, links and tape nodes that
`slice`, `reshape` and `permute` make when they are asked; or None, and nothing has happened: for a trace, while
somebody looks at ops or tangents are about, for other arrays than NumPy's and those of a lone device, for arguments
that are wrong or unusual, and where the result would be no view. The general way (`ops/composites/movement.py`,
`ops/indexing/composite.py`) then says so, or computes. NumPy (or CuPy) decides whether a shape fits: what it refuses is
not repeated here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from compiler_core.cuda import lone
from compiler_core.forward import level
from compiler_core.meta import Shape
from compiler_core.ops import registry
from compiler_core.ops.aliasing import reshaped_strides
from compiler_core.ops.on_device import COPY
from compiler_core.ops.registry import OPS, Array, Attrs, Op, Telling, current_trace
from compiler_core.tensor.autograd.gone import freed_pair
from compiler_core.tensor.autograd.grad_mode import Inference, thread_mode
from compiler_core.tensor.autograd.inference import made
from compiler_core.tensor.autograd.tape import Edge, OpNode, tape_position
from compiler_core.tensor.autograd.watching import watch
from compiler_core.tensor.memory.cell import Cell, DeviceCell, ViewCell, view_in
from compiler_core.tensor.memory.view_link import ViewLink

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor

_SLICE, _RESHAPE, _PERMUTE = OPS["slice"], OPS["reshape"], OPS["permute"]
_RUN = registry.RUN
_NONE = type(None)
_orders: dict[tuple[Any, ...], Attrs | None] = {}  # (ndim, dims) -> the attributes of that permutation, None: no other
_swaps: dict[tuple[Any, ...], Attrs | None] = {}  # (ndim, dim0, dim1) -> the same of that exchange


def shown(base: Tensor, op: Op, attrs: Attrs, out: Array) -> Tensor:
    """The view `out` that `op` gives of the memory of `base`."""
    of = base._cell
    cell: ViewCell = view_in(_new(ViewCell), of, op, attrs, out)
    result = base._from_cell(cell)
    edge: Edge = None
    if thread_mode.enabled:
        edge = base._node
        before = base._view
        if before is not None and not before.detached and before.stamp != cell.seen:
            edge = base._edge()
        elif edge is None and base._requires_grad:
            edge = base
        if edge is not None and out.dtype.kind not in "biu":
            if type(out) is not lone.array or watch.active:
                result._node = OpNode(op, attrs, [edge], [of], cell)
            else:  # at once without the values: a view's rule asks for shapes alone
                node = result._node = _new(OpNode)
                node.edges, node.seq, node.hooks, node.retained, node.plan = [edge], tape_position(), None, None, None
                node.op, node.attrs, node.versions, node.out_version = op, attrs, _UNREAD, 0
                node.saved, node.out = freed_pair(of, cell)
    link = result._view = _new(ViewLink)
    link.base, link.edge, link.stamp, link.several = base, edge, cell.seen, ""
    link.detached = not thread_mode.enabled
    return result


def fresh(base: Tensor, op: Op, attrs: Attrs, out: Array) -> Tensor:
    """The new array `out`, of the lone device, that `op`, whose rule asks for shapes alone, gives of `base`."""
    of = base._cell
    result = base._of_array(out)
    if thread_mode.enabled:
        edge = base._edge()
        if edge is not None and out.dtype.kind not in "biu":
            if watch.active:
                result._node = OpNode(op, attrs, [edge], [of], result._cell)
            else:
                node = result._node = _new(OpNode)
                node.edges, node.seq, node.hooks, node.retained, node.plan = [edge], tape_position(), None, None, None
                node.op, node.attrs, node.versions, node.out_version = op, attrs, _UNREAD, 0
                node.saved, node.out = freed_pair(of, result._cell)
    elif Inference.entered:
        made(result._cell)
    return result


_new: Callable[..., Any] = object.__new__  # a class that is called calls its `__init__` the long way
_UNREAD = (0,)


def array_of(self: Any) -> Array | None:
    """The array that an eager tensor shows, not to be kept; None where the ops are to be asked."""
    if current_trace() is not None or registry.run_eager is not _RUN or level.on:
        return None
    try:
        cell = self._cell
    except AttributeError:  # no Tensor
        return None
    kind = type(cell)
    is_seen = kind is DeviceCell or kind is Cell or (kind is ViewCell and cell.seen == cell._root.stamp)
    value = cell.raw if is_seen else cell.current()
    kind = type(value)  # of several devices the op makes sure which is current
    return value if kind is np.ndarray or kind is lone.array else None


def reshaped(self: Tensor, *shape: Any) -> Tensor | None:
    """`self.view(shape)`, of sizes or one sequence of them."""
    # `array_of`, written out: the most frequent of these calls
    if current_trace() is not None or registry.run_eager is not _RUN or level.on:
        return None
    try:
        cell: Any = self._cell
    except AttributeError:  # no Tensor
        return None
    kind: Any = type(cell)
    is_seen = kind is DeviceCell or kind is Cell or (kind is ViewCell and cell.seen == cell._root.stamp)
    value: Any = cell.raw if is_seen else cell.current()
    if len(shape) == 1 and type(shape[0]) is not int:
        if not isinstance(shape[0], (tuple, list)):
            return None
        shape = tuple(shape[0])
    kind = type(value)
    if not (kind is np.ndarray or kind is lone.array) or not (cell.is_dense or _is_view(cell, value, shape)):
        return None
    try:
        out = value.reshape(shape)
    except _REFUSED:
        return None
    if out.shape != shape and -1 not in shape:  # NumPy takes every negative size for the one that is left open
        return None
    return shown(self, _RESHAPE, {"shape": out.shape}, out)


_REFUSED = (TypeError, ValueError, OverflowError, MemoryError)  # the general way says why


def _is_view(cell: Cell, value: Array, shape: Shape) -> bool:
    """Whether a tensor that is not dense can be shown in this shape. Of one of the CPU in another order: no answer."""
    if not _INT.issuperset(map(type, shape)) or (type(value) is np.ndarray and not cell.is_ordered):
        return False
    if -1 in shape:
        known = -math.prod(shape)
        if known <= 0 or value.size % known:
            return False
        shape = tuple([n if n != -1 else value.size // known for n in shape])
    fits = math.prod(shape) == value.size and min(shape, default=0) >= 0
    return fits and reshaped_strides(value.shape, cell.strides(), shape) is not None


_INT = frozenset((int,))


def copied(self: Tensor, *shape: Any) -> Tensor | None:
    """`self.reshape(shape)` of a tensor of the lone device, where that is a copy."""
    value: Any = array_of(self)
    kind: Any = lone.array
    if type(value) is not kind or Telling.count:
        return None
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = tuple(shape[0])
    cell, known = self._cell, -math.prod(shape) if _INT.issuperset(map(type, shape)) else 0
    if -1 in shape and known > 0 and not value.size % known:
        shape = tuple([n if n != -1 else value.size // known for n in shape])
    fits = known and math.prod(shape) == value.size and min(shape, default=0) >= 0
    if not fits or cell.root.is_lent or reshaped_strides(value.shape, cell.strides(), shape) is not None:
        return None
    return fresh(self, _RESHAPE, {"shape": shape}, COPY.get()(value).reshape(shape))


def exchanged(self: Tensor, *dims: Any) -> Tensor | None:
    """`self.transpose(dim0, dim1)`."""
    value = array_of(self)
    if value is None or len(dims) != 2 or type(dims[0]) is not int or type(dims[1]) is not int:
        return None
    key = (value.ndim, *dims)
    attrs = _swaps.get(key)
    if attrs is None:
        attrs = _swaps[key] = _exchange(*key)
        if attrs is None:
            return None
    return shown(self, _PERMUTE, attrs, value.transpose(attrs["dims"]))


def _exchange(ndim: int, a: int, b: int) -> Attrs | None:
    order = list(range(ndim))
    if not (-ndim <= a < ndim and -ndim <= b < ndim) or a % ndim == b % ndim:
        return None
    order[a], order[b] = order[b], order[a]
    return {"dims": tuple(order)}


def turned(self: Tensor, *none: Any) -> Tensor | None:
    """`self.t()` of a matrix."""
    value = array_of(self)
    return None if none or value is None or value.ndim != 2 else shown(self, _PERMUTE, _TURN, value.T)


_TURN: Attrs = {"dims": (1, 0)}


def permuted(self: Tensor, *dims: Any) -> Tensor | None:
    """`self.permute(dims)`, of dims or one sequence of them."""
    value = array_of(self)
    if value is None:
        return None
    if len(dims) == 1 and type(dims[0]) is not int:
        if not isinstance(dims[0], (tuple, list)):
            return None
        dims = tuple(dims[0])
    try:
        out = value.transpose(dims)
        attrs = _orders[value.ndim, dims]
    except KeyError:
        ndim = value.ndim
        order = tuple([d % ndim for d in dims])
        attrs = _orders[ndim, dims] = None if order == tuple(range(ndim)) else {"dims": order}
    except (TypeError, ValueError, OverflowError):
        return None
    return None if attrs is None else shown(self, _PERMUTE, attrs, out)


def widened(self: Tensor, *dims: Any) -> Tensor | None:
    """`self.unsqueeze(dim)`."""
    value = array_of(self)
    if value is None or len(dims) != 1 or type(dims[0]) is not int:
        return None
    dim = dims[0]
    if not -value.ndim <= dim + 1 <= value.ndim + 1:
        return None
    shape, place = value.shape, dim if dim >= 0 else dim + value.ndim + 1
    shape = (*shape[:place], 1, *shape[place:])
    return shown(self, _RESHAPE, {"shape": shape}, value.reshape(shape))


def indexed(self: Tensor, index: Any) -> Tensor | None:
    """`self[index]`, of ints, slices, None and Ellipsis: at most one slice and one reshape, as `getitem` has them."""
    value = array_of(self)
    if value is None:
        return None
    shape = value.shape
    if type(index) is slice and shape:  # the usual case
        window = _window(index, shape[0])
        if window is None:
            return None
        start, stop, step = window
        if step == 1 and stop - start == shape[0]:
            return shown(self, _RESHAPE, {"shape": shape}, value.reshape(shape))
        none, ones = _OTHERS[len(shape)]
        attrs = {"starts": (start, *none), "stops": (stop, *shape[1:]), "steps": (step, *ones)}
        return shown(self, _SLICE, attrs, value[start:stop:step])
    if type(index) is int and shape and -shape[0] <= index < shape[0]:
        return _picked(self, value, 0, index)
    read = _read(index if type(index) is tuple else (index,), shape)
    if read is None:
        return None
    windows, kept = read
    starts, stops, steps = zip(*windows) if windows else ((), (), ())
    part = self
    if stops != shape or any(starts) or steps != _ONES[: len(shape)]:
        attrs = {"starts": starts, "stops": stops, "steps": steps}
        part = shown(self, _SLICE, attrs, value := value[tuple(map(slice, starts, stops, steps))])
        if value.shape == kept:
            return part
    return shown(part, _RESHAPE, {"shape": kept}, value.reshape(kept))


def _picked(self: Tensor, value: Array, dim: int, at: int) -> Tensor:
    """The slice at a place along a dim, without it."""
    shape = value.shape
    before, n, behind = shape[:dim], shape[dim], shape[dim + 1 :]
    kept = (*before, *behind)
    if n != 1:
        at, none = at if at >= 0 else at + n, _ZEROS[: len(shape)]
        attrs = {"starts": (*none[:dim], at, *none[dim + 1 :]), "stops": (*before, at + 1, *behind)}
        attrs["steps"] = _ONES[: len(shape)]
        value = value[at : at + 1] if not dim else value[(*_ALL[:dim], slice(at, at + 1))]
        self = shown(self, _SLICE, attrs, value)
    return shown(self, _RESHAPE, {"shape": kept}, value.reshape(kept))


def selected(self: Tensor, *given: Any) -> Tensor | None:
    """`self.select(dim, index)`."""
    value = array_of(self)
    if value is None or len(given) != 2 or type(given[0]) is not int or type(given[1]) is not int:
        return None
    (dim, at), ndim = given, value.ndim
    if not -ndim <= dim < ndim or not -value.shape[dim] <= at < value.shape[dim]:
        return None
    return _picked(self, value, dim % ndim, at)


def narrowed(self: Tensor, *given: Any) -> Tensor | None:
    """`self.narrow(dim, start, length)`."""
    value = array_of(self)
    if value is None or list(map(type, given)) != [int] * 3 or not -value.ndim <= given[0] < value.ndim:
        return None
    dim, start, length = given
    shape, dim = value.shape, dim % value.ndim
    start = start if start >= 0 else start + shape[dim]
    if not 0 <= start <= start + length <= shape[dim] or length == shape[dim] or length < 0:
        return None
    none = _ZEROS[: len(shape)]
    attrs = {"starts": (*none[:dim], start, *none[dim + 1 :])}
    attrs["stops"] = (*shape[:dim], start + length, *shape[dim + 1 :])
    attrs["steps"] = _ONES[: len(shape)]
    return shown(self, _SLICE, attrs, value[(*_ALL[:dim], slice(start, start + length))])


def parted(self: Tensor, sizes: Any, dim: Any = 0) -> tuple[Tensor, ...] | None:
    """`self.split(sizes, dim)`, of one size or several, into two parts or more."""
    value = array_of(self)
    if value is None or type(dim) is not int or not -value.ndim <= dim < value.ndim:
        return None
    dim = dim % value.ndim
    extent = value.shape[dim]
    if type(sizes) is int:
        if not 0 < sizes < extent:
            return None
        sizes = [sizes] * (extent // sizes) + ([extent % sizes] if extent % sizes else [])
    elif type(sizes) not in (list, tuple) or list(map(type, sizes)) != [int] * len(sizes):
        return None
    if len(sizes) < 2 or min(sizes) <= 0 or sum(sizes) != extent:
        return None
    shape, none = value.shape, _ZEROS[: value.ndim]
    before, behind, ones = shape[:dim], shape[dim + 1 :], _ONES[: value.ndim]
    start, found = 0, []
    for length in sizes:
        end = start + length
        attrs = {"starts": (*none[:dim], start, *none[dim + 1 :]), "stops": (*before, end, *behind), "steps": ones}
        found.append(shown(self, _SLICE, attrs, value[(*_ALL[:dim], slice(start, end))]))
        start = end
    return tuple(found)


def cut(self: Tensor, chunks: Any, dim: Any = 0) -> tuple[Tensor, ...] | None:
    """`self.chunk(chunks, dim)`, into two or more."""
    value = array_of(self)
    if value is None or type(chunks) is not int or chunks < 2 or type(dim) is not int:
        return None
    if not -value.ndim <= dim < value.ndim or not value.shape[dim]:
        return None
    return parted(self, -(-value.shape[dim] // chunks), dim)


def unbound(self: Tensor, dim: Any = 0) -> tuple[Tensor, ...] | None:
    """`self.unbind(dim)`, of an array of the lone device into one or more."""
    value: Any = array_of(self)
    there: Any = lone.array
    if type(value) is not there or type(dim) is not int or not -value.ndim <= dim < value.ndim:
        return None
    dim = dim % value.ndim
    return tuple([_picked(self, value, dim, at) for at in range(value.shape[dim])]) or None


def squeezed(self: Tensor, *dims: Any) -> Tensor | None:
    """`self.squeeze()`, or of one dim."""
    value = array_of(self)
    if value is None or len(dims) > 1 or not value.ndim:
        return None
    shape = value.shape
    if not dims:
        kept = tuple([n for n in shape if n != 1])
    elif type(dims[0]) is int and -len(shape) <= dims[0] < len(shape):
        dim = dims[0] % len(shape)
        kept = shape if shape[dim] != 1 else (*shape[:dim], *shape[dim + 1 :])
    else:
        return None
    return shown(self, _RESHAPE, {"shape": kept}, value.reshape(kept))


_ZEROS, _ALL = (0,) * 64, (slice(None),) * 64
_ONES = (1,) * 64  # as many as NumPy has dims
_OTHERS = [((0,) * (n - 1), (1,) * (n - 1)) for n in range(65)]  # by dims: starts and steps of all but the first
_Window: TypeAlias = tuple[int, int, int]


def _window(entry: slice, n: int) -> _Window | None:
    """(start, stop, step) of a slice of n elements, of an empty one (0, 0, 1); None for one that is refused."""
    try:
        start, stop, step = entry.indices(n)
    except (TypeError, ValueError):
        return None
    if step <= 0:
        return None
    return (start, stop, step) if start < stop else (0, 0, 1)


def _read(parts: tuple[Any, ...], shape: Shape) -> tuple[list[_Window], Shape] | None:
    """A window for each dim, and the shape without ints and with Nones; None for what is no basic index, or wrong."""
    windows: list[_Window] = []
    kept: list[int] = []
    for k, part in enumerate(parts):
        if part is None:
            kept.append(1)
            continue
        if part is ...:
            behind = parts[k + 1 :]
            until = len(shape) - len(behind) + sum([p is None for p in behind])
            if until < len(windows) or any(p is ... for p in behind):
                return None
            kept += shape[len(windows) : until]
            windows += [(0, n, 1) for n in shape[len(windows) : until]]
            continue
        if len(windows) == len(shape):
            return None
        n = shape[len(windows)]
        if type(part) is int and -n <= part < n:
            at = part if part >= 0 else part + n
            windows.append((at, at + 1, 1))
            continue
        window = _window(part, n) if type(part) is slice else None
        if window is None:
            return None
        windows.append(window)
        kept.append(-((window[0] - window[1]) // window[2]))
    rest = shape[len(windows) :]
    windows += [(0, n, 1) for n in rest]
    return windows, (*kept, *rest)


STRAIGHT: dict[str, Callable[..., Any]] = {  # by the name of the general way
    "_reshape": reshaped,
    "_view": reshaped,
    "narrow": narrowed,
    "permute": permuted,
    "reshape": reshaped,
    "select": selected,
    "squeeze": squeezed,
    "t": turned,
    "transpose": exchanged,
    "unsqueeze": widened,
}
COPIES: dict[str, Callable[..., Any]] = {"_reshape": copied, "reshape": copied}  # where these give no view
# the same of what gives several
SEVERAL: dict[str, Callable[..., Any]] = {"chunk": cut, "split": parted, "unbind": unbound}
