# mypy: ignore-errors
"""Depthwise convolution and its two gradients in Triton, channels last: each channel with a filter of its own.

Text, never imported by the package (see attention.py beside it). In: x[N, H, W, C], weight[C, KH, KW, 1],
g[N, OH, OW, C], contiguous; sizes, strides S, padding P (the low side), dilation D as constants. Out: as the ops of
ops/convolution/inner.py where groups have one channel each. A product of blocks would multiply mostly by nothing here:
these multiply and add in f32. A lane has T results side by side, so that what one reads serves its neighbours.

    depthwise_turn      the weight as f32[KH * KW, C]; FLIP: last tap first
    depthwise_forward   a program BM times T output positions by BN channels; sums over taps. With the flipped weight
                        it is the input's gradient, where strides are 1
    depthwise_input     one BM input positions by BN channels; sums over the taps that wrote them, at any strides
    depthwise_weight    one BN channels by KI rows of taps, of one of SPLIT parts of the positions
    depthwise_sum       the parts, f32[KH * KW, C] each, added in order
"""

import triton
import triton.language as tl


@triton.jit
def depthwise_turn(weight, out, TAPS: tl.constexpr, C: tl.constexpr, BN: tl.constexpr, FLIP: tl.constexpr):
    places = tl.program_id(0) * BN + tl.arange(0, BN)
    tap = places // C
    if FLIP:
        tap = TAPS - 1 - tap
    keep = places < TAPS * C
    tl.store(out + places, tl.load(weight + places % C * TAPS + tap, mask=keep, other=0.0).to(tl.float32), mask=keep)


@triton.jit
def dc_column(first, y, z, row, known, W: tl.constexpr, C: tl.constexpr):
    """f32[BM, BN]: channels at (y, z) of images that begin at `first`; 0 outside. row: whether y is inside."""
    keep = (row & (z >= 0) & (z < W))[:, None] & known[None, :]
    return tl.load(first + ((y * W + z) * C)[:, None], mask=keep, other=0.0).to(tl.float32)


@triton.jit
def dc_places(runs, H: tl.constexpr, across: tl.constexpr, T: tl.constexpr):
    """Of runs of T positions: the image's number, the row, and the first column."""
    return (runs // (H * across)).to(tl.int64)[:, None], runs // across % H, runs % across * T


@triton.jit
def dc_add(sums, a, others, q: tl.constexpr, SUMS: tl.constexpr, S: tl.constexpr, OTHERS: tl.constexpr,
           D: tl.constexpr):  # fmt: skip
    """To each of SUMS sums, S columns apart, the product of column q and the one of OTHERS, D apart, that meets it."""
    made = ()
    for k in tl.static_range(SUMS):
        if q >= k * S and (q - k * S) % D == 0 and (q - k * S) // D < OTHERS:
            made = made + (sums[k] + a * others[(q - k * S) // D],)
        else:
            made = made + (sums[k],)
    return made


@triton.jit
def depthwise_forward(x, weight, out,
                      N: tl.constexpr, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, OH: tl.constexpr,
                      OW: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
                      PH: tl.constexpr, PW: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr, BM: tl.constexpr,
                      BN: tl.constexpr, T: tl.constexpr):  # fmt: skip
    columns: tl.constexpr = (C + BN - 1) // BN
    across: tl.constexpr = (OW + T - 1) // T
    channels = tl.program_id(0) % columns * BN + tl.arange(0, BN)
    runs = tl.program_id(0) // columns * BM + tl.arange(0, BM)
    image, u, v = dc_places(runs, OH, across, T)
    known = channels < C
    there = runs < N * OH * across
    first = x + image * (H * W * C) + channels[None, :]
    acc = ()
    for _ in tl.static_range(T):
        acc = acc + (tl.full((BM, BN), 0.0, tl.float32),)
    for i in range(KH):
        y = u * SH + (i * DH - PH)
        row = there & (y >= 0) & (y < H)
        taps = ()
        for j in tl.static_range(KW):
            taps = taps + (tl.load(weight + (i * KW + j) * C + channels, mask=known, other=0.0)[None, :],)
        for q in tl.static_range((T - 1) * SW + (KW - 1) * DW + 1):
            a = dc_column(first, y, v * SW + (q - PW), row, known, W, C)
            acc = dc_add(acc, a, taps, q, T, SW, KW, DW)
    place = out + image * (OH * OW * C) + ((u * OW + v) * C)[:, None] + channels[None, :]
    for t in tl.static_range(T):
        keep = (there & (v + t < OW))[:, None] & known[None, :]
        tl.store(place + t * C, acc[t].to(out.dtype.element_ty), mask=keep)


@triton.jit
def depthwise_input(g, weight, out,
                    N: tl.constexpr, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, OH: tl.constexpr,
                    OW: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
                    PH: tl.constexpr, PW: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr, BM: tl.constexpr,
                    BN: tl.constexpr):  # fmt: skip
    columns: tl.constexpr = (C + BN - 1) // BN
    channels = tl.program_id(0) % columns * BN + tl.arange(0, BN)
    rows = tl.program_id(0) // columns * BM + tl.arange(0, BM)
    image, u, v = dc_places(rows, H, W, 1)
    known = channels < C
    first = g + image * (OH * OW * C) + channels[None, :]
    acc = tl.full((BM, BN), 0.0, tl.float32)
    for i in range(KH):
        y = u + (PH - i * DH)
        row = (rows < N * H * W) & (y >= 0) & (y % SH == 0) & (y < OH * SH)
        for j in tl.static_range(KW):
            z = v + (PW - j * DW)
            inside = row & (z >= 0) & (z % SW == 0) & (z < OW * SW)
            at = (y // SH * OW + z // SW) * C
            a = tl.load(first + at[:, None], mask=inside[:, None] & known[None, :], other=0.0)
            b = tl.load(weight + (i * KW + j) * C + channels, mask=known, other=0.0)
            acc += a.to(tl.float32) * b[None, :]
    place = out + (rows.to(tl.int64) * C)[:, None] + channels[None, :]
    tl.store(place, acc.to(out.dtype.element_ty), mask=(rows < N * H * W)[:, None] & known[None, :])


@triton.jit
def depthwise_weight(x, g, out,
                     N: tl.constexpr, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, OH: tl.constexpr,
                     OW: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, SH: tl.constexpr, SW: tl.constexpr,
                     PH: tl.constexpr, PW: tl.constexpr, DH: tl.constexpr, DW: tl.constexpr, BM: tl.constexpr,
                     BN: tl.constexpr, T: tl.constexpr, KI: tl.constexpr, SPLIT: tl.constexpr):  # fmt: skip
    """out: SPLIT arrays f32[KH * KW, C], one for each part of the positions. KI divides KH."""
    columns: tl.constexpr = (C + BN - 1) // BN
    across: tl.constexpr = (OW + T - 1) // T
    RUNS: tl.constexpr = N * OH * across
    PART: tl.constexpr = ((RUNS + SPLIT - 1) // SPLIT + BM - 1) // BM * BM
    program = tl.program_id(0)
    channels = program % columns * BN + tl.arange(0, BN)
    i = program // columns % (KH // KI) * KI
    part = program // (columns * (KH // KI))
    known = channels < C
    acc = ()
    for _ in tl.static_range(KI * KW):
        acc = acc + (tl.full((BM, BN), 0.0, tl.float32),)
    for start in range(part * PART, tl.minimum(part * PART + PART, RUNS), BM):
        runs = start + tl.arange(0, BM)
        image, u, v = dc_places(runs, OH, across, T)
        there, sent = runs < RUNS, ()
        for t in tl.static_range(T):
            sent = sent + (dc_column(g + image * (OH * OW * C) + channels[None, :], u, v + t, there, known, OW, C),)
        first = x + image * (H * W * C) + channels[None, :]
        made = ()
        for k in tl.static_range(KI):
            y = u * SH + ((i + k) * DH - PH)
            sums = acc[k * KW : (k + 1) * KW]
            for q in tl.static_range((T - 1) * SW + (KW - 1) * DW + 1):
                a = dc_column(first, y, v * SW + (q - PW), there & (y >= 0) & (y < H), known, W, C)
                sums = dc_add(sums, a, sent, q, KW, DW, T, SW)
            made = made + sums
        acc = made
    for k in tl.static_range(KI * KW):
        place = part * (KH * KW * C) + (i * KW + k) * C + channels
        tl.store(out + place, tl.reduce(acc[k], 0, tl.standard._sum_combine), mask=known)


@triton.jit
def depthwise_sum(parts, out, TAPS: tl.constexpr, C: tl.constexpr, SPLIT: tl.constexpr, BN: tl.constexpr):
    places = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.full((BN,), 0.0, tl.float32)
    for part in range(0, SPLIT):
        total += tl.load(parts + part * (TAPS * C) + places, mask=places < TAPS * C, other=0.0)
    tl.store(out + places % C * TAPS + places // C, total.to(out.dtype.element_ty), mask=places < TAPS * C)
