"""Pointwise arithmetic and bit logic on two operands.

In: two arrays of one shape and dtype. Out: the same. Integer arithmetic wraps; integer division by zero gives 0.
`maximum` and `minimum` propagate NaN and, as in torch, split the cotangent evenly between equal operands.
`div` is floating or complex only: the functions above choose the dtype. Complex numbers have no order: no `maximum`,
`minimum`, `remainder`, `floor_divide`. Cotangents are multiplied by conjugates of derivatives, as torch has it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler_core.cuda import lone
from compiler_core.dtype import DType, of
from compiler_core.ops import prims, registry
from compiler_core.ops.checks import BOOLEAN, INEXACT, INTEGRAL, NUMERIC, ORDERED_NUMBERS, infer_alike
from compiler_core.ops.on_device import MADE_AGAIN
from compiler_core.ops.primitives.pointwise import Eager, computed
from compiler_core.ops.quiet import restore, silence
from compiler_core.ops.registry import (
    Array,
    NotDifferentiable,
    Op,
    PerOperand,
    Sample,
    Value,
    VjpRule,
    current_trace,
    register,
)
from compiler_core.ops.rules import CORE, Pointwise

Pair = tuple[Value | None, Value | None]  # the cotangents of two operands


def _binary(
    name: str,
    eager: Eager,
    vjp: VjpRule | NotDifferentiable,
    *,
    low: float = -2.0,
    high: float = 2.0,
    dtypes: tuple[DType, ...] = NUMERIC,
    **facts: Any,
) -> Op:
    """Register op `name`: (a, b) -> eager(xp, a, b), all of one shape and dtype. facts: see Op."""
    samples = tuple(Sample((shape, shape), low=low, high=high) for shape in ((3, 4), (), (2, 1, 5)))
    infer = infer_alike(name, dtypes)
    return register(Op(name, infer, computed(eager), vjp, Pointwise(name), samples, dtypes, engines=CORE, **facts))


_vjp_sub = PerOperand(lambda g, out, a, b: g, lambda g, out, a, b: prims.neg(g))
_vjp_mul = PerOperand(
    lambda g, out, a, b: prims.mul(g, prims.conj(b)),
    lambda g, out, a, b: prims.mul(g, prims.conj(a)),
)


_vjp_div = PerOperand(
    lambda g, out, a, b: prims.div(g, prims.conj(b)),
    lambda g, out, a, b: prims.mul(prims.neg(g), prims.conj(prims.div(out, b))),  # the slope first, so that 0 stays 0
)


def _vjp_base(g: Value, out: Value, a: Value, b: Value) -> Value:
    """g b a^(b-1)."""
    one, zero = prims.full_like(a, 1.0), prims.full_like(a, 0.0)
    if of(a.dtype).is_complex:
        slope = prims.mul(b, prims.pow(a, prims.sub(b, one)))
        return prims.where(prims.eq(b, zero), zero, prims.mul(g, prims.conj(slope)))
    return prims.where(prims.eq(b, zero), zero, prims.mul(prims.mul(g, b), prims.pow(a, prims.sub(b, one))))


def _vjp_exponent(g: Value, out: Value, a: Value, b: Value) -> Value:
    """g a^b ln a, which is 0 where a = 0 and b >= 0 (the limit); of complex ones, where b is real besides."""
    one, zero = prims.full_like(a, 1.0), prims.full_like(a, 0.0)
    if of(a.dtype).is_complex:
        nothing = prims.full_like(prims.real(b), 0.0)
        not_negative = prims.bitwise_and(prims.ge(prims.real(b), nothing), prims.eq(prims.imag(b), nothing))
    else:
        not_negative = prims.ge(b, zero)
    at_zero = prims.bitwise_and(prims.eq(a, zero), not_negative)
    log_a = prims.log(prims.where(at_zero, one, a))
    if of(a.dtype).is_complex:
        return prims.where(at_zero, zero, prims.mul(g, prims.conj(prims.mul(out, log_a))))
    return prims.where(at_zero, zero, prims.mul(prims.mul(g, out), log_a))


def _share(loses: Value, ties: Value, g: Value) -> Value:
    """0 where the other operand wins, half of g on a tie, else g: also where one is NaN, which both then get."""
    half = prims.mul(g, prims.full_like(g, 0.5))
    return prims.where(loses, prims.full_like(g, 0.0), prims.where(ties, half, g))


def _vjp_maximum(g: Value, out: Value, a: Value, b: Value) -> Pair:
    ties = prims.eq(a, b)
    return _share(prims.lt(a, b), ties, g), _share(prims.gt(a, b), ties, g)


def _vjp_minimum(g: Value, out: Value, a: Value, b: Value) -> Pair:
    ties = prims.eq(a, b)
    return _share(prims.gt(a, b), ties, g), _share(prims.lt(a, b), ties, g)


def _vjp_remainder(g: Value, out: Value, a: Value, b: Value) -> Pair:
    """a - b floor(a/b), with the floor constant."""
    return g, prims.neg(prims.mul(g, prims.floor_divide(a, b)))


def _eager_pow(xp: Any, a: Array, b: Array) -> Array:
    """Floats: IEEE's. Complex: the principal value. Integers wrap, and to a negative power are 0, but for 1 and -1."""
    if a.dtype.kind in "fc":
        return xp.power(a, b)  # type: ignore[no-any-return]
    parity = xp.where(b % 2 == 0, xp.absolute(a), a)
    inverse = xp.where(xp.absolute(a) == 1, parity, xp.zeros_like(a))
    return xp.where(b >= 0, xp.power(a, xp.maximum(b, 0)), inverse)  # type: ignore[no-any-return]


def _eager_remainder(xp: Any, a: Array, b: Array) -> Array:
    """With the divisor's sign, but 0 with the dividend's, as torch has it."""
    if a.dtype.kind in "iu":
        return xp.remainder(a, b)  # type: ignore[no-any-return]
    if xp is np:
        rest = np.remainder(a, b)
        return np.where(rest == 0, np.copysign(rest, a), rest)
    rest = xp.fmod(a, b)  # CuPy's remainder gives others of infinities
    return xp.where((rest == 0) | ((rest < 0) == (b < 0)), rest, rest + b)  # type: ignore[no-any-return]


def _eager_floor_divide(xp: Any, a: Array, b: Array) -> Array:
    if xp is np or a.dtype.kind in "iu":
        return xp.floor_divide(a, b)  # type: ignore[no-any-return]
    rest = xp.fmod(a, b)
    whole = (a - rest) / b
    whole = xp.where((rest != 0) & ((rest < 0) != (b < 0)), whole - 1, whole)
    low = xp.floor(whole)
    rounded = xp.where(whole - low > 0.5, low + 1, low)
    rounded = xp.where(whole == 0, xp.copysign(whole, a / b), rounded)
    return xp.where(b == 0, a / b, rounded)  # type: ignore[no-any-return]


def add_gradients(a: Value, b: Value) -> Value:
    """`prims.add`, at a third of the cost where both are arrays alike and nothing records: a backward adds many."""
    if (
        type(a) is np.ndarray
        and type(b) is np.ndarray
        and a.dtype is b.dtype
        and a.shape == b.shape
        and a.ndim
        and current_trace() is None
    ):
        before = silence()
        try:
            return np.add(a, b)
        finally:
            restore(before)
    if type(a) is type(b) is lone.array and current_trace() is None:
        return _added_there(a, b)
    return prims.add(a, b)


def _added_there(a: Any, b: Any) -> Value:
    """The sum of two arrays of the lone device, made again where they are alike."""
    if a.dtype != b.dtype or a.shape != b.shape or registry.run_eager is not registry.RUN:
        return registry.run_eager(ADD, (a, b), {})
    found = _sums.get((a.dtype, a.shape))
    if found is None:
        if len(_sums) >= _MOST_SUMS:
            _sums.clear()
        found = MADE_AGAIN.get()(lambda a, b: registry.run_eager(ADD, (a, b), {}))
        _sums[a.dtype, a.shape] = found
    return found(a, b)


_MOST_SUMS = 1 << 12
_sums: dict[tuple[Any, ...], Any] = {}


ADD = _binary("add", lambda xp, a, b: xp.add(a, b), lambda g, out, a, b: (g, g), commutative=True, cheap=True)
SUB = _binary("sub", lambda xp, a, b: xp.subtract(a, b), _vjp_sub, cheap=True)
MUL = _binary("mul", lambda xp, a, b: xp.multiply(a, b), _vjp_mul, commutative=True, cheap=True)
DIV = _binary(
    "div", lambda xp, a, b: xp.divide(a, b), _vjp_div, low=0.5, high=3.0, dtypes=INEXACT, cheap=True, remakes_out=True
)
POW = _binary("pow", _eager_pow, PerOperand(_vjp_base, _vjp_exponent), low=0.3, high=2.5)
MAXIMUM = _binary(
    "maximum", lambda xp, a, b: xp.maximum(a, b), _vjp_maximum, dtypes=ORDERED_NUMBERS, commutative=True, cheap=True
)
MINIMUM = _binary(
    "minimum", lambda xp, a, b: xp.minimum(a, b), _vjp_minimum, dtypes=ORDERED_NUMBERS, commutative=True, cheap=True
)
REMAINDER = _binary("remainder", _eager_remainder, _vjp_remainder, low=1.1, high=1.9, dtypes=ORDERED_NUMBERS)
FLOOR_DIVIDE = _binary(
    "floor_divide",
    _eager_floor_divide,
    NotDifferentiable("piecewise constant"),
    low=1.0,
    high=6.0,
    dtypes=ORDERED_NUMBERS,
)

_BITS = INTEGRAL + BOOLEAN
_TRUTH = NotDifferentiable("integers and truth values have no gradient")
BITWISE_AND, BITWISE_OR, BITWISE_XOR = (
    _binary(name, eager, _TRUTH, low=0, high=9, dtypes=_BITS, commutative=True, cheap=True)
    for name, eager in (
        ("bitwise_and", lambda xp, a, b: xp.bitwise_and(a, b)),
        ("bitwise_or", lambda xp, a, b: xp.bitwise_or(a, b)),
        ("bitwise_xor", lambda xp, a, b: xp.bitwise_xor(a, b)),
    )
)
