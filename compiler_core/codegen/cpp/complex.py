"""Complex numbers in generated C++: the scalar functions on GNU's `_Complex` types, and their helpers.

In: the name of a scalar function, arguments as text. Out: C++ text; helpers by name.
GCC and Clang have `_Complex` in C++ too: it lies in memory as NumPy's, and is added and compared as it is. Products and
quotients are helpers: the compiler's own look for infinities through a slow library call, where NumPy and torch take
the plain formula (product) and Smith's (quotient: CACM 5, 1962). Elementary functions are libm's, which NumPy calls,
too; where NumPy has formulas of its own (expm1, log1p, powers by small whole numbers) they stand here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

Texts: TypeAlias = Sequence[str]
Helper: TypeAlias = Callable[[str], str]  # name -> a call of that helper with the arguments

LIBM = ("exp", "log", "sin", "cos", "tanh", "sqrt", "asin", "acos", "atan", "asinh", "acosh", "atanh", "pow")


def _infix(operator: str) -> Callable[[Texts, Helper], str]:
    return lambda texts, helper: f"({texts[0]} {operator} {texts[1]})"


def _called(name: str) -> Callable[[Texts, Helper], str]:
    return lambda texts, helper: helper(name)


EMIT: dict[str, Callable[[Texts, Helper], str]] = {
    "neg": lambda texts, helper: f"(-{texts[0]})",
    "add": _infix("+"),
    "sub": _infix("-"),
    "eq": _infix("=="),
    "ne": _infix("!="),
    "isnan": lambda texts, helper: f"({texts[0]} != {texts[0]})",
    "real": lambda texts, helper: f"(__real__ {texts[0]})",
    "imag": lambda texts, helper: f"(__imag__ {texts[0]})",
    "conj": lambda texts, helper: f"(~{texts[0]})",
    **{name: _called(f"c_{name}") for name in ("mul", "div", "abs", "expm1", "log1p", "rsqrt", "sigmoid", "pow")},
    **{name: _called(f"c_{name}") for name in LIBM if name != "pow"},
}


def _libm(name: str) -> str:
    """Declarations of a libm function of complex numbers, and one name for both precisions."""
    operands, arguments = ("C, C", "a, b") if name == "pow" else ("C", "a")
    lines = []
    for ctype, suffix in (("dc_c128", ""), ("dc_c64", "f")):
        types = operands.replace("C", ctype)
        inner = ", ".join(f"{ctype} {argument}" for argument in arguments.split(", "))
        called = "libm_pow" if name == "pow" else name
        lines.append(f'extern "C" {ctype} c{name}{suffix}({types}) noexcept;\n')
        lines.append(f"DC_INLINE {ctype} dc_c_{called}({inner}) {{ return c{name}{suffix}({arguments}); }}\n")
    return "".join(lines)


_ABS = """\
extern "C" double hypot(double, double) noexcept;
extern "C" float hypotf(float, float) noexcept;
DC_INLINE double dc_hypot(double a, double b) { return hypot(a, b); }
DC_INLINE float dc_hypot(float a, float b) { return hypotf(a, b); }
DC_INLINE double dc_c_abs(dc_c128 z) { return hypot(__real__ z, __imag__ z); }
DC_INLINE float dc_c_abs(dc_c64 z) { return hypotf(__real__ z, __imag__ z); }
"""

_MUL = """\
template <class C> DC_INLINE C dc_c_mul(C a, C b) {
  return dc_complex<C>(__real__ a * __real__ b - __imag__ a * __imag__ b,
                       __real__ a * __imag__ b + __imag__ a * __real__ b);
}
"""

_DIV = """\
template <class C> DC_INLINE C dc_c_div(C a, C b) {  // Smith's: by the larger part of the divisor first
  auto x = __real__ b, y = __imag__ b;
  const auto u = x < 0 ? -x : x, v = y < 0 ? -y : y;
  if (u >= v) {
    if (u == 0 && v == 0) return dc_complex<C>(__real__ a / u, __imag__ a / u);
    const auto ratio = y / x, scale = 1 / (x + y * ratio);
    return dc_complex<C>((__real__ a + __imag__ a * ratio) * scale, (__imag__ a - __real__ a * ratio) * scale);
  }
  const auto ratio = x / y, scale = 1 / (y + x * ratio);
  return dc_complex<C>((__real__ a * ratio + __imag__ a) * scale, (__imag__ a * ratio - __real__ a) * scale);
}
"""

_PARTS = """\
extern "C" double expm1(double) noexcept; extern "C" float expm1f(float) noexcept;
extern "C" double exp(double) noexcept; extern "C" float expf(float) noexcept;
extern "C" double sin(double) noexcept; extern "C" float sinf(float) noexcept;
extern "C" double cos(double) noexcept; extern "C" float cosf(float) noexcept;
extern "C" double log(double) noexcept; extern "C" float logf(float) noexcept;
extern "C" double atan2(double, double) noexcept; extern "C" float atan2f(float, float) noexcept;
"""

_EXPM1 = """\
DC_INLINE dc_c128 dc_c_expm1(dc_c128 z) {  // as NumPy's
  const double x = __real__ z, y = __imag__ z, s = sin(y / 2);
  return dc_complex<dc_c128>(expm1(x) * cos(y) - 2 * s * s, exp(x) * sin(y));
}
DC_INLINE dc_c64 dc_c_expm1(dc_c64 z) {
  const float x = __real__ z, y = __imag__ z, s = sinf(y / 2);
  return dc_complex<dc_c64>(expm1f(x) * cosf(y) - 2 * s * s, expf(x) * sinf(y));
}
"""

_LOG1P = """\
DC_INLINE dc_c128 dc_c_log1p(dc_c128 z) {  // as NumPy's
  const double x = __real__ z + 1, y = __imag__ z;
  return dc_complex<dc_c128>(log(dc_hypot(x, y)), atan2(y, x));
}
DC_INLINE dc_c64 dc_c_log1p(dc_c64 z) {
  const float x = __real__ z + 1, y = __imag__ z;
  return dc_complex<dc_c64>(logf(dc_hypot(x, y)), atan2f(y, x));
}
"""

_POW = """\
template <class C> DC_INLINE C dc_c_pow(C a, C b) {  // as NumPy's: small whole powers are products
  const auto re = __real__ b, im = __imag__ b;
  const C one = (C)1;
  if (re == 0 && im == 0) return one;
  if (__real__ a == 0 && __imag__ a == 0) {
    if (re > 0) return (C)0;
    const auto nan = (__real__ a) / (__real__ a);
    return dc_complex<C>(nan, nan);
  }
  const int n = re > -100 && re < 100 ? (int)re : 0;
  if (im != 0 || n == 0 || (decltype(re))n != re) return dc_c_libm_pow(a, b);
  C result = one, square = a;
  for (int left = n < 0 ? -n : n; left; left >>= 1, square = dc_c_mul(square, square))
    if (left & 1) result = dc_c_mul(result, square);
  return n < 0 ? dc_c_div(one, result) : result;
}
"""

# name -> (names needed before it, text): joined with those of helpers.py
HELPERS: dict[str, tuple[tuple[str, ...], str]] = {
    "c_mul": ((), _MUL),
    "c_div": ((), _DIV),
    "c_abs": ((), _ABS),
    "c_parts": ((), _PARTS),
    "c_expm1": (("c_parts",), _EXPM1),
    "c_log1p": (("c_parts", "c_abs"), _LOG1P),
    "c_rsqrt": (
        ("c_sqrt", "c_div"),
        "template <class C> DC_INLINE C dc_c_rsqrt(C z) { return dc_c_div((C)1, dc_c_sqrt(z)); }\n",
    ),
    "c_sigmoid": (
        ("c_exp", "c_div"),
        "template <class C> DC_INLINE C dc_c_sigmoid(C z) { return dc_c_div((C)1, (C)1 + dc_c_exp(-z)); }\n",
    ),
    "c_pow": (("c_libm_pow", "c_mul", "c_div"), _POW),
    "c_libm_pow": ((), _libm("pow")),
    **{f"c_{name}": ((), _libm(name)) for name in LIBM if name != "pow"},
}
