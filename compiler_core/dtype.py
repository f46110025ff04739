"""Element types, and how they promote.

In: NumPy dtypes, Python types. Out: interned `DType` constants (`float32`, ...), `of`, `promote`.

Promotion between arrays follows NumPy (NEP 50). A Python scalar is weak: it takes the array's dtype if its kind fits.
Where NEP 50 speaks of *the default* float (an integer array with a Python float; true division or mean of integers),
ours is `get_default_dtype()`, float32 as in torch, not float64. bfloat16 and its promotion come from `ml_dtypes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import ml_dtypes
import numpy as np

from compiler_core.errors import DTypeError


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One element type, interned. `name` is torch's name, `short` the IR's, `ctype` C++'s."""

    name: str
    short: str
    ctype: str
    numpy: np.dtype[np.generic]
    kind: str  # "b" bool, "u" unsigned, "i" signed, "f" floating
    itemsize: int  # bytes

    @property
    def is_floating_point(self) -> bool:
        return self.kind == "f"

    @property
    def is_signed(self) -> bool:
        return self.kind in "if"

    @property
    def is_complex(self) -> bool:
        return False

    @property
    def compute(self) -> DType:
        """The dtype that arithmetic is done in: float32 for the 16-bit floats, itself otherwise."""
        return float32 if self.kind == "f" and self.itemsize == 2 else self

    def __repr__(self) -> str:
        return f"distcompile.{self.name}"

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return by_name, (self.name,)


def _make(name: str, short: str, ctype: str, numpy_type: object, kind: str) -> DType:
    numpy = np.dtype(numpy_type)  # type: ignore[call-overload]
    return DType(name, short, ctype, numpy, kind, numpy.itemsize)


float64 = _make("float64", "f64", "double", np.float64, "f")
float32 = _make("float32", "f32", "float", np.float32, "f")
float16 = _make("float16", "f16", "_Float16", np.float16, "f")
bfloat16 = _make("bfloat16", "bf16", "__bf16", ml_dtypes.bfloat16, "f")
int64 = _make("int64", "i64", "int64_t", np.int64, "i")
int32 = _make("int32", "i32", "int32_t", np.int32, "i")
int16 = _make("int16", "i16", "int16_t", np.int16, "i")
int8 = _make("int8", "i8", "int8_t", np.int8, "i")
uint64 = _make("uint64", "u64", "uint64_t", np.uint64, "u")
uint32 = _make("uint32", "u32", "uint32_t", np.uint32, "u")
uint16 = _make("uint16", "u16", "uint16_t", np.uint16, "u")
uint8 = _make("uint8", "u8", "uint8_t", np.uint8, "u")
bool_ = _make("bool", "bool", "bool", np.bool_, "b")

ALL: tuple[DType, ...] = (
    float64, float32, float16, bfloat16, int64, int32, int16, int8, uint64, uint32, uint16, uint8, bool_,
)  # fmt: skip
FLOATING: tuple[DType, ...] = tuple(d for d in ALL if d.is_floating_point)

_BY_NUMPY = {d.numpy: d for d in ALL}
_BY_NAME = {key: d for d in ALL for key in (d.name, d.short)}
_default_float = float32


def by_name(name: str) -> DType:
    """The dtype called `name` ("float32" or "f32"). Raises DTypeError for an unknown name."""
    if name not in _BY_NAME:
        raise DTypeError(f"unknown dtype name {name!r}", expected=f"one of {', '.join(d.name for d in ALL)}")
    return _BY_NAME[name]


def of(thing: object) -> DType:
    """The `DType` of a DType, NumPy dtype, value (array, node, Tensor) or scalar type. Raises DTypeError for others."""
    if isinstance(thing, DType):
        return thing
    if isinstance(thing, type):
        return _of_type(thing)
    numpy = getattr(thing, "dtype", thing)
    if isinstance(numpy, DType):  # of a Tensor or a graph node
        return numpy
    if not isinstance(numpy, np.dtype):
        numpy = np.dtype(numpy)  # type: ignore[call-overload]
    if numpy not in _BY_NUMPY:
        raise DTypeError(f"arrays of NumPy dtype {numpy} are not supported", expected=", ".join(d.name for d in ALL))
    return _BY_NUMPY[numpy]


def _of_type(scalar: type) -> DType:
    """The dtype of a Python or NumPy scalar type."""
    python = {float: _default_float, int: int64, bool: bool_}
    return python[scalar] if scalar in python else of(np.dtype(scalar))


def get_default_dtype() -> DType:
    """The floating dtype given to Python floats and to integer true division; float32 unless set."""
    return _default_float


def set_default_dtype(dtype: DType) -> None:
    """Set the default floating dtype. Raises DTypeError if `dtype` is not floating."""
    global _default_float
    if not dtype.is_floating_point:
        raise DTypeError(f"the default dtype must be floating, got {dtype}", expected="float32 or float64")
    _default_float = dtype


@cache
def _promote_pair(a: DType, b: DType) -> DType:
    """NumPy's answer; where it has none for bfloat16, that of float16 beside integers, and float32 beside float16."""
    if {a, b} == {float16, bfloat16}:
        return float32
    if bfloat16 in (a, b) and (a.kind in "iu" or b.kind in "iu") and min(a.itemsize, b.itemsize) > 1:
        a, b = (float16 if d is bfloat16 else d for d in (a, b))
    return of(np.promote_types(a.numpy, b.numpy))


def _with_scalar(dtype: DType, scalar: type) -> DType:
    """NEP 50's weak scalar: the array's dtype wins unless the scalar is of a higher kind."""
    if scalar is float and not dtype.is_floating_point:
        return _default_float
    if scalar is int and dtype is bool_:
        return int64
    return dtype


def takes_scalar(dtype: DType, scalar: type) -> bool:
    """Whether arrays of `dtype` stay that beside a Python scalar of this type."""
    return _with_scalar(dtype, scalar) is dtype


def promote(*operands: object) -> DType:
    """The common dtype of dtypes, arrays (anything with `.dtype`) and weak Python scalars, by NEP 50."""
    scalars = [type(o) for o in operands if isinstance(o, (bool, int, float))]
    dtypes = [of(o) for o in operands if not isinstance(o, (bool, int, float))]
    if not dtypes:
        ranked = [bool, int, float]
        return of(max(scalars, key=ranked.index))
    result = dtypes[0]
    for dtype in dtypes[1:]:
        result = _promote_pair(result, dtype)
    for scalar in scalars:
        result = _with_scalar(result, scalar)
    return result
