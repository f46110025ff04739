"""Attention and its backward written with other ops: for backends without the routine, and second derivatives.

In: the operands of `attention` and `attention_backward` as values of any kind. Out: their packed results, and `slopes`:
the gradient in the scores. All scores are held at once, those of 16-bit floats in f32, and so is what dropout keeps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from compiler_core.dtype import FLOATING
from compiler_core.ops import prims
from compiler_core.ops.attention.sizes import NARROW, AttentionSizes, beside
from compiler_core.ops.broadcasting import broadcast_to, cast, dtype_of
from compiler_core.ops.composites.activation import keep_mask
from compiler_core.ops.composites.movement import below_diagonal
from compiler_core.ops.linear_algebra.matmul import transpose_last
from compiler_core.ops.linear_algebra.packing import unpack
from compiler_core.ops.registry import Value, meta_of


def sizes_of(q: Value, k: Value, v: Value, causal: bool) -> AttentionSizes:
    return AttentionSizes.of([meta_of(x) for x in (q, k, v)], causal)


def pack_flat(*parts: Value) -> Value:
    """Values of one dtype, flattened, end to end."""
    return prims.cat([prims.reshape(part, (math.prod(part.shape),)) for part in parts], 0)


def heads_in(x: Value) -> Value:
    """(batch, heads, positions, width) to (batch, positions, heads, width), or back."""
    return prims.permute(x, (0, 2, 1, 3))


def _repeated(sizes: AttentionSizes, x: Value) -> Value:
    """Heads of keys, each as often as heads of queries use it."""
    group, (batch, heads, *rest) = sizes.heads // sizes.key_heads, x.shape
    if sizes.heads == sizes.key_heads:
        return x
    wide = broadcast_to(prims.reshape(x, (batch, heads, 1, *rest)), (batch, heads, group, *rest))
    return prims.reshape(wide, (batch, sizes.heads, *rest))


def _summed(sizes: AttentionSizes, x: Value) -> Value:
    """The adjoint of `_repeated`."""
    group, (batch, heads, *rest) = sizes.heads // sizes.key_heads, x.shape
    return (
        x
        if sizes.heads == sizes.key_heads
        else prims.sum(prims.reshape(x, (batch, heads // group, group, *rest)), (2,))
    )


def _scaled(x: Value, scale: float) -> Value:
    return prims.mul(x, prims.full_like(x, scale))


def _dropped(sizes: AttentionSizes, x: Value, key: tuple[Value, ...], drawn: Mapping[str, Any]) -> Value:
    """What dropout leaves of the weights, or of their cotangent."""
    if not key:
        return x
    kept = keep_mask(sizes.scores, drawn["dropout"], (key[0], drawn["stream"]))
    return _scaled(prims.mul(x, prims.cast(kept, dtype_of(x))), 1.0 / (1.0 - drawn["dropout"]))


def _along(x: Value, shape: tuple[int, ...]) -> Value:
    """A number for each query, for all of its scores."""
    return broadcast_to(prims.reshape(x, (*x.shape, 1)), shape)


def scores_of(sizes: AttentionSizes, q: Value, k: Value, mask: tuple[Value, ...], scale: float) -> Value:
    """f[batch, heads, queries, keys], -inf where hidden."""
    scores = _scaled(prims.matmul(q, transpose_last(_repeated(sizes, k))), scale)
    hidden = prims.full_like(scores, -math.inf)
    for part in mask:
        is_test = dtype_of(part) is not dtype_of(scores)
        scores = prims.where(part, scores, hidden) if is_test else prims.add(scores, part)
    return prims.where(below_diagonal(sizes.scores, 0), scores, hidden) if sizes.causal else scores


def _wide(values: tuple[Value, ...]) -> list[Value]:
    """16-bit floats as f32."""
    return [cast(x, dtype_of(x).compute) if dtype_of(x) in FLOATING else x for x in values]


def forward(*operands: Value, scale: float, causal: bool, strict: bool, **drawn: Any) -> Value:
    """The packed result of `attention`. operands: q, k, v, perhaps a mask, perhaps a key."""
    dtype = dtype_of(operands[0])
    out, logarithms = _forward(*_wide(operands), scale=scale, causal=causal, strict=strict, drawn=drawn)
    upper = cast(logarithms, dtype)
    if dtype not in NARROW:
        return pack_flat(out, upper)
    exact = cast(upper, dtype.compute)
    rest = prims.where(prims.eq(exact, logarithms), prims.full_like(exact, 0), prims.sub(logarithms, exact))
    return pack_flat(cast(out, dtype), upper, cast(rest, dtype))


def _forward(
    *operands: Value, scale: float, causal: bool, strict: bool, drawn: Mapping[str, Any]
) -> tuple[Value, Value]:
    (q, k, v), (mask, key) = operands[:3], beside(operands)
    sizes = sizes_of(q, k, v, causal)
    scores = scores_of(sizes, q, k, mask, scale)
    peak = prims.detach(prims.max(scores, (3,)))
    nothing = prims.eq(peak, prims.full_like(peak, -math.inf))
    weights = prims.exp(prims.sub(scores, _along(prims.where(nothing, prims.full_like(peak, 0), peak), sizes.scores)))
    total = prims.sum(weights, (3,))
    safe = prims.where(nothing, prims.full_like(peak, math.nan if strict else 1), total)
    weights = prims.div(weights, _along(safe, sizes.scores))
    out = prims.matmul(_dropped(sizes, weights, key, drawn), _repeated(sizes, v))
    return heads_in(out), prims.add(peak, prims.log(safe))


def _unpacked(sizes: AttentionSizes, packed: Value) -> tuple[Value, Value]:
    """packed: of f32 or f64, perhaps of 16-bit floats once."""
    parts = sizes.result if packed.shape[0] == sum(map(math.prod, sizes.result)) else (*sizes.result, sizes.result[1])
    out, lse, *rest = unpack(packed, parts)
    return out, prims.add(lse, rest[0]) if rest else lse


def _weights_and_slopes(
    sizes: AttentionSizes, g: Value, g_lse: Value, packed: Value, *operands: Value, scale: float,
    drawn: Mapping[str, Any],
) -> tuple[Value, Value]:  # fmt: skip
    """The weights after dropout, and the cotangent of the scores."""
    (q, k, v), (mask, key) = operands[:3], beside(operands)
    out, lse = _unpacked(sizes, packed)
    nothing = prims.eq(lse, prims.full_like(lse, -math.inf))
    less = prims.where(nothing, prims.full_like(lse, 0), lse)
    weights = prims.exp(prims.sub(scores_of(sizes, q, k, mask, scale), _along(less, sizes.scores)))
    shift = prims.permute(prims.sum(prims.mul(g, out), (3,)), (0, 2, 1))
    through = prims.matmul(heads_in(g), transpose_last(_repeated(sizes, v)))
    through = prims.sub(_dropped(sizes, through, key, drawn), _along(prims.sub(shift, g_lse), sizes.scores))
    return _dropped(sizes, weights, key, drawn), prims.mul(weights, through)


def slopes(*operands: Value, scale: float, causal: bool, **drawn: Any) -> Value:
    """The gradient in the scores, and so in a mask that is added: f[batch, heads, queries, keys]. operands: as those of
    `attention_backward`."""
    sizes = AttentionSizes.of([meta_of(x) for x in operands[3:]], causal)
    return _weights_and_slopes(sizes, *_wide(operands), scale=scale, drawn=drawn)[1]


def backward(*operands: Value, scale: float, causal: bool, summed: bool, **drawn: Any) -> Value:
    """The packed result of `attention_backward`."""
    sizes, dtype = AttentionSizes.of([meta_of(x) for x in operands[3:]], causal), dtype_of(operands[3])
    g, g_lse, packed, q, k, v, *rest = _wide(operands)
    weights, slope = _weights_and_slopes(sizes, g, g_lse, packed, q, k, v, *rest, scale=scale, drawn=drawn)
    slope = _scaled(slope, scale)
    dq = prims.matmul(slope, _repeated(sizes, k))
    dk = _summed(sizes, prims.matmul(transpose_last(slope), q))
    dv = _summed(sizes, prims.matmul(transpose_last(weights), heads_in(g)))
    grads = [cast(heads_in(x), dtype) for x in (dq, dk, dv)]
    if not sizes.has_gradients_beside(dtype):
        return pack_flat(*grads)
    beside = prims.reshape(prims.cat(grads, 2), (sizes.batch * sizes.queries, sizes.columns))
    return pack_flat(beside, prims.sum(beside, (0,))) if summed else pack_flat(beside)


def gradients_of(sizes: AttentionSizes, packed: Value) -> list[Value]:
    """Those of q, k and v, heads inside, of the packed result of `attention_backward`."""
    if not sizes.has_gradients_beside(dtype_of(packed)):
        return list(unpack(packed, sizes.gradients))
    whole, start, found = prims.reshape(packed, sizes.beside), 0, []
    for heads in (sizes.heads, sizes.key_heads, sizes.key_heads):
        stops = (*sizes.beside[:2], start + heads, sizes.width)
        found.append(prims.slice(whole, (0, 0, start, 0), stops, (1,) * 4))
        start += heads
    return found
