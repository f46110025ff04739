"""Transformer encoder and decoder layers and stacks, with torch's names, arguments and state dict keys.

In: src f[S, B, E], tgt f[T, B, E] (batch_first: batch first). Out: the same shape. Source: Vaswani et al. 2017.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import ClassVar

from compiler_core.dtype import DType
from compiler_core.tensor.making.creation import DeviceLike
from compiler_core.tensor.tensor import Tensor
from distcompile import full
from distcompile.errors import ArgumentError
from distcompile.nn import functional as F
from distcompile.nn import init
from distcompile.nn.layers.containers import ModuleList
from distcompile.nn.layers.dropout import Dropout
from distcompile.nn.layers.linear import Linear
from distcompile.nn.layers.multihead_attention import MultiheadAttention
from distcompile.nn.layers.normalization import LayerNorm
from distcompile.nn.layers.padded_rows import is_packable, is_packed, without_padded
from distcompile.nn.module import Module

Activation = Callable[[Tensor], Tensor]


def _get_activation_fn(activation: str | Activation) -> Activation:
    if not isinstance(activation, str):
        return activation
    if activation not in ("relu", "gelu"):
        raise ArgumentError(f"activation should be relu/gelu, not {activation}")
    return F.relu if activation == "relu" else F.gelu


class _Layer(Module):
    """What encoder and decoder layers share: attentions and a feed-forward network, each with a norm and a dropout."""

    _attentions: ClassVar[tuple[str, ...]] = ("self_attn",)

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        for name in self._attentions:
            attention = MultiheadAttention(
                d_model, nhead, dropout, bias, batch_first=batch_first, device=device, dtype=dtype
            )
            self.add_module(name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, device=device, dtype=dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, device=device, dtype=dtype)
        self.norm_first = norm_first
        self.activation = _get_activation_fn(activation)
        blocks = range(1, len(self._attentions) + 2)
        for i in blocks:
            self.add_module(f"norm{i}", LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype))
        for i in blocks:
            self.add_module(f"dropout{i}", Dropout(dropout))

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))  # type: ignore[no-any-return]

    def _residual(self, x: Tensor, norm: Module, drop: Module, block: Activation) -> Tensor:
        return x + drop(block(norm(x))) if self.norm_first else norm(x + drop(block(x)))  # type: ignore[no-any-return]


class TransformerEncoderLayer(_Layer):
    """Self-attention, then a feed-forward network, each added to its input and normalised:

        x = norm1(x + attention(x))
        x = norm2(x + linear2(activation(linear1(x))))

    With norm_first: x + attention(norm1(x)), and likewise. Source: Vaswani et al. 2017, section 3.1.

    Args:
        d_model: E, width of a position
        nhead: heads of the attention; it divides d_model
        dim_feedforward: width between linear1 and linear2
        dropout: in the attention, after the activation, and before each sum
        activation: "relu", "gelu" or a function
        layer_norm_eps: eps of the norms
        batch_first: src is f[B, S, E], not f[S, B, E]
        norm_first: normalise before each block, not after the sum
        bias: False leaves all biases out

    `forward(src, src_mask=None, src_key_padding_mask=None, is_causal=False)`: masks as `MultiheadAttention` has them.

    Shape: f[S, B, E] -> the same.

    Example:
        >>> layer = nn.TransformerEncoderLayer(d_model=8, nhead=2, dim_feedforward=16, batch_first=True)
        >>> layer(torch.randn(3, 5, 8)).shape
        (3, 5, 8)
    """

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            return self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, is_causal=is_causal)[0]  # type: ignore[no-any-return]

        x = self._residual(src, self.norm1, self.dropout1, attend)
        return self._residual(x, self.norm2, self.dropout2, self._feed_forward)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's `memory`, then a feed-forward network, each added and normalised.

    Args: those of `TransformerEncoderLayer`.

    `forward(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal,
    memory_is_causal)`: masks as `MultiheadAttention` has them, for the first and the second attention.

    Shape: tgt f[T, B, E], memory f[S, B, E] -> f[T, B, E].

    Example:
        >>> layer = nn.TransformerDecoderLayer(d_model=8, nhead=2, dim_feedforward=16)
        >>> layer(torch.randn(4, 3, 8), torch.randn(5, 3, 8)).shape
        (4, 3, 8)
    """

    _attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            return self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask, is_causal=tgt_is_causal)[0]  # type: ignore[no-any-return]

        def look(x: Tensor) -> Tensor:
            return self.multihead_attn(  # type: ignore[no-any-return]
                x, memory, memory, memory_key_padding_mask, False, memory_mask, is_causal=memory_is_causal
            )[0]

        x = self._residual(tgt, self.norm1, self.dropout1, attend)
        x = self._residual(x, self.norm2, self.dropout2, look)
        return self._residual(x, self.norm3, self.dropout3, self._feed_forward)


class _Stack(Module):
    """Copies of one layer."""

    def __init__(self, layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm


class TransformerEncoder(_Stack):
    """`num_layers` copies of an encoder layer, one after the other.

    The copies start with the same weights, as they are copies.

    Args:
        encoder_layer: the layer to copy
        num_layers: how many copies
        norm: a module applied last, or None
        enable_nested_tensor, mask_check: whether padding may become zeros in evaluation, see `forward`

    Shape: f[S, B, E] -> the same.

    Example:
        >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        >>> encoder = nn.TransformerEncoder(layer, num_layers=2)
        >>> mask = nn.Transformer.generate_square_subsequent_mask(5)
        >>> encoder(torch.randn(3, 5, 8), mask=mask, is_causal=True).shape
        (3, 5, 8)
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__(encoder_layer, num_layers, norm)
        self.enable_nested_tensor, self.mask_check = enable_nested_tensor, mask_check
        self.use_nested_tensor = enable_nested_tensor and is_packable(encoder_layer)

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """is_causal: say True where mask is the causal mask; None counts as False (torch looks at the data).

        In evaluation without gradients what is padded at the end of sequences becomes zeros (padded_rows.py).
        """
        padding = src_key_padding_mask
        packed = self.use_nested_tensor and is_packed(self.layers[0], src, mask, padding, self.mask_check)
        for layer in self.layers:
            src = layer(src, mask, padding, is_causal=bool(is_causal))
        if packed and padding is not None:
            src = without_padded(src, padding)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(_Stack):
    """`num_layers` copies of a decoder layer, one after the other, each with the same memory.

    Args:
        decoder_layer: the layer to copy
        num_layers: how many copies
        norm: a module applied last, or None

    Shape: tgt f[T, B, E], memory f[S, B, E] -> f[T, B, E].

    Example:
        >>> decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), num_layers=2)
        >>> decoder(torch.randn(4, 3, 8), torch.randn(5, 3, 8)).shape
        (4, 3, 8)
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Masks as in the layer; tgt_is_causal None counts as False."""
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, bool(tgt_is_causal), memory_is_causal)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder stack and a decoder stack that reads what it made; matrices start xavier-uniform.

    There are no embeddings, positions or output layer. Source: Vaswani et al. 2017.

    Args:
        d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias: as in
            `TransformerEncoderLayer`
        num_encoder_layers, num_decoder_layers: layers of each stack, each ended by a LayerNorm
        custom_encoder, custom_decoder: modules to use in place of the stacks

    Shape: src f[S, B, E], tgt f[T, B, E] -> f[T, B, E]; with batch_first B comes first.

    Example:
        >>> model = nn.Transformer(8, 2, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=16)
        >>> causal = model.generate_square_subsequent_mask(4)
        >>> model(torch.randn(5, 3, 8), torch.randn(4, 3, 8), tgt_mask=causal).shape
        (4, 3, 8)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Activation = F.relu,
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: DeviceLike = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        options = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        norm = [LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype) for _ in range(2)]
        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*options, device=device, dtype=dtype), num_encoder_layers, norm[0]
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*options, device=device, dtype=dtype), num_decoder_layers, norm[1]
        )
        for parameter in self.parameters():
            if parameter.dim() > 1:
                init.xavier_uniform_(parameter)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        return self.decoder(tgt, memory, *masks, tgt_is_causal, memory_is_causal)  # type: ignore[no-any-return]

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: DeviceLike = None, dtype: DType | None = None) -> Tensor:
        """f[sz, sz] to add to the scores: -inf above the diagonal, 0 elsewhere.

        Example:
            >>> nn.Transformer.generate_square_subsequent_mask(3)
            tensor([[0., -inf, -inf],
                    [0., 0., -inf],
                    [0., 0., 0.]])
        """
        return full((sz, sz), float("-inf"), device=device, dtype=dtype).triu(1)
