"""The emission table: how each scalar function of the loop IR (`loop_ir/scalars.py`) is written in C++.

In: a scalar's name, its arguments as C++ text and as expressions, the dtype they share. Out: C++ text; the helpers and
libm functions it needs are noted in `Used`.
Integer arithmetic is done in an unsigned type, where wrapping is defined, and cast back.
On bool, add and maximum mean "or", mul and minimum "and", as in NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field

from compiler_core.codegen.cpp import complex as complex_numbers
from compiler_core.codegen.cpp.types import literal, strip, unsigned_type
from compiler_core.dtype import DType, bool_, float32
from compiler_core.errors import LoweringError
from compiler_core.loop_ir.expr import Const, Expr
from compiler_core.records import dataclass


@dataclass(frozen=True, slots=True)
class Used:
    """What the text written so far needs: names of helpers (helpers.py), C names of libm functions."""

    helpers: set[str] = field(default_factory=set)
    libm: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Arguments:
    """One application of a scalar function. dtype: that of the arguments."""

    exprs: Sequence[Expr]
    texts: Sequence[str]
    dtype: DType
    used: Used

    @property
    def suffix(self) -> str:
        return "f" if self.dtype is float32 else ""

    def helper(self, name: str, *texts: str) -> str:
        """A call of `dc_NAME` of the arguments, or these, each cast to the exact type that its template deduces."""
        self.used.helpers.add(name)
        return f"dc_{name}({', '.join(map(strip, texts or self.texts))})"


Emit = Callable[[Arguments], str]


def _infix(operator: str) -> Emit:
    """Floats as they are, integers in unsigned arithmetic."""

    def emit(a: Arguments) -> str:
        if a.dtype.is_floating_point:
            return f"({a.texts[0]} {operator} {a.texts[1]})"
        wide = unsigned_type(a.dtype)
        return f"({a.dtype.ctype})(({wide}){a.texts[0]} {operator} ({wide}){a.texts[1]})"

    return emit


def _compare(operator: str) -> Emit:
    return lambda a: f"({a.texts[0]} {operator} {a.texts[1]})"


def _bitwise(operator: str) -> Emit:
    return lambda a: f"({a.dtype.ctype})({a.texts[0]} {operator} {a.texts[1]})"


def _bool_or(boolean: str, otherwise: Emit) -> Emit:
    """The operator `boolean` on bool, `otherwise` on numbers."""
    return lambda a: f"({a.texts[0]} {boolean} {a.texts[1]})" if a.dtype is bool_ else otherwise(a)


def _libm(name: str) -> Emit:
    def emit(a: Arguments) -> str:
        a.used.libm.add(name + a.suffix)
        return f"{name}{a.suffix}({', '.join(map(strip, a.texts))})"

    return emit


def _builtin(name: str) -> Emit:
    """A rounding function or the like that the compiler expands in place; integers are already round."""
    return lambda a: f"__builtin_{name}{a.suffix}({a.texts[0]})" if a.dtype.is_floating_point else a.texts[0]


def _helper(name: str) -> Emit:
    return lambda a: a.helper(name)


def _float_or_integer(floating: Emit, integer: Emit) -> Emit:
    return lambda a: floating(a) if a.dtype.is_floating_point else integer(a)


def _one(a: Arguments) -> str:
    return literal(1, a.dtype)


def _neg(a: Arguments) -> str:
    if a.dtype.is_floating_point:
        return f"(-{a.texts[0]})"
    return f"({a.dtype.ctype})(0u - ({unsigned_type(a.dtype)}){a.texts[0]})"


def _abs(a: Arguments) -> str:
    if a.dtype.is_floating_point:
        return f"__builtin_fabs{a.suffix}({a.texts[0]})"
    return f"({a.texts[0]} < 0 ? {_neg(a)} : {a.texts[0]})" if a.dtype.kind == "i" else a.texts[0]


def _rsqrt(a: Arguments) -> str:
    return f"({_one(a)} / __builtin_sqrt{a.suffix}({a.texts[0]}))"


def _erf(a: Arguments) -> str:
    return a.helper("erf") if a.dtype is float32 else _libm("erf")(a)


def _exp(a: Arguments) -> str:
    return a.helper("exp") if a.dtype is float32 else _libm("exp")(a)


def _sigmoid(a: Arguments) -> str:
    exponential = _exp(Arguments(a.exprs, [f"-{a.texts[0]}"], a.dtype, a.used))
    return f"({_one(a)} / ({_one(a)} + {exponential}))"


def _logical_not(a: Arguments) -> str:
    return f"(!{a.texts[0]})" if a.dtype is bool_ else f"({a.texts[0]} == 0)"


def _bitwise_not(a: Arguments) -> str:
    return f"(!{a.texts[0]})" if a.dtype is bool_ else f"({a.dtype.ctype})(~{a.texts[0]})"


def _extremum(name: str, keep: str) -> Emit:
    """maximum, minimum. With a constant that is not NaN one comparison is enough: NaN fails it and is kept.

    Of a constant 0.0 and -0.0, or the other way round, the result is what is no constant, as torch's clamp has it.
    """

    def emit(a: Arguments) -> str:
        for constant, other in ((1, 0), (0, 1)):
            expr = a.exprs[constant]
            if isinstance(expr, Const) and not math.isnan(expr.value.real):
                if _is_simple(a.texts[other]):
                    return f"({a.texts[other]} {keep} {a.texts[constant]} ? {a.texts[constant]} : {a.texts[other]})"
                return a.helper(name, a.texts[constant], a.texts[other])
        return a.helper(name)

    return emit


def _is_simple(text: str) -> bool:
    return text.isidentifier()


def _pow(a: Arguments) -> str:
    if not a.dtype.is_floating_point:
        return a.helper("int_pow")
    exponent = a.exprs[1]
    special = _POWERS.get(float(exponent.value.real)) if isinstance(exponent, Const) else None
    return special(a) if special else _libm("pow")(a)


def _power_by_helper(name: str) -> Emit:
    return lambda a: Arguments(a.exprs, a.texts[:1], a.dtype, a.used).helper(name)


_POWERS: dict[float, Emit] = {
    -1.0: lambda a: f"({_one(a)} / {a.texts[0]})",
    1.0: lambda a: a.texts[0],
    2.0: _power_by_helper("square"),
    3.0: _power_by_helper("cube"),
}

EMIT: dict[str, Emit] = {
    "neg": _neg,
    "exp": _exp,
    "log": _libm("log"),
    **{name: _libm(name) for name in ("exp2", "log2", "log10", "log1p")},
    "expm1": _libm("expm1"),
    "sin": _libm("sin"),
    "cos": _libm("cos"),
    "tanh": _libm("tanh"),
    "sqrt": _builtin("sqrt"),
    "rsqrt": _rsqrt,
    "erf": _erf,
    "erfc": _libm("erfc"),
    **{name: _libm(name) for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2")},
    "copysign": lambda a: f"__builtin_copysign{a.suffix}({a.texts[0]}, {a.texts[1]})",
    "abs": _abs,
    "sign": _helper("sign"),
    "floor": _builtin("floor"),
    "ceil": _builtin("ceil"),
    "round": _builtin("rint"),
    "trunc": _builtin("trunc"),
    "sigmoid": _sigmoid,
    "logical_not": _logical_not,
    "bitwise_not": _bitwise_not,
    "isnan": lambda a: f"({a.texts[0]} != {a.texts[0]})",
    "add": _bool_or("|", _infix("+")),
    "sub": _infix("-"),
    "mul": _bool_or("&", _infix("*")),
    "div": _float_or_integer(_infix("/"), _helper("floor_div")),
    "pow": _pow,
    "maximum": _bool_or("|", _extremum("larger", "<")),
    "minimum": _bool_or("&", _extremum("smaller", ">")),
    "remainder": _float_or_integer(_helper("float_mod"), _helper("floor_mod")),
    "floor_divide": _float_or_integer(_helper("float_floor_div"), _helper("floor_div")),
    "eq": _compare("=="),
    "ne": _compare("!="),
    "lt": _compare("<"),
    "le": _compare("<="),
    "gt": _compare(">"),
    "ge": _compare(">="),
    "bitwise_and": _bitwise("&"),
    "bitwise_or": _bitwise("|"),
    "bitwise_xor": _bitwise("^"),
    "shift_left": _helper("shift_left"),
    "shift_right": _helper("shift_right"),
    **{name: _helper(name) for name in ("philox", "normal32", "normal64")},
    "complex": lambda a: f"dc_complex<{a.dtype.complex.ctype}>({', '.join(map(strip, a.texts))})",
}


def emit_scalar(name: str, exprs: Sequence[Expr], texts: Sequence[str], dtype: DType, used: Used) -> str:
    """The C++ for scalar function `name`. Raises LoweringError for a name that the table lacks."""
    if name not in EMIT and not dtype.is_complex:
        raise LoweringError(
            f"no C++ for the scalar function {name!r}",
            expected=", ".join(EMIT),
            remedy="write it in the table EMIT of compiler_core/codegen/cpp/scalars.py",
        )
    arguments = Arguments(exprs, texts, dtype, used)
    if not dtype.is_complex:
        return EMIT[name](arguments)
    if name not in complex_numbers.EMIT:
        raise LoweringError(
            f"no C++ for the scalar function {name!r} of complex numbers",
            expected=", ".join(complex_numbers.EMIT),
            remedy="write it in the table EMIT of compiler_core/codegen/cpp/complex.py",
        )
    return complex_numbers.EMIT[name](texts, arguments.helper)
