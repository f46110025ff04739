"""Pointwise primitives of one operand: negation, exponentials, roots, rounding, erf, sigmoid.

In: one array. Out: an array of the same shape and dtype (isnan, logical_not: bool).
Those with complex dtypes take the principal branch; the modulus `abs` of a complex array is real.
The 16-bit floats are computed in float32 and rounded once per op (`computed`). Warnings of NumPy about NaN and
infinity are silenced: they are values here. A vjp multiplies the cotangent by the conjugate of the derivative (torch's
convention; `prims.conj` of a real value is that value), written with other ops and preferring the op's own output to
recomputing it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from compiler_core.dtype import DType, bool_, of
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.checks import BOOLEAN, COMPLEX, FLOATING, INEXACT, SIGNED, check_dtype, infer_alike
from compiler_core.ops.primitives import decomposed
from compiler_core.ops.primitives.erf import erf_array, erfc_array
from compiler_core.ops.quiet import restore, silence
from compiler_core.ops.registry import Array, NotDifferentiable, Op, Sample, Value, VjpRule, register
from compiler_core.ops.rules import CORE, Decomposed, OwnCode, Pointwise

Eager = Callable[..., Any]


def as_array(xp: Any, result: Any) -> Any:
    """What xp's function gave, as an array: of no dims NumPy gives a scalar, CuPy an array."""
    return np.asarray(result) if xp is np else result


def computed(function: Eager) -> Eager:
    """`function(xp, *arrays)` with 16-bit floats widened to f32 before and rounded after; always gives an array."""

    def eager(xp: Any, *arrays: Array) -> Array:
        dtype = arrays[0].dtype
        before = silence()
        try:
            if dtype.itemsize != 2 or dtype.kind in "iu":
                return as_array(xp, function(xp, *arrays))  # type: ignore[no-any-return]
            result = as_array(xp, function(xp, *(a.astype(np.float32) for a in arrays)))
            return result if result.dtype.kind == "b" else result.astype(dtype)  # type: ignore[no-any-return]
        finally:
            restore(before)

    return eager


def sign_array(xp: Any, x: Array) -> Array:
    """-1, 0 or 1; of NaN 0, as in torch."""
    return xp.sign(x) if x.dtype.kind in "iu" else xp.where(x == x, xp.sign(x), x.dtype.type(0))  # type: ignore[no-any-return]


def _unary(
    name: str,
    eager: Eager,
    vjp: VjpRule | NotDifferentiable,
    *,
    low: float = -2.0,
    high: float = 2.0,
    dtypes: tuple[DType, ...] = FLOATING,
    out: DType | None = None,
    **facts: Any,
) -> Op:
    """Register op `name`: x -> eager(xp, x), of x's shape. [low, high]: where samples are drawn from. facts: see Op."""
    samples = tuple(Sample((shape,), low=low, high=high) for shape in ((3, 4), (), (2, 1, 5)))
    infer = infer_alike(name, dtypes, out)
    lower, facts = Pointwise(name), {"engines": CORE, **facts}
    return register(Op(name, infer, computed(eager), vjp, lower, samples, dtypes, **facts))


_FLAT = NotDifferentiable("piecewise constant")
_TRUTH = NotDifferentiable("the result is a truth value")


def _scale(x: Value, factor: float) -> Value:
    return prims.mul(x, prims.full_like(x, factor))


def _one_minus(x: Value) -> Value:
    return prims.sub(prims.full_like(x, 1.0), x)


def _times(g: Value, slope: Value) -> Value:
    """The cotangent through a function of this derivative."""
    return prims.mul(g, prims.conj(slope))


NEG = _unary(
    "neg", lambda xp, x: xp.negative(x), lambda g, out, x: (prims.neg(g),), dtypes=SIGNED + COMPLEX, cheap=True
)
EXP = _unary("exp", lambda xp, x: xp.exp(x), lambda g, out, x: (_times(g, out),), dtypes=INEXACT, work=10)
EXPM1 = _unary(
    "expm1",
    lambda xp, x: xp.expm1(x),
    lambda g, out, x: (_times(g, prims.add(out, prims.full_like(out, 1.0))),),
    dtypes=INEXACT,
    work=10,
    engines=Decomposed(decomposed.expm1),
)
LOG = _unary(
    "log",
    lambda xp, x: xp.log(x),
    lambda g, out, x: (prims.div(g, prims.conj(x)),),
    low=0.1,
    high=4.0,
    dtypes=INEXACT,
    work=10,
)
EXP2 = _unary(
    "exp2",
    lambda xp, x: xp.exp2(x),
    lambda g, out, x: (prims.mul(g, _scale(out, math.log(2.0))),),
    work=10,
    engines=Decomposed(decomposed.exp2),
)


def _log10(xp: Any, x: Array) -> Array:
    """By float64: NumPy's of float32 is not exact of powers of ten."""
    return xp.log10(x.astype(np.float64)).astype(x.dtype) if x.dtype == np.float32 else xp.log10(x)  # type: ignore[no-any-return]


def _logarithm(base: int, eager: Eager) -> Op:
    """Of a power of its base it is exact, which log(x) / log(base) is not."""
    return _unary(
        f"log{base}",
        eager,
        lambda g, out, x: (prims.div(g, _scale(x, math.log(base))),),
        low=0.1,
        high=4.0,
        work=10,
        engines=Decomposed(decomposed.log_of(base)),
    )


LOG2, LOG10 = _logarithm(2, lambda xp, x: xp.log2(x)), _logarithm(10, _log10)
LOG1P = _unary(
    "log1p",
    lambda xp, x: xp.log1p(x),
    lambda g, out, x: (prims.div(g, prims.conj(prims.add(x, prims.full_like(x, 1.0)))),),
    low=-0.8,
    high=4.0,
    dtypes=INEXACT,
    work=10,
    engines=Decomposed(decomposed.log1p),
)
SIN = _unary("sin", lambda xp, x: xp.sin(x), lambda g, out, x: (_times(g, prims.cos(x)),), dtypes=INEXACT, work=10)
COS = _unary(
    "cos", lambda xp, x: xp.cos(x), lambda g, out, x: (prims.neg(_times(g, prims.sin(x))),), dtypes=INEXACT, work=10
)
TANH = _unary(
    "tanh",
    lambda xp, x: xp.tanh(x),
    lambda g, out, x: (_times(g, _one_minus(prims.mul(out, out))),),
    dtypes=INEXACT,
    work=10,
)
SQRT = _unary(
    "sqrt",
    lambda xp, x: xp.sqrt(x),
    lambda g, out, x: (prims.div(_scale(g, 0.5), prims.conj(out)),),
    low=0.1,
    high=4.0,
    dtypes=INEXACT,
    work=8,
)
RSQRT = _unary(
    "rsqrt",
    lambda xp, x: xp.reciprocal(xp.sqrt(x)),
    lambda g, out, x: (_times(_scale(g, -0.5), prims.mul(out, prims.mul(out, out))),),
    low=0.1,
    high=4.0,
    dtypes=INEXACT,
    work=8,
    engines=Decomposed(decomposed.rsqrt),
)
ERF = _unary(
    "erf",
    lambda xp, x: erf_array(xp, x),
    lambda g, out, x: (prims.mul(_scale(g, 2.0 / math.sqrt(math.pi)), prims.exp(prims.neg(prims.mul(x, x)))),),
    work=10,
)
ERFC = _unary(
    "erfc",
    lambda xp, x: erfc_array(xp, x),
    lambda g, out, x: (prims.mul(_scale(g, -2.0 / math.sqrt(math.pi)), prims.exp(prims.neg(prims.mul(x, x)))),),
    high=6.0,
    engines=OwnCode("1 - erf(x) has no digits where erf(x) is nearly 1"),
)
SIGMOID = _unary(
    "sigmoid",
    lambda xp, x: xp.reciprocal(1.0 + xp.exp(-x)),
    lambda g, out, x: (_times(g, prims.mul(out, _one_minus(out))),),
    low=-4.0,
    high=4.0,
    dtypes=INEXACT,
    work=12,
    engines=Decomposed(decomposed.sigmoid),
)


def _infer_abs(x: TensorMeta) -> TensorMeta:
    check_dtype("abs", x, SIGNED + COMPLEX)
    return x.with_dtype(x.dtype.real)


def _vjp_abs(g: Value, out: Value, x: Value) -> tuple[Value]:
    """g sgn(x); 0 at 0. Of complex numbers part by part: their division has no subnormal divisors."""
    if not of(x.dtype).is_complex:
        return (prims.mul(g, prims.sign(x)),)
    size = prims.where(prims.eq(out, prims.full_like(out, 0.0)), prims.full_like(out, 1.0), out)
    return (prims.complex(*(prims.mul(g, prims.div(part, size)) for part in (prims.real(x), prims.imag(x)))),)


ABS = register(
    Op(
        "abs",
        _infer_abs,
        computed(lambda xp, x: xp.absolute(x)),
        _vjp_abs,
        Pointwise("abs"),
        tuple(Sample((shape,)) for shape in ((3, 4), (), (2, 1, 5))),
        SIGNED + COMPLEX,
        cheap=True,
        engines=CORE,
    )
)
SIGN = _unary("sign", sign_array, _FLAT, dtypes=SIGNED, cheap=True)
FLOOR = _unary("floor", lambda xp, x: xp.floor(x), _FLAT, cheap=True)
CEIL = _unary("ceil", lambda xp, x: xp.ceil(x), _FLAT, cheap=True, engines=Decomposed(decomposed.ceil))
ROUND = _unary("round", lambda xp, x: xp.rint(x), _FLAT, cheap=True)  # half to even
TRUNC = _unary("trunc", lambda xp, x: xp.trunc(x), _FLAT, cheap=True, engines=Decomposed(decomposed.trunc))
ISNAN = _unary("isnan", lambda xp, x: xp.isnan(x), _TRUTH, out=bool_, dtypes=INEXACT, cheap=True)
LOGICAL_NOT = _unary("logical_not", lambda xp, x: xp.logical_not(x), _TRUTH, dtypes=BOOLEAN, out=bool_, cheap=True)
