# mypy: ignore-errors
"""The maximum over sliding windows and its gradient in Triton, channels last.

Text, never imported by the package (see attention.py beside it). In: x[N, H, W, C], g[N, OH, OW, C], contiguous; sizes,
the windows' K(ernel), S(tride), D(ilation), P (elements of padding in front) as constants. Out: as the ops of
ops/pooling/inner.py. One spatial dim is two of which one is 1. B elements a program, channels innermost.

    pool_max      the maximum of each window; NaN if it holds one
    pool_places   i8[N, OH, OW, C]: which of its elements that is: of equals the first, of NaNs the last; the first that
                  is not in front of the input where all are lowest
    pool_put      each input element: the cotangents of the windows whose maximum it is, added up in one order
No element is written by two programs, so there are no atomics, and the bits repeat.
"""

import triton
import triton.language as tl


@triton.jit
def pool_numbers(TOTAL: tl.constexpr, B: tl.constexpr):
    """This program's numbers of elements, in 64 bits where the last program's do not all fit into 32."""
    first = tl.program_id(0)
    if TOTAL > 2147483648 - B:
        first = first.to(tl.int64)
    return first * B + tl.arange(0, B)


@triton.jit
def pool_best(x, number, TOTAL: tl.constexpr, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, OH: tl.constexpr,
              OW: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
              DH: tl.constexpr, DW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr):  # fmt: skip
    """(maximum, its place) of windows `number`."""
    channel = number % C
    position = number // C
    down = position // OW % OH * SH - PH
    right = position % OW * SW - PW
    image = (position // (OH * OW)).to(tl.int64) * (H * W * C) + channel
    first_down = tl.where(down < 0, (DH - 1 - down) // DH, 0)
    first_right = tl.where(right < 0, (DW - 1 - right) // DW, 0)
    place = first_down * KW + first_right
    best = tl.full(number.shape, -float("inf"), tl.float32)
    for kh in tl.static_range(KH):
        for kw in tl.static_range(KW):
            y = down + kh * DH
            z = right + kw * DW
            inside = (y >= 0) & (y < H) & (z >= 0) & (z < W) & (number < TOTAL)
            v = tl.load(x + image + (y * W + z) * C, mask=inside, other=-float("inf")).to(tl.float32)
            better = (v > best) | (v != v)
            best = tl.where(better, v, best)
            place = tl.where(better, kh * KW + kw, place)
    return best, place


@triton.jit
def pool_max(x, out, TOTAL: tl.constexpr, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, OH: tl.constexpr,
             OW: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
             DH: tl.constexpr, DW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, B: tl.constexpr):  # fmt: skip
    number = pool_numbers(TOTAL, B)
    best, _place = pool_best(x, number, TOTAL, H, W, C, OH, OW, KH, KW, SH, SW, DH, DW, PH, PW)
    tl.store(out + number, best.to(out.dtype.element_ty), mask=number < TOTAL)


@triton.jit
def pool_places(x, places, TOTAL: tl.constexpr, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, OH: tl.constexpr,
                OW: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
                DH: tl.constexpr, DW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, B: tl.constexpr):  # fmt: skip
    number = pool_numbers(TOTAL, B)
    _best, place = pool_best(x, number, TOTAL, H, W, C, OH, OW, KH, KW, SH, SW, DH, DW, PH, PW)
    tl.store(places + number, place.to(tl.int8), mask=number < TOTAL)


@triton.jit
def pool_put(g, places, out, TOTAL: tl.constexpr, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, OH: tl.constexpr,
             OW: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
             DH: tl.constexpr, DW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, B: tl.constexpr):  # fmt: skip
    number = pool_numbers(TOTAL, B)
    channel = number % C
    position = number // C
    down = position // W % H + PH
    right = position % W + PW
    image = (position // (H * W)).to(tl.int64) * (OH * OW * C) + channel
    total = tl.full((B,), 0.0, tl.float32)
    for kh in tl.static_range(KH):
        for kw in tl.static_range(KW):
            y = down - kh * DH
            z = right - kw * DW
            reached = (y >= 0) & (y % SH == 0) & (y // SH < OH) & (z >= 0) & (z % SW == 0) & (z // SW < OW)
            reached = reached & (number < TOTAL)
            at = image + (y // SH * OW + z // SW) * C
            place = tl.load(places + at, mask=reached, other=-1)
            v = tl.load(g + at, mask=reached, other=0.0).to(tl.float32)
            total += tl.where(place == kh * KW + kw, v, 0.0)
    tl.store(out + number, total.to(out.dtype.element_ty), mask=number < TOTAL)
