"""Padded positions of a TransformerEncoder, which torch leaves out in evaluation: it packs what is not padded, and
fills the result with zeros.

In: the stack's first layer and its inputs. Out: whether torch would pack, and the result with zeros at what is padded.
The reasons against it are torch's (nn/modules/transformer.py), in its order. Other positions never look at padded ones,
so that they are computed here all the same. Compiled code packs where `mask_check` is off, as torch's does.
"""

from __future__ import annotations

from compiler_core.ops import functional as C
from compiler_core.ops.registry import current_trace
from compiler_core.tensor.autograd.grad_mode import is_grad_enabled
from compiler_core.tensor.tensor import Tensor
from distcompile import backends
from distcompile.amp.autocasting import is_autocast_enabled
from distcompile.nn import functional as F
from distcompile.nn.layers.activation import GELU, ReLU
from distcompile.nn.module import Module


def is_packable(layer: Module) -> bool:
    """Whether an encoder of this layer packs at all."""
    attention = layer.self_attn
    return bool(
        not layer.norm_first
        and attention.batch_first
        and attention._qkv_same_embed_dim
        and attention.in_proj_bias is not None
        and (layer.activation in (F.relu, F.gelu) or isinstance(layer.activation, (ReLU, GELU)))
        and layer.norm1.eps == layer.norm2.eps
        and attention.num_heads % 2 == 0
    )


def is_packed(layer: Module, src: Tensor, mask: Tensor | None, padding: Tensor | None, look: bool) -> bool:
    """Whether this call packs. look: only if all padding is at the ends of sequences; compiled code cannot ask that."""
    return bool(
        backends.mha.get_fastpath_enabled()
        and not layer.training
        and src.dim() == 3
        and padding is not None
        and not (look and (current_trace() is not None or not _is_at_the_end(padding)))
        and mask is None
        and not is_autocast_enabled()
        and not (is_grad_enabled() and (src.requires_grad or any(p.requires_grad for p in layer.parameters())))
    )


def without_padded(x: Tensor, padding: Tensor) -> Tensor:
    """x f[B, L, E] with zeros where padding [B, L], truths or what is added to scores, is not 0."""
    return x.masked_fill((padding != 0).unsqueeze(-1), 0.0)


def _is_at_the_end(padding: Tensor) -> bool:
    padded = padding != 0
    return not bool(C.any(C.logical_and(padded[:, :-1], C.logical_not(padded[:, 1:]))))
