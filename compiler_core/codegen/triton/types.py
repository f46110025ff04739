"""How each dtype looks in generated Triton: in registers, in memory, in a signature, and as a literal.

In: `DType`, Python numbers. Out: Triton text. bool lies in memory as int8 and is compared with 0 when loaded.
A bare Python float in Triton is a float32 constant, so literals name their dtype. Triton has no complex numbers: a
kernel that holds one is refused with LoweringError.
"""

from __future__ import annotations

import math

from compiler_core.dtype import DType, bfloat16, bool_, float16, float32, float64
from compiler_core.errors import NoComplexError

_FLOATS = {float64: ("float64", "fp64"), float32: ("float32", "fp32"), float16: ("float16", "fp16")}


def register_type(dtype: DType) -> str:
    """The type of a value: `tl.float32`."""
    if dtype is bool_:
        return "tl.int1"
    if dtype.is_complex:
        raise _no_complex(dtype)
    return f"tl.{dtype.name}"


def _no_complex(dtype: DType) -> NoComplexError:
    return NoComplexError(f"Triton has no complex numbers ({dtype.name})", remedy='use backend="aot_eager"')


def pointer_type(dtype: DType) -> str:
    """The type of a parameter in a signature: `*fp32`."""
    if dtype.is_complex:
        raise _no_complex(dtype)
    if dtype in _FLOATS:
        return f"*{_FLOATS[dtype][1]}"
    if dtype is bfloat16:
        return "*bf16"
    return "*i8" if dtype is bool_ else f"*{dtype.short}"


def literal(value: bool | int | float | complex, dtype: DType) -> str:
    """A scalar constant of exactly `dtype`."""
    if dtype is bool_:
        return f"tl.full((), {int(bool(value))}, tl.int1)"
    if isinstance(value, complex):
        raise _no_complex(dtype)
    if not dtype.is_floating_point:
        return f"tl.full((), {int(value)}, {register_type(dtype)})"
    value = float(value)
    if math.isnan(value):
        text = 'float("nan")'
    elif math.isinf(value):
        text = f'{"-" if value < 0 else ""}float("inf")'
    else:
        text = repr(value)
    return f"tl.full((), {text}, {register_type(dtype)})"
