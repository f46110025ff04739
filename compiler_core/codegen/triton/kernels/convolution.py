# mypy: ignore-errors
# ruff: noqa: E741
"""Convolution and its two gradients in Triton, channels last everywhere: products of blocks gathered where they lie.

Text, never imported by the package (see attention.py beside it). In: x[N, H, W, G * C], weight[G * O, KH, KW, C],
g[N, OH, OW, G * O], contiguous; sizes, strides S, padding P (the low side), dilation D as constants. Out: as the ops of
ops/convolution/inner.py. G: groups; C, O: channels of one. One spatial dim is two of which one is 1.

    convolution_forward   a program a block of output positions by output channels; sums over taps and input channels
    convolution_input     one a block of input positions by input channels; sums over taps and output channels
    convolution_weight    one a block of output channels by (tap, input channel), of one of SPLIT parts of the positions
    convolution_sum       the parts added, in order; so no sum depends on which program ends first

The columns of im2col are never stored: addresses of a block are computed, and what lies in the padding is masked.
FLAT: where channels are fewer than a block is wide, taps and channels are one axis, and each element has its own tap.
Sources: Chetlur et al. 2014, "cuDNN" (arXiv:1410.0759), section 3.1: implicit products; Thakkar et al., CUTLASS,
"implicit GEMM convolution": the three forms and the split of the weight's.
"""

import triton
import triton.language as tl

CONVOLVED_ON_HOST: tl.constexpr = tl.constexpr(bool(triton.knobs.runtime.interpret))  # it multiplies bits of bf16


@triton.jit
def dc_gather_dot(a, b, acc, PRECISION: tl.constexpr):
    """acc + a b, in f32."""
    if CONVOLVED_ON_HOST:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), acc, input_precision="ieee")
    return tl.dot(a, b, acc, input_precision=PRECISION)


@triton.jit
def convolution_forward(x, weight, out,
                        N: tl.constexpr, H: tl.constexpr, W: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
                        O: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
                        SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, DH: tl.constexpr,
                        DW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FLAT: tl.constexpr,
                        PRECISION: tl.constexpr):  # fmt: skip
    ROWS: tl.constexpr = N * OH * OW
    KC: tl.constexpr = KH * KW * C
    columns: tl.constexpr = (O + BN - 1) // BN
    blocks: tl.constexpr = (ROWS + BM - 1) // BM
    program = tl.program_id(0)
    outs = program % columns * BN + tl.arange(0, BN)
    rows = program // columns % blocks * BM + tl.arange(0, BM)
    group = program // (columns * blocks)
    image = (rows // (OH * OW)).to(tl.int64) * (H * W * G * C) + group * C
    down = rows // OW % OH * SH - PH
    right = rows % OW * SW - PW
    filters = (group * O + outs) * KC
    acc = tl.full((BM, BN), 0.0, tl.float32)
    if FLAT:
        for start in range(0, KC, BK):
            places = start + tl.arange(0, BK)
            tap = places // C
            y = down[:, None] + (tap // KW * DH)[None, :]
            z = right[:, None] + (tap % KW * DW)[None, :]
            inside = (y >= 0) & (y < H) & (z >= 0) & (z < W) & (rows[:, None] < ROWS) & (places[None, :] < KC)
            at = image[:, None] + (y * W + z) * (G * C) + (places % C)[None, :]
            a = tl.load(x + at, mask=inside, other=0.0)
            keep = (places[:, None] < KC) & (outs[None, :] < O)
            b = tl.load(weight + filters[None, :] + places[:, None], mask=keep, other=0.0)
            acc = dc_gather_dot(a, b, acc, PRECISION)
    else:
        CHUNKS: tl.constexpr = (C + BK - 1) // BK
        for turn in range(0, KH * KW * CHUNKS):
            tap = turn // CHUNKS
            channels = turn % CHUNKS * BK + tl.arange(0, BK)
            y = down + tap // KW * DH
            z = right + tap % KW * DW
            inside = (y >= 0) & (y < H) & (z >= 0) & (z < W) & (rows < ROWS)
            at = image + (y * W + z) * (G * C)
            keep = inside[:, None] & (channels[None, :] < C)
            a = tl.load(x + at[:, None] + channels[None, :], mask=keep, other=0.0)
            keep = (channels[:, None] < C) & (outs[None, :] < O)
            b = tl.load(weight + filters[None, :] + tap * C + channels[:, None], mask=keep, other=0.0)
            acc = dc_gather_dot(a, b, acc, PRECISION)
    place = rows.to(tl.int64)[:, None] * (G * O) + group * O + outs[None, :]
    tl.store(out + place, acc.to(out.dtype.element_ty), mask=(rows[:, None] < ROWS) & (outs[None, :] < O))


@triton.jit
def convolution_input(g, weight, out,
                      N: tl.constexpr, H: tl.constexpr, W: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
                      O: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
                      SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, DH: tl.constexpr,
                      DW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, AY: tl.constexpr,
                      AX: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """AY, AX: the positions of a block are so far apart, so that they read the same taps: strides, or 1 if dilated."""
    CH: tl.constexpr = (H + AY - 1) // AY
    CW: tl.constexpr = (W + AX - 1) // AX
    ROWS: tl.constexpr = N * CH * CW
    KC: tl.constexpr = KH * KW * C
    columns: tl.constexpr = (C + BN - 1) // BN
    blocks: tl.constexpr = (ROWS + BM - 1) // BM
    program = tl.program_id(0)
    channels = program % columns * BN + tl.arange(0, BN)
    rows = program // columns % blocks * BM + tl.arange(0, BM)
    kind = program // (columns * blocks) % (AY * AX)
    group = program // (columns * blocks * AY * AX)
    number = (rows // (CH * CW)).to(tl.int64)
    image = number * (OH * OW * G * O) + group * O
    u = rows // CW % CH * AY + kind // AX
    v = rows % CW * AX + kind % AX
    known = (rows < ROWS) & (u < H) & (v < W)
    top = (kind // AX + PH) % AY  # the first taps that these positions read
    side = (kind % AX + PW) % AX
    wide = (KW - side + AX - 1) // AX
    taps = tl.maximum((KH - top + AY - 1) // AY, 0) * tl.maximum(wide, 0)
    wide = tl.maximum(wide, 1)
    acc = tl.full((BM, BN), 0.0, tl.float32)
    CHUNKS: tl.constexpr = (O + BK - 1) // BK
    for turn in range(0, taps * CHUNKS):
        one = turn // CHUNKS
        high = top + one // wide * AY
        far = side + one % wide * AX
        tap = high * KW + far
        outs = turn % CHUNKS * BK + tl.arange(0, BK)
        y = u + PH - high * DH
        z = v + PW - far * DW
        inside = (y >= 0) & (y % SH == 0) & (z >= 0) & (z % SW == 0)  # what stands left of an output is none
        y = y // SH
        z = z // SW
        inside = inside & (y < OH) & (z < OW) & known
        at = image + (y * OW + z) * (G * O)
        a = tl.load(g + at[:, None] + outs[None, :], mask=inside[:, None] & (outs[None, :] < O), other=0.0)
        keep = (outs[:, None] < O) & (channels[None, :] < C)
        b = tl.load(weight + (group * O + outs)[:, None] * KC + tap * C + channels[None, :], mask=keep, other=0.0)
        acc = dc_gather_dot(a, b, acc, PRECISION)
    place = ((number * H + u) * W + v)[:, None] * (G * C) + group * C + channels[None, :]
    tl.store(out + place, acc.to(out.dtype.element_ty), mask=known[:, None] & (channels[None, :] < C))


@triton.jit
def convolution_weight(x, g, out,
                       N: tl.constexpr, H: tl.constexpr, W: tl.constexpr, G: tl.constexpr, C: tl.constexpr,
                       O: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
                       SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr, DH: tl.constexpr,
                       DW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FLAT: tl.constexpr,
                       SPLIT: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """out: the result, or where SPLIT > 1 as many f32 arrays of its shape, one for each part of the positions."""
    ROWS: tl.constexpr = N * OH * OW
    KC: tl.constexpr = KH * KW * C
    COLUMNS: tl.constexpr = (KC + BN - 1) // BN if FLAT else KH * KW * ((C + BN - 1) // BN)
    blocks: tl.constexpr = (O + BM - 1) // BM
    PART: tl.constexpr = ((ROWS + SPLIT - 1) // SPLIT + BK - 1) // BK * BK
    program = tl.program_id(0)
    column = program % COLUMNS
    outs = program // COLUMNS % blocks * BM + tl.arange(0, BM)
    part = program // (COLUMNS * blocks) % SPLIT
    group = program // (COLUMNS * blocks * SPLIT)
    if FLAT:
        places = column * BN + tl.arange(0, BN)
        tap = places // C
        channels = places % C
        known = places < KC
    else:
        CHUNKS: tl.constexpr = (C + BN - 1) // BN
        channels = column % CHUNKS * BN + tl.arange(0, BN)
        tap = column // CHUNKS
        known = channels < C
        places = tap * C + channels
    low = tap // KW * DH - PH
    left = tap % KW * DW - PW
    acc = tl.full((BM, BN), 0.0, tl.float32)
    for start in range(part * PART, tl.minimum(part * PART + PART, ROWS), BK):
        rows = start + tl.arange(0, BK)
        y = rows // OW % OH * SH
        z = rows % OW * SW
        image = (rows // (OH * OW)).to(tl.int64) * (H * W * G * C) + group * C
        if FLAT:
            y = y[:, None] + low[None, :]
            z = z[:, None] + left[None, :]
            inside = (y >= 0) & (y < H) & (z >= 0) & (z < W) & (rows[:, None] < ROWS) & known[None, :]
            b = tl.load(x + image[:, None] + (y * W + z) * (G * C) + channels[None, :], mask=inside, other=0.0)
        else:
            y += low
            z += left
            inside = (y >= 0) & (y < H) & (z >= 0) & (z < W) & (rows < ROWS)
            positions = image + (y * W + z) * (G * C)
            b = tl.load(x + positions[:, None] + channels[None, :], mask=inside[:, None] & known[None, :], other=0.0)
        at = rows.to(tl.int64)[:, None] * (G * O) + group * O + outs[None, :]
        a = tl.load(g + at, mask=(rows[:, None] < ROWS) & (outs[None, :] < O), other=0.0)
        acc = dc_gather_dot(tl.trans(a), b, acc, PRECISION)
    place = part.to(tl.int64) * (G * O * KC) + (group * O + outs)[:, None] * KC + places[None, :]
    tl.store(out + place, acc.to(out.dtype.element_ty), mask=(outs[:, None] < O) & known[None, :])


@triton.jit
def convolution_sum(parts, out, NUMBER: tl.constexpr, SPLIT: tl.constexpr, BN: tl.constexpr):
    places = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.full((BN,), 0.0, tl.float32)
    for part in range(0, SPLIT):
        total += tl.load(parts + part * NUMBER + places, mask=places < NUMBER, other=0.0)
    tl.store(out + places, total.to(out.dtype.element_ty), mask=places < NUMBER)
