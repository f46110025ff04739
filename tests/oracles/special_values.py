"""Functions at special values: what they are asked, and which answers are declared not to be torch's.

UNARY are expressions of x, which holds NaN, infinities, zeros, the ends of float64 and ordinary numbers; PAIRS of x and
y, which hold all pairs of such; ROWS of a short x, one row of ROW_VALUES at a time, with ties.
"""

from __future__ import annotations

import itertools
import math

inf, nan = math.inf, math.nan

VALUES = (
    0.0, -0.0, 1.0, -1.0, inf, -inf, nan, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 1e-300, -1e-300, 5e-324, 1e300, -1e300, 1e-8,
    20.0, -20.0, 40.0, -40.0, 100.0, -100.0, 710.0, -710.0, 6.0, 0.999, -0.999, 1.5, 2.5, -1.5, -2.5,
)  # fmt: skip
EDGES = (0.0, -0.0, 1.0, -1.0, inf, -inf, nan, 0.5, -2.0, 3.0)
PAIR_VALUES = tuple(itertools.product(EDGES, EDGES))
ROW_VALUES: tuple[tuple[float, ...], ...] = (
    (1, 2, 2, 1), (nan, 1, 2, 3), (inf, 1, 2, inf), (-inf, -inf, 1, 0), (inf, -inf, 0, 1), (0, 0, 0, 0),
    (0, -0.0, 1, -1),
    (-inf, -inf, -inf, -inf), (inf, inf, inf, inf), (nan, nan, nan, nan), (3, 3, 3, 3), (0, 2, 0, 3), (0, 2, 4, 3),
    (5, 1, 1, 5), (1e300, 1e300, 1, 0), (nan, nan, 1, 1), (1, 2, 3, nan), (2, 1, 2, 1), (1, nan, inf, -inf),
    (5e-324, 1e-300, 0, 0),
)  # fmt: skip

_NAMES = """
abs acos acosh angle asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor frac
lgamma log log10 log1p log2 logit neg positive rad2deg reciprocal relu round rsqrt sigmoid sign signbit sin sinc sinh
sqrt square tan tanh trunc isnan isinf isfinite isposinf isneginf nan_to_num isreal special.entr special.erfcx
special.i1 special.ndtr special.ndtri special.log_ndtr special.expit special.logit special.sinc special.log1p
special.expm1 special.round nn.functional.celu nn.functional.elu nn.functional.gelu nn.functional.hardshrink
nn.functional.hardsigmoid nn.functional.hardswish nn.functional.hardtanh nn.functional.leaky_relu
nn.functional.logsigmoid nn.functional.mish nn.functional.relu nn.functional.relu6 nn.functional.selu
nn.functional.silu nn.functional.softplus nn.functional.softshrink nn.functional.softsign nn.functional.tanhshrink
"""
UNARY = (
    *(f"m.{name}(x)" for name in _NAMES.split()),
    "m.sgn(x).detach()", "x.clamp(-1, 1)", "x.clamp(min=0.)", "x.clamp(max=0.)", "x.clamp_min(0.)", "x.clip(-.5, .5)",
    "x.clamp(min=float('nan'))", "F.threshold(x, 0.5, 7.)", 'F.gelu(x, approximate="tanh")', "F.elu(x, 0.7)",
    "F.celu(x, 0.7)", "F.softplus(x, 2., 5.)", "F.hardtanh(x, -2., 0.5)", "F.softshrink(x, 0.)", "m.logit(x, 1e-3)",
    *(f"x ** {power}" for power in ("2", "3", ".5", "0", "-1", "0.", "1", "1.5", "-.5", "2.5", "-2", "4")),
    *(f"{number} ** x" for number in ("2", "0.", "-1.5", "float('inf')")),
    "m.float_power(x, 2)", "m.round(x, decimals=2)", "m.fmod(x, 2.)", "x % 2.", "(x // 2.).detach()", "x / 0.",
    "0. / x",
    "x * 0.", "x * float('inf')", "x + float('inf')", "x - float('inf')", "m.xlogy(x, 2.)", "m.xlogy(x, x)",
    "m.xlogy(2., x)", "m.special.xlog1py(x, 2.)", "x / float('inf')", "m.rsub(x, 1.)", "x.nan_to_num(1., 2., 3.)",
    "x + 0.0", "x - 0.0", "0.0 - x", "1 / (x + 0.0)", "m.where(x > 0, x, -x)", "m.where(x > 0, m.log(x), 0.)",
    "m.maximum(x, x)", "m.fmax(x, -x)", "m.hypot(x, x)", "m.atan2(x, x)", "m.copysign(m.ones_like(x), x)",
)  # fmt: skip
_BINARY = """
add sub mul div pow atan2 maximum minimum fmax fmin remainder logaddexp heaviside logical_and logical_or
special.xlog1py xlogy true_divide float_power hypot eq lt ge
"""
PAIRS = (
    *(f"m.{name}(x, y)" + (".detach()" if name in ("heaviside",) else "") for name in _BINARY.split()),
    "(x // y).detach()", "m.fmod(x, y.detach())", "m.copysign(x.detach(), y)", "m.lerp(x, y, 0.5)", "m.lerp(x, y, 0.2)",
    "m.lerp(x, y, 1.)", "m.lerp(x, y, y)", "m.where(y > 0, x, y)", "m.clamp(x, y, 2 * y)", "m.clamp(x, min=y)",
    "F.mse_loss(x, y, reduction='none')", "F.l1_loss(x, y, reduction='none')",
    "F.smooth_l1_loss(x, y, reduction='none')", "F.huber_loss(x, y, reduction='none')",
    "F.kl_div(x, y, reduction='none')", "F.binary_cross_entropy_with_logits(x, y, reduction='none')",
    "F.margin_ranking_loss(x, y.detach(), y.detach(), reduction='none')", "m.addcmul(x, y, y, value=.5)",
    "m.addcdiv(x, x, y, value=.5)", "m.dist(x, y)", "m.isclose(x, y)", "F.prelu(x.view(-1, 1), y[:1])",
)  # fmt: skip
_OF_ALL = "sum mean max min amax amin median nanmedian std nansum argmax argmin norm"
_ALONG = "cumsum cummax cummin softmax log_softmax logsumexp max min amax median"
ROWS = (
    *(f"x.{name}()" for name in _OF_ALL.split()), *(f"x.{name}(0)" for name in _ALONG.split()),
    *(f"x.norm({p})" for p in ("1", "float('inf')", "float('-inf')", "0", "3")), "x.view(2, 2).norm(dim=1)",
    *(f"m.linalg.vector_norm(x, {p})" for p in ("1", "float('inf')", "0", "3", "2")),
    "m.aminmax(x)", "x.view(2, 2).amax((0, 1))", "x.all()", "x.any()", "m.count_nonzero(x)",
    "F.max_pool1d(x.view(1, 1, -1), 2)", "F.avg_pool1d(x.view(1, 1, -1), 2)",
    "F.adaptive_max_pool1d(x.view(1, 1, -1), 2)", "F.normalize(x, dim=0)", "m.dist(x, m.zeros_like(x))",
    "m.trapezoid(x.nan_to_num(0, 1, -1))", "F.glu(x, 0)",
)  # fmt: skip

# what differs, and why; held to differ
DECLARED: dict[str, tuple[str, ...]] = {
    "torch flushes the least subnormal, or loses it": ("m.special.ndtri(x)",),
    "torch's value has fewer digits there, or no limit": (
        "m.special.i1(x)", "m.nn.functional.hardsigmoid(x)", "m.sinc(x)", "m.special.sinc(x)", "m.special.erfcx(x)",
        "m.special.log_ndtr(x)", "F.celu(x, 0.7)", "x.logsumexp(0)", "m.logaddexp(x, y)",
    ),
    "where both bounds are equal ours is the lower one's": ("m.clamp(x, y, 2 * y)",),
    "torch's gradient at the poles of the reflection formula is what rounding makes of infinity": ("m.digamma(x)",),
    "torch takes a root where ours is C's pow, for a negative infinity": ("x ** 1.5", "x ** -.5"),
}  # fmt: skip
