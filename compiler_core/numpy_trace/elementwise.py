"""Rules of NumPy's functions of single elements that are no ufuncs, of copies, and of writing: where, clip, round, put.

In: NumPy's arguments. Out: Tensors; written arrays.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from compiler_core.memory_format import contiguous_format
from compiler_core.numpy_trace.array import TracedArray, not_traced
from compiler_core.numpy_trace.dispatch import answers
from compiler_core.numpy_trace.operands import (
    cast,
    dtype_in,
    dtype_of,
    filled,
    flat,
    floats,
    is_number,
    shape_of,
    tensor_of,
    together,
    torch_function,
)
from compiler_core.ops import functional as F
from compiler_core.tensor.tensor import Tensor


@answers(np.where, keeps_0d=True)
def where(condition: Any, x: Any = None, y: Any = None, /) -> Any:
    if x is None and y is None:
        raise not_traced("np.where(condition), as many places as hold,", remedy="use np.where(condition, x, y)")
    condition = cast(tensor_of(condition), np.bool_)
    x, y = together(x, y, weak=True)
    return F.where(condition, x, y)


@answers(np.select, keeps_0d=True)
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    common = np.result_type(*map(dtype_in, choicelist), dtype_in(default))
    result = cast(tensor_of(default), common)
    for condition, choice in reversed(list(zip(condlist, choicelist))):
        result = F.where(tensor_of(condition), cast(tensor_of(choice), common), result)
    return result


@answers(np.choose, keeps_0d=True)
def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    tensors = together(*choices)
    index = tensor_of(a)
    if mode == "clip":
        index = F.clamp(index, 0, len(tensors) - 1)
    elif mode == "wrap":
        index = F.remainder(index, len(tensors))
    else:
        raise not_traced("np.choose by traced numbers that may be out of range", remedy="say mode='clip' or 'wrap'")
    result = tensors[0]
    for place, tensor in enumerate(tensors[1:], 1):
        result = F.where(F.eq(index, place), tensor, result)
    return F.expand(result, np.broadcast_shapes(shape_of(index), *map(shape_of, tensors)))


@answers(np.clip)
def clip(
    a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None, max: Any = None, **kwargs: Any
) -> Any:
    least, most = a_min if min is None else min, a_max if max is None else max
    if kwargs:
        raise not_traced(f"np.clip with {', '.join(kwargs)}")
    least, most = _within(a, least, math.inf), _within(a, most, -math.inf)
    bounds = [bound for bound in (least, most) if bound is not None]
    tensor, *limits = together(a, *bounds, weak=True)
    if least is not None:
        tensor = F.maximum(tensor, limits.pop(0))
    return F.minimum(tensor, limits.pop()) if most is not None else tensor


def _within(a: Any, bound: Any, end: float) -> Any:
    """A bound; None if it is a number beyond what the whole dtype of `a` has, on the side where it bounds nothing."""
    dtype = dtype_of(a)
    if type(bound) is not int or dtype.kind not in "iu":
        return bound
    info = np.iinfo(dtype)
    if (bound < info.min and end > 0) or (bound > info.max and end < 0):
        return None
    return int(dtype.type(bound))  # raises OverflowError for one that the dtype does not have


@answers(np.round, np.around)
def round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    tensor = tensor_of(a)
    if tensor.dtype.kind == "b":
        tensor = cast(tensor, np.float16)
    if not tensor.dtype.is_inexact:
        if decimals >= 0:
            return tensor
        raise not_traced("np.round of whole numbers to tens")
    if tensor.dtype.is_complex:
        raise not_traced("np.round of complex numbers")
    if decimals == 0:
        return F.round(tensor)
    scale = 10.0 ** abs(decimals)
    return (
        F.true_divide(F.round(F.mul(tensor, scale)), scale)
        if decimals > 0
        else F.mul(F.round(F.true_divide(tensor, scale)), scale)
    )


@answers(np.fix)
def fix(x: Any, out: Any = None) -> Any:
    tensor = tensor_of(x)
    return F.trunc(tensor) if tensor.dtype.is_inexact else tensor


@answers(np.nan_to_num)
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    tensor = tensor_of(x)
    result = F.nan_to_num(tensor, nan, posinf, neginf) if tensor.dtype.is_inexact else tensor
    if not copy:
        x.written(result)
        return x
    return result


@answers(np.isclose)
def isclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Any:
    x, y = together(a, b)
    if not y.dtype.is_inexact:
        x, y = cast(x, np.float64), cast(y, np.float64)
    near = F.le(F.abs(F.sub(x, y)), F.add(F.mul(F.abs(y), rtol), atol))
    near = F.logical_or(F.logical_and(near, F.isfinite(y)), F.eq(x, y))
    return F.logical_or(near, F.logical_and(F.isnan(x), F.isnan(y))) if equal_nan else near


@answers(np.allclose)
def allclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Any:
    return bool(TracedArray(F.all(isclose(a, b, rtol, atol, equal_nan)), is_scalar=True))


@answers(np.array_equal)
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    x, y = tensor_of(a1), tensor_of(a2)
    if shape_of(x) != shape_of(y):
        return False
    same = F.eq(*together(a1, a2))
    if equal_nan:
        same = F.logical_or(same, F.logical_and(F.isnan(x), F.isnan(y)))
    return bool(TracedArray(F.all(same), is_scalar=True))


@answers(np.sinc)
def sinc(x: Any) -> Any:
    return torch_function("sinc")(floats(x))


@answers(np.i0)
def i0(x: Any) -> Any:
    return torch_function("i0")(floats(x))


@answers(np.angle)
def angle(z: Any, deg: bool = False) -> Any:
    found = torch_function("angle")(floats(z))
    return F.mul(found, 180 / np.pi) if deg else found


@answers(np.iscomplexobj)
def iscomplexobj(x: Any) -> Any:
    return dtype_of(x).kind == "c"


@answers(np.isrealobj)
def isrealobj(x: Any) -> Any:
    return dtype_of(x).kind != "c"


@answers(np.isposinf)
def isposinf(x: Any, out: Any = None) -> Any:
    tensor = tensor_of(x)
    return F.eq(tensor, np.inf) if tensor.dtype.is_inexact else F.ne(tensor, tensor)


@answers(np.isneginf)
def isneginf(x: Any, out: Any = None) -> Any:
    tensor = tensor_of(x)
    return F.eq(tensor, -np.inf) if tensor.dtype.is_inexact else F.ne(tensor, tensor)


@answers(np.isreal)
def isreal(x: Any) -> Any:
    tensor = tensor_of(x)
    return (
        F.eq(torch_function("imag")(tensor), 0) if tensor.dtype.is_complex else filled(shape_of(tensor), True, np.bool_)
    )


@answers(np.result_type)
def result_type(*arrays_and_dtypes: Any) -> Any:
    return np.result_type(*(x if isinstance(x, (type, np.dtype, str)) else dtype_in(x) for x in arrays_and_dtypes))


@answers(np.can_cast)
def can_cast(from_: Any, to: Any, casting: Any = "safe") -> Any:
    return np.can_cast(dtype_of(from_), to, casting)


@answers(np.isin)
def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None
) -> Any:
    x, among = together(element, test_elements)
    found = F.any(F.eq(x[..., None], flat(among)), -1)
    return F.logical_not(found) if invert else found


# ---- copies


@answers(np.copy, keeps_0d=True)
def copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    return tensor_of(a).clone(memory_format=contiguous_format if order == "C" else None)


@answers(np.astype, view=True)
def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    tensor = tensor_of(x)
    if tensor.dtype.numpy == np.dtype(dtype) and not copy:
        return x
    result = cast(tensor, dtype)
    return TracedArray(result.clone() if result is tensor else result, is_scalar=type(x) is TracedArray and x.is_scalar)


# ---- writing


@answers(np.copyto, effect=True)
def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    _need_traced(dst, "np.copyto")
    if src is dst:
        return
    if not is_number(src) and not np.can_cast(dtype_of(src), dst.dtype, casting):
        raise TypeError(
            f"Cannot cast array data from {dtype_of(src)!r} to {dst.dtype!r} according to the rule '{casting}'"
        )
    value = F.expand(cast(tensor_of(src), dst.dtype), dst.shape)
    dst.written(value if where is True else F.where(cast(tensor_of(where), np.bool_), value, dst.tensor))


def _need_traced(array: Any, what: str) -> None:
    if type(array) is not TracedArray:
        raise not_traced(f"{what} of traced values into an array that is not traced")


@answers(np.putmask, effect=True)
def putmask(a: Any, /, mask: Any, values: Any) -> None:
    _need_traced(a, "np.putmask")
    value = cast(tensor_of(values), a.dtype)
    if value.ndim and shape_of(value) != a.shape:
        raise not_traced("np.putmask with values that are repeated")
    a.written(F.where(F.reshape(cast(tensor_of(mask), np.bool_), a.shape), value, a.tensor))


@answers(np.place, effect=True)
def place(arr: Any, mask: Any, vals: Any) -> None:
    if np.size(vals) != 1:
        raise not_traced("np.place of as many values as hold")
    putmask(arr, mask, F.reshape(tensor_of(vals), ()))


@answers(np.put, effect=True)
def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    _need_traced(a, "np.put")
    places = flat(cast(tensor_of(ind), np.int64))
    if mode != "raise":
        raise not_traced(f"np.put(mode={mode!r})")
    value = flat(cast(tensor_of(v), a.dtype))
    count = shape_of(places)[0]
    if shape_of(value)[0] not in (1, count):
        value = F.index_select(value, 0, tensor_of(np.arange(count) % shape_of(value)[0]))
    line = flat(a.tensor).clone()
    line[places] = value
    a.written(F.reshape(line, a.shape))


@answers(np.put_along_axis, effect=True)
def put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> None:
    _need_traced(arr, "np.put_along_axis")
    if axis is None:
        raise not_traced("np.put_along_axis of a flat array")
    places = cast(tensor_of(indices), np.int64)
    shape = [n if d != axis % arr.ndim else places.shape[d] for d, n in enumerate(arr.shape)]
    places = F.expand(places, shape)
    value = F.expand(cast(tensor_of(values), arr.dtype), shape)
    arr.written(F.scatter(arr.tensor, axis, F.where(F.lt(places, 0), F.add(places, arr.shape[axis]), places), value))


@answers(np.fill_diagonal, effect=True)
def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    _need_traced(a, "np.fill_diagonal")
    if a.ndim != 2 or (wrap and a.shape[0] > a.shape[1]):
        raise not_traced("np.fill_diagonal of what is no matrix, or wrapped")
    a.writable()
    line: Any = np.diagonal(a)
    line.writable().copy_(_fitting(cast(tensor_of(val), a.dtype), min(a.shape)))


def _fitting(value: Tensor, count: int) -> Tensor:
    """As many of the values as are needed, from the start again where they end."""
    if not value.ndim:
        return value
    return F.index_select(flat(value), 0, tensor_of(np.arange(count) % shape_of(flat(value))[0]))  # type: ignore[no-any-return]


# ---- made like an array


def _like(value: Any) -> Any:
    def rule(
        a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *, device: Any = None
    ) -> Any:
        return full_like(a, value, dtype, order, subok, shape)

    return rule


@answers(np.full_like, keeps_0d=True)
def full_like(a: Any, fill_value: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *,
              device: Any = None) -> Any:  # fmt: skip
    wanted = np.dtype(dtype) if dtype is not None else dtype_of(a)
    size = shape_of(tensor_of(a)) if shape is None else tuple(np.empty(shape, np.bool_).shape)
    if is_number(fill_value) and wanted.kind in "biuf":
        return filled(size, fill_value, wanted)
    return F.expand(cast(tensor_of(fill_value), wanted), size).clone()


answers(np.zeros_like, keeps_0d=True)(_like(0))
answers(np.empty_like, keeps_0d=True)(_like(0))
answers(np.ones_like, keeps_0d=True)(_like(1))
