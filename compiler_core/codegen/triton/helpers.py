"""Helper functions of generated Triton modules, as source text: what Triton's own language lacks.

In: nothing. Out: `HELPERS`: name -> (text, names of the helpers that it calls). Written for both ways of running: every
function works in Triton's interpreter and compiles for a GPU, so none uses a vendor's device library, nor those of
Triton's own that are jitted at its import (tl.sum, tl.max): the interpreter takes their combining functions, not them.
exp2_quick and inverse_quick are the GPU's instructions (2^x and 1/x of f32 to 2 units in the last place, tiny results
and operands taken as 0): a third of the instructions of tl.exp2 and of a division, where neither matters.
Sources: log1p and expm1 after Kahan (Higham, "Accuracy and Stability of Numerical Algorithms", 1.14.1); philox after
Salmon et al., SC'11; erfc after Cody, as in ops/primitives/erf.py; those of trigonometry.py, as it says.
Limits: pow goes through exp and log in float64, so that of float64 operands is good to about 1e-13 for results of
moderate size; a remainder on a GPU has no digits left where the quotient exceeds 2^24.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from compiler_core.codegen.triton.trigonometry import TRIGONOMETRY
from compiler_core.ops.primitives import erf
from compiler_core.ops.random import box_muller


def _horner(coefficients: Sequence[float], variable: str) -> str:
    """The text of a polynomial, highest power first."""
    return box_muller.horner([repr(c) for c in coefficients], variable)


def _fused(coefficients: Sequence[float], variable: str) -> str:
    """The same in fused steps."""
    first, *rest = coefficients
    return reduce(lambda text, c: f"tl.fma({text}, {variable}, {c!r})", rest, repr(first))


# erfc(a) = 2^(a q(a)) for 0 <= a <= 4; the largest absolute error of erfc is least
_ERFC_EXPONENT = (-4.53585889772512e-05, 4.4551384053193033e-4, -1.4894780470058322e-3, -7.745542679913342e-4,
                  2.825360745191574e-2, -1.484815776348114e-1, -9.184163808822632e-1, -1.6279085874557495)  # fmt: skip
_ERFC = f"""
def dc_erfc64(x):
    x = x.to(tl.float64)
    y = tl.abs(x)
    z = tl.minimum(y, 0.5)
    z = z * z
    near = x * {_horner(erf.SMALL_P, "z")} / {_horner(erf.SMALL_Q, "z")}
    y = tl.minimum(y, 40.0)
    coarse = tl.floor(y * 16.0) / 16.0
    gauss = tl.exp(-coarse * coarse) * tl.exp(-(y - coarse) * (y + coarse))
    m = tl.minimum(y, 4.0)
    middle = {_horner(erf.MIDDLE_P, "m")} / {_horner(erf.MIDDLE_Q, "m")}
    far = tl.maximum(y, 4.0)
    w = 1.0 / (far * far)
    away = ({erf.INV_SQRT_PI!r} - w * {_horner(erf.LARGE_P, "w")} / {_horner(erf.LARGE_Q, "w")}) / far
    tail = tl.where(gauss == 0.0, gauss, gauss * tl.where(y <= 4.0, middle, away))
    value = tl.where(y <= 0.46875, 1.0 - near, tl.where(x < 0.0, 2.0 - tail, tail))
    return tl.where(x != x, x, value)
"""

_SIMPLE = {
    "exp2_quick": """
def dc_exp2_quick(x):
    if DC_INTERPRETED:
        return tl.exp2(x)
    else:
        return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)
""",
    "inverse_quick": """
def dc_inverse_quick(x):
    if DC_INTERPRETED:
        return 1.0 / x
    else:
        return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)
""",
    "erfc64": _ERFC,
    "sign": """
def dc_sign(x):
    return tl.where(x > 0, 1, tl.where(x < 0, -1, 0)).to(x.dtype)  # of NaN, 0
""",
    "trunc": """
def dc_trunc(x):
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))
""",
    "rint": """
def dc_rint(x, big: tl.constexpr):
    size = tl.abs(x)
    whole = (size + big) - big  # adding 2^(digits of the mantissa) rounds to an integer, half to even
    return tl.where(size < big, tl.where(x < 0, -whole, whole), x)
""",
    "expm1": """
def dc_expm1(x):
    u = tl.exp(x)
    d = u - 1.0
    exact = d * x / tl.log(u)
    return tl.where(u == 1.0, x, tl.where(d == -1.0, d, tl.where(u == float("inf"), u, exact))).to(x.dtype)
""",
    "log10": """
def dc_log10(x):
    y = tl.log(x.to(tl.float64)) * 0.4342944819032518
    near = tl.floor(y + 0.5)
    whole = (tl.abs(y - near) < 1e-14) & (tl.abs(near) < 23.0) & (x != 1.0)
    return tl.where(whole, near, y).to(x.dtype)  # of a power of ten it is exact
""",
    "log1p": """
def dc_log1p(x):
    u = 1.0 + x
    exact = tl.log(u) * (x / (u - 1.0))
    return tl.where(u == 1.0, x, tl.where(x == float("inf"), x, exact)).to(x.dtype)
""",
    "floor_div": """
def dc_floor_div(a, b):
    safe = tl.where(b == 0, 1, b).to(a.dtype)
    q = (a // safe).to(a.dtype)
    r = (a - q * safe).to(a.dtype)
    q = tl.where((r != 0) & ((r < 0) != (safe < 0)), q - 1, q)
    return tl.where(b == 0, 0, q).to(a.dtype)
""",
    "fmod": """
def dc_fmod(a, b):
    infinite = tl.abs(a) == float("inf")  # on a GPU, % is a - trunc(a / b) * b also where that is not IEEE's fmod
    r = tl.where((tl.abs(b) == float("inf")) & (a == a), a, a % b)
    return tl.where(infinite | (b == 0.0), float("nan"), r).to(a.dtype)
""",
    "int_pow": """
def dc_int_pow(base, exponent):
    result = (base * 0 + 1).to(base.dtype)
    inverse = tl.where(base == 1, base, base * 0)
    if base.dtype.is_int_signed():
        inverse = tl.where(base == -1, tl.where((exponent & 1) != 0, base, result), inverse)
    left = exponent
    for _ in range(64):
        result = tl.where((left & 1) != 0, result * base, result).to(base.dtype)
        base = (base * base).to(base.dtype)
        left = (left >> 1).to(exponent.dtype)
    return tl.where(exponent < 0, inverse, result).to(base.dtype)
""",
    "pow64": """
def dc_pow64(a, b):
    a, b = tl.broadcast(a.to(tl.float64), b.to(tl.float64))
    size = tl.exp(b * tl.log(tl.abs(a)))
    is_whole = tl.floor(b) == b
    is_odd = is_whole & (tl.floor(b * 0.5) * 2.0 != b)
    signed = tl.where((a < 0.0) & is_odd, -size, size)
    value = tl.where((a < 0.0) & (a != -float("inf")) & (b == b) & ~is_whole, float("nan"), signed)
    return tl.where((b == 0.0) | (a == 1.0), tl.full((), 1.0, tl.float64), value)
""",
    "max": """
def dc_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    "min": """
def dc_min(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    "mul": """
def dc_mul(a, b):
    return a * b
""",
    "highest": """
def dc_highest(x, axis: tl.constexpr, keep: tl.constexpr):
    return tl.reduce(x, axis, tl.standard._elementwise_max, keep_dims=keep)
""",
    "lowest": """
def dc_lowest(x, axis: tl.constexpr, keep: tl.constexpr):
    return tl.reduce(x, axis, tl.standard._elementwise_min, keep_dims=keep)
""",
    "sum": """
def dc_sum(x, axis: tl.constexpr, keep: tl.constexpr):
    return tl.reduce(x, axis, tl.standard._sum_combine, keep_dims=keep)
""",
    "key": """
def dc_key(x, lowest: tl.constexpr):
    # integers in the order of floats, NaN beyond all: so one reduction finds the extreme, or NaN
    if x.dtype == tl.float64:
        bits = x.to(tl.int64, bitcast=True)
        key = bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)
        nan = tl.full((), -0x8000000000000000 if lowest else 0x7FFFFFFFFFFFFFFF, tl.int64)
    else:
        bits = x.to(tl.int32, bitcast=True)
        key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
        nan = tl.full((), -0x80000000 if lowest else 0x7FFFFFFF, tl.int32)
    return tl.where(x != x, nan, key)
""",
    "unkey": """
def dc_unkey(key, dtype: tl.constexpr):
    if dtype == tl.float64:
        bits = key ^ ((key >> 63) & 0x7FFFFFFFFFFFFFFF)
    else:
        bits = key ^ ((key >> 31) & 0x7FFFFFFF)
    return bits.to(dtype, bitcast=True)
""",
    "shift_right": """
def dc_shift_right(a, b, bits: tl.constexpr):
    outside = (b < 0) | (b >= bits)
    gone = tl.where(a < 0, -1, 0).to(a.dtype)
    return tl.where(outside, gone, a >> tl.where(outside, 0, b).to(a.dtype)).to(a.dtype)
""",
    "shift_right_unsigned": """
def dc_shift_right_unsigned(a, b, bits: tl.constexpr):
    return tl.where(b >= bits, 0, a >> tl.where(b >= bits, 0, b).to(a.dtype)).to(a.dtype)
""",
    "shift_left": """
def dc_shift_left(a, b, bits: tl.constexpr):
    outside = (b < 0) | (b >= bits)
    return tl.where(outside, 0, a << tl.where(outside, 0, b).to(a.dtype)).to(a.dtype)
""",
    "shift_left_unsigned": """
def dc_shift_left_unsigned(a, b, bits: tl.constexpr):
    return tl.where(b >= bits, 0, a << tl.where(b >= bits, 0, b).to(a.dtype)).to(a.dtype)
""",
    "copysign32": """
def dc_copysign32(a, b):
    sign = b.to(tl.int32, bitcast=True) & -2147483648
    return ((a.to(tl.int32, bitcast=True) & 2147483647) | sign).to(tl.float32, bitcast=True)
""",
    "copysign64": """
def dc_copysign64(a, b):
    sign = (b.to(tl.int64, bitcast=True) >> 63) << 63
    return (tl.abs(a).to(tl.int64, bitcast=True) | sign).to(tl.float64, bitcast=True)
""",
    "philox": """
def dc_philox(seed, stream, element):
    k0 = seed.to(tl.uint32)
    k1 = (seed >> 32).to(tl.uint32)
    c0 = element.to(tl.uint32)
    c1 = (element >> 32).to(tl.uint32)
    c2 = stream.to(tl.uint32)
    c3 = (stream >> 32).to(tl.uint32)
    m0 = tl.full((), 0xD2511F53, tl.uint64)
    m1 = tl.full((), 0xCD9E8D57, tl.uint64)
    w0 = tl.full((), 0x9E3779B9, tl.uint32)
    w1 = tl.full((), 0xBB67AE85, tl.uint32)
    c0, c1, c2, c3 = c0 + c2 * 0, c1 + c2 * 0, c2 + c0 * 0, c3 + c0 * 0  # one shape
    for _ in tl.static_range(10):
        p0 = c0.to(tl.uint64) * m0
        p1 = c2.to(tl.uint64) * m1
        c0, c1, c2, c3 = (
            (p1 >> 32).to(tl.uint32) ^ c1 ^ k0,
            p1.to(tl.uint32),
            (p0 >> 32).to(tl.uint32) ^ c3 ^ k1,
            p0.to(tl.uint32),
        )
        k0 = k0 + w0
        k1 = k1 + w1
    return c0
""",
    **{p.name: box_muller.triton_text(p) for p in box_muller.PRECISIONS},
}

_COMPOSED = {
    "beyond": (
        """
def dc_beyond(x, bound: tl.constexpr):
    return tl.reduce(tl.abs(x), None, tl.standard._elementwise_max) > bound
""",
        (),
    ),
    "tanh_coarse": (
        """
def dc_tanh_coarse(x):
    r = tl.fma(dc_inverse_quick(dc_exp2_quick(tl.abs(x) * 2.8853900817779268) + 1.0), -2.0, 1.0)  # to 1e-7, also near 0
    return tl.where(x < 0, -r, r)
""",
        ("exp2_quick", "inverse_quick"),
    ),
    "erf_coarse": (
        f"""
def dc_erf_coarse(x):
    a = tl.abs(x)
    a = tl.where(a > 4.0, 4.0, a)  # from there on erf is 1
    r = 1.0 - dc_exp2_quick(a * {_fused(_ERFC_EXPONENT, "a")})  # to 2.2e-7, also near 0
    return tl.where(x < 0, -r, r)
""",
        ("exp2_quick",),
    ),
    "tanh32": (
        """
def dc_tanh32(x):
    s = x * x  # near 0 an odd polynomial, fitted at Chebyshev nodes; one unit in the last place
    p = tl.fma(s, -0.006276380270719528, 0.021116208285093307)
    p = tl.fma(p, s, -0.053875137120485306)
    p = tl.fma(p, s, 0.13332924246788025)
    p = tl.fma(p, s, -0.3333333134651184)
    return tl.where(tl.abs(x) < 0.6, tl.fma(x, s * p, x), dc_tanh_coarse(x))
""",
        ("tanh_coarse",),
    ),
    "float_mod": (
        """
def dc_float_mod(a, b):
    r = dc_fmod(a, b)
    turned = tl.where((r < 0.0) != (b < 0.0), r + b, r)
    return tl.where(r == 0.0, 0.0 * a, turned).to(a.dtype)  # 0 has the dividend's sign
""",
        ("fmod",),
    ),
    "float_floor_div": (
        """
def dc_float_floor_div(a, b):
    r = dc_fmod(a, b)
    quotient = (a - r) / b
    quotient = tl.where((r != 0.0) & ((r < 0.0) != (b < 0.0)), quotient - 1.0, quotient)
    whole = tl.floor(quotient)
    whole = tl.where(quotient - whole > 0.5, whole + 1.0, whole)
    whole = tl.where(quotient == 0.0, 0.0 * (a / b), whole)  # 0 has the quotient's sign
    return tl.where(b == 0.0, a / b, whole).to(a.dtype)
""",
        ("fmod",),
    ),
    "prod": (
        """
def dc_prod(x, axis: tl.constexpr, keep: tl.constexpr):
    return tl.reduce(x, axis, dc_mul, keep_dims=keep)
""",
        ("mul",),
    ),
    "reduce_max": (
        """
def dc_reduce_max(x, axis: tl.constexpr, keep: tl.constexpr):
    if DC_INTERPRETED or x.dtype != tl.float32:
        return dc_unkey(dc_highest(dc_key(x, False), axis, keep), x.dtype)
    else:
        return tl.reduce(x, axis, dc_max, keep_dims=keep)
""",
        ("highest", "key", "unkey", "max"),
    ),
    "reduce_min": (
        """
def dc_reduce_min(x, axis: tl.constexpr, keep: tl.constexpr):
    if DC_INTERPRETED or x.dtype != tl.float32:
        return dc_unkey(dc_lowest(dc_key(x, True), axis, keep), x.dtype)
    else:
        return tl.reduce(x, axis, dc_min, keep_dims=keep)
""",
        ("lowest", "key", "unkey", "min"),
    ),
    "sigmoid": (
        """
def dc_sigmoid(x):
    if x.dtype == tl.float32:
        return dc_inverse_quick(dc_exp2_quick(x * -1.4426950408889634) + 1.0)  # below 1.2e-38 it is 0
    return 1.0 / (1.0 + tl.exp(-x))
""",
        ("exp2_quick", "inverse_quick"),
    ),
    "tanh": (
        """
def dc_tanh(x):
    if x.dtype == tl.float32:
        return dc_tanh32(x)
    t = dc_expm1(2.0 * tl.minimum(tl.abs(x), 20.0, propagate_nan=tl.PropagateNan.ALL))
    y = t / (t + 2.0)
    return tl.where(x < 0, -y, tl.where(x == 0, x, y)).to(x.dtype)
""",
        ("expm1", "tanh32"),
    ),
    "floor_mod": (
        """
def dc_floor_mod(a, b):
    return tl.where(b == 0, 0, a - dc_floor_div(a, b) * b).to(a.dtype)
""",
        ("floor_div",),
    ),
}

HELPERS: dict[str, tuple[str, tuple[str, ...]]] = {name: (text, ()) for name, text in _SIMPLE.items()} | _COMPOSED
HELPERS |= TRIGONOMETRY


def helper_source(names: set[str]) -> str:
    """The text of `names` and of all that they call, callees first, each decorated for Triton."""
    order: list[str] = []

    def visit(name: str) -> None:
        for need in HELPERS[name][1]:
            visit(need)
        if name not in order:
            order.append(name)

    for name in sorted(names):
        visit(name)
    return "\n".join(f"\n@triton.jit{HELPERS[name][0]}" for name in order)
