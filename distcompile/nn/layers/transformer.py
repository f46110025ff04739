"""Transformer encoder and decoder layers and stacks, with torch's names, arguments and state dict keys.

In: src f[S, B, E], tgt f[T, B, E] (batch_first: batch first). Out: the same shape. Source: Vaswani et al. 2017.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

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
    """What encoder and decoder layers share: the feed-forward half, after the attentions in the state dict."""

    def __init__(
        self,
        attentions: Mapping[str, Module],
        d_model: int,
        dim_feedforward: int,
        dropout: float,
        activation: str | Activation,
        norm_first: bool,
        bias: bool,
        device: DeviceLike,
        dtype: DType | None,
    ) -> None:
        super().__init__()
        for name, attention in attentions.items():
            self.add_module(name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, device=device, dtype=dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, device=device, dtype=dtype)
        self.norm_first = norm_first
        self.activation = _get_activation_fn(activation)

    def _feed_forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return y

    def _residual(self, x: Tensor, norm: Module, drop: Module, block: Activation) -> Tensor:
        y: Tensor = x + drop(block(norm(x))) if self.norm_first else norm(x + drop(block(x)))
        return y


class TransformerEncoderLayer(_Layer):
    """Self-attention, then feed-forward, each with residual and layer norm (before it if norm_first)."""

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
        attention = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, device=device, dtype=dtype
        )
        super().__init__(
            {"self_attn": attention}, d_model, dim_feedforward, dropout, activation, norm_first, bias, device, dtype
        )
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            y: Tensor = self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, is_causal=is_causal)[0]
            return y

        x = self._residual(src, self.norm1, self.dropout1, attend)
        return self._residual(x, self.norm2, self.dropout2, self._feed_forward)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's memory, then feed-forward."""

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
        attentions = {
            name: MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, device=device, dtype=dtype)
            for name in ("self_attn", "multihead_attn")
        }
        super().__init__(attentions, d_model, dim_feedforward, dropout, activation, norm_first, bias, device, dtype)
        for i in (1, 2, 3):
            setattr(self, f"norm{i}", LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype))
        for i in (1, 2, 3):
            setattr(self, f"dropout{i}", Dropout(dropout))

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
            y: Tensor = self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask, is_causal=tgt_is_causal)[0]
            return y

        def look(x: Tensor) -> Tensor:
            y: Tensor = self.multihead_attn(
                x, memory, memory, memory_key_padding_mask, False, memory_mask, is_causal=memory_is_causal
            )[0]
            return y

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
    """`num_layers` copies of an encoder layer, one after the other; norm: applied last."""

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
    """`num_layers` copies of a decoder layer, one after the other; norm: applied last."""

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
    """Encoder and decoder stacks, xavier-initialised."""

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
        out: Tensor = self.decoder(tgt, memory, *masks, tgt_is_causal, memory_is_causal)
        return out

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: DeviceLike = None, dtype: DType | None = None) -> Tensor:
        """f[sz, sz] to add: -inf above the diagonal, 0 elsewhere."""
        mask: Tensor = full((sz, sz), float("-inf"), device=device, dtype=dtype).triu(1)
        return mask
