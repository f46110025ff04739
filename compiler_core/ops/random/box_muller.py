"""Standard normal numbers of two random words each, by steps that every processor rounds alike: normal32, normal64.

In: first, second u32[*shape], uniform (ops/random/op.py). Out: f32[*shape] or f64[*shape], by Box and Muller's
transform (1958): sqrt(-2 log u) cos(2 pi v), of the words' upper 24 bits; u = (2 n + 1) 2^-25, rounded to the dtype,
and v = (2 n + 1) 2^-25, exact: at v = 1/4 every eight millionth number would be 0, and its inverse infinite.
A library's logarithm and cosine differ from one processor to the next in the last bit. Here they are polynomials, and
all that is used is exact or rounded to the nearest: sums, products, a square root, shifts of integers. So the bits are
the same with NumPy, in C++, in CUDA C and in Triton, as long as no product and sum are rounded together.

    log u = k log 2 + log(1 + t)   k and t of the bits of the float 2 n + 1, sqrt(1/2) <= 1 + t < sqrt(2); log 2 in two
                                   parts, of which k times the first is exact
    cos 2 pi v                     of a quarter turn near by, found in integers, and an angle of about pi / 4 at most

Both are good to about 2 units in the last place. Sources: f32's polynomials are those of Cephes' logf, sinf and cosf
(Moshier); f64's interpolate in Chebyshev's points; the bits of k and t as in ARM's optimized routines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from compiler_core.dtype import DType, float32, float64, uint32
from compiler_core.meta import TensorMeta
from compiler_core.ops.checks import check_dtype, check_same_shape
from compiler_core.ops.registry import Array, NotDifferentiable, Op, Sample, register
from compiler_core.ops.rules import OwnCode, Pointwise
from compiler_core.records import dataclass


@dataclass(frozen=True, slots=True)
class Precision:
    """half: the bits of sqrt(1/2). mantissa: how many bits a mantissa has. log2: its two parts.

    log: (log(1 + t) - t + t^2/2) / t^3; sine: (sin x - x) / (x z), cosine: (cos x - 1 + z/2) / z^2, of z = x^2;
    polynomials, highest power first. turn: 2 pi 2^-25.
    """

    dtype: DType
    half: int
    mantissa: int
    log2: tuple[float, float]
    log: tuple[float, ...]
    sine: tuple[float, ...]
    cosine: tuple[float, ...]
    turn: float

    @property
    def name(self) -> str:
        """That of the op, and of the function in every language."""
        return f"normal{8 * self.dtype.itemsize}"


F32 = Precision(
    float32,
    0x3F3504F3,
    23,
    (0.693359375, -2.12194440e-4),
    (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
     2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
    (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1),
    (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2),
    float(np.float32(2 * np.pi / 2**25)),
)  # fmt: skip
F64 = Precision(
    float64,
    0x3FE6A09E667F3BCD,
    52,
    (6.93147180369123816490e-01, 1.90821492927058770002e-10),
    (-0.025069094183570454, 0.05668198431045042, -0.06130587992788277, 0.053716458312777646, -0.053679156774410826,
     0.05836980161982374, -0.06265078835047307, 0.06671995744376115, -0.07142229064679916, 0.07691987233619846,
     -0.08333345154889092, 0.09090919914369915, -0.0999999999475828, 0.11111110908975864, -0.12499999997117374,
     0.14285714287601134, -0.1666666666669733, 0.19999999999993184, -0.2499999999999993, 0.33333333333333337),
    (1.5918129067394773e-10, -2.5051131841846312e-08, 2.755731610253729e-06, -0.00019841269836758544,
     0.008333333333330948, -0.16666666666666666),
    (-1.1382632283217326e-11, 2.0876146266428024e-09, -2.7557317271720317e-07, 2.480158729876567e-05,
     -0.0013888888888887398, 0.041666666666666664),
    2 * np.pi / 2**25,
)  # fmt: skip
PRECISIONS = (F32, F64)
_BLOCK = 1 << 14  # elements whose intermediates stay in the cache


# ---- with NumPy


def normal(p: Precision, xp: Any, first: Array, second: Array) -> Array:
    """The definition: first, second u32[*shape]."""
    if xp is not np:
        return _normal(p, xp, first, second)
    if np.size(first) <= _BLOCK:
        return np.asarray(_normal(p, np, first, second))
    out = np.empty(np.broadcast_shapes(first.shape, second.shape), p.dtype.numpy)
    flat, a, b = out.reshape(-1), first.reshape(-1), second.reshape(-1)
    for start in range(0, out.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        flat[part] = _normal(p, np, a[part], b[part])
    return out


def _normal(p: Precision, xp: Any, first: Array, second: Array) -> Array:
    return xp.sqrt(_log(p, first) * p.dtype.numpy.type(-2)) * _cosine(p, xp, second)  # type: ignore[no-any-return]


def _log(p: Precision, word: Array) -> Array:
    """log of (2 n + 1) 2^-25, n the upper 24 bits."""
    real, integer = p.dtype.numpy.type, np.dtype(f"i{p.dtype.itemsize}").type
    number = ((word >> np.uint32(8)) * np.uint32(2) + np.uint32(1)).astype(real)
    above = number.view(integer) - integer(p.half)
    k = (above >> integer(p.mantissa)).astype(real) - real(25)
    t = ((above & integer((1 << p.mantissa) - 1)) + integer(p.half)).view(real) - real(1)
    z = t * t
    y = _polynomial(p, p.log, t) * t * z + k * real(p.log2[1]) - z * real(0.5)
    return (t + y) + k * real(p.log2[0])  # type: ignore[no-any-return]


def _cosine(p: Precision, xp: Any, word: Array) -> Array:
    """cos of 2 pi (2 n + 1) 2^-25, n the upper 24 bits."""
    real = p.dtype.numpy.type
    turn = (word >> np.uint32(8)).astype(np.int32)
    quarter = (turn + np.int32(1 << 21)) >> np.int32(22)
    x = (2 * (turn - (quarter << np.int32(22))) + 1).astype(real) * real(p.turn)
    z = x * x
    sine = _polynomial(p, p.sine, z) * z * x + x
    cosine = _polynomial(p, p.cosine, z) * z * z - z * real(0.5) + real(1)
    value = xp.where(quarter & np.int32(1), sine, cosine)
    return xp.where((quarter + np.int32(1)) & np.int32(2), -value, value)  # type: ignore[no-any-return]


def _polynomial(p: Precision, coefficients: Sequence[float], x: Array) -> Array:
    real = p.dtype.numpy.type
    result: Array = x * real(coefficients[0]) + real(coefficients[1])
    for c in coefficients[2:]:
        result = result * x + real(c)
    return result


# ---- in C, of which C++ and CUDA's C are made, and in Triton's Python


def c_text(p: Precision, root: str) -> str:
    """`dc_normal32` or `dc_normal64`, after DC_INLINE. root: the name of the square root, rounded to the nearest."""
    real, integer, f = ("float", "int", "f") if p is F32 else ("double", "long long", "")
    exponent = "(above >> 23)" if p is F32 else "((int)(above >> 32) >> 20)"  # vectors convert from 32 bits

    def polynomial(coefficients: Sequence[float], variable: str) -> str:
        return horner([f"{c!r}{f}" for c in coefficients], variable)

    return f"""\
DC_INLINE {real} dc_{p.name}(unsigned first, unsigned second) {{
  union {{ {real} number; {integer} bits; }} whole, part;
  whole.number = ({real})(int)((first >> 8) * 2u + 1u);
  const {integer} above = whole.bits - {p.half:#x};
  part.bits = (above & {(1 << p.mantissa) - 1:#x}) + {p.half:#x};
  const {real} k = ({real}){exponent} - 25.0{f}, t = part.number - 1.0{f}, tt = t * t;
  const {real} y = {polynomial(p.log, "t")} * t * tt + k * {p.log2[1]!r}{f} - tt * 0.5{f};
  const {real} radius = {root}(((t + y) + k * {p.log2[0]!r}{f}) * -2.0{f});
  const int turn = (int)(second >> 8), quarter = (turn + {1 << 21}) >> 22;
  const {real} x = ({real})(2 * (turn - (quarter << 22)) + 1) * {p.turn!r}{f}, z = x * x;
  const {real} sine = {polynomial(p.sine, "z")} * z * x + x;
  const {real} cosine = {polynomial(p.cosine, "z")} * z * z - z * 0.5{f} + 1.0{f};
  const {real} value = quarter & 1 ? sine : cosine;
  return radius * ((quarter + 1) & 2 ? -value : value);
}}
"""


def triton_text(p: Precision) -> str:
    """The same for Triton."""
    real, integer = ("tl.float32", "tl.int32") if p is F32 else ("tl.float64", "tl.int64")
    root = "tl.sqrt_rn" if p is F32 else "tl.sqrt"

    def polynomial(coefficients: Sequence[float], variable: str) -> str:
        return horner([repr(c) for c in coefficients], variable)

    return f"""
def dc_{p.name}(first, second):
    above = ((first >> 8) * 2 + 1).to(tl.int32).to({real}).to({integer}, bitcast=True) - {p.half}
    k = (above >> {p.mantissa}).to({real}) - 25.0
    t = ((above & {(1 << p.mantissa) - 1}) + {p.half}).to({real}, bitcast=True) - 1.0
    tt = t * t
    y = {polynomial(p.log, "t")} * t * tt + k * {p.log2[1]!r} - tt * 0.5
    radius = {root}(((t + y) + k * {p.log2[0]!r}) * -2.0)
    turn = (second >> 8).to(tl.int32)
    quarter = (turn + {1 << 21}) >> 22
    x = (2 * (turn - (quarter << 22)) + 1).to({real}) * {p.turn!r}
    z = x * x
    sine = {polynomial(p.sine, "z")} * z * x + x
    cosine = {polynomial(p.cosine, "z")} * z * z - z * 0.5 + 1.0
    value = tl.where((quarter & 1) != 0, sine, cosine)
    return radius * tl.where(((quarter + 1) & 2) != 0, -value, value)
"""


def horner(coefficients: Sequence[str], variable: str) -> str:
    """The text of a polynomial, highest power first."""
    text, *rest = coefficients
    for c in rest:
        text = f"({text} * {variable} + {c})"
    return text


# ---- the ops


def _words(shape: tuple[int, ...]) -> Callable[[np.random.Generator, DType], list[Array]]:
    """Words of this shape, those at the ends of their range and at quarter turns among them."""

    def draw(rng: np.random.Generator, dtype: DType) -> list[Array]:
        edges = [0, 255, 256, 2**30 - 1, 2**30, 2**31 - 1, 2**31, 3 * 2**30, 2**32 - 256, 2**32 - 1]
        words = rng.integers(0, 2**32, (2, *shape), np.uint32)
        if words[0].size > 2 * len(edges):
            words.reshape(2, -1)[0, : len(edges)] = edges
            words.reshape(2, -1)[1, -len(edges) :] = edges
        return list(words)

    return draw


def _register(p: Precision) -> Op:
    def infer(first: TensorMeta, second: TensorMeta) -> TensorMeta:
        for meta in (first, second):
            check_dtype(p.name, meta, (uint32,), "random words")
        check_same_shape(p.name, first, second)
        return TensorMeta(first.shape, p.dtype)

    return register(
        Op(
            p.name,
            infer=infer,
            eager=partial(normal, p),
            vjp=NotDifferentiable("random numbers"),
            lower=Pointwise(p.name),
            samples=tuple(Sample((s, s), make=_words(s)) for s in ((3, 4), (), (9, 17))),
            dtypes=(uint32,),
            engines=OwnCode("it shifts bits of floats, and its results are the same on every device"),
        )
    )


NORMAL = {p.dtype: _register(p) for p in PRECISIONS}
