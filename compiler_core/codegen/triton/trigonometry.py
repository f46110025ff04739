"""Sine, cosine and the inverse functions of both kinds, of generated Triton modules, as source text.

In: nothing. Out: `TRIGONOMETRY`: as `HELPERS` (helpers.py), of which they are a part; what is said there holds here.
Sources: sine and cosine after Cody and Waite, with Cephes' polynomials; atan after Cephes.
"""

from __future__ import annotations

TRIGONOMETRY: dict[str, tuple[str, tuple[str, ...]]] = {
    "sine32": (
        """
def dc_sine32(x, ahead: tl.constexpr):
    turns = tl.fma(x, 0.6366197466850281, 12582912.0)  # in its last bits: the quarter turn nearest to x
    k = turns - 12582912.0
    r = tl.fma(k, -5.390302953474238e-15, tl.fma(k, -7.549789415861596e-08, tl.fma(k, -1.570796251296997, x)))
    s = r * r
    sine = tl.fma(tl.fma(tl.fma(s, -1.9515295891e-4, 8.3321608736e-3), s, -1.6666654611e-1), s * r, r)
    sine = tl.where(r == 0.0, r, sine)  # the sign of 0
    cosine = tl.fma(tl.fma(s, 2.443315711809948e-5, -1.388731625493765e-3), s, 4.166664568298827e-2)
    cosine = tl.fma(tl.fma(cosine, s, -0.5), s, 1.0)
    quarter = turns.to(tl.int32, bitcast=True) + ahead
    value = tl.where((quarter & 1) != 0, cosine, sine)
    return (value.to(tl.int32, bitcast=True) ^ ((quarter & 2) << 30)).to(tl.float32, bitcast=True)
""",
        (),
    ),
    "sin32": (
        """
def dc_sin32(x, far):
    if far:
        y = tl.sin(x)
    else:
        y = dc_sine32(x, 0)
    return y
""",
        ("sine32",),
    ),
    "cos32": (
        """
def dc_cos32(x, far):
    if far:
        y = tl.cos(x)
    else:
        y = dc_sine32(x, 1)
    return y
""",
        ("sine32",),
    ),
    "atan64": (
        """
def dc_atan64(x):
    t = tl.abs(x)  # Cephes' atan: about 0, pi/4 or pi/2, then an odd rational function
    far = t > 2.41421356237309504880
    near = t <= 0.66
    z = tl.where(far, -1.0 / tl.where(far, t, 1.0), tl.where(near, t, (t - 1.0) / (t + 1.0)))
    s = z * z
    p = (((s * -8.750608600031904122785e-1 - 1.615753718733365076637e1) * s - 7.500855792314704667340e1) * s
         - 1.228866684490136173410e2) * s - 6.485021904942025371773e1
    q = ((((s + 2.485846490142306297962e1) * s + 1.650270098316988542046e2) * s + 4.328810604912902668951e2) * s
         + 4.853903996359136964868e2) * s + 1.945506571482613964425e2
    quarters = tl.where(far, 2.0, tl.where(near, 0.0, 1.0)).to(tl.float64)
    high = tl.full((), 0.78539816339744830962, tl.float64)  # pi/4 in two parts
    low = tl.full((), 3.061616997868382943065e-17, tl.float64)
    y = quarters * high + ((z * (s * p / q) + z) + quarters * low)
    return tl.where(x < 0, -y, tl.where(x == 0, x, y))
""",
        (),
    ),
    "atan": (
        """
def dc_atan(x):
    return dc_atan64(x.to(tl.float64)).to(x.dtype)
""",
        ("atan64",),
    ),
    "asin": (
        """
def dc_asin(x):
    t = x.to(tl.float64)
    return (2.0 * dc_atan64(t / (1.0 + tl.sqrt((1.0 - t) * (1.0 + t))))).to(x.dtype)
""",
        ("atan64",),
    ),
    "acos": (
        """
def dc_acos(x):
    t = x.to(tl.float64)
    return (2.0 * dc_atan64(tl.sqrt((1.0 - t) / (1.0 + t)))).to(x.dtype)
""",
        ("atan64",),
    ),
    "atan2": (
        """
def dc_atan2(a, b):
    y = tl.abs(a.to(tl.float64))
    x = tl.abs(b.to(tl.float64))
    both = (y == x) & (y == float("inf"))
    angle = dc_atan64(tl.where(both, 1.0, tl.where(y == 0.0, 0.0, y / x)))
    left = dc_copysign64(tl.full((), 1.0, tl.float64) + 0.0 * angle, b.to(tl.float64)) < 0.0
    size = tl.where(left, tl.full((), 3.14159265358979323846, tl.float64) - angle, angle)
    nan = (a != a) | (b != b)
    return tl.where(nan, float("nan"), dc_copysign64(size, a.to(tl.float64))).to(a.dtype)
""",
        ("atan64", "copysign64"),
    ),
    "asinh": (
        """
def dc_asinh(x):
    t = tl.abs(x.to(tl.float64))
    big = t > 1e100
    u = tl.where(big, 1.0, t)
    far = tl.log(t) + tl.full((), 0.69314718055994530942, tl.float64)
    y = tl.where(big, far, dc_log1p(u + u * u / (1.0 + tl.sqrt(1.0 + u * u))))
    return tl.where(x < 0, -y, tl.where(x == 0, x, y)).to(x.dtype)
""",
        ("log1p",),
    ),
    "acosh": (
        """
def dc_acosh(x):
    t = x.to(tl.float64)
    big = t > 1e100
    u = tl.where(big, 1.0, t) - 1.0
    far = tl.log(t) + tl.full((), 0.69314718055994530942, tl.float64)
    return tl.where(big, far, dc_log1p(u + tl.sqrt(u * (u + 2.0)))).to(x.dtype)
""",
        ("log1p",),
    ),
    "atanh": (
        """
def dc_atanh(x):
    t = tl.abs(x.to(tl.float64))
    y = 0.5 * dc_log1p(2.0 * t / (1.0 - t))
    return tl.where(x < 0, -y, tl.where(x == 0, x, y)).to(x.dtype)
""",
        ("log1p",),
    ),
}
