"""NumPy meaning of each scalar function of the loop IR: what generated code is held to.

In: NumPy arrays or scalars of one dtype. Out: the same shape. Floating results are within a few ulp of these in
generated code. Meanings worth stating: `maximum` and `minimum` propagate NaN; `remainder` and `floor_divide` follow
Python's sign, but a remainder of 0 has the dividend's; `pow`, `div` on floats follow IEEE; `sign(nan)` is 0;
`sigmoid(x) = 1/(1+exp(-x))`, without overflow; integer division by zero gives 0 (NumPy's). Of complex numbers abs,
real and imag are real; complex(re, im) is of the complex dtype of such parts. and, or, xor are bitwise on integers,
logical on bool. philox(seed, stream, element: u64) -> u32: word 0 of Philox4x32-10 (Salmon et al., "Parallel random
numbers: as easy as 1, 2, 3", SC'11) with key (seed lo, seed hi) and counter (element lo, element hi, stream lo, stream
hi). normal32, normal64, of two u32: ops/random/box_muller.py, of which every language gives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from compiler_core.ops.random import box_muller

Numeric = Any  # an ndarray or NumPy scalar


def _erf(x: Numeric) -> Numeric:
    """libm's erf, element by element: slow and exact."""
    flat = np.asarray(x)
    return np.array([math.erf(v) for v in flat.ravel().tolist()], flat.dtype).reshape(flat.shape)


def _erfc(x: Numeric) -> Numeric:
    """libm's erfc, element by element."""
    flat = np.asarray(x)
    return np.array([math.erfc(v) for v in flat.ravel().tolist()], flat.dtype).reshape(flat.shape)


def pow(base: Numeric, exponent: Numeric) -> Numeric:
    """base ** exponent. Integers wrap; to a negative exponent they give 0, but for 1 and -1."""
    base, exponent = np.asarray(base), np.asarray(exponent)
    if base.dtype.kind not in "iu":
        return np.power(base, exponent)
    powers = np.power(base, np.maximum(exponent, 0))
    parity = np.where(exponent % 2 == 0, np.abs(base), base)
    return np.where(exponent >= 0, powers, np.where(np.abs(base) == 1, parity, 0)).astype(base.dtype)


def _sigmoid(x: Numeric) -> Numeric:
    if np.asarray(x).dtype.kind == "c":
        return 1 / (1 + np.exp(-x))
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e)).astype(np.asarray(x).dtype)


def _rsqrt(x: Numeric) -> Numeric:
    return 1 / np.sqrt(x)


def _abs(x: Numeric) -> Numeric:
    return np.absolute(x)


def _sign(x: Numeric) -> Numeric:
    return np.where(x == x, np.sign(x), np.zeros_like(x)).astype(np.asarray(x).dtype)


def _isnan(x: Numeric) -> Numeric:
    return np.isnan(x) if np.asarray(x).dtype.kind in "fc" else np.zeros(np.shape(x), np.bool_)


def _div(a: Numeric, b: Numeric) -> Numeric:
    return np.true_divide(a, b) if np.asarray(a).dtype.kind in "fc" else np.floor_divide(a, b)


def _remainder(a: Numeric, b: Numeric) -> Numeric:
    rest = np.remainder(a, b)
    return np.where(rest == 0, np.copysign(rest, a), rest) if np.asarray(a).dtype.kind == "f" else rest


_MASK32 = np.uint64(0xFFFFFFFF)
_SHIFT32 = np.uint64(32)


def philox(seed: Numeric, stream: Numeric, element: Numeric) -> Numeric:
    """Word 0 of Philox4x32-10; arguments u64 (arrays or scalars), result u32."""
    seed, stream, element = (np.asarray(v, np.uint64) for v in (seed, stream, element))
    k0, k1 = seed & _MASK32, seed >> _SHIFT32
    c0, c1, c2, c3 = element & _MASK32, element >> _SHIFT32, stream & _MASK32, stream >> _SHIFT32
    for _ in range(10):
        p0, p1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (p1 >> _SHIFT32) ^ c1 ^ k0, p1 & _MASK32, (p0 >> _SHIFT32) ^ c3 ^ k1, p0 & _MASK32
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & _MASK32, (k1 + np.uint64(0xBB67AE85)) & _MASK32
    return c0.astype(np.uint32)


def complex_of(re: Numeric, im: Numeric) -> Numeric:
    """re + i im, bit for bit."""
    re, im = np.broadcast_arrays(re, im)
    result = np.empty(re.shape, np.result_type(re.dtype, np.complex64))
    result.real, result.imag = re, im
    return result


class ScalarEntry(NamedTuple):
    """One scalar function. costly: takes many times as long as reading a number; the lowering computes it once."""

    name: str
    arity: int
    result: Literal["same", "bool", "u32", "f32", "f64", "real", "complex"]
    numpy: Callable[..., Any]
    costly: bool = False


TABLE: tuple[ScalarEntry, ...] = (
    ScalarEntry("neg", 1, "same", np.negative),
    ScalarEntry("exp", 1, "same", np.exp, costly=True),
    ScalarEntry("log", 1, "same", np.log, costly=True),
    ScalarEntry("exp2", 1, "same", np.exp2, costly=True),
    ScalarEntry("log2", 1, "same", np.log2, costly=True),
    ScalarEntry("log10", 1, "same", np.log10, costly=True),
    ScalarEntry("log1p", 1, "same", np.log1p, costly=True),
    ScalarEntry("expm1", 1, "same", np.expm1, costly=True),
    ScalarEntry("sin", 1, "same", np.sin, costly=True),
    ScalarEntry("cos", 1, "same", np.cos, costly=True),
    ScalarEntry("tanh", 1, "same", np.tanh, costly=True),
    ScalarEntry("sqrt", 1, "same", np.sqrt, costly=True),
    ScalarEntry("rsqrt", 1, "same", _rsqrt, costly=True),
    ScalarEntry("erf", 1, "same", _erf, costly=True),
    ScalarEntry("erfc", 1, "same", _erfc, costly=True),
    ScalarEntry("asin", 1, "same", np.arcsin, costly=True),
    ScalarEntry("acos", 1, "same", np.arccos, costly=True),
    ScalarEntry("atan", 1, "same", np.arctan, costly=True),
    ScalarEntry("asinh", 1, "same", np.arcsinh, costly=True),
    ScalarEntry("acosh", 1, "same", np.arccosh, costly=True),
    ScalarEntry("atanh", 1, "same", np.arctanh, costly=True),
    ScalarEntry("abs", 1, "real", _abs),
    ScalarEntry("real", 1, "real", np.real),
    ScalarEntry("imag", 1, "real", np.imag),
    ScalarEntry("conj", 1, "same", np.conjugate),
    ScalarEntry("complex", 2, "complex", complex_of),
    ScalarEntry("sign", 1, "same", _sign),
    ScalarEntry("floor", 1, "same", np.floor),
    ScalarEntry("ceil", 1, "same", np.ceil),
    ScalarEntry("round", 1, "same", np.rint),  # half to even
    ScalarEntry("trunc", 1, "same", np.trunc),
    ScalarEntry("sigmoid", 1, "same", _sigmoid, costly=True),
    ScalarEntry("logical_not", 1, "bool", np.logical_not),
    ScalarEntry("bitwise_not", 1, "same", np.invert),
    ScalarEntry("isnan", 1, "bool", _isnan),
    ScalarEntry("add", 2, "same", np.add),
    ScalarEntry("sub", 2, "same", np.subtract),
    ScalarEntry("mul", 2, "same", np.multiply),
    ScalarEntry("div", 2, "same", _div),
    ScalarEntry("pow", 2, "same", pow, costly=True),
    ScalarEntry("maximum", 2, "same", np.maximum),
    ScalarEntry("minimum", 2, "same", np.minimum),
    ScalarEntry("atan2", 2, "same", np.arctan2, costly=True),
    ScalarEntry("copysign", 2, "same", np.copysign),
    ScalarEntry("remainder", 2, "same", _remainder),
    ScalarEntry("floor_divide", 2, "same", np.floor_divide),
    ScalarEntry("eq", 2, "bool", np.equal),
    ScalarEntry("ne", 2, "bool", np.not_equal),
    ScalarEntry("lt", 2, "bool", np.less),
    ScalarEntry("le", 2, "bool", np.less_equal),
    ScalarEntry("gt", 2, "bool", np.greater),
    ScalarEntry("ge", 2, "bool", np.greater_equal),
    ScalarEntry("bitwise_and", 2, "same", np.bitwise_and),
    ScalarEntry("bitwise_or", 2, "same", np.bitwise_or),
    ScalarEntry("bitwise_xor", 2, "same", np.bitwise_xor),
    ScalarEntry("shift_left", 2, "same", np.left_shift),
    ScalarEntry("shift_right", 2, "same", np.right_shift),
    ScalarEntry("philox", 3, "u32", philox, costly=True),
    ScalarEntry("normal32", 2, "f32", partial(box_muller.normal, box_muller.F32, np), costly=True),
    ScalarEntry("normal64", 2, "f64", partial(box_muller.normal, box_muller.F64, np), costly=True),
)
