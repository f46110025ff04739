"""Rules of what moves elements about: reshape, transpose, concatenate, split, repeat, roll, pad, take.

In: NumPy's arguments. Out: Tensors: views where NumPy gives views. A flipped array is a view in NumPy and a copy here,
which knows what it stands for (see array.py).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler_core.numpy_trace.array import TracedArray, View, not_traced
from compiler_core.numpy_trace.dispatch import answers
from compiler_core.numpy_trace.operands import (
    axes_of,
    axis_of,
    cast,
    dtype_of,
    filled,
    flat,
    is_traced,
    shape_of,
    tensor_of,
    torch_function,
)
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.tensor.tensor import Tensor


def sizes(shape: Any) -> tuple[int, ...]:
    """A shape as NumPy takes it: a number or a sequence of them."""
    if hasattr(shape, "__index__") and not getattr(shape, "shape", ()):
        return (operator.index(shape),)
    return tuple(operator.index(n) for n in shape)


@answers(np.reshape, view=True)
def reshape(a: Any, /, shape: Any, order: Any = "C", *, copy: Any = None) -> Any:
    tensor, new = tensor_of(a), sizes(shape)
    if order == "A":
        raise not_traced("reshape in the order that the memory has")
    count = int(np.prod(shape_of(tensor), dtype=np.int64))
    known = int(np.prod([n for n in new if n != -1], dtype=np.int64))
    if sum(n == -1 for n in new) > 1:
        raise ValueError("can only specify one unknown dimension")
    if (-1 in new and (known == 0 or count % known)) or (-1 not in new and known != count):
        raise ValueError(f"cannot reshape array of size {count} into shape {new}")
    if order == "F":
        turned = tensor.permute(tuple(range(tensor.ndim))[::-1]).reshape(new[::-1])
        result = turned.permute(tuple(range(len(new)))[::-1])
    else:
        result = tensor.reshape(new)
    if copy is False and result._cell.root is not tensor._cell.root:
        raise ValueError("Unable to avoid creating a copy while reshaping.")
    return result.clone() if copy else result


@answers(np.ravel, view=True)
def ravel(a: Any, order: Any = "C") -> Any:
    return reshape(a, (-1,) if shape_of(tensor_of(a)) else (1,), "C" if order == "K" else order)


@answers(np.transpose, np.permute_dims, view=True)
def transpose(a: Any, axes: Any = None) -> Any:
    tensor = tensor_of(a)
    ndim = len(shape_of(tensor))
    if axes is None:
        return tensor.permute(tuple(range(ndim))[::-1])
    if len(axes) != ndim:
        raise ValueError("axes don't match array")
    return tensor.permute(axes_of(tuple(axes), ndim))


@answers(np.matrix_transpose, np.linalg.matrix_transpose, view=True)
def matrix_transpose(x: Any, /) -> Any:
    if tensor_of(x).ndim < 2:
        raise ValueError("Input array must be at least 2-dimensional")
    return tensor_of(x).transpose(-1, -2)


@answers(np.swapaxes, view=True)
def swapaxes(a: Any, axis1: Any, axis2: Any) -> Any:
    tensor = tensor_of(a)
    return tensor.transpose(axis_of(axis1, tensor.ndim), axis_of(axis2, tensor.ndim))


@answers(np.moveaxis, view=True)
def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    tensor = tensor_of(a)
    before, after = axes_of(source, tensor.ndim), axes_of(destination, tensor.ndim)
    if len(before) != len(after):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    order = [n for n in range(tensor.ndim) if n not in before]
    for place, axis in sorted(zip(after, before)):
        order.insert(place, axis)
    return tensor.permute(tuple(order))


@answers(np.rollaxis, view=True)
def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    tensor = tensor_of(a)
    axis = axis_of(axis, tensor.ndim)
    start = start + tensor.ndim if start < 0 else start
    order = [n for n in range(tensor.ndim) if n != axis]
    order.insert(start - 1 if axis < start else start, axis)
    return tensor.permute(tuple(order))


@answers(np.squeeze, view=True)
def squeeze(a: Any, axis: Any = None) -> Any:
    tensor = tensor_of(a)
    shape = shape_of(tensor)
    axes = tuple(d for d, n in enumerate(shape) if n == 1) if axis is None else axes_of(axis, len(shape))
    if any(shape[d] != 1 for d in axes):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return tensor.reshape([n for d, n in enumerate(shape) if d not in axes])


@answers(np.expand_dims, view=True)
def expand_dims(a: Any, axis: Any) -> Any:
    tensor = tensor_of(a)
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    ndim = tensor.ndim + len(axes)
    axes = axes_of(tuple(axes), ndim)
    rest = iter(shape_of(tensor))
    return tensor[tuple(None if d in axes else slice(None) for d in range(ndim))] if rest else tensor


@answers(np.broadcast_to, view=True)
def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    tensor, new = tensor_of(array), sizes(shape)
    if np.broadcast_shapes(shape_of(tensor), new) != new:
        raise ValueError(f"operands could not be broadcast together: {shape_of(tensor)} and requested shape {new}")
    return tensor.expand(new)


@answers(np.broadcast_arrays, view=True)
def broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    tensors = [tensor_of(x) for x in args]
    shape = np.broadcast_shapes(*map(shape_of, tensors))
    return tuple(tensor.expand(shape) for tensor in tensors)


def _at_least(ndim: int, *axes: tuple[Any, ...]) -> Any:
    def rule(*arys: Any) -> Any:
        made = [widened(tensor_of(x), axes) for x in arys]
        return made[0] if len(made) == 1 else tuple(made)

    return rule


def widened(tensor: Tensor, indices: Sequence[tuple[Any, ...]]) -> Tensor:
    """tensor indexed by the entry for its number of axes, if there is one."""
    return tensor[indices[tensor.ndim]] if tensor.ndim < len(indices) else tensor


_ALL = slice(None)
answers(np.atleast_1d, view=True)(_at_least(1, (None,)))
answers(np.atleast_2d, view=True)(_at_least(2, (None, None), (None, _ALL)))
answers(np.atleast_3d, view=True)(_at_least(3, (None, None, None), (None, _ALL, None), (_ALL, _ALL, None)))


# ---- flipped


def flipped(a: Any, axes: tuple[int, ...]) -> Any:
    """A copy that stands for the view that NumPy gives."""
    tensor = tensor_of(a)
    return _standing_for(tensor, F.flip(tensor, axes)) if axes else tensor.reshape(shape_of(tensor))


def _standing_for(tensor: Tensor, turned: Tensor) -> TracedArray:
    """A copy in the place of a view of `tensor`; `dispatch.py` says which."""
    root = tensor._cell.root
    turned = turned if turned._cell.root is not root else turned.clone()
    return TracedArray(turned, stands_for=View(root, root.stamp, np.flip, (), {}))


@answers(np.flip, view=True)
def flip(m: Any, axis: Any = None) -> Any:
    return flipped(m, axes_of(axis, tensor_of(m).ndim))


@answers(np.fliplr, view=True)
def fliplr(m: Any) -> Any:
    return flipped(m, (1,))


@answers(np.flipud, view=True)
def flipud(m: Any) -> Any:
    return flipped(m, (0,))


@answers(np.rot90, view=True)
def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    tensor = tensor_of(m)
    return _standing_for(tensor, torch_function("rot90")(tensor, k, tuple(axes)))


@answers(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    tensor = tensor_of(a)
    if axis is None:
        return F.reshape(F.roll(flat(tensor), sum(sizes(shift)), 0), shape_of(tensor))
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    shifts = sizes(shift)
    shifts, axes = (
        (shifts * len(axes) if len(shifts) == 1 else shifts),
        (axes * len(shifts) if len(axes) == 1 else axes),
    )
    for step, one in zip(shifts, axes):
        tensor = F.roll(tensor, step, axis_of(one, tensor.ndim))
    return tensor


# ---- repeated


@answers(np.tile)
def tile(A: Any, reps: Any) -> Any:
    return F.tile(tensor_of(A), sizes(reps))


@answers(np.repeat)
def repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    if is_traced(repeats):
        raise not_traced("np.repeat as often as traced numbers say")
    tensor = tensor_of(a) if axis is not None else flat(tensor_of(a))
    axis = axis_of(0 if axis is None else axis, tensor.ndim)
    places = np.repeat(np.arange(shape_of(tensor)[axis]), np.asarray(repeats))
    if np.ndim(repeats) == 0:
        return F.repeat_interleave(tensor, operator.index(repeats), axis)
    return F.index_select(tensor, axis, tensor_of(places))


@answers(np.resize)
def resize(a: Any, new_shape: Any) -> Any:
    tensor, new = flat(tensor_of(a)), sizes(new_shape)
    return F.reshape(F.index_select(tensor, 0, tensor_of(np.resize(np.arange(len(tensor)), new).reshape(-1))), new)


_PADS = {"edge", "reflect", "symmetric", "wrap"}


@answers(np.pad)
def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    tensor = tensor_of(array)
    shape = shape_of(tensor)
    if isinstance(pad_width, dict) or not isinstance(mode, str):
        raise not_traced("np.pad with a dict or a function")
    widths = np.broadcast_to(np.asarray(pad_width), (tensor.ndim, 2)).tolist()
    if mode in _PADS and not kwargs:
        for axis, width in enumerate(widths):
            places = np.pad(np.arange(shape[axis]), width, mode=mode)  # type: ignore[call-overload]
            tensor = F.index_select(tensor, axis, tensor_of(places)) if any(width) else tensor
        return tensor
    if mode != "constant" or kwargs.keys() - {"constant_values"}:
        raise not_traced(f"np.pad(mode={mode!r}) with such arguments")
    values = kwargs.get("constant_values", 0)
    if np.ndim(values):
        raise not_traced("np.pad with more than one value")
    value = cast(tensor_of(values), dtype_of(array))
    for axis, (before, after) in enumerate(widths):
        here = shape_of(tensor)
        sides = [F.expand(value, [width if d == axis else n for d, n in enumerate(here)]) for width in (before, after)]
        tensor = F.cat([sides[0], tensor, sides[1]], axis) if before or after else tensor
    return tensor


# ---- chosen by place


@answers(np.take)
def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    tensor = tensor_of(a) if axis is not None else flat(tensor_of(a))
    axis = axis_of(0 if axis is None else axis, tensor.ndim)
    places = cast(tensor_of(indices), np.int64)
    size = shape_of(tensor)[axis]
    if mode == "clip":
        places = F.clamp(places, 0, size - 1)
    elif mode == "wrap":
        places = F.remainder(places, size)
    chosen = TracedArray(tensor)[(_ALL,) * axis + (TracedArray(flat(places)),)].tensor
    return F.reshape(chosen, (*shape_of(tensor)[:axis], *shape_of(places), *shape_of(tensor)[axis + 1 :]))


@answers(np.take_along_axis)
def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    tensor, places = tensor_of(arr), cast(tensor_of(indices), np.int64)
    if axis is None:
        tensor, axis = flat(tensor), 0
    return F.take_along_dim(tensor, places, axis_of(axis, tensor.ndim))


@answers(np.diagonal, np.linalg.diagonal, view=True)
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return tensor_of(a).diagonal(offset, axis1, axis2)


@answers(np.diag)
def diag(v: Any, k: int = 0) -> Any:
    if tensor_of(v).ndim not in (1, 2):
        raise ValueError("Input must be 1- or 2-d.")
    return F.diag(tensor_of(v), k)


@answers(np.diagflat)
def diagflat(v: Any, k: int = 0) -> Any:
    return F.diag(flat(tensor_of(v)), k)


@answers(np.tril)
def tril(m: Any, k: int = 0) -> Any:
    return F.tril(tensor_of(m), k)


@answers(np.triu)
def triu(m: Any, k: int = 0) -> Any:
    return F.triu(tensor_of(m), k)


@answers(np.real, view=True)
def real(val: Any) -> Any:
    tensor = tensor_of(val)
    return prims.real(tensor) if tensor.dtype.is_complex else tensor


@answers(np.imag, view=True)
def imag(val: Any) -> Any:
    tensor = tensor_of(val)
    return (
        torch_function("imag")(tensor) if tensor.dtype.is_complex else filled(shape_of(tensor), 0, tensor.dtype.numpy)
    )


@answers(np.shape)
def shape(a: Any) -> Any:
    return shape_of(tensor_of(a))


@answers(np.ndim)
def ndim(a: Any) -> Any:
    return tensor_of(a).ndim


@answers(np.size)
def size(a: Any, axis: Any = None) -> Any:
    here = shape_of(tensor_of(a))
    return int(np.prod([here[d] for d in axes_of(axis, len(here))], dtype=np.int64))


@answers(np.meshgrid)
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    n = len(xi)
    tensors = [F.reshape(tensor_of(x), (1,) * d + (-1,) + (1,) * (n - 1 - d)) for d, x in enumerate(xi)]
    if indexing == "xy" and n > 1:
        tensors = [t.transpose(0, 1) for t in tensors]
    if not sparse:
        whole = np.broadcast_shapes(*map(shape_of, tensors))
        tensors = [t.expand(whole) for t in tensors]
    return tuple(t.clone() for t in tensors)
