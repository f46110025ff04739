"""The emission table: how each scalar function of the loop IR (`loop_ir/scalars.py`) is written in Triton.

In: a scalar's name, its arguments as Triton text, the dtype they share. Out: Triton text; helpers used are noted.
Triton widens integers narrower than 32 bits here and there, so integer results are cast back to their dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler_core.codegen.triton.types import literal, register_type
from compiler_core.dtype import DType, bool_, float32
from compiler_core.errors import LoweringError, NoComplexError
from compiler_core.loop_ir.expr import Const, Expr
from compiler_core.records import dataclass


@dataclass(frozen=True, slots=True)
class Arguments:
    """One application of a scalar function. dtype: that of the arguments. helpers: names used, added to."""

    exprs: Sequence[Expr]
    texts: Sequence[str]
    dtype: DType
    helpers: set[str]

    def helper(self, name: str, *more: str) -> str:
        self.helpers.add(name)
        return f"dc_{name}({', '.join([*self.texts, *more])})"

    def back(self, text: str) -> str:
        """`text` in the arguments' dtype; float arithmetic already is."""
        return text if self.dtype.is_floating_point else f"({text}).to({register_type(self.dtype)})"


Emit = Callable[[Arguments], str]


def _infix(operator: str) -> Emit:
    return lambda a: a.back(f"({a.texts[0]} {operator} {a.texts[1]})")


def _compare(operator: str) -> Emit:
    return lambda a: f"({a.texts[0]} {operator} {a.texts[1]})"


def _call(name: str) -> Emit:
    """A function of triton.language on floats; integers are already round."""
    return lambda a: f"tl.{name}({', '.join(a.texts)})" if a.dtype.is_floating_point else a.texts[0]


def _helper(name: str) -> Emit:
    return lambda a: a.helper(name)


def _bool_or(operator: str, otherwise: Emit) -> Emit:
    """The operator on bool, `otherwise` on numbers."""
    return lambda a: f"({a.texts[0]} {operator} {a.texts[1]})" if a.dtype is bool_ else otherwise(a)


def _float_or_integer(floating: Emit, integer: Emit) -> Emit:
    return lambda a: floating(a) if a.dtype.is_floating_point else integer(a)


def _neg(a: Arguments) -> str:
    return a.back(f"(-{a.texts[0]})") if a.dtype.kind != "u" else a.back(f"({literal(0, a.dtype)} - {a.texts[0]})")


def _abs(a: Arguments) -> str:
    return a.texts[0] if a.dtype.kind in "ub" else f"tl.abs({a.texts[0]})"


def _round(a: Arguments) -> str:
    return a.helper("rint", "8388608.0" if a.dtype is float32 else "4503599627370496.0")


def _not(a: Arguments) -> str:
    return f"(~{a.texts[0]})" if a.dtype is bool_ else f"({a.texts[0]} == 0)"


def _bitwise_not(a: Arguments) -> str:
    return _not(a) if a.dtype is bool_ else a.back(f"(~{a.texts[0]})")


def _sign(a: Arguments) -> str:
    return a.back(f"({a.texts[0]} != 0)") if a.dtype.kind == "u" else a.helper("sign")


def _shift(name: str) -> Emit:
    return lambda a: a.helper(f"{name}_unsigned" if a.dtype.kind == "u" else name, str(8 * a.dtype.itemsize))


def _pow(a: Arguments) -> str:
    if not a.dtype.is_floating_point:
        return a.helper("int_pow")
    exponent = a.exprs[1]
    if isinstance(exponent, Const) and exponent.value in (1, 2, 3):
        return f"({' * '.join([a.texts[0]] * int(exponent.value.real))})"
    return f"{a.helper('pow64')}.to({register_type(a.dtype)})"


EMIT: dict[str, Emit] = {
    "neg": _neg,
    "exp": _call("exp"),
    "log": _call("log"),
    "exp2": _call("exp2"),
    "log2": _call("log2"),
    "log10": _helper("log10"),
    "log1p": _helper("log1p"),
    "expm1": _helper("expm1"),
    "sin": _call("sin"),
    "cos": _call("cos"),
    "tanh": _helper("tanh"),
    "sqrt": _call("sqrt"),
    "rsqrt": lambda a: f"({literal(1, a.dtype)} / tl.sqrt({a.texts[0]}))",
    "erf": _call("erf"),
    "erfc": lambda a: f"{a.helper('erfc64')}.to({register_type(a.dtype)})",
    **{name: _helper(name) for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2")},
    "copysign": lambda a: a.helper("copysign32" if a.dtype is float32 else "copysign64"),
    "abs": _abs,
    "sign": _sign,
    "floor": _call("floor"),
    "ceil": _call("ceil"),
    "round": _float_or_integer(_round, lambda a: a.texts[0]),
    "trunc": _float_or_integer(_helper("trunc"), lambda a: a.texts[0]),
    "sigmoid": _helper("sigmoid"),
    "logical_not": _not,
    "bitwise_not": _bitwise_not,
    "isnan": lambda a: f"({a.texts[0]} != {a.texts[0]})",
    "add": _bool_or("|", _infix("+")),
    "sub": _infix("-"),
    "mul": _bool_or("&", _infix("*")),
    "div": _float_or_integer(_infix("/"), _helper("floor_div")),
    "pow": _pow,
    "maximum": _bool_or("|", _helper("max")),
    "minimum": _bool_or("&", _helper("min")),
    "remainder": _float_or_integer(_helper("float_mod"), _helper("floor_mod")),
    "floor_divide": _float_or_integer(_helper("float_floor_div"), _helper("floor_div")),
    "eq": _compare("=="),
    "ne": _compare("!="),
    "lt": _compare("<"),
    "le": _compare("<="),
    "gt": _compare(">"),
    "ge": _compare(">="),
    "bitwise_and": _infix("&"),
    "bitwise_or": _infix("|"),
    "bitwise_xor": _infix("^"),
    "shift_left": _shift("shift_left"),
    "shift_right": _shift("shift_right"),
    **{name: _helper(name) for name in ("philox", "normal32", "normal64")},
}


_COMPLEX = {"complex", "real", "imag", "conj"}


def emit_scalar(name: str, exprs: Sequence[Expr], texts: Sequence[str], dtype: DType, helpers: set[str]) -> str:
    """The Triton text for scalar function `name`. Raises LoweringError for a name that the table lacks."""
    if name in _COMPLEX:
        raise NoComplexError(f"Triton has no complex numbers ({name})", remedy='use backend="aot_eager"')
    if name not in EMIT:
        raise LoweringError(
            f"no Triton for the scalar function {name!r}",
            expected=", ".join(EMIT),
            remedy="write it in the table EMIT of compiler_core/codegen/triton/scalars.py",
        )
    return EMIT[name](Arguments(exprs, texts, dtype, helpers))
