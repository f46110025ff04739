"""Pointwise primitives of one operand: negation, exponentials, roots, rounding, erf, sigmoid.

In: one array. Out: an array of the same shape and dtype (isnan, logical_not: bool).
The 16-bit floats are computed in float32 and rounded once per op (`computed`). Warnings of NumPy about NaN and
infinity are silenced: they are values here. A vjp multiplies the cotangent by the derivative, written with other ops
and preferring the op's own output to recomputing it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from compiler_core.dtype import DType, bool_
from compiler_core.ops import prims
from compiler_core.ops.checks import BOOLEAN, FLOATING, SIGNED, infer_alike
from compiler_core.ops.erf import erf_array, erfc_array
from compiler_core.ops.registry import Array, NotDifferentiable, Op, Sample, Value, VjpRule, register
from compiler_core.ops.rules import Pointwise

Eager = Callable[..., Any]


def computed(function: Eager) -> Eager:
    """`function(xp, *arrays)` with 16-bit floats widened to f32 before and rounded after; always gives an array."""

    def eager(xp: Any, *arrays: Array) -> Array:
        dtype = arrays[0].dtype
        with np.errstate(all="ignore"):
            if dtype.itemsize != 2 or dtype.kind in "iu":
                return xp.asarray(function(xp, *arrays))  # type: ignore[no-any-return]
            result = xp.asarray(function(xp, *(a.astype(np.float32) for a in arrays)))
            return result if result.dtype.kind == "b" else result.astype(dtype)  # type: ignore[no-any-return]

    return eager


def _unary(
    name: str,
    eager: Eager,
    vjp: VjpRule | NotDifferentiable,
    *,
    low: float = -2.0,
    high: float = 2.0,
    dtypes: tuple[DType, ...] = FLOATING,
    out: DType | None = None,
) -> Op:
    """Register op `name`: x -> eager(xp, x), of x's shape. [low, high]: where samples are drawn from."""
    samples = tuple(Sample((shape,), low=low, high=high) for shape in ((3, 4), (), (2, 1, 5)))
    infer = infer_alike(name, dtypes, out)
    return register(Op(name, infer, computed(eager), vjp, Pointwise(name), samples, dtypes))


_FLAT = NotDifferentiable("piecewise constant")
_TRUTH = NotDifferentiable("the result is a truth value")


def _scale(x: Value, factor: float) -> Value:
    return prims.mul(x, prims.full_like(x, factor))


def _one_minus(x: Value) -> Value:
    return prims.sub(prims.full_like(x, 1.0), x)


NEG = _unary("neg", lambda xp, x: xp.negative(x), lambda g, out, x: (prims.neg(g),), dtypes=SIGNED)
EXP = _unary("exp", lambda xp, x: xp.exp(x), lambda g, out, x: (prims.mul(g, out),))
EXPM1 = _unary(
    "expm1", lambda xp, x: xp.expm1(x), lambda g, out, x: (prims.mul(g, prims.add(out, prims.full_like(out, 1.0))),)
)
LOG = _unary("log", lambda xp, x: xp.log(x), lambda g, out, x: (prims.div(g, x),), low=0.1, high=4.0)
LOG1P = _unary(
    "log1p",
    lambda xp, x: xp.log1p(x),
    lambda g, out, x: (prims.div(g, prims.add(x, prims.full_like(x, 1.0))),),
    low=-0.8,
    high=4.0,
)
SIN = _unary("sin", lambda xp, x: xp.sin(x), lambda g, out, x: (prims.mul(g, prims.cos(x)),))
COS = _unary("cos", lambda xp, x: xp.cos(x), lambda g, out, x: (prims.neg(prims.mul(g, prims.sin(x))),))
TANH = _unary("tanh", lambda xp, x: xp.tanh(x), lambda g, out, x: (prims.mul(g, _one_minus(prims.mul(out, out))),))
SQRT = _unary("sqrt", lambda xp, x: xp.sqrt(x), lambda g, out, x: (prims.div(_scale(g, 0.5), out),), low=0.1, high=4.0)
RSQRT = _unary(
    "rsqrt",
    lambda xp, x: xp.reciprocal(xp.sqrt(x)),
    lambda g, out, x: (prims.mul(_scale(g, -0.5), prims.mul(out, prims.mul(out, out))),),
    low=0.1,
    high=4.0,
)
ERF = _unary(
    "erf",
    lambda xp, x: erf_array(xp, x),
    lambda g, out, x: (prims.mul(_scale(g, 2.0 / math.sqrt(math.pi)), prims.exp(prims.neg(prims.mul(x, x)))),),
)
ERFC = _unary(
    "erfc",
    lambda xp, x: erfc_array(xp, x),
    lambda g, out, x: (prims.mul(_scale(g, -2.0 / math.sqrt(math.pi)), prims.exp(prims.neg(prims.mul(x, x)))),),
    high=6.0,
)
SIGMOID = _unary(
    "sigmoid",
    lambda xp, x: xp.reciprocal(1.0 + xp.exp(-x)),
    lambda g, out, x: (prims.mul(g, prims.mul(out, _one_minus(out))),),
    low=-4.0,
    high=4.0,
)
ABS = _unary("abs", lambda xp, x: xp.absolute(x), lambda g, out, x: (prims.mul(g, prims.sign(x)),), dtypes=SIGNED)
SIGN = _unary("sign", lambda xp, x: xp.sign(x), _FLAT, dtypes=SIGNED)
FLOOR = _unary("floor", lambda xp, x: xp.floor(x), _FLAT)
CEIL = _unary("ceil", lambda xp, x: xp.ceil(x), _FLAT)
ROUND = _unary("round", lambda xp, x: xp.rint(x), _FLAT)  # half to even
TRUNC = _unary("trunc", lambda xp, x: xp.trunc(x), _FLAT)
ISNAN = _unary("isnan", lambda xp, x: xp.isnan(x), _TRUTH, out=bool_)
LOGICAL_NOT = _unary("logical_not", lambda xp, x: xp.logical_not(x), _TRUTH, dtypes=BOOLEAN, out=bool_)
