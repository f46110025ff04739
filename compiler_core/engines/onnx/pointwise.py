"""ONNX's operators for ops that go element by element.

In: an Emitter and a call. Out: the name of the result. Where an operator is undefined, or is not what the op's
definition says (whole numbers divided by zero, NaN), the rule says the rest.
"""

from __future__ import annotations

from functools import partial

from compiler_core.dtype import bool_
from compiler_core.engines.onnx.emitter import Emitter, Rule, element_type
from compiler_core.graph.ir import Call
from compiler_core.graph.passes.rewrite import splat
from compiler_core.ops.registry import OPS


def _plain(op: str) -> Rule:
    """The operator of this name."""
    return lambda e, call: e.node(op, *e.broadcast(call))


def _on_bits(logical: str, bitwise: str) -> Rule:
    return lambda e, call: e.node(logical if call.dtype is bool_ else bitwise, *e.broadcast(call))


def _not_equal(e: Emitter, call: Call) -> str:
    return e.node("Not", e.node("Equal", *e.broadcast(call)))


def _less(op: str, of_truths: str, *, turned: bool = False) -> Rule:
    """Of truth values, a < b is (not a) and b. turned: b before a."""

    def rule(e: Emitter, call: Call) -> str:
        a, b = e.broadcast(call)
        if call.args[0].dtype is not bool_:
            return e.node(op, a, b)
        a, b = (b, a) if turned else (a, b)
        return e.node(of_truths, e.node("Not", a), b)

    return rule


def _number(e: Emitter, call: Call, value: float) -> str:
    return e.number(value, call.dtype)


def _where(e: Emitter, call: Call) -> str:
    """A relu, which is 0 where x < 0, is one Max, which is several times as fast; NaN is NaN in both."""
    test, zero, x = call.args
    compared = test.args if isinstance(test, Call) and test.op in (OPS["lt"], OPS["le"]) else ()
    is_relu = bool(compared) and compared[0] is x and splat(compared[1]) == splat(zero) == 0
    if is_relu and x.dtype.is_floating_point:
        return e.node("Max", e.value(x), e.number(0, x.dtype))
    return choice(e, call)


def choice(e: Emitter, call: Call) -> str:
    """`where`, as it is."""
    return e.node("Where", *e.broadcast(call))


def seeing_nan(rule: Rule) -> Rule:
    """The rule, and NaN where an operand is one: for engines that lose it."""

    def seeing(e: Emitter, call: Call) -> str:
        made = rule(e, call)
        if call.dtype.is_floating_point:
            for operand in e.operands(call):
                made = e.node("Where", e.node("IsNaN", operand), operand, made)
        return made

    return seeing


def _sign(e: Emitter, call: Call) -> str:
    """Of NaN it is 0."""
    (x,) = e.operands(call)
    sign = e.node("Sign", x)
    return e.node("Where", e.node("IsNaN", x), _number(e, call, 0), sign) if call.dtype.is_floating_point else sign


def _cast(e: Emitter, call: Call) -> str:
    (x,) = e.operands(call)
    if call.dtype is bool_ and call.args[0].dtype is not bool_:  # NaN is not 0
        return e.node("Not", e.node("Equal", x, e.number(0, call.args[0].dtype)))
    return e.node("Cast", x, to=element_type(call.dtype))


def _rsqrt(e: Emitter, call: Call) -> str:
    return e.node("Reciprocal", e.node("Sqrt", *e.operands(call)))


def _remainder(e: Emitter, call: Call) -> str:
    """The divisor's sign, but of 0 the dividend's.

    Of whole numbers 0 where the divisor is 0 (and where it is -1, by which some would trap).
    """
    a, b = e.operands(call)
    zero = _number(e, call, 0)
    if not call.dtype.is_floating_point:
        return e.node("Mod", a, _safe(e, call, b))
    rest = e.node("Mod", a, b, fmod=1)
    turns = e.node("Xor", e.node("Less", rest, zero), e.node("Less", b, zero))
    turned = e.node("Where", turns, e.node("Add", rest, b), rest)
    return e.node("Where", e.node("Equal", rest, zero), rest, turned)


def _safe(e: Emitter, call: Call, b: str) -> str:
    """A divisor without 0, and -1 of signed numbers."""
    unfit = e.node("Equal", b, _number(e, call, 0))
    if call.dtype.is_signed:
        unfit = e.node("Or", unfit, e.node("Equal", b, _number(e, call, -1)))
    return e.node("Where", unfit, _number(e, call, 1), b)


def _floor_divide(e: Emitter, call: Call) -> str:
    a, b = e.operands(call)
    if call.dtype.is_floating_point:
        return _float_floor_divide(e, call, a, b)
    zero = _number(e, call, 0)
    safe = _safe(e, call, b)
    quotient = e.node("Div", e.node("Sub", a, e.node("Mod", a, safe)), safe)  # exact, so that it does not round
    if call.dtype.is_signed:
        is_minus = e.node("Equal", b, _number(e, call, -1))
        quotient = e.node("Where", is_minus, e.node("Sub", zero, a), quotient)
    return e.node("Where", e.node("Equal", b, zero), zero, quotient)


def _float_floor_divide(e: Emitter, call: Call, a: str, b: str) -> str:
    """NumPy's steps (npy_divmod): the exact remainder first."""
    number = partial(_number, e, call)
    zero, one = number(0), number(1)
    ratio, rest = e.node("Div", a, b), e.node("Mod", a, b, fmod=1)
    whole = e.node("Div", e.node("Sub", a, rest), b)
    turns = e.node("Xor", e.node("Less", rest, zero), e.node("Less", b, zero))
    turns = e.node("And", turns, e.node("Not", e.node("Equal", rest, zero)))
    whole = e.node("Where", turns, e.node("Sub", whole, one), whole)
    low = e.node("Floor", whole)
    above = e.node("Greater", e.node("Sub", whole, low), number(0.5))
    rounded = e.node("Where", above, e.node("Add", low, one), low)
    signed_zero = e.node("Where", e.node("Less", ratio, zero), number(-0.0), zero)
    rounded = e.node("Where", e.node("Equal", whole, zero), signed_zero, rounded)
    return e.node("Where", e.node("Equal", b, zero), ratio, rounded)


def _trunc(e: Emitter, call: Call) -> str:
    (x,) = e.operands(call)
    negative = e.node("Less", x, _number(e, call, 0))
    return e.node("Where", negative, e.node("Ceil", x), e.node("Floor", x))


POINTWISE: dict[str, Rule] = {
    **{name: _plain(name.capitalize()) for name in (
        "abs", "add", "sub", "mul", "div", "neg", "pow", "sqrt", "exp", "log", "sin", "cos", "tanh", "atan", "asin",
        "acos", "erf", "floor", "ceil", "round", "sigmoid",
    )},
    "asinh": _plain("Asinh"), "acosh": _plain("Acosh"), "atanh": _plain("Atanh"),
    "maximum": _plain("Max"), "minimum": _plain("Min"), "isnan": _plain("IsNaN"), "logical_not": _plain("Not"),
    "eq": _plain("Equal"), "ne": _not_equal, "lt": _less("Less", "And"), "le": _less("LessOrEqual", "Or"),
    "gt": _less("Greater", "And", turned=True), "ge": _less("GreaterOrEqual", "Or", turned=True),
    "bitwise_and": _on_bits("And", "BitwiseAnd"), "bitwise_or": _on_bits("Or", "BitwiseOr"),
    "bitwise_xor": _on_bits("Xor", "BitwiseXor"),
    "where": _where, "sign": _sign, "cast": _cast, "rsqrt": _rsqrt, "remainder": _remainder,
    "floor_divide": _floor_divide, "trunc": _trunc,
}  # fmt: skip
