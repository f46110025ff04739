"""Inverse trigonometric and hyperbolic primitives, and copysign.

In: one floating or complex array, or two floating ones alike. Out: an array of that shape and dtype; NaN outside the
function's domain, of complex numbers the principal branch.
atan2(y, x) is the angle of (x, y) in (-pi, pi]; its gradient at the origin is 0, as torch has it. copysign's sign is
the sign bit, that of zeros and NaN included; its second operand's gradient is 0,
and so is the first's at 0.
"""

from __future__ import annotations

from compiler_core.dtype import of
from compiler_core.ops import prims
from compiler_core.ops.checks import FLOATING, INEXACT, infer_alike
from compiler_core.ops.primitives import decomposed
from compiler_core.ops.primitives.arithmetic import Pair
from compiler_core.ops.primitives.pointwise import Eager, computed
from compiler_core.ops.registry import Op, Sample, Value, VjpRule, register
from compiler_core.ops.rules import CORE, Decomposed, EngineRule, OwnCode, Pointwise


def _one(x: Value) -> Value:
    return prims.full_like(x, 1.0)


def _square(x: Value) -> Value:
    return prims.mul(x, x)


def _inverse(name: str, eager: Eager, slope: VjpRule, engines: EngineRule, low: float = -0.9, high: float = 0.9) -> Op:
    """Register op `name`. slope(x): the derivative. [low, high]: where samples are drawn from."""

    def vjp(g: Value, out: Value, x: Value) -> tuple[Value]:
        return (prims.mul(g, prims.conj(slope(x))),)

    samples = tuple(Sample((shape,), low=low, high=high) for shape in ((3, 4), (), (2, 1, 5)))
    infer, lower = infer_alike(name, INEXACT), Pointwise(name)
    return register(Op(name, infer, computed(eager), vjp, lower, samples, INEXACT, engines=engines))


def _slope_asin(x: Value) -> Value:
    return prims.rsqrt(prims.sub(_one(x), _square(x)))


def _slope_acosh(x: Value) -> Value:
    if of(x.dtype).is_complex:  # the root of the product would be of the other branch on the left half plane
        return prims.mul(prims.rsqrt(prims.sub(x, _one(x))), prims.rsqrt(prims.add(x, _one(x))))
    return prims.rsqrt(prims.mul(prims.sub(x, _one(x)), prims.add(x, _one(x))))


ASIN = _inverse("asin", lambda xp, x: xp.arcsin(x), _slope_asin, Decomposed(decomposed.asin))
ACOS = _inverse("acos", lambda xp, x: xp.arccos(x), lambda x: prims.neg(_slope_asin(x)), Decomposed(decomposed.acos))
ATAN = _inverse(
    "atan", lambda xp, x: xp.arctan(x), lambda x: prims.div(_one(x), prims.add(_square(x), _one(x))), CORE, -4.0, 4.0
)
ASINH = _inverse(
    "asinh",
    lambda xp, x: xp.arcsinh(x),
    lambda x: prims.rsqrt(prims.add(_square(x), _one(x))),
    Decomposed(decomposed.asinh),
    -4.0,
    4.0,
)
ACOSH = _inverse("acosh", lambda xp, x: xp.arccosh(x), _slope_acosh, Decomposed(decomposed.acosh), 1.1, 5.0)
ATANH = _inverse(
    "atanh",
    lambda xp, x: xp.arctanh(x),
    lambda x: prims.div(_one(x), prims.sub(_one(x), _square(x))),
    Decomposed(decomposed.atanh),
)


def _vjp_atan2(g: Value, out: Value, a: Value, b: Value) -> Pair:
    """a: g b / (a^2 + b^2). b: -g a / (a^2 + b^2). Both 0 at the origin."""
    norm, zero = prims.add(_square(a), _square(b)), prims.full_like(a, 0.0)
    at_origin = prims.eq(norm, zero)
    scaled = prims.where(at_origin, zero, prims.div(g, prims.where(at_origin, _one(a), norm)))
    return prims.mul(scaled, b), prims.neg(prims.mul(scaled, a))


def _vjp_copysign(g: Value, out: Value, a: Value, b: Value) -> Pair:
    """a: g sign(a) with b's sign bit, 0 at 0, NaN at NaN."""
    zero = prims.full_like(a, 0.0)
    ratio = prims.mul(prims.sign(a), prims.copysign(_one(a), b))
    ratio = prims.where(prims.isnan(a), a, ratio)
    return prims.where(prims.eq(a, zero), zero, prims.mul(g, ratio)), zero


def _pair(name: str, eager: Eager, vjp: VjpRule, engines: EngineRule) -> Op:
    samples = tuple(Sample((shape, shape)) for shape in ((3, 4), (), (2, 1, 5)))
    infer, lower = infer_alike(name, FLOATING), Pointwise(name)
    return register(Op(name, infer, computed(eager), vjp, lower, samples, FLOATING, engines=engines))


ATAN2 = _pair("atan2", lambda xp, a, b: xp.arctan2(a, b), _vjp_atan2, Decomposed(decomposed.atan2))
COPYSIGN = _pair(
    "copysign", lambda xp, a, b: xp.copysign(a, b), _vjp_copysign, OwnCode("the sign of a NaN is a bit of it")
)
