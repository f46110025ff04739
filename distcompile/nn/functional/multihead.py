"""Multi-head attention as a function of its projections: torch's multi_head_attention_forward, and the module's core.

In: query, key, value, weights and masks. Out: (attended values, weights per head or None). `attend` works batch first;
torch's function is sequence first. Source: Vaswani et al. 2017, section 3.2.2.
"""

# mypy: disable-error-code="no-any-return"
# The core's functions take and return any Value: array, graph node or Tensor.
from __future__ import annotations

from compiler_core.errors import ShapeError
from compiler_core.ops import functional as C
from compiler_core.ops.lying import as_told
from compiler_core.ops.registry import current_trace
from compiler_core.records import dataclass
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError
from distcompile.nn.functional.attention import attention_with_weights, merged_mask, scaled_dot_product_attention
from distcompile.nn.functional.layers import linear


@dataclass(frozen=True, slots=True)
class Projections:
    """What is learned: the joint weight f[3E, E], or `apart` for query, key, value; a bias f[3E]; the way out.

    bias_k, bias_v: f[1, 1, E], appended to keys and values.
    """

    joint: Tensor | None
    apart: tuple[Tensor, Tensor, Tensor] | None
    bias: Tensor | None
    bias_k: Tensor | None
    bias_v: Tensor | None
    out_weight: Tensor
    out_bias: Tensor | None

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, f[B, *, E]; one product where the three inputs are one tensor."""
        if self.apart is not None:
            weights = self.apart
        elif self.joint is None:
            raise ArgumentError("use_separate_proj_weight is False but in_proj_weight is None")
        elif query is key and key is value:
            return linear(query, self.joint, self.bias).chunk(3, -1)
        else:
            weights = self.joint.chunk(3)
        biases = (None, None, None) if self.bias is None else self.bias.chunk(3)
        q, k, v = (linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
        return q, k, v


@dataclass(frozen=True, slots=True)
class Masks:
    """attention: [L, S] or [B·heads, L, S]; padding: [B, S]; bool (True is not attended) or float (added)."""

    attention: Tensor | None
    padding: Tensor | None
    is_causal: bool = False

    def extended(self, count: int) -> Masks:
        """For `count` more keys, which all may see."""
        more = [None if mask is None else C.pad(mask, (0, count)) for mask in (self.attention, self.padding)]
        return Masks(more[0], more[1], self.is_causal) if count else self


def _heads(x: Tensor, heads: int) -> Tensor:
    """f[B, S, E] -> f[B, H, S, E/H]."""
    return x.reshape(x.shape[0], x.shape[1], heads, x.shape[2] // heads).transpose(1, 2)


def _given_heads(static: Tensor, batch: int, heads: int, like: Tensor) -> Tensor:
    """f[B·H, S, E/H] -> f[B, H, S, E/H]. Raises ShapeError."""
    if static.dim() != 3 or (static.shape[0], static.shape[2]) != (batch * heads, like.shape[-1]):
        expected = f"({batch * heads}, S, {like.shape[-1]})"
        raise ShapeError("static keys and values do not fit", expected=expected, got=str(tuple(static.shape)))
    return static.reshape(batch, heads, *static.shape[1:])


def _attended(
    q: Tensor, k: Tensor, v: Tensor, masks: Masks, dropout_p: float, need_weights: bool, is_causal: bool
) -> tuple[Tensor, Tensor | None]:
    """(f[B, H, L, E/H], weights or None)."""
    if is_causal and masks.padding is None and not need_weights:
        return scaled_dot_product_attention(q, k, v, None, dropout_p, is_causal=True), None
    mask = merged_mask(masks.attention, masks.padding, q.shape[0], q.shape[1], q)
    if need_weights:
        return attention_with_weights(q, k, v, mask, dropout_p)
    return scaled_dot_product_attention(q, k, v, mask, dropout_p), None


def attend(
    inputs: tuple[Tensor, Tensor, Tensor],
    heads: int,
    projections: Projections,
    masks: Masks,
    dropout_p: float,
    *,
    need_weights: bool,
    add_zero_attn: bool = False,
    static: tuple[Tensor | None, Tensor | None] = (None, None),
) -> tuple[Tensor, Tensor | None]:
    """(f[B, L, E], weights f[B, heads, L, S] or None) from f[B, L, E], f[B, S, kdim], f[B, S, vdim]."""
    batch, length, width = inputs[0].shape
    q, k, v = projections(*inputs)
    extra = 0
    if projections.bias_k is not None and projections.bias_v is not None:
        appended = ((k, projections.bias_k), (v, projections.bias_v))
        k, v = (C.cat([x, b.expand(batch, 1, width)], 1) for x, b in appended)
        extra += 1
    q, k, v = (_heads(x, heads) for x in (q, k, v))  # (B, H, L or S, E/H)
    k, v = (x if s is None else _given_heads(s, batch, heads, q) for x, s in zip((k, v), static, strict=True))
    if add_zero_attn:
        k, v = (C.cat([x, x.new_zeros((batch, heads, 1, x.shape[-1]))], 2) for x in (k, v))
        extra += 1
    sizes = (length, k.shape[2] - extra)
    if masks.attention is not None and tuple(masks.attention.shape[-2:]) != sizes:
        raise ShapeError("attn_mask does not fit", expected=str(sizes), got=str(tuple(masks.attention.shape)))
    out, weights = _attended(q, k, v, masks.extended(extra), dropout_p, need_weights, masks.is_causal and not extra)
    return _projected(out, projections), weights


def _projected(heads: Tensor, projections: Projections) -> Tensor:
    """f[B, L, E] from f[B, H, L, E/H]; eager in torch's order of memory, in which dropout draws: L is the slowest."""
    batch, _, length, _ = heads.shape
    if current_trace() is not None:
        rows = heads.transpose(1, 2).reshape(batch, length, -1)
        return as_told(_sequence_first, linear(rows, projections.out_weight, projections.out_bias), ())
    rows = heads.permute(2, 0, 1, 3).reshape(length, batch, -1)
    return linear(rows, projections.out_weight, projections.out_bias).transpose(0, 1)


def _sequence_first(_: object) -> list[tuple[int, ...]]:
    """Strides of f[B, L, E] that lies as f[L, B, E]: so torch leaves what was attended, batch first or not."""
    return [(2, 3, 1)]


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """nn.MultiheadAttention's computation with its parameters given: f[L, B, E], f[S, B, *] (or without B).

    Returns (f[like query], weights f[B, L, S], or f[B, heads, L, S] if not averaged, or None if not needed).
    static_k, static_v: f[B·heads, S, E/heads], instead of what is projected. Masks as the module's.
    """
    _check_sizes(query, embed_dim_to_check, num_heads)
    if is_causal and attn_mask is None:
        raise ArgumentError("Need attn_mask if specifying the is_causal hint.")
    if (bias_k is None) != (bias_v is None):
        raise ArgumentError("bias_k and bias_v are given together", got="one of them")
    apart = _three_weights(q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    is_batched = query.dim() == 3
    same = query is key and key is value
    query, key, value = (x.transpose(0, 1) if is_batched else x.unsqueeze(0) for x in (query, key, value))
    inputs = (query, query, query) if same else (query, key, value)
    padding = key_padding_mask if is_batched or key_padding_mask is None else key_padding_mask.unsqueeze(0)
    projections = Projections(in_proj_weight, apart, in_proj_bias, bias_k, bias_v, out_proj_weight, out_proj_bias)
    out, weights = attend(
        inputs, num_heads, projections, Masks(attn_mask, padding, is_causal), dropout_p if training else 0.0,
        need_weights=need_weights, add_zero_attn=add_zero_attn, static=(static_k, static_v),
    )  # fmt: skip
    if weights is not None and average_attn_weights:
        weights = weights.mean(1)
    if is_batched:
        return out.transpose(0, 1), weights
    return out.squeeze(0), None if weights is None else weights.squeeze(0)


def _check_sizes(query: Tensor, embed_dim: int, num_heads: int) -> None:
    if query.shape[-1] != embed_dim or embed_dim % num_heads:
        expected = f"embedding of {embed_dim}, a multiple of {num_heads}"
        raise ArgumentError("multi_head_attention_forward: sizes do not fit", expected=expected, got=str(query.shape))


def _three_weights(q: Tensor | None, k: Tensor | None, v: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The weights of separate projections. Raises ArgumentError where one is missing."""
    if q is None or k is None or v is None:
        raise ArgumentError("use_separate_proj_weight is True but a weight is None")
    return q, k, v
