"""How each dtype looks in generated C++: what lies in memory, what is computed with, and how to spell a literal.

In: `DType`, Python numbers. Out: C++ text.
Storage and register types differ for three dtypes. bool lies in memory as uint8_t (GCC vectorises loads of that, not of
bool). f16 and bf16 are bit patterns in uint16_t everywhere, converted to float and back by helpers: GCC 12 has no
arithmetic on __bf16 and does not vectorise conversions of _Float16, but does vectorise the bit operations.
"""

from __future__ import annotations

import math

import numpy as np

from compiler_core.dtype import DType, bfloat16, bool_, float16, float32, float64

_STORAGE = {bool_: "uint8_t", float16: "dc_f16", bfloat16: "dc_bf16"}
_REGISTER = {float16: "dc_f16", bfloat16: "dc_bf16"}


def storage_type(dtype: DType) -> str:
    """The type of an array element in memory."""
    return _STORAGE.get(dtype, dtype.ctype)


def register_type(dtype: DType) -> str:
    """The type of a scalar variable."""
    return _REGISTER.get(dtype, dtype.ctype)


def is_half(dtype: DType) -> bool:
    """Whether the dtype is stored as a bit pattern: f16 or bf16."""
    return dtype is float16 or dtype is bfloat16


def unsigned_type(dtype: DType) -> str:
    """An unsigned type in which integer arithmetic of `dtype` wraps: no narrower than int, which would promote."""
    return "uint64_t" if dtype.itemsize == 8 else "uint32_t"


def literal(value: bool | int | float | complex, dtype: DType) -> str:
    """`value` as a C++ constant of `register_type(dtype)`."""
    if dtype is bool_:
        return "true" if value else "false"
    if dtype.is_complex:
        parts = (float_literal(float(part), dtype.real) for part in (value.real, value.imag))
        return f"dc_complex<{dtype.ctype}>({', '.join(parts)})"
    assert not isinstance(value, complex), f"{value} as {dtype}"
    if is_half(dtype):
        with np.errstate(over="ignore"):
            bits = int(np.asarray(value, dtype.numpy).view(np.uint16))
        return f"({register_type(dtype)})0x{bits:04x} /* {value} */"
    if dtype.is_floating_point:
        return float_literal(float(value), dtype)
    return integer_literal(int(value), dtype)


def float_literal(value: float, dtype: DType) -> str:
    """A float or double constant that reads back to the same bits (NaN: a quiet one)."""
    suffix = "f" if dtype is float32 else ""
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(value) or (dtype is float32 and math.isinf(_to_float32(value))):
        return f"(-__builtin_inf{suffix}())" if value < 0 else f"__builtin_inf{suffix}()"
    text = repr(value) if dtype is float64 else str(_to_float32(value))
    if not any(c in text for c in ".en"):
        text += ".0"
    return text + suffix if value >= 0 and not text.startswith("-") else f"({text}{suffix})"


def _to_float32(value: float) -> np.float32:
    with np.errstate(over="ignore"):
        return np.float32(value)


def integer_literal(value: int, dtype: DType) -> str:
    """An integer constant; the most negative value, which C++ cannot spell, as a difference."""
    bits = 8 * dtype.itemsize
    if dtype.kind == "u":
        return f"({dtype.ctype}){value % (1 << bits)}u" + ("l" if bits == 64 else "")
    value = (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    if value == -(1 << (bits - 1)):
        return f"({dtype.ctype})({value + 1}l - 1)"
    return f"({dtype.ctype}){value}" if value >= 0 else f"({dtype.ctype})({value})"


def strip(text: str) -> str:
    """`text` without one pair of parentheses that encloses all of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[1:-1] if position == len(text) - 1 else text
    return text
