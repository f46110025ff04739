# mypy: ignore-errors
# ruff: noqa: F821  what attention_blocks.py defines
"""Attention and its backward in Triton: online softmax, blocks that a causal mask hides not visited, sums in one order.

Text, never imported by the package: codegen/triton reads it, and attention_blocks.py before it, and so it stays what
Triton's interpreter runs and what its compiler translates. In: pointers to operands in any strides; sizes as constants,
or as variables of 32 bits (ops/attention/kernels.py says which). WHOLE_L, WHOLE_S: whether queries, and keys, are whole
blocks. key, STREAM, LEAST, KEPT: of dropout, whose draws each function makes again, but if UNIT says so attention_keys,
to which attention_queries then leaves its bits; what is kept is multiplied by KEPT.
Out: the packed results of ops/attention/op.py.

    attention_forward    a program a block of queries: out, and the logarithm of each sum
    attention_queries    a program a block of queries: its gradient; for the next, delta = sum(g * out) - g_lse and the
                         logarithm of the sum, in base 2
    attention_keys       a program a block of keys of one head: gradients of keys and values, over the queries of all
                         heads that share them
    attention_sums       a program some columns of the gradients: what the blocks of the two above left (SUMMED), added

A block that a mask of truth values hides whole is not attended: its test is read before the products. Scores are f32 in
base 2. A row that sees nothing has logarithm -inf, taken as 0 in the backward: -inf less 0 is -inf.
16-bit floats hold a logarithm as two numbers, of which the sum counts. Sources: Dao 2023, "FlashAttention-2"
(arXiv:2307.08691), section 3.1; the backward in two kernels, one a block of queries and one a block of keys, needs no
atomic additions, at the price of two products more: of five, two are done twice.
"""

import triton
import triton.language as tl


@triton.jit
def dc_attend(acc, total, peak, q, k, v, mask, draws, rows, first, last,
              KS, KE, VS, VE, ML,
              MS, L, S, E: tl.constexpr, V: tl.constexpr,
              PAD_E: tl.constexpr, PAD_V: tl.constexpr, BN: tl.constexpr, SCALE: tl.constexpr, MASK: tl.constexpr,
              CAUSAL: tl.constexpr, EDGE: tl.constexpr, WHOLE: tl.constexpr, LEAST: tl.constexpr,
              PRECISION: tl.constexpr):  # fmt: skip
    """The softmax in one pass, over keys first..last. EDGE: whether some may lie past the end or above the
    diagonal. WHOLE: whether all keys are whole blocks."""
    for start in range(first, last, BN):
        columns = start + tl.arange(0, BN)
        if MASK == 2:
            shown = dc_any(mask, rows[:, None], columns[None, :], ML, MS, L, S)
        else:
            shown: tl.constexpr = True
        if shown:
            acc, total, peak = dc_attend_block(acc, total, peak, q, k, v, mask, draws, rows, columns, KS,
                                               KE, VS, VE, ML, MS, L, S, E, V, PAD_E, PAD_V, SCALE, MASK, CAUSAL,
                                               EDGE, WHOLE, LEAST, PRECISION)  # fmt: skip
    return acc, total, peak


@triton.jit
def dc_attend_block(acc, total, peak, q, k, v, mask, draws, rows, columns,
                    KS, KE, VS, VE, ML,
                    MS, L, S, E: tl.constexpr, V: tl.constexpr,
                    PAD_E: tl.constexpr, PAD_V: tl.constexpr, SCALE: tl.constexpr, MASK: tl.constexpr,
                    CAUSAL: tl.constexpr, EDGE: tl.constexpr, WHOLE: tl.constexpr, LEAST: tl.constexpr,
                    PRECISION: tl.constexpr):  # fmt: skip
    LATE: tl.constexpr = SCALE > 0 and MASK != 1  # scale after the maximum: one multiply-add a score
    FACTOR: tl.constexpr = SCALE * LOG2E if LATE else 1.0
    inner = tl.arange(0, PAD_E)
    outer = tl.arange(0, PAD_V)
    kt = dc_block(k, inner, columns, KE, KS, E, S, E == PAD_E, not EDGE or WHOLE)
    scores = dc_dot(q, kt, None, PRECISION)
    if not LATE:
        scores *= SCALE * LOG2E
    scores = dc_masked(scores, mask, rows[:, None], columns[None, :], ML, MS, L, S, MASK, False)
    if EDGE:
        if CAUSAL:
            scores = tl.where(columns[None, :] <= rows[:, None], scores, float("-inf"))
        if not WHOLE:
            scores = tl.where(columns[None, :] < S, scores, float("-inf"))
    above = tl.maximum(peak, dc_row_max(scores) * FACTOR)
    shift = tl.where(above == float("-inf"), 0.0, above)
    weights = tl.exp2(scores * FACTOR - shift[:, None])
    less = tl.exp2(peak - shift)
    total = total * less + dc_row_sum(weights)
    acc = acc * less[:, None]
    if LEAST > 0:
        kept = dc_kept(draws, rows[:, None] * S + columns[None, :], LEAST)
        weights = tl.where(kept, weights, 0.0)
    values = dc_block(v, columns, outer, VS, VE, S, V, not EDGE or WHOLE, V == PAD_V)
    acc = dc_dot(weights.to(values.dtype), values, acc, PRECISION)
    return acc, total, above


@triton.jit
def attention_forward(q, k, v, mask, key, packed,
                      B, H: tl.constexpr, GROUP: tl.constexpr, L, S,
                      E: tl.constexpr, V: tl.constexpr, PAD_E: tl.constexpr, PAD_V: tl.constexpr,
                      QB, QH, QL, QE, KB, KH, KS, KE, VB, VH, VS, VE, MB, MH, ML, MS,
                      SCALE: tl.constexpr, CAUSAL: tl.constexpr, MASK: tl.constexpr, STRICT: tl.constexpr,
                      LEAST: tl.constexpr, KEPT: tl.constexpr, STREAM, PRECISION: tl.constexpr, BM: tl.constexpr,
                      BN: tl.constexpr, SECTION, WHOLE_L: tl.constexpr, WHOLE_S: tl.constexpr):  # fmt: skip
    block, head, batch = dc_place(tl.program_id(0), B, H, (L + BM - 1) // BM, CAUSAL, True, SECTION)
    q += batch * QB + head * QH
    k += batch * KB + (head // GROUP) * KH
    v += batch * VB + (head // GROUP) * VH
    mask += batch * MB + head * MH
    draws = dc_draws(key, STREAM, batch * H + head, B * H, L, S, LEAST, key, 0)
    rows = block * BM + tl.arange(0, BM)
    inner = tl.arange(0, PAD_E)
    queries = dc_block(q, rows, inner, QL, QE, L, E, WHOLE_L, E == PAD_E)
    peak = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.full((BM,), 0.0, tl.float32)
    acc = tl.full((BM, PAD_V), 0.0, tl.float32)
    if CAUSAL:
        stop = tl.minimum(block * BM + BM, S)
        whole = tl.minimum((block * BM + 1) // BN * BN, S // BN * BN)
    else:
        stop = S
        whole = S // BN * BN
    acc, total, peak = dc_attend(acc, total, peak, queries, k, v, mask, draws, rows, 0, whole, KS, KE, VS,
                                 VE, ML, MS, L, S, E, V, PAD_E, PAD_V, BN, SCALE, MASK, CAUSAL, False, WHOLE_S, LEAST,
                                 PRECISION)  # fmt: skip
    if CAUSAL or not WHOLE_S:
        acc, total, peak = dc_attend(acc, total, peak, queries, k, v, mask, draws, rows, whole, stop, KS,
                                     KE, VS, VE, ML, MS, L, S, E, V, PAD_E, PAD_V, BN, SCALE, MASK, CAUSAL, True,
                                     WHOLE_S, LEAST, PRECISION)  # fmt: skip
    nothing = float("nan") if STRICT else 1.0
    acc = acc / tl.where(total == 0.0, nothing, total)[:, None]
    if LEAST > 0:
        acc *= KEPT
    logarithm = (peak + tl.log2(total)) * LN2
    if STRICT:
        logarithm = tl.where(total == 0.0, float("nan"), logarithm)
    outer = tl.arange(0, PAD_V)
    out = packed + batch * (L * H * V) + head * V
    keep = (rows[:, None] < L) & (outer[None, :] < V)
    tl.store(out + rows[:, None] * (H * V) + outer[None, :], acc.to(packed.dtype.element_ty), mask=keep)
    place = packed + B * L * H * V + (batch * H + head) * L + rows
    upper = logarithm.to(packed.dtype.element_ty)
    tl.store(place, upper, mask=rows < L)
    if packed.dtype.element_ty != tl.float32:
        exact = upper.to(tl.float32)
        lower = tl.where(exact == logarithm, 0.0, logarithm - exact)  # inf less inf is no remainder
        tl.store(place + B * H * L, lower.to(packed.dtype.element_ty), mask=rows < L)


@triton.jit
def dc_logarithm(packed, place, keep, PART: tl.constexpr):
    """The logarithm of a sum in base 2; 0 of an empty one. PART: how many numbers lie between its two parts."""
    found = tl.load(packed + place, mask=keep, other=0.0).to(tl.float32)
    if packed.dtype.element_ty != tl.float32:
        found += tl.load(packed + place + PART, mask=keep, other=0.0).to(tl.float32)
    return tl.where(found == float("-inf"), 0.0, found * LOG2E)


@triton.jit
def dc_slope_of_queries(dq, queries, g, k, v, mask, draws, rows, log, delta, first, last,
                        KS, KE, VS, VE, ML,
                        MS, L, S, E: tl.constexpr, V: tl.constexpr,
                        PAD_E: tl.constexpr, PAD_V: tl.constexpr, BN: tl.constexpr, SCALE: tl.constexpr,
                        MASK: tl.constexpr, CAUSAL: tl.constexpr, EDGE: tl.constexpr, WHOLE: tl.constexpr,
                        LEAST: tl.constexpr, UNIT: tl.constexpr, KEPT: tl.constexpr,
                        PRECISION: tl.constexpr):  # fmt: skip
    for start in range(first, last, BN):
        columns = start + tl.arange(0, BN)
        if MASK == 2:
            shown = dc_any(mask, rows[:, None], columns[None, :], ML, MS, L, S)
        else:
            shown: tl.constexpr = True
        if shown:
            dq = dc_slope_of_queries_block(dq, queries, g, k, v, mask, draws, rows, log, delta, start, columns,
                                           KS, KE, VS, VE, ML, MS, L, S, E, V, PAD_E, PAD_V, SCALE, MASK, CAUSAL,
                                           EDGE, WHOLE, LEAST, UNIT, KEPT, PRECISION)  # fmt: skip
    return dq


@triton.jit
def dc_slope_of_queries_block(dq, queries, g, k, v, mask, draws, rows, log, delta, start, columns,
                              KS, KE, VS, VE, ML,
                              MS, L, S, E: tl.constexpr, V: tl.constexpr,
                              PAD_E: tl.constexpr, PAD_V: tl.constexpr, SCALE: tl.constexpr,
                              MASK: tl.constexpr, CAUSAL: tl.constexpr, EDGE: tl.constexpr, WHOLE: tl.constexpr,
                              LEAST: tl.constexpr, UNIT: tl.constexpr, KEPT: tl.constexpr,
                              PRECISION: tl.constexpr):  # fmt: skip
    inner = tl.arange(0, PAD_E)
    outer = tl.arange(0, PAD_V)
    keys = dc_block(k, columns, inner, KS, KE, S, E, not EDGE or WHOLE, E == PAD_E)
    scores = dc_dot(queries, tl.trans(keys), None, PRECISION)
    values = dc_block(v, columns, outer, VS, VE, S, V, not EDGE or WHOLE, V == PAD_V)
    slopes = dc_dot(g, tl.trans(values), None, PRECISION)
    if MASK == 0:
        weights = tl.exp2(scores * (SCALE * LOG2E) - log[:, None])
    else:
        scores = dc_masked(scores * (SCALE * LOG2E), mask, rows[:, None], columns[None, :], ML, MS, L, S, MASK,
                           False)  # fmt: skip
        weights = tl.exp2(scores - log[:, None])
    if EDGE:
        if CAUSAL:
            weights = tl.where(columns[None, :] <= rows[:, None], weights, 0.0)
        if not WHOLE:
            weights = tl.where(columns[None, :] < S, weights, 0.0)
    if LEAST > 0:
        kept = dc_kept(draws, rows[:, None] * S + columns[None, :], LEAST)
        if UNIT > 0:
            dc_leave_bits(draws, kept, rows, start, L, UNIT)
        slopes = tl.where(kept, slopes * KEPT, 0.0)
    slopes = weights * (slopes - delta[:, None])
    return dc_dot(slopes.to(keys.dtype), keys, dq, PRECISION)


@triton.jit
def attention_queries(g, g_lse, packed, q, k, v, mask, key, result, deltas, logs, sums, words,
                      B, H: tl.constexpr, GROUP: tl.constexpr, L, S,
                      E: tl.constexpr, V: tl.constexpr, PAD_E: tl.constexpr, PAD_V: tl.constexpr,
                      GB, GH, GL, GV, SB, SH, SL, QB, QH, QL, QE, KB, KH, KS, KE, VB, VH, VS, VE, MB, MH, ML, MS,
                      RB, RL,
                      SCALE: tl.constexpr, CAUSAL: tl.constexpr, MASK: tl.constexpr, SUMMED: tl.constexpr,
                      LEAST: tl.constexpr, UNIT: tl.constexpr, KEPT: tl.constexpr, STREAM, PRECISION: tl.constexpr,
                      BM: tl.constexpr, BN: tl.constexpr, SECTION, WHOLE_L: tl.constexpr,
                      WHOLE_S: tl.constexpr):  # fmt: skip
    """SB, SH, SL: strides of g_lse; RB, RL: of the result."""
    block, head, batch = dc_place(tl.program_id(0), B, H, (L + BM - 1) // BM, CAUSAL, True, SECTION)
    g += batch * GB + head * GH
    q += batch * QB + head * QH
    k += batch * KB + (head // GROUP) * KH
    v += batch * VB + (head // GROUP) * VH
    mask += batch * MB + head * MH
    draws = dc_draws(key, STREAM, batch * H + head, B * H, L, S, LEAST, words, UNIT)
    rows = block * BM + tl.arange(0, BM)
    inner = tl.arange(0, PAD_E)
    outer = tl.arange(0, PAD_V)
    queries = dc_block(q, rows, inner, QL, QE, L, E, WHOLE_L, E == PAD_E)
    grads = dc_block(g, rows, outer, GL, GV, L, V, WHOLE_L, V == PAD_V)
    out = dc_block(packed + batch * (L * H * V) + head * V, rows, outer, H * V, 1, L, V, WHOLE_L, V == PAD_V)
    delta = dc_row_sum(grads.to(tl.float32) * out.to(tl.float32))
    delta -= tl.load(g_lse + batch * SB + head * SH + rows * SL, mask=rows < L, other=0.0).to(tl.float32)
    place = (batch * H + head) * L + rows
    log = dc_logarithm(packed + B * L * H * V, place, rows < L, B * H * L)
    tl.store(deltas + place, delta, mask=rows < L)
    tl.store(logs + place, log, mask=rows < L)
    dq = tl.full((BM, PAD_E), 0.0, tl.float32)
    if CAUSAL:
        stop = tl.minimum(block * BM + BM, S)
        whole = tl.minimum((block * BM + 1) // BN * BN, S // BN * BN)
    else:
        stop = S
        whole = S // BN * BN
    dq = dc_slope_of_queries(dq, queries, grads, k, v, mask, draws, rows, log, delta, 0, whole, KS, KE,
                             VS, VE, ML, MS, L, S, E, V, PAD_E, PAD_V, BN, SCALE, MASK, CAUSAL, False, WHOLE_S, LEAST,
                             UNIT, KEPT, PRECISION)  # fmt: skip
    if CAUSAL or not WHOLE_S:
        dq = dc_slope_of_queries(dq, queries, grads, k, v, mask, draws, rows, log, delta, whole, stop, KS,
                                 KE, VS, VE, ML, MS, L, S, E, V, PAD_E, PAD_V, BN, SCALE, MASK, CAUSAL, True, WHOLE_S,
                                 LEAST, UNIT, KEPT, PRECISION)  # fmt: skip
    place = result + batch * RB + head * E + rows[:, None] * RL + inner[None, :]
    keep = (rows[:, None] < L) & (inner[None, :] < E)
    dq = (dq * SCALE).to(result.dtype.element_ty)
    tl.store(place, dq, mask=keep)
    if SUMMED:
        row = batch * ((L + BM - 1) // BM) + block
        dc_leave_sums(sums + row * (H * E) + head * E, dq, rows, inner, L, E, WHOLE_L, PRECISION)


@triton.jit
def dc_slope_of_keys(dk, dv, keys, values, g, q, mask, draws, deltas, logs, columns, first, last,
                     GL, GV, QL, QE, ML,
                     MS, L, S, E: tl.constexpr, V: tl.constexpr,
                     PAD_E: tl.constexpr, PAD_V: tl.constexpr, BM: tl.constexpr, SCALE: tl.constexpr,
                     MASK: tl.constexpr, TEST: tl.constexpr, EDGE: tl.constexpr, LEAST: tl.constexpr,
                     UNIT: tl.constexpr, KEPT: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """Over queries first..last, a multiple of BM apart. TEST: whether some keys may lie above the diagonal."""
    for start in range(first, last, BM):
        rows = start + tl.arange(0, BM)
        if MASK == 2:
            shown = dc_any(mask, rows[None, :], columns[:, None], ML, MS, L, S)
        else:
            shown: tl.constexpr = True
        if shown:
            dk, dv = dc_slope_of_keys_block(dk, dv, keys, values, g, q, mask, draws, deltas, logs, columns,
                                            rows, GL, GV, QL, QE, ML, MS, L, S, E, V, PAD_E, PAD_V, SCALE, MASK, TEST,
                                            EDGE, LEAST, UNIT, KEPT, PRECISION)  # fmt: skip
    return dk, dv


@triton.jit
def dc_slope_of_keys_block(dk, dv, keys, values, g, q, mask, draws, deltas, logs, columns, rows,
                           GL, GV, QL, QE, ML,
                           MS, L, S, E: tl.constexpr, V: tl.constexpr,
                           PAD_E: tl.constexpr, PAD_V: tl.constexpr, SCALE: tl.constexpr,
                           MASK: tl.constexpr, TEST: tl.constexpr, EDGE: tl.constexpr, LEAST: tl.constexpr,
                           UNIT: tl.constexpr, KEPT: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    inner = tl.arange(0, PAD_E)
    outer = tl.arange(0, PAD_V)
    queries = dc_block(q, rows, inner, QL, QE, L, E, not EDGE, E == PAD_E)
    scores = dc_dot(keys, tl.trans(queries), None, PRECISION)
    if EDGE:
        log = tl.load(logs + rows, mask=rows < L, other=0.0)
        delta = tl.load(deltas + rows, mask=rows < L, other=0.0)
    else:
        log = tl.load(logs + rows)
        delta = tl.load(deltas + rows)
    grads = dc_block(g, rows, outer, GL, GV, L, V, not EDGE, V == PAD_V)
    slopes = dc_dot(values, tl.trans(grads), None, PRECISION)
    if MASK == 0:
        weights = tl.exp2(scores * (SCALE * LOG2E) - log[None, :])
    else:
        scores = dc_masked(scores * (SCALE * LOG2E), mask, rows[None, :], columns[:, None], ML, MS, L, S, MASK,
                           False)  # fmt: skip
        weights = tl.exp2(scores - log[None, :])
    if TEST:
        weights = tl.where(columns[:, None] <= rows[None, :], weights, 0.0)
    if LEAST > 0:
        if UNIT > 0:
            kept = dc_left(draws, rows[None, :], columns[:, None], L, S, UNIT)
        else:
            kept = dc_kept(draws, rows[None, :] * S + columns[:, None], LEAST)
        slopes = tl.where(kept, slopes * KEPT, 0.0)
        dv = dc_dot(tl.where(kept, weights, 0.0).to(grads.dtype), grads, dv, PRECISION)
    else:
        dv = dc_dot(weights.to(grads.dtype), grads, dv, PRECISION)
    slopes = weights * (slopes - delta[None, :])
    dk = dc_dot(slopes.to(queries.dtype), queries, dk, PRECISION)
    return dk, dv


@triton.jit
def attention_keys(g, q, k, v, mask, key, result, deltas, logs, sums, words,
                   B, H: tl.constexpr, GROUP: tl.constexpr, L, S,
                   E: tl.constexpr, V: tl.constexpr, PAD_E: tl.constexpr, PAD_V: tl.constexpr,
                   GB, GH, GL, GV, QB, QH, QL, QE, KB, KH, KS, KE, VB, VH, VS, VE, MB, MH, ML, MS, K0, RKB, RK,
                   V0, RVB, RV,
                   SCALE: tl.constexpr, CAUSAL: tl.constexpr, MASK: tl.constexpr, SUMMED: tl.constexpr,
                   LEAST: tl.constexpr, UNIT: tl.constexpr, KEPT: tl.constexpr, STREAM, PRECISION: tl.constexpr,
                   BM: tl.constexpr, BN: tl.constexpr, SECTION, WHOLE_L: tl.constexpr,
                   WHOLE_S: tl.constexpr):  # fmt: skip
    """Past the last query all that is read is 0, and so is what it adds. K0, RKB, RK: where the keys' gradients begin
    in the result, and the strides of batch and position; V0 ...: those of values."""
    HEADS: tl.constexpr = H // GROUP
    block, head, batch = dc_place(tl.program_id(0), B, HEADS, (S + BN - 1) // BN, CAUSAL, False, SECTION)
    columns = block * BN + tl.arange(0, BN)
    inner = tl.arange(0, PAD_E)
    outer = tl.arange(0, PAD_V)
    keys = dc_block(k + batch * KB + head * KH, columns, inner, KS, KE, S, E, WHOLE_S, E == PAD_E)
    values = dc_block(v + batch * VB + head * VH, columns, outer, VS, VE, S, V, WHOLE_S, V == PAD_V)
    dk = tl.full((BN, PAD_E), 0.0, tl.float32)
    dv = tl.full((BN, PAD_V), 0.0, tl.float32)
    ALL = L // BM * BM  # queries in whole blocks
    if CAUSAL:
        first = tl.minimum(block * BN // BM * BM, ALL)
        below = tl.minimum((block * BN + BN + BM - 1) // BM * BM, ALL)
    else:
        first = 0
        below = 0
    for member in range(GROUP):
        of = head * GROUP + member
        g_of = g + batch * GB + of * GH
        q_of = q + batch * QB + of * QH
        m_of = mask + batch * MB + of * MH
        d_of = deltas + (batch * H + of) * L
        l_of = logs + (batch * H + of) * L
        draws = dc_draws(key, STREAM, batch * H + of, B * H, L, S, LEAST, words, UNIT)
        if CAUSAL:
            dk, dv = dc_slope_of_keys(dk, dv, keys, values, g_of, q_of, m_of, draws, d_of, l_of, columns,
                                      first, below, GL, GV, QL, QE, ML, MS, L, S, E, V, PAD_E, PAD_V, BM, SCALE, MASK,
                                      True, False, LEAST, UNIT, KEPT, PRECISION)  # fmt: skip
        dk, dv = dc_slope_of_keys(dk, dv, keys, values, g_of, q_of, m_of, draws, d_of, l_of, columns,
                                  below, ALL, GL, GV, QL, QE, ML, MS, L, S, E, V, PAD_E, PAD_V, BM, SCALE, MASK, False,
                                  False, LEAST, UNIT, KEPT, PRECISION)  # fmt: skip
        if not WHOLE_L:
            dk, dv = dc_slope_of_keys(dk, dv, keys, values, g_of, q_of, m_of, draws, d_of, l_of, columns,
                                      ALL, L, GL, GV, QL, QE, ML, MS, L, S, E, V, PAD_E, PAD_V, BM, SCALE, MASK, CAUSAL,
                                      True, LEAST, UNIT, KEPT, PRECISION)  # fmt: skip
    if LEAST > 0:
        dv *= KEPT
    place = result + K0 + batch * RKB + head * E
    keep = (columns[:, None] < S) & (inner[None, :] < E)
    dk = (dk * SCALE).to(result.dtype.element_ty)
    tl.store(place + columns[:, None] * RK + inner[None, :], dk, mask=keep)
    place = result + V0 + batch * RVB + head * V
    keep = (columns[:, None] < S) & (outer[None, :] < V)
    dv = dv.to(result.dtype.element_ty)
    tl.store(place + columns[:, None] * RV + outer[None, :], dv, mask=keep)
    if SUMMED:
        row = sums + (batch * ((S + BN - 1) // BN) + block) * (2 * HEADS * E)
        dc_leave_sums(row + head * E, dk, columns, inner, S, E, WHOLE_S, PRECISION)
        dc_leave_sums(row + (HEADS + head) * E, dv, columns, outer, S, V, WHOLE_S, PRECISION)


@triton.jit
def dc_leave_sums(place, block, rows, columns, ROWS, COLUMNS, ALL_ROWS: tl.constexpr,
                  PRECISION: tl.constexpr):  # fmt: skip
    """The sums of a block of gradients, rounded as they are, over its rows that exist. By a matrix unit, as a row of
    ones times the block: its rows lie in many threads, which take longer to add them up. It takes 16 rows at least, for
    which wide blocks leave no registers."""
    if not ALL_ROWS:
        block = tl.where(rows[:, None] < ROWS, block, 0.0)
    if block.shape[1] > 128:
        tl.store(place + columns, dc_column_sum(block.to(tl.float32)), mask=columns < COLUMNS)
    else:
        lines = tl.arange(0, 16)
        sums = dc_dot(tl.full((16, block.shape[0]), 1.0, block.dtype), block, None, PRECISION)
        keep = (lines[:, None] == 0) & (columns[None, :] < COLUMNS)
        tl.store(place + lines[:, None] * 0 + columns[None, :], sums, mask=keep)


@triton.jit
def attention_sums(queries, keys, result, NQ, WQ: tl.constexpr, NK, WK: tl.constexpr,
                   AT, WHOLE_Q: tl.constexpr, WHOLE_K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):  # fmt: skip
    """queries: f32[NQ, WQ], keys: f32[NK, WK]. Their sums down the columns are the result's from AT on."""
    program = tl.program_id(0)
    OF_QUERIES: tl.constexpr = (WQ + BN - 1) // BN
    if program < OF_QUERIES:
        dc_add_rows(queries, program, result + AT, NQ, WQ, WHOLE_Q, BM, BN)
    else:
        dc_add_rows(keys, program - OF_QUERIES, result + (AT + WQ), NK, WK, WHOLE_K, BM, BN)


@triton.jit
def dc_add_rows(partial, block, result, ROWS, COLUMNS: tl.constexpr, ALL_ROWS: tl.constexpr, BM: tl.constexpr,
                BN: tl.constexpr):  # fmt: skip
    columns = block * BN + tl.arange(0, BN)
    total = tl.full((BM, BN), 0.0, tl.float32)
    for start in range(0, ROWS, BM):
        rows = (start + tl.arange(0, BM)).to(tl.int64)  # of many short sequences there are 2^31 numbers and more
        total += dc_block(partial, rows, columns, COLUMNS, 1, ROWS, COLUMNS, ALL_ROWS, COLUMNS % BN == 0)
    tl.store(result + columns, dc_column_sum(total).to(result.dtype.element_ty), mask=columns < COLUMNS)
