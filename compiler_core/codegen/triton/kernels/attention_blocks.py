# mypy: ignore-errors
"""What the functions of attention are made of, in Triton: blocks, products, masks, the draws of dropout, places.

Text, never imported by the package: it stands before that of attention.py. In: pointers, places, blocks. Out: blocks.
LEAST: what a weight that dropout keeps draws at least (ops/random/op.py: least_kept); 0 without dropout.
"""

import triton
import triton.language as tl

LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)
LN2: tl.constexpr = tl.constexpr(0.6931471805599453)
HOST: tl.constexpr = tl.constexpr(bool(triton.knobs.runtime.interpret))  # its interpreter multiplies bits of bf16


@triton.jit
def dc_row_max(x):
    return tl.reduce(x, 1, tl.standard._elementwise_max)


@triton.jit
def dc_row_sum(x):
    return tl.reduce(x, 1, tl.standard._sum_combine)


@triton.jit
def dc_dot(a, b, acc, PRECISION: tl.constexpr):
    """acc + a b, in f32."""
    if HOST:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), acc, input_precision="ieee")
    return tl.dot(a, b, acc, input_precision=PRECISION)


@triton.jit
def dc_block(base, rows, columns, row, column, ROWS, COLUMNS,
             ALL_ROWS: tl.constexpr, ALL_COLUMNS: tl.constexpr):  # fmt: skip
    """The block (rows, columns) of a matrix; 0 outside of it. ALL: whether no place can lie outside."""
    places = base + rows[:, None] * row + columns[None, :] * column
    if ALL_ROWS and ALL_COLUMNS:
        return tl.load(places)
    if ALL_ROWS:
        return tl.load(places, mask=columns[None, :] < COLUMNS, other=0.0)
    if ALL_COLUMNS:
        return tl.load(places, mask=rows[:, None] < ROWS, other=0.0)
    return tl.load(places, mask=(rows[:, None] < ROWS) & (columns[None, :] < COLUMNS), other=0.0)


@triton.jit
def dc_masked(scores, mask, rows, columns, row, column, L, S,
              KIND: tl.constexpr, TEST: tl.constexpr):  # fmt: skip
    """scores in base 2 with the mask added (KIND 1) or as a test (2), and -inf past the keys or, if TEST, above the
    diagonal. rows and columns: of the shape that broadcasts to the scores'."""
    if KIND == 1:
        found = tl.load(mask + rows * row + columns * column, mask=(rows < L) & (columns < S), other=0.0)
        scores += found.to(tl.float32) * LOG2E
    if KIND == 2:
        found = tl.load(mask + rows * row + columns * column, mask=(rows < L) & (columns < S), other=0)
        scores = tl.where(found != 0, scores, float("-inf"))
    if TEST:
        scores = tl.where((columns <= rows) & (columns < S), scores, float("-inf"))
    return scores


@triton.jit
def dc_any(mask, rows, columns, row, column, L, S):
    """Whether a test shows any key of a block to any query."""
    found = tl.load(mask + rows * row + columns * column, mask=(rows < L) & (columns < S), other=0)
    return tl.reduce((found != 0).to(tl.int32), None, tl.standard._elementwise_max) != 0


@triton.jit
def dc_draws(key, STREAM, head, HEADS, L, S, LEAST: tl.constexpr, words, UNIT: tl.constexpr):
    """(seed, stream, the place of the head's first weight) of a head's draws, as the op philox has them; and its bits.
    These are what the draws of a block, UNIT keys long, told: a word a query, those of a block side by side, as threads
    read them. UNIT: 0 if they are not kept."""
    seed = tl.full((), 0, tl.uint64)
    stream = seed
    first = seed
    if LEAST > 0:
        weights = tl.full((), 1, tl.int64) * L * S
        seed = tl.load(key)
        stream = tl.load(key + 1) + STREAM.to(tl.uint64)
        first = tl.load(key + 2) * (weights * HEADS).to(tl.uint64) + (weights * head).to(tl.uint64)
    if UNIT > 0:
        words += head * L * ((S + UNIT - 1) // UNIT)
    return seed, stream, first, words


@triton.jit
def dc_kept(draws, places, LEAST: tl.constexpr):
    """Which weights dropout keeps, by their places in the head: word 0 of Philox4x32-10, as the op philox has it."""
    seed, stream, first, _ = draws
    element = first + places.to(tl.uint64)
    k0 = seed.to(tl.uint32)
    k1 = (seed >> 32).to(tl.uint32)
    c0 = element.to(tl.uint32)
    c1 = (element >> 32).to(tl.uint32)
    c2 = stream.to(tl.uint32) + c0 * 0
    c3 = (stream >> 32).to(tl.uint32) + c0 * 0
    m0 = tl.full((), 0xD2511F53, tl.uint64)
    m1 = tl.full((), 0xCD9E8D57, tl.uint64)
    w0 = tl.full((), 0x9E3779B9, tl.uint32)
    w1 = tl.full((), 0xBB67AE85, tl.uint32)
    for _ in tl.static_range(10):
        p0 = c0.to(tl.uint64) * m0
        p1 = c2.to(tl.uint64) * m1
        c0 = (p1 >> 32).to(tl.uint32) ^ c1 ^ k0
        c2 = (p0 >> 32).to(tl.uint32) ^ c3 ^ k1
        c1 = p1.to(tl.uint32)
        c3 = p0.to(tl.uint32)
        k0 = k0 + w0
        k1 = k1 + w1
    return c0 >= tl.full((), LEAST, tl.uint32)


@triton.jit
def dc_leave_bits(draws, kept, rows, start, L, UNIT: tl.constexpr):
    """A word a query: which of the block's weights are kept."""
    keys = tl.arange(0, UNIT)[None, :]
    found = dc_row_sum(tl.where(kept, tl.full((1, UNIT), 1, tl.int32) << keys, 0))
    tl.store(draws[3] + start // UNIT * L + rows, found, mask=rows < L)


@triton.jit
def dc_left(draws, rows, columns, L, S, UNIT: tl.constexpr):
    """Which weights are kept, by the words that were left; anything of blocks that were not attended."""
    place = draws[3] + columns // UNIT * L + rows
    return (tl.load(place, mask=(rows < L) & (columns < S), other=0) >> columns % UNIT) & 1 != 0


@triton.jit
def dc_place(program, B, H: tl.constexpr, blocks, CAUSAL: tl.constexpr,
             BACKWARDS: tl.constexpr, SECTION):  # fmt: skip
    """(block, head, batch) of a program. CAUSAL: heads in sections of SECTION, whose keys and values (or queries and
    gradients) stay in the L2 cache while their blocks read them; in a section the blocks that have most to do first, so
    the last programs are short ones. These are the first blocks or, if BACKWARDS, the last."""
    if CAUSAL:
        first = program // (SECTION * blocks) * SECTION
        place = program % (SECTION * blocks)
        heads = tl.minimum(B * H - first, SECTION)
        block = place // heads
        if BACKWARDS:
            block = blocks - 1 - block
        head = first + place % heads
    else:
        block = program % blocks
        head = program // blocks
    return block, (head % H).to(tl.int64), (head // H).to(tl.int64)


@triton.jit
def dc_column_sum(x):
    return tl.reduce(x, 0, tl.standard._sum_combine)
