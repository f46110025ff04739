"""Rules of what joins arrays and parts them: concatenate, stack, block, split, append, insert, delete.

In: NumPy's arguments. Out: Tensors; parts are views.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np

from compiler_core.numpy_trace.array import not_traced
from compiler_core.numpy_trace.dispatch import answers
from compiler_core.numpy_trace.operands import axis_of, cast, dtype_of, flat, is_traced, shape_of, tensor_of, together
from compiler_core.numpy_trace.shaping import widened
from compiler_core.ops import functional as F
from compiler_core.tensor.tensor import Tensor

_ALL = slice(None)


def listed(arrays: Any) -> list[Any]:
    """What is joined: the items of a sequence, or of an array."""
    return list(arrays)


@answers(np.concatenate)
def concatenate(
    arrays: Any, /, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Any:
    items = listed(arrays)
    tensors = together(*items) if dtype is None else [cast(tensor_of(x), dtype) for x in items]
    if any(not shape_of(t) for t in tensors) and axis is not None:
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    if axis is None:
        return F.cat([flat(t) for t in tensors], 0)
    if len({t.ndim for t in tensors}) > 1:
        raise ValueError("all the input array dimensions must match exactly: the arrays have different numbers of them")
    return F.cat(tensors, axis_of(axis, tensors[0].ndim))


@answers(np.stack)
def stack(arrays: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    items = listed(arrays)
    tensors = together(*items) if dtype is None else [cast(tensor_of(x), dtype) for x in items]
    if len({shape_of(t) for t in tensors}) > 1:
        raise ValueError("all input arrays must have the same shape")
    return F.stack(tensors, axis_of(axis, tensors[0].ndim + 1))


def _stacking(widen: Any, axis_for: Any) -> Any:
    def rule(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
        tensors = [widened(tensor_of(x), widen) for x in listed(tup)]
        return concatenate(tensors, axis_for(tensors[0].ndim), dtype=dtype)

    return rule


hstack = answers(np.hstack)(_stacking([(None,)], lambda ndim: 0 if ndim == 1 else 1))
vstack = answers(np.vstack)(_stacking([(None, None), (None, _ALL)], lambda ndim: 0))
dstack = answers(np.dstack)(_stacking([(None,) * 3, (None, _ALL, None), (_ALL, _ALL, None)], lambda ndim: 2))


@answers(np.column_stack)
def column_stack(tup: Any) -> Any:
    return concatenate([widened(tensor_of(x), [(None, None), (_ALL, None)]) for x in listed(tup)], 1)


@answers(np.block)
def block(arrays: Any) -> Any:
    return _block(arrays, _depth(arrays))


def _depth(arrays: Any) -> int:
    return 1 + max(map(_depth, arrays), default=0) if isinstance(arrays, list) else 0


def _block(arrays: Any, depth: int) -> Tensor:
    """Innermost lists are joined along the last axis, those around them along the one before."""
    if not isinstance(arrays, list):
        return tensor_of(arrays)
    parts = [_block(part, depth - 1) for part in arrays]
    ndim = max(depth, *(part.ndim for part in parts))
    parts = [part.reshape((1,) * (ndim - part.ndim) + shape_of(part)) for part in parts]
    return concatenate(parts, -depth)  # type: ignore[no-any-return]


@answers(np.array_split, view=True)
def array_split(ary: Any, indices_or_sections: Any, axis: Any = 0) -> Any:
    tensor = tensor_of(ary)
    axis = axis_of(axis, tensor.ndim)
    size = shape_of(tensor)[axis]
    edges: list[int]
    if hasattr(indices_or_sections, "__index__") and not isinstance(indices_or_sections, (list, tuple)):
        count = operator.index(indices_or_sections)
        if count <= 0:
            raise ValueError("number sections must be larger than 0.")
        each, extra = divmod(size, count)
        edges = [k * each + min(k, extra) for k in range(count + 1)]
    else:
        edges = [0, *map(int, indices_or_sections), size]
    before = (_ALL,) * axis
    return [tensor[(*before, slice(a, max(a, b) if a >= 0 <= b else b))] for a, b in itertools.pairwise(edges)]


@answers(np.split, view=True)
def split(ary: Any, indices_or_sections: Any, axis: Any = 0) -> Any:
    size = shape_of(tensor_of(ary))[axis_of(axis, tensor_of(ary).ndim)]
    if isinstance(indices_or_sections, int) and size % indices_or_sections:
        raise ValueError("array split does not result in an equal division")
    return array_split(ary, indices_or_sections, axis)


@answers(np.hsplit, view=True)
def hsplit(ary: Any, indices_or_sections: Any) -> Any:
    return split(ary, indices_or_sections, 1 if tensor_of(ary).ndim > 1 else 0)


@answers(np.vsplit, view=True)
def vsplit(ary: Any, indices_or_sections: Any) -> Any:
    return split(ary, indices_or_sections, 0)


@answers(np.dsplit, view=True)
def dsplit(ary: Any, indices_or_sections: Any) -> Any:
    return split(ary, indices_or_sections, 2)


@answers(np.append)
def append(arr: Any, values: Any, axis: Any = None) -> Any:
    return concatenate([arr, values], axis)


@answers(np.insert)
def insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    if not isinstance(obj, int):
        raise not_traced("np.insert at more than one place")
    tensor = tensor_of(arr) if axis is not None else flat(tensor_of(arr))
    axis = axis_of(0 if axis is None else axis, tensor.ndim)
    size = shape_of(tensor)[axis]
    if not -size <= obj <= size:
        raise IndexError(f"index {obj} is out of bounds for axis {axis} with size {size}")
    place = obj % size if obj < 0 else obj
    new = cast(tensor_of(values), dtype_of(arr))
    if new.ndim == tensor.ndim or new.ndim == 0 or new.ndim < tensor.ndim - 1:
        shape = [
            n if d != axis else (shape_of(new)[d] if new.ndim == tensor.ndim else 1)
            for d, n in enumerate(shape_of(tensor))
        ]
        new = F.expand(new, shape)
    else:
        new = new[(_ALL,) * axis + (None,)]
        new = F.expand(new, [n if d != axis else 1 for d, n in enumerate(shape_of(tensor))])
    return F.cat(
        [tensor[(_ALL,) * axis + (slice(0, place),)], new, tensor[(_ALL,) * axis + (slice(place, None),)]], axis
    )


@answers(np.delete)
def delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    if is_traced(obj):
        raise not_traced("np.delete of traced places")
    tensor = tensor_of(arr) if axis is not None else flat(tensor_of(arr))
    axis = axis_of(0 if axis is None else axis, tensor.ndim)
    return F.index_select(tensor, axis, tensor_of(np.delete(np.arange(shape_of(tensor)[axis]), obj)))
