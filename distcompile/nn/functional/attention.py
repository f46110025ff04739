"""Attention functions: scaled dot product, and torch's multi-head attention on projected inputs.

In: query, key, value. Out: attended values (and, for multi-head attention, the weights if asked for).
Source: Vaswani et al. 2017.
"""

# mypy: disable-error-code="no-any-return"
# The core's functions take and return any Value: array, graph node or Tensor.
from __future__ import annotations

from compiler_core.dtype import bool_
from compiler_core.ops import functional as C
from compiler_core.ops.broadcasting import broadcast_shapes
from compiler_core.tensor.making.filling import kept_by_dropout
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(Q Kᵀ·scale + mask) V: f[..., L, E], f[..., S, E], f[..., S, Ev] -> f[..., L, Ev].

    Args:
        attn_mask: bool (True: may be attended) or float (added), broadcastable to [..., L, S]
        dropout_p: probability of a weight being zeroed, always: it knows no evaluation mode
        is_causal: position i sees positions up to i; ArgumentError with an attn_mask
        scale: None: 1/√E
        enable_gqa: key and value may have fewer heads (dimension -3); each serves several of query's

    Source: Vaswani et al. 2017, section 3.2.1.

    Example:
        >>> q = k = v = torch.eye(2)
        >>> F.scaled_dot_product_attention(q, k, v, is_causal=True)
        tensor([[1.0000, 0.0000],
                [0.3302, 0.6698]])
    """
    if attn_mask is not None and is_causal:
        raise ArgumentError("Explicit attn_mask should not be set when is_causal=True")
    rng = None
    if 0 < dropout_p < 1:
        batch = broadcast_shapes(query.shape[:-2], query.shape[:-2] if enable_gqa else key.shape[:-2])
        rng = kept_by_dropout(query.device, (*batch, query.shape[-2], key.shape[-2]), dropout_p)
    return C.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa=enable_gqa, rng=rng
    )


def float_mask(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """A mask in nn.MultiheadAttention's convention (bool: True is *not* attended) as one to add."""
    if mask is None or mask.dtype is not bool_:
        return mask
    return C.masked_fill(like.new_zeros(mask.shape), mask, float("-inf"))


def merged_mask(
    attn_mask: Tensor | None, key_padding_mask: Tensor | None, batch: int, heads: int, like: Tensor
) -> Tensor | None:
    """attn_mask [L, S] or [B·heads, L, S], and key_padding_mask [B, S], as one to add: f[B|1, heads|1, L|1, S]."""
    attn_mask, padding = float_mask(attn_mask, like), float_mask(key_padding_mask, like)
    if attn_mask is not None:
        length, source = attn_mask.shape[-2:]
        attn_mask = attn_mask.reshape(
            (batch, heads, length, source) if attn_mask.dim() == 3 else (1, 1, length, source)
        )
    if padding is None:
        return attn_mask
    padding = padding.reshape(batch, 1, 1, padding.shape[-1])
    return padding if attn_mask is None else attn_mask + padding


def attention_with_weights(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float
) -> tuple[Tensor, Tensor]:
    """As scaled_dot_product_attention with a mask to add; also the weights f[..., L, S], after dropout."""
    scores = C.matmul(query * query.shape[-1] ** -0.5, key.transpose(-2, -1))
    weights = C.softmax(scores if mask is None else scores + mask, -1)
    if dropout_p > 0:
        rng = kept_by_dropout(weights.device, weights.shape, dropout_p) if dropout_p < 1 else None
        weights = C.dropout(weights, dropout_p, True, rng=rng)
    return C.matmul(weights, value), weights
