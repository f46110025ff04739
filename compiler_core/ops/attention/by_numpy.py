"""Attention with NumPy (or CuPy): the definition that its C++ is held to.

In: arrays, sizes. Out: the packed results of `attention` and `attention_backward`. Queries are taken in blocks, so that
no array of all queries by all keys exists where those are many; a causal block reads only the keys that it may see.
16-bit floats are attended in f32, and rounded once; their logarithms are two numbers each. What dropout keeps of a
block is drawn there, by the place of each weight among all: the op philox (ops/random/op.py) of their shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from compiler_core.dtype import of
from compiler_core.ops.attention.sizes import NARROW, AttentionSizes, beside
from compiler_core.ops.random.op import least_kept, philox_words
from compiler_core.ops.registry import Array

_BLOCK_NUMEL = 1 << 21  # scores held at a time


def _blocks(sizes: AttentionSizes) -> Iterator[tuple[slice, int]]:
    """(queries, how many keys they see)."""
    rows = max(_BLOCK_NUMEL // (sizes.batch * sizes.heads * sizes.keys), 16)
    for start in range(0, sizes.queries, rows):
        stop = min(start + rows, sizes.queries)
        yield slice(start, stop), min(stop, sizes.keys) if sizes.causal else sizes.keys


def _grouped(sizes: AttentionSizes, x: Array) -> Array:
    """x[batch, heads, ...] with its heads as (key heads, heads of each)."""
    return x.reshape(sizes.batch, sizes.key_heads, sizes.heads // sizes.key_heads, *x.shape[2:])


def _scores(
    xp: Any, sizes: AttentionSizes, q: Array, k: Array, mask: tuple[Array, ...], scale: float, rows: slice, seen: int
) -> Array:
    """f[batch, heads, rows, seen], -inf where hidden."""
    some = _grouped(sizes, q[:, :, rows]) * q.dtype.type(scale)
    scores = xp.matmul(some, k[:, :, None, :seen].swapaxes(-1, -2)).reshape(*sizes.scores[:2], -1, seen)
    hidden = q.dtype.type(-np.inf)
    for part in (whole[:, :, rows, :seen] for whole in mask):
        scores = xp.where(part, scores, hidden) if part.dtype == np.bool_ else scores + part
    if sizes.causal:
        place = xp.arange(rows.start, rows.stop)[:, None]
        scores = xp.where(xp.arange(seen) <= place, scores, hidden)
    return scores  # type: ignore[no-any-return]


def _kept(
    xp: Any, sizes: AttentionSizes, key: Array, rows: slice, seen: int, dropout: float, stream: int
) -> Array:  # fmt: skip
    """f[batch, heads, rows, seen]: what dropout multiplies these weights by."""
    seed, offset, shard = (int(number) for number in key)
    batch, heads, queries, keys = sizes.scores
    row = xp.arange(batch * heads, dtype=np.uint64).reshape(batch, heads, 1, 1) * np.uint64(queries)
    row = row + xp.arange(rows.start, rows.stop, dtype=np.uint64)[:, None]
    first = np.uint64(shard * batch * heads * queries * keys % 2**64)
    places = row * np.uint64(keys) + xp.arange(seen, dtype=np.uint64) + first
    words = philox_words(xp, seed, (offset + stream) % 2**64, places)[0]
    return (words >= np.uint64(least_kept(dropout))) / (1.0 - dropout)


def _wide(arrays: Iterable[Array]) -> list[Array]:
    """16-bit floats as f32."""
    return [a.astype(np.float32) if of(a) in NARROW else a for a in arrays]


def forward(xp: Any, sizes: AttentionSizes, *operands: Array, scale: float, strict: bool, **drawn: Any) -> Array:
    """The packed result of `attention`."""
    dtype = operands[0].dtype
    out, lse = _forward(xp, sizes, *_wide(operands), scale=scale, strict=strict, drawn=drawn)
    with np.errstate(all="ignore"):
        upper = lse.astype(dtype)
        parts = [out.astype(dtype), upper]
        if of(operands[0]) in NARROW:
            exact = upper.astype(lse.dtype)
            parts.append(xp.where(exact == lse, lse.dtype.type(0), lse - exact).astype(dtype))
    return xp.concatenate([part.reshape(-1) for part in parts])  # type: ignore[no-any-return]


def _forward(
    xp: Any, sizes: AttentionSizes, *operands: Array, scale: float, strict: bool, drawn: dict[str, Any]
) -> tuple[Array, Array]:
    """What is attended, and the logarithms."""
    (q, k, v), (mask, key) = operands[:3], beside(operands)
    out = xp.empty(sizes.result[0], q.dtype)
    lse = xp.empty(sizes.result[1], q.dtype)
    with np.errstate(all="ignore"):
        for rows, seen in _blocks(sizes):
            scores = _scores(xp, sizes, q, k, mask, scale, rows, seen)
            peak = scores.max(-1, keepdims=True)
            scores -= xp.where(peak == -np.inf, q.dtype.type(0), peak)
            weights = xp.exp(scores, out=scores)
            total = weights.sum(-1, keepdims=True)
            if key:
                weights *= _kept(xp, sizes, key[0], rows, seen, **drawn).astype(q.dtype)
            found = xp.matmul(_grouped(sizes, weights), v[:, :, None, :seen]).reshape(
                *sizes.scores[:2], -1, v.shape[-1]
            )
            found /= total if strict else xp.where(total == 0, q.dtype.type(1), total)
            out[:, rows] = found.swapaxes(1, 2)
            logarithms = peak + xp.log(total)
            lse[:, :, rows] = (xp.where(total == 0, np.nan, logarithms) if strict else logarithms)[..., 0]
    return out, lse


def backward(xp: Any, sizes: AttentionSizes, *operands: Array, scale: float, summed: bool, **drawn: Any) -> Array:
    """The packed result of `attention_backward`."""
    dtype = operands[0].dtype
    grads = _backward(xp, sizes, *_wide(operands), scale=scale, drawn=drawn)
    with np.errstate(all="ignore"):
        if not sizes.has_gradients_beside(of(operands[0])):
            return xp.concatenate([x.reshape(-1).astype(dtype) for x in grads])  # type: ignore[no-any-return]
        beside = xp.concatenate(grads, 2).reshape(-1, sizes.columns).astype(dtype)
        sums = [beside.astype(grads[0].dtype).sum(0).astype(dtype)] if summed else []
        return xp.concatenate([beside.reshape(-1), *sums])  # type: ignore[no-any-return]


def _backward(
    xp: Any,
    sizes: AttentionSizes,
    g: Array,
    g_lse: Array,
    packed: Array,
    *operands: Array,
    scale: float,
    drawn: dict[str, Any],
) -> tuple[Array, Array, Array]:
    (q, k, v), (mask, key) = operands[:3], beside(operands)
    zero, one, number = q.dtype.type(0), q.dtype.type(1), g.size
    out, lse = packed[:number].reshape(sizes.result[0]), packed[number:].reshape(-1, *sizes.result[1]).sum(0)
    dq = xp.empty(sizes.gradients[0], q.dtype)
    dk, dv = xp.zeros(k.shape, q.dtype), xp.zeros(v.shape, q.dtype)
    with np.errstate(all="ignore"):
        for rows, seen in _blocks(sizes):
            less = lse[:, :, rows, None]
            weights = xp.exp(_scores(xp, sizes, q, k, mask, scale, rows, seen) - xp.where(less == -np.inf, zero, less))
            some = g[:, rows].swapaxes(1, 2)
            shift = (some * out[:, rows].swapaxes(1, 2)).sum(-1) - g_lse[:, :, rows]
            some = _grouped(sizes, some)
            slopes = xp.matmul(some, v[:, :, None, :seen].swapaxes(-1, -2)).reshape(weights.shape)
            kept = _kept(xp, sizes, key[0], rows, seen, **drawn).astype(q.dtype) if key else one
            slopes *= kept
            slopes -= shift[..., None]
            slopes *= weights
            slopes, weights = _grouped(sizes, slopes), _grouped(sizes, weights * kept)
            dv[:, :, :seen] += xp.matmul(weights.swapaxes(-1, -2), some).sum(2)
            scaled = _grouped(sizes, q[:, :, rows]) * q.dtype.type(scale)
            dk[:, :, :seen] += xp.matmul(slopes.swapaxes(-1, -2), scaled).sum(2)
            found = xp.matmul(slopes, k[:, :, None, :seen]).reshape(*sizes.scores[:2], -1, sizes.width)
            dq[:, rows] = found.swapaxes(1, 2) * q.dtype.type(scale)
    return dq, dk.swapaxes(1, 2), dv.swapaxes(1, 2)
