"""Functions of one operand over any Value, with torch's names: signs, exponentials, trigonometry, roots, rounding.

In: a value or a Python scalar. Out: one value of its shape. Where torch takes integers to floats (exp, sqrt, sin), they
go to the default dtype. Derivatives at corners follow torch: abs and sign give 0 at 0.
Inverse and less common functions are in trigonometry.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from compiler_core.dtype import bool_
from compiler_core.errors import NoKernelError
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import (
    as_new,
    as_value,
    dtype_of,
    floating,
    rounded_once,
)
from compiler_core.ops.composites.arithmetic import Operand, add, mul, sub, times
from compiler_core.ops.refusals import need_kind, refuse_bools
from compiler_core.ops.registry import Value
from compiler_core.ops.remembered import remembered


@remembered
def neg(input: Value) -> Value:
    """-input."""
    x = as_value(input)
    refuse_bools("Negation", x)
    return prims.sub(prims.full_like(x, 0), x) if dtype_of(x).kind == "u" else prims.neg(x)


@remembered
def abs(input: Value) -> Value:
    """|input|."""
    need_kind("abs", "iufc", input)
    x = as_value(input)
    return as_new(x) if dtype_of(x).kind in "ub" else prims.abs(x)


@remembered
def sign(input: Value) -> Value:
    """-1, 0 or 1."""
    x = as_value(input)
    if dtype_of(x).is_complex:
        raise NoKernelError("sign is not defined for complex numbers", got=dtype_of(x).name, remedy="use sgn")
    return prims.cast(prims.ne(x, prims.full_like(x, 0)), dtype_of(x)) if dtype_of(x).kind in "ub" else prims.sign(x)


def positive(input: Value) -> Value:
    """input."""
    need_kind("positive", "iufc", input)
    return input


def exp(input: Value) -> Value:
    """e ** input."""
    return prims.exp(floating(input))


def exp2(input: Value) -> Value:
    """2 ** input."""
    x = floating(input)
    return prims.exp(mul(x, math.log(2.0))) if dtype_of(x).is_complex else prims.exp2(x)


def expm1(input: Value) -> Value:
    """e ** input - 1, exact near 0."""
    return prims.expm1(floating(input))


def log(input: Value) -> Value:
    """Natural logarithm."""
    return prims.log(floating(input))


def log2(input: Value) -> Value:
    """Logarithm to base 2."""
    x = floating(input)
    return mul(prims.log(x), 1.0 / math.log(2.0)) if dtype_of(x).is_complex else prims.log2(x)


def log10(input: Value) -> Value:
    """Logarithm to base 10."""
    x = floating(input)
    return mul(prims.log(x), 1.0 / math.log(10.0)) if dtype_of(x).is_complex else prims.log10(x)


def log1p(input: Value) -> Value:
    """log(1 + input), exact near 0."""
    return prims.log1p(floating(input))


def sin(input: Value) -> Value:
    """Sine of radians."""
    return prims.sin(floating(input))


def cos(input: Value) -> Value:
    """Cosine of radians."""
    return prims.cos(floating(input))


@rounded_once
def tan(input: Value) -> Value:
    """Tangent of radians."""
    return prims.div(sin(input), cos(input))


@rounded_once
def sinh(input: Value) -> Value:
    """Hyperbolic sine: by expm1 near 0; else by e^(|x|/2), squared last, as e^|x| overflows first. Complex: by sin."""
    x = floating(input)
    if dtype_of(x).is_complex:
        return mul(prims.sin(mul(x, 1j)), -1j)
    one = prims.full_like(x, 1.0)
    is_small = prims.lt(prims.abs(x), one)
    e = prims.expm1(prims.where(is_small, x, prims.full_like(x, 0.0)))
    small = mul(prims.add(e, prims.div(e, prims.add(e, one))), 0.5)
    up, down = prims.exp(mul(x, 0.5)), prims.exp(mul(x, -0.5))
    large = prims.sub(prims.mul(mul(up, 0.5), up), prims.mul(mul(down, 0.5), down))
    return prims.where(is_small, small, large)


@rounded_once
def cosh(input: Value) -> Value:
    """Hyperbolic cosine: by expm1 near 0, where its slope would cancel; else by e^(x/2), squared last, as e^x overflows
    first. Complex: by cos."""
    x = floating(input)
    if dtype_of(x).is_complex:
        return prims.cos(mul(x, 1j))
    is_small = prims.lt(prims.abs(x), prims.full_like(x, 1.0))
    e = prims.expm1(prims.where(is_small, x, prims.full_like(x, 0.0)))
    small = add(prims.div(prims.mul(e, e), mul(add(e, 1.0), 2.0)), 1.0)
    up, down = prims.exp(mul(x, 0.5)), prims.exp(mul(x, -0.5))
    return prims.where(is_small, small, prims.add(prims.mul(mul(up, 0.5), up), prims.mul(mul(down, 0.5), down)))


def tanh(input: Value) -> Value:
    """Hyperbolic tangent."""
    return prims.tanh(floating(input))


def sqrt(input: Value) -> Value:
    """Square root; NaN below 0."""
    return prims.sqrt(floating(input))


def rsqrt(input: Value) -> Value:
    """1 / sqrt(input)."""
    return prims.rsqrt(floating(input))


def erf(input: Value) -> Value:
    """The error function."""
    return prims.erf(floating(input))


def erfc(input: Value) -> Value:
    """1 - erf(input), without cancellation."""
    return prims.erfc(floating(input))


def sigmoid(input: Value) -> Value:
    """1 / (1 + exp(-input))."""
    return prims.sigmoid(floating(input))


def _rounding(x: Value, primitive: Callable[[Value], Value]) -> Value:
    x = as_value(x)
    need_kind(primitive.__name__, "iufc", x)
    return primitive(x) if dtype_of(x).is_inexact else as_new(x)  # which refuses complex numbers


def floor(input: Value) -> Value:
    """The next whole number down."""
    return _rounding(input, prims.floor)


def ceil(input: Value) -> Value:
    """The next whole number up."""
    return _rounding(input, prims.ceil)


def trunc(input: Value) -> Value:
    """The whole part."""
    return _rounding(input, prims.trunc)


@remembered
@rounded_once
def round(input: Value, *, decimals: int = 0) -> Value:
    """The nearest whole number, half to even; or the nearest multiple of 10**-decimals."""
    if decimals == 0:
        return _rounding(input, prims.round)
    need_kind("round", "f", input)
    whole = _rounding(times(input, 10.0**decimals), prims.round)
    return prims.div(whole, prims.full_like(whole, 10.0**decimals))


def frac(input: Value) -> Value:
    """What trunc leaves."""
    need_kind("frac", "fc", input)
    return sub(input, trunc(input))


def detach(input: Value) -> Value:
    """input, with no gradient."""
    return prims.detach(input)


def truth(input: Operand) -> Value:
    """input != 0, as bool."""
    x = as_value(input)
    return x if dtype_of(x) is bool_ else prims.ne(x, prims.full_like(x, 0))
