"""Scaled dot product attention over any Value, with torch's arguments.

In: values. Out: one value: through the op `attention` (op.py), which stores nothing of the size queries x keys; where
something is empty or very wide, and on the CPU with dropout, through products and a softmax. The 16-bit floats are
attended in f32 and rounded once; on a CUDA device as they are, as in compiled code (graph/passes/attention_narrow.py).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from compiler_core import cuda
from compiler_core import dtype as dt
from compiler_core.errors import ShapeError
from compiler_core.meta import Shape
from compiler_core.ops import prims
from compiler_core.ops.attention import sizes
from compiler_core.ops.attention.sizes import DTYPES, MAX_WIDTH, AttentionSizes
from compiler_core.ops.broadcasting import broadcast_shapes, broadcast_to, cast, dtype_of, shape_of
from compiler_core.ops.casting import in_lower
from compiler_core.ops.composites.activation import dropout, softmax, softmax_gradient, softmax_or_zero
from compiler_core.ops.composites.arithmetic import add, mul
from compiler_core.ops.composites.logic import where
from compiler_core.ops.composites.movement import below_diagonal, permute, repeat_interleave, reshape, transpose
from compiler_core.ops.linear_algebra.packing import unpack
from compiler_core.ops.linear_algebra.products import matmul
from compiler_core.ops.lying import as_told
from compiler_core.ops.registry import Value, current_trace, meta_of
from compiler_core.ops.remembered import remembered
from compiler_core.ops.whole import whole


@remembered
@in_lower
def scaled_dot_product_attention(
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    rng: tuple[Value, int] | None = None,
) -> Value:
    """softmax(query key^T scale + mask) value.

    query: T[*B, L, E], key: T[*B, S, E], value: T[*B, S, Ev] -> T[*B, L, Ev]. scale: 1/sqrt(E) unless given.
    attn_mask: bool (True takes part) or additive, broadcast to [*B, L, S]; of f32 beside 16-bit floats, which are then
    attended in f32, as in torch. is_causal: position i sees 0..i.
    A position that may see nothing gives 0.
    enable_gqa: fewer heads in key and value, each repeated for a group of query heads. rng: (key, stream) for dropout.
    """
    if is_causal and attn_mask is not None:
        raise ShapeError("attention: both attn_mask and is_causal", expected="one of them")
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    dtype = dtype_of(query)
    if attn_mask is not None and dtype_of(attn_mask) is dt.float32 and dtype_of(key) is dtype_of(value) is dtype:
        query, key, value, attn_mask = (cast(x, dtype.compute) for x in (query, key, value, attn_mask))
    if dropout_p > 0.0:
        found = _with_dropout(query, key, value, attn_mask, dropout_p, is_causal, factor, enable_gqa, rng)
    elif enable_gqa:
        found = _grouped(query, key, value, attn_mask, is_causal, factor)
    else:
        found = _attention(query, key, value, attn_mask, causal=is_causal, scale=factor)
    return as_told("rows" if dropout_p > 0.0 else "attended", cast(found, dtype), (query, key, value))


@whole
def _attention(query: Value, key: Value, value: Value, mask: Value | None, *, causal: bool, scale: float) -> Value:
    of = _heads(query, key, value, mask, enable_gqa=False)
    if of is None:
        return written_out(query, key, value, mask, 0.0, causal, scale)
    return _attended(of, query, key, value, mask, causal, scale)


def _grouped(query: Value, key: Value, value: Value, mask: Value | None, causal: bool, scale: float) -> Value:
    """With fewer heads of keys and values."""
    of = _heads(query, key, value, mask, enable_gqa=True)
    if of is None:
        return written_out(query, key, value, mask, 0.0, causal, scale, enable_gqa=True)
    return _attended(of, query, key, value, mask, causal, scale)


# ---- as one op


class _Heads(NamedTuple):
    """outer: the result's dims before the last two. heads, key_heads: how many heads queries have, and keys."""

    outer: Shape
    heads: int
    key_heads: int

    @property
    def batch(self) -> Shape:
        """The dims before the heads."""
        return self.outer[:-1]


def _heads(query: Value, key: Value, value: Value, mask: Value | None, enable_gqa: bool) -> _Heads | None:
    """How the op `attention` sees the operands; None if it does not take them."""
    if not _is_taken(query, key, value):
        return None
    outer = [shape_of(x)[:-2] for x in (query, key, value)]
    if not enable_gqa:
        whole = broadcast_shapes(*outer)
        found = _Heads(whole, whole[-1] if whole else 1, whole[-1] if whole else 1)
    elif not all(outer) or outer[1][-1] != outer[2][-1] or outer[0][-1] % outer[1][-1]:
        return None
    else:
        batch = broadcast_shapes(*(shape[:-1] for shape in outer))
        found = _Heads((*batch, outer[0][-1]), outer[0][-1], outer[1][-1])
    scores = (*found.outer, query.shape[-2], key.shape[-2])
    return found if mask is None or _is_mask(mask, query, scores) else None


def _is_taken(query: Value, key: Value, value: Value) -> bool:
    shapes, dtype = [shape_of(x) for x in (query, key, value)], dtype_of(query)
    if min(map(len, shapes)) < 2 or not all(map(math.prod, shapes)) or dtype.compute not in DTYPES:
        return False
    if dtype_of(key) is not dtype or dtype_of(value) is not dtype:
        return False
    fits = shapes[0][-1] == shapes[1][-1] and shapes[1][-2] == shapes[2][-2]
    return fits and max(shapes[0][-1], shapes[2][-1]) <= MAX_WIDTH


def _is_learned(mask: Value) -> bool:
    """Whether a gradient, or a tangent, goes through it."""
    return bool(getattr(mask, "requires_grad", True)) or bool(getattr(mask, "_dual", ()))


def _is_mask(mask: Value, query: Value, scores: Shape) -> bool:
    """Whether it is a test, or of a dtype that adds to scores without changing theirs; and only repeated to fit."""
    shape = shape_of(mask)
    pairs = zip(reversed(shape), reversed(scores))
    fits = all(_is_one(n) or n in (whole, 1) for n, whole in pairs) and len(shape) <= len(scores)
    return fits and (dtype_of(mask) is dt.bool_ or dtype_of(mask) is dtype_of(query))


def _is_one(size: object) -> bool:
    """Of a size that the call decides nothing is asked."""
    return type(size) is int and size == 1


def _four(x: Value, batch: Shape, heads: int) -> Value:
    """x: T[..., positions, width] as T[prod(batch), heads, positions, width]."""
    tail = shape_of(x)[-2:]
    return reshape(broadcast_to(x, (*batch, heads, *tail)), (math.prod(batch), heads, *tail))


def _with_dropout(
    query: Value, key: Value, value: Value, mask: Value | None, p: float, causal: bool, scale: float, enable_gqa: bool,
    rng: Any,
) -> Value:  # fmt: skip
    """On a CUDA device as one op, which draws for a weight where it computes it; not for few scores in eager code."""
    of = (
        _heads(query, key, value, mask, enable_gqa) if p < 1.0 and isinstance(rng, tuple) and _is_there(query) else None
    )
    if of is not None:
        drawn = shape_of(query)[:-2] if enable_gqa else broadcast_shapes(shape_of(query)[:-2], shape_of(key)[:-2])
        scores = math.prod((*of.outer, query.shape[-2], key.shape[-2]))
        if drawn == of.outer and (current_trace() is not None or scores >= sizes.MANY):
            return _attended(of, query, key, value, mask, causal, scale, rng[0], dropout=p, stream=rng[1])
    return written_out(query, key, value, mask, p, causal, scale, enable_gqa, rng)


def _attended(
    of: _Heads, query: Value, key: Value, value: Value, mask: Value | None, causal: bool, scale: float,
    *rng: Value, **drawn: Any,
) -> Value:  # fmt: skip
    dtype = dtype_of(query)
    learned = mask is not None and dtype_of(mask) is not dt.bool_ and _is_learned(mask)
    heads = (of.heads, of.key_heads, of.key_heads)
    operands = [_four(x, of.batch, n) for x, n in zip((query, key, value), heads)]
    plan = AttentionSizes.of([meta_of(x) for x in operands], causal)
    if mask is not None:
        operands.append(_four(broadcast_to(mask, (*of.outer, plan.queries, plan.keys)), of.batch, of.heads))
    inner = dtype if current_trace() is None and _is_there(query) else dtype.compute  # passes do it in a graph
    wide = [x if dtype_of(x) is dt.bool_ else cast(x, inner) for x in operands]
    packed = prims.attention(*wide, *rng, scale=scale, causal=causal, learned=learned, strict=False, **drawn)
    out = permute(unpack(packed, plan.packed(inner))[0], (0, 2, 1, 3))  # (B, heads, L, Ev)
    return cast(reshape(out, (*of.outer, plan.queries, plan.value_width)), dtype)


def _is_there(x: Value) -> bool:
    """Whether it is of a CUDA device, or of a graph of one."""
    return cuda.number_of(x) is not None or getattr(current_trace(), "on_gpu", False)


# ---- as a composition


def written_out(
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None,
    dropout_p: float,
    is_causal: bool,
    scale: float,
    enable_gqa: bool = False,
    rng: tuple[Value, int] | None = None,
) -> Value:
    """The same by products and a softmax, of which all weights exist at once."""
    if enable_gqa:
        key, value = _repeat_heads(key, query), _repeat_heads(value, query)
    products = matmul(query, transpose(key, -2, -1))  # (*B, L, S)
    if is_causal and attn_mask is None:
        weights = _causal_softmax(products, scale=scale)
        return matmul(dropout(weights, dropout_p, True, rng=rng) if dropout_p > 0.0 else weights, value)
    scores = mul(products, scale)
    if attn_mask is not None and dtype_of(attn_mask) is dt.bool_:
        scores = where(attn_mask, scores, -math.inf)
    elif attn_mask is not None:
        scores = add(scores, attn_mask)
    weights = softmax(scores, -1) if attn_mask is None else softmax_or_zero(scores, -1)
    if dropout_p > 0.0:
        weights = dropout(weights, dropout_p, True, rng=rng)
    return matmul(weights, value)  # (*B, L, Ev)


def _weights_gradient(g: Value, out: Value, *, scale: float) -> Value:
    """The scores' cotangent, told from the weights."""
    return mul(softmax_gradient(g, out, dim=len(g.shape) - 1), scale)


@whole(rows=True, gradient=_weights_gradient)
def _causal_softmax(x: Value, *, scale: float) -> Value:
    """softmax(x * scale) along the last dim, of which row i of a matrix sees 0..i."""
    return softmax(_causal_scores(x, scale), -1)


def _causal_scores(x: Value, scale: float) -> Value:
    return where(below_diagonal(shape_of(x), 0), mul(x, scale), -math.inf)


# What eager attention makes of products (eager/rules.py): a position that sees nothing has no weights.


@whole(rows=True, gradient=_weights_gradient)
def _weights(x: Value, *, scale: float) -> Value:
    return softmax_or_zero(mul(x, scale), -1)


@whole(rows=True, gradient=_weights_gradient)
def _causal_weights(x: Value, *, scale: float) -> Value:
    return softmax_or_zero(_causal_scores(x, scale), -1)


def _repeat_heads(x: Value, query: Value) -> Value:
    return repeat_interleave(x, query.shape[-3] // x.shape[-3], -3)
