"""The functions behind the layers: linear, embedding, normalisations, dropout, padding; with torch's signatures.

In: tensors and the layer's parameters. Out: tensors.
"""

# mypy: disable-error-code="no-any-return"
# The core's functions take and return any Value: array, graph node or Tensor.
from __future__ import annotations

from collections.abc import Sequence

from compiler_core.ops import functional as C
from compiler_core.tensor.grad_mode import no_grad
from compiler_core.tensor.random import default_generator
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError, NotSupportedError


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b: f[..., in] -> f[..., out], W: f[out, in]."""
    return C.linear(input, weight, bias)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x₁ᵀ W[k] x₂ + b[k], W: f[out, in1, in2]."""
    return C.bilinear(input1, input2, weight, bias)


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of weight f[num, dim] at i[...]: f[..., dim]. The row `padding_idx` gets no gradient."""
    if max_norm is not None or scale_grad_by_freq or sparse:
        raise NotSupportedError("embedding offers neither max_norm nor scale_grad_by_freq nor sparse")
    if padding_idx is not None:
        rows = weight.shape[0]
        if not -rows <= padding_idx < rows:
            raise ArgumentError("Padding_idx must be within num_embeddings", expected=f"< {rows}", got=str(padding_idx))
        padding_idx %= rows
    return C.embedding(input, weight, padding_idx)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """i64[..., num_classes]: 1 at the class. num_classes -1: the largest class plus one (reads the data)."""
    if num_classes == -1:
        num_classes = int(C.amax(tensor).item()) + 1
    return C.one_hot(tensor, num_classes)


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean)/√(var + eps)·weight + bias over the last len(normalized_shape) dimensions."""
    return C.layer_norm(input, normalized_shape, weight, bias, eps)


def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """x/√(mean(x²) + eps)·weight over the last len(normalized_shape) dimensions; eps None: the dtype's epsilon."""
    return C.rms_norm(input, normalized_shape, weight, eps)


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """f[N, C, ...] normalised over each group of channels; weight and bias f[C]."""
    return C.group_norm(input, num_groups, weight, bias, eps)


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """f[N, C, ...] normalised per channel: by the batch if training (the running statistics move), else by them."""
    result: Tensor = C.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if training and running_mean is not None and running_var is not None:
        with no_grad():
            mean, variance = C.batch_statistics(input)
            running_mean.copy_(running_mean * (1 - momentum) + mean * momentum)
            running_var.copy_(running_var * (1 - momentum) + variance * momentum)
    return result


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: None = None) -> Tensor:
    """x / max(‖x‖ₚ, eps) along dim."""
    if out is not None:
        raise NotSupportedError("normalize(out=...) is not offered")
    return C.normalize(input, p, dim, eps)


def _dropped(input: Tensor, shape: Sequence[int], p: float, inplace: bool) -> Tensor:
    """input with a mask of `shape` (broadcast) applied, and scaled by 1/(1-p)."""
    ones = input.new_ones(tuple(shape)) if tuple(shape) != tuple(input.shape) else None
    rng = default_generator.next_key() if 0 < p < 1 else None
    if ones is None:
        result: Tensor = C.dropout(input, p, True, rng=rng)
    else:
        result = input * C.dropout(ones, p, True, rng=rng)
    return input.copy_(result) if inplace else result


def _check_p(p: float) -> None:
    if not 0 <= p <= 1:
        raise ArgumentError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each element zero with probability p, the others times 1/(1-p); the identity unless training."""
    _check_p(p)
    return _dropped(input, input.shape, p, inplace) if training and p > 0 else input


def _channel_dropout(input: Tensor, spatial: int, p: float, training: bool, inplace: bool) -> Tensor:
    _check_p(p)
    if not training or p == 0:
        return input
    lead = input.dim() - spatial
    return _dropped(input, [*input.shape[:lead], *(1 for _ in range(spatial))], p, inplace)


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Whole channels of f[N, C, L] (or f[C, L]) zero with probability p."""
    return _channel_dropout(input, 1, p, training, inplace)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Whole channels of f[N, C, H, W] (or f[C, H, W]) zero with probability p."""
    return _channel_dropout(input, 2, p, training, inplace)


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Pads the last dimensions first: (left, right, top, bottom, ...); negative numbers crop."""
    return C.pad(input, pad, mode, value)
