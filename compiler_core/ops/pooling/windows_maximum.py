"""The backward of a maximum over sliding windows as one op, `window_max_put`, and as a routine in C++.

In: g: T[*lead, *o], a cotangent for each window of x: T[*lead, *n] (ops/pooling/windows.py); kernel, stride, dilation;
low: how many elements in front of each spatial dim are padding. Out: T[*lead, *n]: each window's cotangent at its first
maximum (its last NaN), added up; a window that is lowest throughout gives it to its first element that is no padding in
front. The routine takes f32 and f64 over one or two dims and goes plane by plane: the places of the maxima of a row of
windows are found at once, a vector of windows for each place of the kernel, a row of the plane having been laid out by
`stride` so that these are contiguous; then the cotangents are added where they belong, while the plane is in the cache;
no array of places is kept. `composed` writes the op with window_argmax and
windows_put, for other backends, dtypes and layouts (channels last), and for second derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from compiler_core.dtype import DType, float32, float64, of
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.checks import ORDERED_NUMBERS, check_dtype, check_shape
from compiler_core.ops.differentiate import vjp_of
from compiler_core.ops.pooling.geometry import window_counts
from compiler_core.ops.pooling.windows import WINDOW_ARGMAX, WINDOW_MAX, WINDOWS_PUT, lowest
from compiler_core.ops.registry import Array, Op, Sample, Value, register
from compiler_core.ops.routine import Attrs, CCall, Native, call_back, is_contiguous, no_symbols
from compiler_core.ops.rules import ALIKE, Decomposed

Dims = tuple[int, ...]


# ---- definitions


def _digits(count: int, stride: int, dilation: int, pad: int) -> Array:
    """i64[count]: of each window along a dim, the first place in it that is no padding in front."""
    return np.maximum(-((np.arange(count) * stride - pad) // dilation), 0)


def _first_inside(shape: Shape, kernel: Dims, stride: Dims, dilation: Dims, low: Dims) -> Array:
    """i64, for windows of `shape`: as `_digits`, over all dims, flattened in the kernel; broadcasts to `shape`."""
    lead = len(shape) - len(kernel)
    found: Array = np.zeros((1,) * len(shape), np.int64)
    for d, (k, *where) in enumerate(zip(kernel, stride, dilation, low), lead):
        along = _digits(shape[d], *where).reshape(tuple(-1 if e == d else 1 for e in range(len(shape))))
        found = found * k + along
    return found


def composed(g: Value, x: Value, kernel: Dims, stride: Dims, dilation: Dims, low: Dims) -> Value:
    """The op written with window_argmax and windows_put."""
    source, where = prims.detach(x), {"kernel": kernel, "stride": stride, "dilation": dilation}
    place = prims.window_argmax(source, kernel, stride, dilation)
    shape = tuple(g.shape)
    if any(low):
        out = prims.window_max(source, **where)
        is_lowest = prims.eq(out, prims.full_like(out, lowest(of(out.dtype))))
        place = prims.where(is_lowest, prims.expand(_first_inside(shape, kernel, stride, dilation, low), shape), place)
    return prims.windows_put(g, place, size=tuple(x.shape[len(x.shape) - len(kernel) :]), **where)


def _infer(g: TensorMeta, x: TensorMeta, kernel: Dims, stride: Dims, dilation: Dims, low: Dims) -> TensorMeta:
    check_dtype("window_max_put", x, ORDERED_NUMBERS)
    check_dtype("window_max_put", g, (x.dtype,), "the cotangent")
    lead = x.ndim - len(kernel)
    counts = window_counts("window_max_put", x.shape[lead:], kernel, stride, dilation)
    check_shape("window_max_put", (*x.shape[:lead], *counts), g, "the cotangent")
    return x


def _eager(xp: Any, g: Array, x: Array, kernel: Dims, stride: Dims, dilation: Dims, low: Dims) -> Array:
    where = {"kernel": kernel, "stride": stride, "dilation": dilation}
    place = WINDOW_ARGMAX.eager(xp, x, **where)
    if any(low):
        is_lowest = WINDOW_MAX.eager(xp, x, **where) == lowest(of(x.dtype))
        place = xp.where(is_lowest, xp.asarray(_first_inside(g.shape, kernel, stride, dilation, low)), place)
    size = x.shape[x.ndim - len(kernel) :]
    return WINDOWS_PUT.eager(xp, g, place, size=size, **where)


def _vjp(
    h: Value, out: Value, g: Value, x: Value, kernel: Dims, stride: Dims, dilation: Dims, low: Dims
) -> tuple[Value | None, ...]:
    put = partial(composed, x=x, kernel=kernel, stride=stride, dilation=dilation, low=low)
    return (*vjp_of(put, h, g), prims.full_like(x, 0))  # where a maximum is does not change with small changes


# ---- the C call

_TEXT = """\
#if defined(__AVX512F__)
enum { dc_lanes_nbytes = 64 };
#elif defined(__AVX__)
enum { dc_lanes_nbytes = 32 };
#else
enum { dc_lanes_nbytes = 16 };
#endif
// Adds the cotangents g of one plane's windows to out. H, W: the plane; OH, OW: how many windows.
template <class T, class I, int64_t H, int64_t W, int64_t OH, int64_t OW, int64_t KH, int64_t KW, int64_t SH,
          int64_t SW, int64_t DH, int64_t DW, int64_t PH, int64_t PW>
static void dc_window_max_put(const T* __restrict g, const T* __restrict x, T* __restrict out) {
  enum {
    widest = dc_lanes_nbytes / sizeof(T),
    lanes = OW <= widest / 4 ? widest / 4 : OW <= widest / 2 ? widest / 2 : widest,
    vectors = (OW + lanes - 1) / lanes,
    block = lanes * (vectors < 4 ? vectors : 4),
    room = block + (KW - 1) * DW / SW
  };
  typedef T V __attribute__((vector_size(lanes * sizeof(T)), aligned(sizeof(T)), may_alias));
  typedef I J __attribute__((vector_size(lanes * sizeof(I)), aligned(sizeof(I)), may_alias));
  static thread_local T staged[SW][room];  // a row of x: [p][i] is element p + i * SW
  T best[block];
  I at[block];
  for (int64_t i = 0; i < H * W; ++i) out[i] = 0;
  for (int64_t oh = 0; oh < OH; ++oh) {
    const int64_t above = oh * SH < PH ? (PH - oh * SH + DH - 1) / DH : 0;
    for (int64_t start = 0; start < OW; start += block) {
      const int64_t corner = oh * SH * W + start * SW;
      for (int64_t i = 0; i < block; ++i) {
        const int64_t before = PW - (start + i) * SW;
        best[i] = (T)-__builtin_inf();
        at[i] = (I)(above * KW + (before > 0 ? (before + DW - 1) / DW : 0));
      }
      for (int64_t kh = 0; kh < KH; ++kh) {
        for (int64_t p = 0; p < SW; ++p) {
          const T* const from = x + corner + kh * DH * W + p;
          const int64_t left = (W - start * SW - p + SW - 1) / SW, n = left < room ? left : room;
          for (int64_t i = 0; i < n; ++i) staged[p][i] = from[i * SW];
        }
        for (int64_t first = 0; first < block; first += lanes) {
          V top = *(const V*)(best + first);
          J place = *(const J*)(at + first);
          for (int64_t kw = 0; kw < KW; ++kw) {
            const V value = *(const V*)(staged[kw * DW % SW] + first + kw * DW / SW);
            const J better = (value > top) | (value != value);
            top = better ? value : top;
            place = better ? (J){} + (I)(kh * KW + kw) : place;
          }
          *(V*)(best + first) = top;
          *(J*)(at + first) = place;
        }
      }
      const int64_t n = OW - start < block ? OW - start : block;
      for (int64_t i = 0; i < n; ++i)
        out[corner + i * SW + at[i] / KW * DH * W + at[i] % KW * DW] += g[oh * OW + start + i];
    }
  }
}
"""
_PART = 1 << 14  # comparisons that a thread does at least


def _takes(dtype: DType, attrs: Attrs) -> bool:
    return dtype in (float32, float64) and len(attrs["kernel"]) <= 2


def _emit(call: CCall) -> Iterator[str]:
    (g, x), attrs, rank = call.operands, call.attrs, len(call.attrs["kernel"])
    lead = len(x.layout.shape) - rank
    ones, zeros = (1,) * (2 - rank), (0,) * (2 - rank)
    sizes, counts = (*ones, *x.layout.shape[lead:]), (*ones, *g.layout.shape[lead:])
    steps = [n for name in ("kernel", "stride", "dilation") for n in (*ones, *attrs[name])]
    ctype = x.layout.dtype.ctype
    places = "int64_t" if x.layout.dtype is float64 else "int32_t"  # as wide as the numbers: of equal lanes
    numbers = (*sizes, *counts, *steps, *zeros, *attrs["low"])
    arguments = ", ".join((ctype, places, *map(hex, numbers)))
    plane, windows = math.prod(sizes), math.prod(counts)
    least = max(1, _PART // (windows * math.prod(attrs["kernel"])))
    yield f"  dc_parallel({math.prod(x.layout.shape[:lead])}, {least}, [&](int64_t dc_from, int64_t dc_to) {{"
    yield "    for (int64_t p = dc_from; p < dc_to; ++p)"
    yield f"      dc_window_max_put<{arguments}>("
    yield f"          {g.address} + p * {windows}, {x.address} + p * {plane}, {call.result.address} + p * {plane});"
    yield "  });"


# ---- registration


def _sample(shape: Shape, kernel: Dims, stride: Dims, dilation: Dims, low: Dims) -> Sample:
    lead = len(shape) - len(kernel)
    counts = window_counts("sample", shape[lead:], kernel, stride, dilation)
    attrs = {"kernel": kernel, "stride": stride, "dilation": dilation, "low": low}
    return Sample(((*shape[:lead], *counts), shape), attrs, make=partial(_draw, counts, lead, shape, low))


def _draw(
    counts: Shape, lead: int, shape: Shape, low: Dims, rng: np.random.Generator, dtype: DType
) -> list[Array]:  # fmt: skip
    """Numbers with ties, padding in front, windows that are lowest throughout, and NaN; in f64, as finite differences

    are taken there, no two equal.
    """
    g = rng.integers(0, 4, (*shape[:lead], *counts)).astype(dtype.numpy)
    if dtype is float64:
        return [g, rng.permutation(math.prod(shape)).reshape(shape).astype(np.float64)]
    x = rng.integers(0, 9, shape).astype(dtype.numpy)
    if dtype.is_floating_point and x.size:
        x[0], x[-1].flat[::5] = -np.inf, np.nan
        for d, pad in enumerate(low, lead):
            x[(slice(None),) * d + (slice(0, pad),)] = -np.inf
    return [g, x]


WINDOW_MAX_PUT = register(
    Op(
        "window_max_put",
        infer=_infer,
        eager=_eager,
        vjp=_vjp,
        vmap=ALIKE,
        lower=call_back(
            "window_max_put",
            _eager,
            why="its routine takes float32 and float64 over one or two dims",
            native=Native(no_symbols, _emit, _TEXT, takes=_takes),
            accepts=is_contiguous,
        ),
        samples=(
            _sample((2, 7, 6), (3, 3), (2, 2), (1, 1), (1, 0)),
            _sample((3, 2, 5, 140), (2, 2), (2, 2), (1, 1), (0, 0)),
            _sample((2, 9, 12), (2, 3), (1, 2), (2, 3), (2, 4)),
            _sample((3, 8), (3,), (2,), (2,), (1,)),
            _sample((2, 4, 5, 5), (2, 2, 3), (1, 2, 2), (2, 1, 1), (0, 0, 1)),
            _sample((0, 4), (2,), (2,), (1,), (0,)),
        ),
        dtypes=ORDERED_NUMBERS,
        engines=Decomposed(composed),
    )
)
