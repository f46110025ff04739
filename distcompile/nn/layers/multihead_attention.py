"""MultiheadAttention, with torch's parameters (state dict keys) and its two mask arguments.

In: query f[L, B, E], key f[S, B, kdim], value f[S, B, vdim] (batch_first: batch first; without a batch: no B).
Out: (f[like query], weights or None). Source: Vaswani et al. 2017, section 3.2.2.
"""

from __future__ import annotations

from compiler_core.dtype import DType
from compiler_core.ops.lying import as_told
from compiler_core.tensor.making.creation import DeviceLike
from compiler_core.tensor.tensor import Tensor
from distcompile import empty
from distcompile.errors import ArgumentError, AssertedArgumentError
from distcompile.nn import init
from distcompile.nn.functional.multihead import Masks, Projections, attend
from distcompile.nn.layers.linear import Linear
from distcompile.nn.module import Module
from distcompile.nn.parameter import Parameter


class MultiheadAttention(Module):
    """Attention in `num_heads` subspaces: concat over heads h of softmax(Qₕ Kₕᵀ / √(E/heads)) Vₕ, times Wₒ, plus bₒ.

    Qₕ, Kₕ and Vₕ are projections of query, key and value. The three weights are one, `in_proj_weight` f[3E, E], unless
    kdim or vdim differ from E; they start xavier-uniform, biases at zero. Source: Vaswani et al. 2017, section 3.2.2.

    Args:
        embed_dim: E, width of query and output
        num_heads: it divides embed_dim, else AssertedArgumentError
        dropout: probability of a weight being zeroed, in training
        bias: False leaves the biases of the projections out
        add_bias_kv: append a learned key and a learned value to the sequences
        add_zero_attn: append a key and a value of zeros
        kdim, vdim: width of key and value; None: embed_dim
        batch_first: query, key, value and output are f[B, L, E], not f[L, B, E]

    Shape: query f[L, B, E], key f[S, B, kdim], value f[S, B, vdim], or all without B
    -> (f[L, B, E], weights f[B, L, S] or None).

    Example:
        >>> attention = nn.MultiheadAttention(8, num_heads=2, batch_first=True)
        >>> x = torch.randn(3, 5, 8)
        >>> output, weights = attention(x, x, x)
        >>> output.shape, weights.shape
        ((3, 5, 8), (3, 5, 5))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: DeviceLike = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
            raise AssertedArgumentError("embed_dim must be divisible by num_heads", got=f"{embed_dim}, {num_heads}")
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.head_dim, self.add_zero_attn = embed_dim // num_heads, add_zero_attn
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        joint = {"in": (3 * embed_dim, embed_dim)}
        apart = {"q": (embed_dim, embed_dim), "k": (embed_dim, self.kdim), "v": (embed_dim, self.vdim)}
        present, absent = (joint, apart) if self._qkv_same_embed_dim else (apart, joint)
        for name, shape in present.items():
            self.register_parameter(f"{name}_proj_weight", Parameter(empty(*shape, device=device, dtype=dtype)))
        for name in absent:
            self.register_parameter(f"{name}_proj_weight", None)
        self.register_parameter(
            "in_proj_bias", Parameter(empty(3 * embed_dim, device=device, dtype=dtype)) if bias else None
        )
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        for name in ("bias_k", "bias_v"):
            self.register_parameter(
                name, Parameter(empty(1, 1, embed_dim, device=device, dtype=dtype)) if add_bias_kv else None
            )
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for name in ("in", "q", "k", "v"):
            weight = getattr(self, f"{name}_proj_weight")
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        if self.bias_k is not None:
            init.xavier_normal_(self.bias_k)
            init.xavier_normal_(self.bias_v)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from `query` to `key` and `value`; (output, weights).

        Args:
            key_padding_mask: [B, S], which keys are padding
            need_weights: False: the second result is None
            attn_mask: [L, S] or [B·heads, L, S], which keys a query does not see
            average_attn_weights: weights averaged over heads; False: f[B, heads, L, S]
            is_causal: a hint that attn_mask is the causal mask, which must be given too, else ArgumentError

        Masks are bool (True is not attended; the opposite of `scaled_dot_product_attention`) or float (added).
        """
        if is_causal and attn_mask is None:
            raise ArgumentError("Need attn_mask if specifying the is_causal hint.")
        batched, same = query.dim() == 3, query is key and key is value
        if not batched:
            query, key, value = (x.unsqueeze(0) for x in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        inputs = (query, query, query) if same else (query, key, value)
        apart = None if self._qkv_same_embed_dim else (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        projections = Projections(
            self.in_proj_weight, apart, self.in_proj_bias, self.bias_k, self.bias_v,
            self.out_proj.weight, self.out_proj.bias,
        )  # fmt: skip
        masks = Masks(attn_mask, key_padding_mask, is_causal)
        out, weights = attend(
            inputs, self.num_heads, projections, masks, self.dropout if self.training else 0.0,
            need_weights=need_weights, add_zero_attn=self.add_zero_attn,
        )  # fmt: skip
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            return out.squeeze(0), None if weights is None else weights.squeeze(0)
        if not self.batch_first:
            return out.transpose(0, 1), weights
        is_read_only = same and not self.training and not out.requires_grad  # torch's one kernel for all of it
        return as_told("rows", out, ()) if is_read_only else out, weights
