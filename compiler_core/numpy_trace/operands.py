"""From what people hand to NumPy's functions to Tensors, in NumPy's dtypes.

In: TracedArrays, Tensors, arrays, numbers, nested lists of these. Out: Tensors. Promotion is NumPy's (NEP 50): Python's
numbers are weak, NumPy's scalars and 0-d arrays are not; floats are float64 unless something says otherwise.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from compiler_core import dtype as dt
from compiler_core.dtype import DType
from compiler_core.errors import DTypeError
from compiler_core.numpy_trace.array import TracedArray, not_traced
from compiler_core.numpy_trace.known import constant
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.tensor.tensor import Tensor

NumpyDType: TypeAlias = np.dtype[Any]


def is_traced(x: object) -> bool:
    """Whether x is an array or scalar that stands for NumPy's."""
    return type(x) is TracedArray


def holds_traced(x: Any) -> bool:
    """Whether x is traced, or a list or tuple in which something is."""
    return type(x) is TracedArray or (type(x) in (list, tuple) and any(map(holds_traced, x)))


def is_number(x: object) -> bool:
    """Whether x is one of Python's numbers, which are weak."""
    return type(x) in (bool, int, float, complex)


def dtype_here(dtype: Any) -> DType:
    """The DType of what NumPy takes for a dtype. Raises GraphBreak for one that Tensors do not have."""
    try:
        return dt.of(np.dtype(dtype))
    except DTypeError:
        raise not_traced(f"an array of dtype {np.dtype(dtype)}") from None


def tensor_of(x: Any) -> Tensor:
    """x as a Tensor. Lists with traced arrays in them are stacked; what is not traced is a constant."""
    if type(x) is TracedArray:
        return x.tensor
    if isinstance(x, Tensor):
        return x
    if holds_traced(x):
        parts = [tensor_of(part) for part in x]
        common = np.result_type(*(dtype_in(part) for part in x))
        return F.stack([cast(part, common) for part in parts])  # type: ignore[no-any-return]
    array = np.asarray(x)
    dtype_here(array.dtype)
    return constant(array)


def dtype_in(x: Any) -> Any:
    """What NumPy's promotion goes by: a dtype, or the type of a Python number."""
    if type(x) is TracedArray:
        return x.dtype
    if isinstance(x, Tensor):
        return x.dtype.numpy
    if holds_traced(x):
        return np.result_type(*map(dtype_in, x))
    return x if is_number(x) else np.asarray(x).dtype


def dtype_of(x: Any) -> NumpyDType:
    """The dtype of x as an array."""
    found = dtype_in(x)
    return found if isinstance(found, np.dtype) else np.asarray(found).dtype


def cast(tensor: Tensor, dtype: Any) -> Tensor:
    """tensor in a NumPy dtype, by NumPy's rules: what is not zero is True."""
    wanted = dtype_here(dtype)
    if tensor.dtype is wanted:
        return tensor
    if tensor.dtype.is_complex and not wanted.is_complex and wanted is not dt.bool_:
        tensor = prims.real(tensor)
    if wanted is dt.bool_:
        return F.ne(tensor, 0)  # type: ignore[no-any-return]
    return tensor if tensor.dtype is wanted else prims.cast(tensor, wanted)


def filled(shape: Any, value: Any, dtype: Any) -> Tensor:
    """A Tensor with all elements `value`: one node under a trace."""
    return Tensor._wrap(prims.full(tuple(shape), np.dtype(dtype).type(value).item(), dtype_here(dtype)))


def floats(x: Any) -> Tensor:
    """x as a Tensor of floats: whole numbers and bools become float64."""
    tensor = tensor_of(x)
    return tensor if tensor.dtype.is_inexact else cast(tensor, np.float64)


def together(*xs: Any, weak: bool = False) -> list[Tensor]:
    """All of them in their common dtype. weak: Python's numbers are (in most of NumPy's functions they are arrays)."""
    common = np.result_type(*(dtype_in(x) if weak else dtype_of(x) for x in xs))
    return [cast(tensor_of(x), common) for x in xs]


def all_floats(*xs: Any) -> list[Tensor]:
    """All of them in their common dtype of floats: NumPy's linalg takes whole numbers as float64."""
    tensors = together(*xs)
    return tensors if tensors[0].dtype.is_inexact else [cast(tensor, np.float64) for tensor in tensors]


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """The axes meant: all for None. Raises NumPy's AxisError."""
    return tuple(range(ndim)) if axis is None else normalize_axis_tuple(axis, ndim)


def axis_of(axis: Any, ndim: int) -> int:
    """The one axis meant. Raises NumPy's AxisError."""
    return normalize_axis_tuple(int(axis), ndim)[0]


def flat(tensor: Tensor) -> Tensor:
    """tensor with one axis."""
    return F.reshape(tensor, (-1,)) if tensor._cell.raw.shape else F.reshape(tensor, (1,))  # type: ignore[no-any-return]


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """The shape as a plain tuple."""
    return tuple(tensor._cell.raw.shape)


def torch_function(name: str, of_numbers: bool = False) -> Any:
    """The function that torch has under `name`.

    of_numbers: any operand may be a number, as NumPy's may.
    """
    from compiler_core.names.torch_table import TORCH
    from compiler_core.tensor.torch_names import as_tensors, load, public_form

    row = TORCH[name]
    return (lambda *operands: as_tensors(load(row.place)(*operands))) if of_numbers else public_form(row)
