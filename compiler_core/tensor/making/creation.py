"""Making Tensors: from Python data, filled, numbered. torch's names, arguments and defaults.

In: sizes or data. Out: fresh leaves, on the CPU. Python floats get the default dtype, complex numbers complex64 (or
complex128, where that is float64), integers int64, NumPy arrays keep theirs. `tensor` copies; `as_tensor` shares an
array's memory where the dtype fits (`borrowing.py` has more that do). While tracing, everything made here is a graph
node, so it is made anew on every call. Random ones: `random_creation.py`.
"""

from __future__ import annotations

from array import array as array_of_numbers
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from compiler_core import cuda
from compiler_core import dtype as dt
from compiler_core.device import Device, check_device, copy_of, cpu
from compiler_core.dtype import DType
from compiler_core.errors import ArgumentTypeError, DTypeError, NumberRangeError, ShapeError
from compiler_core.meta import as_size
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.composites import creation
from compiler_core.ops.refusals import check_fits
from compiler_core.ops.registry import Array, Value, current_trace
from compiler_core.symbolic.size import Sym
from compiler_core.tensor.autograd.inference import made
from compiler_core.tensor.batching import of_each
from compiler_core.tensor.making.placement import creation_names, placed
from compiler_core.tensor.memory.cell import cell_of, cell_trace
from compiler_core.tensor.memory.lent import borrow
from compiler_core.tensor.tensor import Size, Tensor

Shape = tuple[int, ...]
SizeLike: TypeAlias = "int | Sequence[int]"
Scalar = bool | int | float
DeviceLike: TypeAlias = Device | str | None


def leaf(value: Value, requires_grad: bool = False, device: DeviceLike = None) -> Tensor:
    """A fresh leaf that holds `value`; under a trace an array becomes a constant of the graph."""
    place = cpu if device is None else check_device(device)
    trace = current_trace()
    if trace is not None and isinstance(value, np.ndarray):
        value = cell_trace(trace).constant(value)
    if trace is not None and hasattr(trace, "note_made"):
        trace.note_made(value, place)
    elif place.is_gpu:
        value = place.put(value)
    new: Tensor = Tensor(made(cell_of(value)), requires_grad)
    return new


def sizes(size: tuple[Any, ...]) -> Shape:
    """The shape meant by `f(2, 3)`, `f((2, 3))` or `f([2, 3])`. Raises ShapeError for a negative size."""
    flat = size[0] if len(size) == 1 and not hasattr(size[0], "__index__") else size
    shape = tuple([n if type(n) is int else as_size(n) for n in flat])
    if any(n < 0 for n in shape):
        raise ShapeError("a size is negative", expected="sizes >= 0", got=str(shape))
    return shape


# ---- from data


def _has_tensor(data: Any) -> bool:
    return isinstance(data, Tensor) or (isinstance(data, (list, tuple)) and any(map(_has_tensor, data)))


def _has_symbol(data: Any) -> bool:
    """Whether a number that the call decides is among the numbers: a size that is a symbol, a 0-d tensor."""
    if isinstance(data, (list, tuple)):
        return any(map(_has_symbol, data))
    return type(data) is Sym or (isinstance(data, Tensor) and not data.shape)


def _of_sizes(data: Any, dtype: DType) -> Value:
    """Numbers in nested lists, some of them symbols or 0-d tensors, as one value."""
    if isinstance(data, (list, tuple)):
        return F.stack([_of_sizes(part, dtype) for part in data])
    return prims.cast(data.detach()._read(), dtype) if isinstance(data, Tensor) else prims.full((), data, dtype)


def _plain(data: Any) -> Any:
    """Nested lists with the Tensors in them replaced by lists."""
    if isinstance(data, Tensor):
        return data._array("tensor([...])")
    return [_plain(d) for d in data] if isinstance(data, (list, tuple)) else data


def _dtype_of_lists(data: Any) -> DType | None:
    """What torch finds in nested lists: the dtypes of arrays, Tensors and numbers, promoted as of tensors with dims."""
    if isinstance(data, (list, tuple)):
        found = [dtype for dtype in map(_dtype_of_lists, data) if dtype is not None]
        return dt.promote(*found) if found else None
    if isinstance(data, (bool, int, float, complex, Sym)) and not isinstance(data, np.generic):
        return dt.promote(data)
    return dt.of(data.dtype)


def to_array(data: Any, dtype: DType | None = None) -> Array:
    """`data` as an array: Python floats in the default dtype, complex numbers in its complex one, integers in int64.

    Raises DTypeError for what is no number.
    """
    if isinstance(data, np.ndarray):
        array = data
    else:
        data = list(data) if isinstance(data, (memoryview, bytearray, array_of_numbers)) else data
        array = np.array(_plain(data) if _has_tensor(data) else data)  # some objects would lend their memory
        if dtype is None and isinstance(data, (list, tuple)) and array.dtype.kind in "biufcV" and _holds_arrays(data):
            return array.astype((_dtype_of_lists(data) or dt.of(array.dtype)).numpy)
        if array.dtype == np.float64 and (array.size == 0 or not _holds_arrays(data)):
            if dtype is None:
                array = array.astype(dt.get_default_dtype().numpy)
            elif dtype.itemsize == 2:  # as torch, which has no way from float64 but through float32
                array = array.astype(np.float32)
        elif array.dtype == np.complex128 and not _holds_arrays(data):
            if dtype is not None and not dtype.is_complex:
                raise DTypeError("a complex number cannot be made a real one without loss", expected=dtype.name)
            array = array.astype(dt.of_number(complex).numpy) if dtype is None else array
    if array.dtype.kind == "O" and array.size and all(type(number) is int for number in array.flat):
        raise NumberRangeError("Overflow when unpacking long", expected="64 bits at most", got=str(array.flat[0]))
    if array.dtype.kind in "OUSMm":
        raise DTypeError(
            f"cannot make a tensor of {type(data).__name__}",
            expected="numbers in nested lists, or an array",
            got=str(array.dtype),
        )
    if dtype is not None and array.dtype != dtype.numpy:
        if dtype.kind in "iu" and array.dtype == np.int64 and not _holds_arrays(data):
            for end in (array.min(), array.max()) if array.size else ():
                check_fits(dtype, end)
        return (array.real if array.dtype.kind == "c" and dtype.kind not in "cb" else array).astype(dtype.numpy)
    dt.of(array.dtype)
    return array


def _holds_arrays(data: Any) -> bool:
    """Whether nested lists hold NumPy data, whose dtype then counts."""
    if isinstance(data, (list, tuple)):
        return any(map(_holds_arrays, data))
    return isinstance(data, (np.ndarray, np.generic, Tensor))


@placed
def tensor(
    data: Any,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """A leaf with a copy of `data`: a number, nested lists, an array, or a Tensor."""
    data = getattr(data, "__tensor__", data)  # of an array that is traced
    if cuda.is_array(data):
        return _of_device_array(copy_of(data), dtype, device, requires_grad)
    if isinstance(data, Tensor):
        copied = data.detach().clone()
        copied = copied if device is None else copied.to(device)
        return leaf((copied if dtype is None else copied.to(dtype))._read(), requires_grad, device)
    if current_trace() is not None and _has_symbol(data):
        return leaf(_of_sizes(data, dtype or dt.promote(_dtype_of_lists(data))), requires_grad, device)
    array = to_array(data, dtype)
    return leaf(array.copy() if array is data else array, requires_grad, device)


def as_tensor(data: Any, dtype: DType | None = None, device: DeviceLike = None) -> Tensor:
    """`data` as a Tensor: itself if it is one of that dtype, on its memory if it is an array of that dtype."""
    dtype = None if dtype is None else dt.as_dtype(dtype)
    data = getattr(data, "__tensor__", data)
    if isinstance(data, Tensor):
        return data if dtype is None or data.dtype is dtype else prims.cast(data, dtype)
    if cuda.is_array(data):
        return _of_device_array(data, dtype, device, False)
    array = to_array(data, dtype)
    if array is data and current_trace() is None and (device is None or check_device(device) is cpu):
        return Tensor._from_cell(made(borrow(array)))
    return leaf(array, device=device)


def _of_device_array(array: Any, dtype: DType | None, device: DeviceLike, requires_grad: bool) -> Tensor:
    """A leaf on CuPy's array: where it is, unless a device is given."""
    made: Tensor = Tensor(borrow(array)) if dtype is None else Tensor(borrow(array)).to(dtype)
    made = made if device is None else made.to(device)
    return made._require() if requires_grad else made


def is_size(n: Any) -> bool:
    """Whether torch's old constructors take `n` for a size, not for data."""
    return hasattr(n, "__index__") and not hasattr(n, "__len__")


def legacy_value(data: tuple[Any, ...]) -> Value:
    """What torch.Tensor(*data) holds of what is no Tensor: data in the default dtype, zeros (here) of sizes."""
    dtype, first = dt.get_default_dtype(), data[0] if data else 0
    if not data or isinstance(first, Size) or all(map(is_size, data)):
        return creation.zeros(sizes(data or (0,)), dtype=dtype)
    if not hasattr(first, "__len__") or len(data) > 1:
        raise DTypeError(f"new(): data must be a sequence (got {type(first).__name__})")
    return tensor(first, dtype=dtype, device="cpu")._read()


# ---- filled


@creation_names
def full(
    size: SizeLike,
    fill_value: Scalar,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """All elements `fill_value`; dtype that of the value."""
    return leaf(creation.full(sizes((size,)), fill_value, dtype=dtype), requires_grad, device)


@creation_names
def zeros(*size: Any, dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """All elements 0."""
    return leaf(creation.zeros(sizes(size), dtype=dtype), requires_grad, device)


@creation_names
def ones(*size: Any, dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """All elements 1."""
    return leaf(creation.ones(sizes(size), dtype=dtype), requires_grad, device)


@creation_names
def empty(
    *size: Any,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """Elements of no particular value (here 0: reproducible)."""
    return zeros(*size, dtype=dtype, device=device, requires_grad=requires_grad)


@creation_names
def full_like(
    input: Tensor,
    fill_value: Scalar,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """`full` of input's shape and dtype."""
    return of_each(leaf(creation.full_like(input, fill_value, dtype=dtype), requires_grad, device), input)


@creation_names
def zeros_like(
    input: Tensor, *, dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """`zeros` of input's shape and dtype."""
    return full_like(input, 0, dtype=dtype, device=device, requires_grad=requires_grad)


@creation_names
def ones_like(
    input: Tensor, *, dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """`ones` of input's shape and dtype."""
    return full_like(input, 1, dtype=dtype, device=device, requires_grad=requires_grad)


empty_like = zeros_like


# ---- numbered


def _number(n: Any) -> Any:
    return n if n is None or isinstance(n, (int, float, complex, Sym)) else n.item()


@creation_names
def arange(
    start: Any = None,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """start, start + step, ... below end; `arange(end)` starts at 0. int64 for integers, else the default dtype."""
    if start is None:
        if end is None:
            raise ArgumentTypeError("arange() missing 1 required positional argument: 'end'")
        start = 0
    value = creation.arange(_number(start), _number(end), _number(step), dtype=dtype)
    return leaf(value, requires_grad, device)


@creation_names
def linspace(
    start: Any,
    end: Any,
    steps: int,
    *,
    dtype: DType | None = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:
    """`steps` numbers from start to end, both included, evenly spaced."""
    value = creation.linspace(creation.end_of(start), creation.end_of(end), steps, dtype=dtype)
    return value._require(requires_grad) if isinstance(value, Tensor) else leaf(value, requires_grad, device)


@creation_names
def eye(
    n: int, m: int | None = None, *, dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """n x m, 1 on the diagonal and 0 elsewhere."""
    return leaf(creation.eye(n, m, dtype=dtype), requires_grad, device)
