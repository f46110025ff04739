"""Element types, and how they promote.

In: NumPy dtypes, Python types. Out: interned `DType` constants (`float32`, ...), `of`, `promote`.

Promotion is torch's (c10/core/ScalarType.h, aten/src/ATen/native/TypeProperties.cpp). Among equals the higher category
wins (bool, integers, floats, complex), within a category the larger size: int64 beside float32 is float32, float16
beside bfloat16 float32. Tensors with dims outrank 0-d ones, and these numbers (Python's and NumPy's alike): who is
outranked changes the result only by a higher category. A float number alone is `get_default_dtype()`, an int is int64,
a complex one complex64 (complex128 where the default is float64). A complex dtype is a pair of floats, `real` the dtype
of each; beside a float of n bits it has at least n bits a part. There are no tensors of complex32, torch's answer to
float16 beside a complex number: that is a DTypeError.
uint16, uint32 and uint64 have no common dtype with other integers.
"""

from __future__ import annotations

import math
from functools import cache, reduce
from typing import Any

import ml_dtypes
import numpy as np

from compiler_core.errors import ArgumentTypeError, DTypeError
from compiler_core.names.spelling import spelled
from compiler_core.records import dataclass
from compiler_core.symbolic.expression import Sym, is_symbol


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One element type, interned. `name` is torch's name, `short` the IR's, `ctype` C++'s."""

    name: str
    short: str
    ctype: str
    numpy: np.dtype[np.generic]
    kind: str  # "b" bool, "u" unsigned, "i" signed, "f" floating, "c" complex
    itemsize: int  # bytes

    @property
    def is_floating_point(self) -> bool:
        return self.kind == "f"

    @property
    def is_signed(self) -> bool:
        return self.kind in "ifc"

    @property
    def is_complex(self) -> bool:
        return self.kind == "c"

    @property
    def is_inexact(self) -> bool:
        """Floating or complex: what has gradients."""
        return self.kind in "fc"

    @property
    def real(self) -> DType:
        """The dtype of the parts of a complex one; itself otherwise."""
        return _REAL.get(self.name, self)

    @property
    def complex(self) -> DType:
        """The complex dtype whose parts are of this one; itself if complex. Raises DTypeError where there is none."""
        if self.kind == "c":
            return self
        if self not in (float32, float64):
            raise DTypeError(f"there is no complex dtype of {self.name} parts", expected="float32 or float64")
        return complex64 if self is float32 else complex128

    @property
    def compute(self) -> DType:
        """The dtype that arithmetic is done in: float32 for the 16-bit floats, itself otherwise."""
        return float32 if self.kind == "f" and self.itemsize == 2 else self

    def __repr__(self) -> str:
        return spelled(self.name)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return by_name, (self.name,)


del DType.__dataclass_fields__  # libraries take dataclasses apart, and torch's dtypes are none


class Format(DType):
    """A dtype with a name and a size, of which there are no tensors: asked for its NumPy dtype, as whatever makes a
    tensor does, it raises DTypeError. limits: for finfo, of floats."""

    __slots__ = ("limits",)
    limits: np.dtype[np.generic] | None

    def __init__(self, name: str, kind: str = "f", itemsize: int = 1) -> None:
        limits = np.dtype(getattr(ml_dtypes, name.removesuffix("_x2"))) if kind == "f" else None
        facts = {"name": name, "short": name, "ctype": "", "kind": kind, "itemsize": itemsize, "limits": limits}
        for field, value in facts.items():
            object.__setattr__(self, field, value)

    @property
    def numpy(self) -> np.dtype[np.generic]:
        raise DTypeError(f"there are no tensors of {self.name}", expected=", ".join(d.name for d in ALL))


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
complex128 = _make("complex128", "c128", "dc_c128", np.complex128, "c")
complex64 = _make("complex64", "c64", "dc_c64", np.complex64, "c")
float8_e4m3fn = Format("float8_e4m3fn")
float8_e5m2 = Format("float8_e5m2")
float8_e4m3fnuz = Format("float8_e4m3fnuz")
float8_e5m2fnuz = Format("float8_e5m2fnuz")
float8_e8m0fnu = Format("float8_e8m0fnu")
float4_e2m1fn_x2 = Format("float4_e2m1fn_x2")
complex32 = Format("complex32", "c", 4)
uint1, uint2, uint3, uint4, uint5, uint6, uint7 = (Format(f"uint{bits}", "u") for bits in range(1, 8))
int1, int2, int3, int4, int5, int6, int7 = (Format(f"int{bits}", "i") for bits in range(1, 8))
FORMATS = (
    float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz, float8_e8m0fnu, float4_e2m1fn_x2, complex32,
    uint1, uint2, uint3, uint4, uint5, uint6, uint7, int1, int2, int3, int4, int5, int6, int7,
)  # fmt: skip
_REAL = {"complex32": float16, "complex64": float32, "complex128": float64}

ALL: tuple[DType, ...] = (
    float64, float32, float16, bfloat16, int64, int32, int16, int8, uint64, uint32, uint16, uint8, bool_,
    complex128, complex64,
)  # fmt: skip
COMPLEX: tuple[DType, ...] = (complex128, complex64)
FLOATING: tuple[DType, ...] = tuple(d for d in ALL if d.is_floating_point)

_BY_NUMPY = {d.numpy: d for d in ALL}
BY_VALUES: dict[object, DType] = {key: d for d in ALL for key in (d.numpy, d)}  # by the dtype that a value says
_BY_NAME = {key: d for d in (*ALL, *FORMATS) for key in (d.name, d.short)}


class Default:
    """floating: the dtype of `get_default_dtype`; only `set_default_dtype` writes it."""

    floating = float32


def by_name(name: str) -> DType:
    """The dtype called `name` ("float32" or "f32"). Raises DTypeError for an unknown name."""
    if name not in _BY_NAME:
        raise DTypeError(f"unknown dtype name {name!r}", expected=f"one of {', '.join(d.name for d in ALL)}")
    return _BY_NAME[name]


def of(thing: object) -> DType:
    """The `DType` of a DType, NumPy dtype, value (array, node, Tensor) or scalar type. Raises DTypeError for others."""
    if isinstance(thing, DType):
        return thing
    if isinstance(thing, np.dtype) and thing in _BY_NUMPY:
        return _BY_NUMPY[thing]
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
    python = {float: Default.floating, int: int64, bool: bool_, complex: _default_complex()}
    return python[scalar] if scalar in python else of(np.dtype(scalar))


def get_default_dtype() -> DType:
    """The floating dtype given to Python floats and to integer true division; float32 unless set."""
    return Default.floating


def _default_complex() -> DType:
    """The dtype given to Python's complex numbers."""
    return complex128 if Default.floating is float64 else complex64


def set_default_dtype(dtype: DType) -> None:
    """Set the default floating dtype. Raises DTypeError if it is not floating, ArgumentTypeError if it is no dtype."""
    if not isinstance(dtype, DType):
        raise ArgumentTypeError(
            "set_default_dtype() takes a dtype", got=repr(dtype), remedy="set_default_dtype(torch.float64)"
        )
    if not dtype.is_floating_point or isinstance(dtype, Format):
        raise DTypeError(f"the default dtype must be floating, got {dtype}", expected="float32 or float64")
    Default.floating = dtype


_CATEGORY = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}
_NUMBER = {bool: 0, int: 1, float: 2, complex: 3}
_SCALAR: dict[type, int] = {**_NUMBER, Sym: 1}
_WIDE_UNSIGNED = (uint16, uint32, uint64)


@cache
def _promote_pair(a: DType, b: DType) -> DType:
    """The common dtype of two tensors of equal rank. Raises DTypeError for wide unsigned beside other integers."""
    if a is b:
        return a
    categories = _CATEGORY[a.kind], _CATEGORY[b.kind]
    if categories[0] != categories[1]:
        strong, weak = (a, b) if categories[0] > categories[1] else (b, a)
        if strong.kind == "c" and weak in _WIDE_UNSIGNED:
            raise _no_common(a, b)
        return complex128 if strong is complex64 and weak is float64 else strong
    if {a, b} == {float16, bfloat16}:
        return float32
    if a.kind in "iu" and (a in _WIDE_UNSIGNED or b in _WIDE_UNSIGNED):
        raise _no_common(a, b)
    return of(np.promote_types(a.numpy, b.numpy))


def _no_common(a: DType, b: DType) -> DTypeError:
    return DTypeError(
        f"{a.name} and {b.name} have no common dtype",
        expected="uint16, uint32 and uint64 beside floats or themselves",
        remedy="convert one of them first",
    )


def _outranked(strong: DType, weak: DType) -> DType:
    """The common dtype where `strong` outranks `weak`: its own, unless the other's category is higher."""
    if _CATEGORY[weak.kind] <= _CATEGORY[strong.kind]:
        return strong
    if weak.kind == "c" and strong in _WIDE_UNSIGNED:
        return weak
    if weak.kind == "c" and strong is float16:
        raise DTypeError("float16 beside a complex number is complex32, which NumPy has not", remedy="use float32")
    if weak.kind == "c" and strong.kind == "f":
        return complex128 if strong is float64 else complex64
    return _promote_pair(strong, weak)


_OF_TYPE: dict[object, DType] = {bool: bool_, int: int64, float: float64, complex: complex128}


def as_dtype(wanted: object) -> DType:
    """`wanted`, or the dtype for which a Python type stands. Raises ArgumentTypeError for anything else."""
    found = _OF_TYPE.get(wanted) if isinstance(wanted, type) else wanted
    if not isinstance(found, DType):
        raise ArgumentTypeError(f"argument 'dtype' must be torch.dtype, not {type(wanted).__name__}", got=str(wanted))
    return found


def number_type(number: object) -> type | None:
    """bool, int, float or complex for a Python or NumPy number (a NumPy scalar, not an array); else None.

    NumPy's truth values are floats, as in torch. A size that is a symbol is an int.
    """
    kind = type(number)
    if kind in _NUMBER:
        return kind
    if isinstance(number, np.generic):
        kinds: dict[str, type] = {"b": float, "i": int, "u": int, "f": float, "V": float, "c": complex}  # V: ml_dtypes
        return kinds.get(number.dtype.kind)
    if kind is Sym:
        return int
    return next((base for base in (bool, int, float, complex) if isinstance(number, base)), None)


def of_number(kind: type) -> DType:
    """The dtype of a number of this Python type that stands alone: int64 for int, the default dtype for float."""
    return _of_type(kind)


def takes_scalar(dtype: DType, scalar: type) -> bool:
    """Whether arrays of `dtype` stay that beside a Python scalar of this type."""
    return _SCALAR[scalar] <= _CATEGORY[dtype.kind]


def promote(*operands: object) -> DType:
    """The common dtype of tensors (anything with `.shape` and `.dtype`), DTypes (as of tensors with dims), numbers."""
    ranks: list[DType | None] = [None, None, None]  # of tensors with dims, of 0-d ones, of numbers
    for operand in operands:
        number = number_type(operand)
        rank = 2 if number is not None else 1 if getattr(operand, "shape", None) == () else 0
        dtype = of(operand) if number is None else of_number(number)
        before = ranks[rank]
        ranks[rank] = dtype if before is None else _promote_pair(before, dtype)
    present = [dtype for dtype in ranks if dtype is not None]
    return reduce(_outranked, present)


@cache
def _limits(dtype: DType) -> tuple[float, float]:
    """The least and the greatest finite number of a dtype, as torch counts: an unsigned one takes numbers negated."""
    if dtype.kind in "iu":
        high = (1 << 8 * dtype.numpy.itemsize - (dtype.kind == "i")) - 1
        return (-high if dtype.kind == "u" else -high - 1), high
    high_float = float(ml_dtypes.finfo(dtype.real.numpy).max)  # type: ignore[no-untyped-call]
    return -high_float, high_float


def fits(dtype: DType, number: complex) -> bool:
    """Whether torch stores `number` in `dtype` without complaint: it is in its range, or a float's NaN or infinity."""
    if dtype.kind == "b":
        return True
    if type(number) not in _NUMBER and is_symbol(number):  # a size has 63 bits at most
        size: Any = number
        return dtype.itemsize == 8 or dtype.kind in "fc" or bool(size <= _limits(dtype)[1])
    if type(number) is complex:
        return fits(dtype, number.real) and (fits(dtype, number.imag) if dtype.kind == "c" else number.imag == 0)
    if type(number) is float and not math.isfinite(number):
        return dtype.kind in "fc"
    if type(number) is float and dtype.kind == "u" and number < 0:
        return False
    least, greatest = _limits(dtype)
    return least <= number.real <= greatest


@cache
def _normal_range(dtype: DType) -> tuple[float, float]:
    """The least and the greatest normal number of a floating dtype."""
    limits = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
    return float(limits.smallest_normal), float(limits.max)


def is_normal(dtype: DType, number: float) -> bool:
    """Whether a floating dtype holds `number` to its full precision: not as 0, a subnormal or an infinity."""
    least, greatest = _normal_range(dtype)
    return least <= abs(number) <= greatest


def joint_factor(dtype: DType, a: float, b: float) -> float | None:
    """The number c for which (x a) b = x c, up to rounding, for every x of a floating dtype; None if there is none.

    Either both enlarge, or nothing does but b, and that by at most 2: else x a may overflow, or lose more than a bit,
    where neither x nor x c does.
    """
    a_size, b_size = abs(a), abs(b)
    in_range = (a_size >= 1 and b_size >= 1) or (a_size <= 1 and b_size <= 2)
    return a * b if in_range and all(is_normal(dtype, number) for number in (a, b, a * b)) else None


def finfo_eps(dtype: DType) -> float:
    """The distance from 1 to the next larger number of a floating dtype (of a complex one: of its parts)."""
    return float(ml_dtypes.finfo(dtype.real.numpy).eps)  # type: ignore[no-untyped-call]
