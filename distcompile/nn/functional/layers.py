"""The functions behind the layers: linear, normalisations, dropout, padding; with torch's signatures.

In: tensors and the layer's parameters. Out: tensors.
"""

# mypy: disable-error-code="no-any-return"
# The core's functions take and return any Value: array, graph node or Tensor.
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from compiler_core.cuda import is_array, lone
from compiler_core.dtype import int64
from compiler_core.errors import ShapeError
from compiler_core.ops import functional as C
from compiler_core.ops.casting import in_lower
from compiler_core.ops.convolution.composite import conv1d
from compiler_core.ops.lying import lies
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import current_trace
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.dropping import dropped
from compiler_core.tensor.making.filling import kept_by_dropout, order_like
from compiler_core.tensor.straight import array_of
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError, NotSupportedError


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b: f[..., in] -> f[..., out], W: f[out, in].

    Example:
        >>> F.linear(torch.tensor([1.0, 2.0]), torch.tensor([[1.0, 1.0], [0.0, 1.0]]))
        tensor([3., 2.])
    """
    return C.linear(input, weight, bias)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x₁ᵀ W[k] x₂ + b[k], W: f[out, in1, in2].

    Example:
        >>> F.bilinear(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0]]), torch.ones(1, 2, 1))
        tensor([[9.]])
    """
    return C.bilinear(input1, input2, weight, bias)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """i64[..., num_classes]: 1 at the class. num_classes -1: the largest class plus one (reads the data).

    Example:
        >>> F.one_hot(torch.tensor([0, 2]))
        tensor([[1, 0, 0],
                [0, 0, 1]])
    """
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
    """(x - mean)/√(var + eps)·weight + bias over the last len(normalized_shape) dimensions. See `LayerNorm`.

    Example:
        >>> F.layer_norm(torch.tensor([[1.0, 3.0]]), (2,))
        tensor([[-1.0000,  1.0000]])
    """
    return C.layer_norm(input, normalized_shape, weight, bias, eps)


def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """x/√(mean(x²) + eps)·weight over the last len(normalized_shape) dimensions; eps None: the dtype's epsilon.

    Example:
        >>> F.rms_norm(torch.tensor([[0.0, 1.0]]), (2,))
        tensor([[0.0000, 1.4142]])
    """
    return C.rms_norm(input, normalized_shape, weight, eps)


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """f[N, C, ...] normalised over each group of channels; weight and bias f[C]. See `GroupNorm`.

    Example:
        >>> F.group_norm(torch.tensor([[1.0, 3.0, 10.0, 30.0]]), num_groups=2)
        tensor([[-1.0000,  1.0000, -1.0000,  1.0000]])
    """
    return C.group_norm(input, num_groups, weight, bias, eps)


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """f[N, C, ...] normalised per channel: by the batch if training (the running statistics move), else by them.

    See `BatchNorm1d` for the formula. running_mean and running_var, f[C], change in place; None: there are none, which
    evaluation does not allow (ShapeError). Training needs more than one value a channel, else ArgumentError.

    Example:
        >>> mean, variance = torch.zeros(1), torch.ones(1)
        >>> F.batch_norm(torch.tensor([[1.0], [3.0]]), mean, variance, training=True).flatten()
        tensor([-1.0000,  1.0000])
        >>> mean
        tensor([0.2000])
    """
    sizes = tuple(input.shape)
    if training and math.prod((*sizes[:1], *sizes[2:])) == 1:
        raise ArgumentError("Expected more than 1 value per channel when training", got=f"input size {input.shape}")
    if eps < 0 or (training and not eps):
        what = "positive during training" if training else "non-negative"
        raise ArgumentError(f"batch_norm eps must be {what}", got=str(eps))
    if not training and (running_mean is None or running_var is None):
        raise ShapeError("running_mean and running_var must be defined in evaluation mode")
    result: Tensor = C.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if training and running_mean is not None and running_var is not None and len(sizes) > 1:
        if _are_moved_at_once(input, running_mean, running_var, momentum, result):
            return result
        with no_grad():
            mean, variance = C.batch_statistics(input)
            running_mean.copy_(running_mean * (1 - momentum) + mean * momentum)
            running_var.copy_(running_var * (1 - momentum) + variance * momentum)
    return result


def _are_moved_at_once(x: Tensor, mean: Tensor, variance: Tensor, momentum: float | Tensor, result: Tensor) -> bool:
    """Whether the running statistics were moved by one kernel, on the device that all are on. result: batch norm's."""
    if current_trace() is not None or not isinstance(momentum, float):
        return False
    arrays: tuple[Any, Any, Any] = array_of(x), array_of(mean), array_of(variance)
    if arrays[0] is None or arrays[1] is None or arrays[2] is None:
        arrays = x._read(), mean._read(), variance._read()
    if type(arrays[0]) is lone.array or is_array(arrays[0]):
        from compiler_core.eager.device.several import kept_by, moved_statistics

        moved = moved_statistics(*arrays, momentum, kept_by("batch_norm", result))
    else:
        from compiler_core.eager.channels import moved_statistics as moved_here

        moved = moved_here(*arrays, momentum)
    if moved is None:
        return False
    for running, array in zip((mean, variance), moved):
        if running._view is None:
            running._cell.write(array)
        else:
            with no_grad():
                running._assign(Tensor._wrap(array))
    return True


@lies("rows")
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """f[N, C, ...] normalised per sample and channel (running statistics move by the mean over samples), or by them.

    Example:
        >>> F.instance_norm(torch.tensor([[[1.0, 3.0], [10.0, 30.0]]]))
        tensor([[[-1.0000,  1.0000],
                 [-1.0000,  1.0000]]])
    """
    if not use_input_stats:
        return C.batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    if input.dim() < 3 or math.prod(input.shape[2:]) == 1:
        raise ArgumentError("Expected more than 1 spatial element when training", got=f"input size {input.shape}")
    if running_mean is not None and running_var is not None:
        with no_grad():
            dims = tuple(range(2, input.dim()))
            mean, variance = input.mean(dims).mean(0), input.var(dims).mean(0)
            running_mean.copy_(running_mean * (1 - momentum) + mean * momentum)
            running_var.copy_(running_var * (1 - momentum) + variance * momentum)
    return C.group_norm(input, input.shape[1], weight, bias, eps)


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """x / (k + alpha·mean of x² over `size` neighbouring channels)^beta, for f[N, C, L...]. Krizhevsky et al. 2012.

    Example:
        >>> F.local_response_norm(torch.ones(1, 2, 1), size=2, alpha=1.0).flatten()
        tensor([0.7378, 0.5946])
    """
    if input.dim() < 3:
        raise ArgumentError(f"Expected 3D or higher dimensionality input (got {input.dim()} dimensions)")
    if input.dtype is not int64:
        need_kind("local_response_norm", "f", input)
    channels = input.shape[1]
    around = [0, 0] * (input.dim() - 2) + [size // 2, (size - 1) // 2]
    squares = C.pad(input * input, around)
    total = squares[:, :channels]
    for shift in range(1, size):
        total = total + squares[:, shift : shift + channels]
    return input / (k + total * (alpha / size)) ** beta


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: None = None) -> Tensor:
    """x / max(‖x‖ₚ, eps) along dim.

    Example:
        >>> F.normalize(torch.tensor([[3.0, 4.0]]))
        tensor([[0.6000, 0.8000]])
    """
    if out is not None:
        raise NotSupportedError("normalize(out=...) is not offered")
    return C.normalize(input, p, dim, eps)


def _kept(input: Tensor, shape: Sequence[int], p: float) -> Any:
    """What dropout keeps of input, in the order of its memory, or of whole channels, of this shape."""
    order = order_like(input) if tuple(shape) == tuple(input.shape) else None
    return kept_by_dropout(input.device, shape, p, order)


def _dropped(input: Tensor, shape: Sequence[int], p: float, inplace: bool) -> Tensor:
    """input with a mask of `shape` (broadcast) applied, and scaled by 1/(1-p)."""
    is_full, is_whole = 0 not in input.shape, tuple(shape) == tuple(input.shape)
    rng = _kept(input, shape, p) if 0 < p < 1 and is_full else None
    if is_whole or not isinstance(rng, tuple):
        result: Tensor = C.dropout(input, p, is_full, rng=rng)
    else:
        result = input * C.dropout(input.new_ones(tuple(shape)), p, True, rng=rng)
    return input.copy_(result) if inplace else result


def _check_p(p: float) -> None:
    if not 0 <= p <= 1:
        raise ArgumentError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each element zero with probability p, the others times 1/(1-p); the identity unless training.

    training is True unless given: in a module, pass `self.training`. See `Dropout`.

    Example:
        >>> F.dropout(torch.ones(3), p=0.5, training=False)
        tensor([1., 1., 1.])
    """
    _check_p(p)
    if not training or p == 0:
        return input
    made = dropped(input, p) if not inplace and p < 1 else None
    return _dropped(input, input.shape, p, inplace) if made is None else made


def _channel_dropout(input: Tensor, lead: int, p: float, training: bool, inplace: bool) -> Tensor:
    """Dropout of everything that shares its first `lead` indices."""
    _check_p(p)
    if not training or p == 0:
        return input
    return _dropped(input, [*input.shape[:lead], *(1 for _ in range(input.dim() - lead))], p, inplace)


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Whole channels of f[N, C, L] (or f[C, L]) zero with probability p.

    Example:
        >>> F.dropout1d(torch.ones(2, 3), p=0.5, training=False).shape
        (2, 3)
    """
    return _channel_dropout(input, 1 if input.dim() == 2 else 2, p, training, inplace)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Whole channels of f[N, C, H, W] zero with probability p; f[N, C, L] is taken as by `dropout1d`, as in torch.

    Example:
        >>> F.dropout2d(torch.ones(1, 2, 3, 3), p=0.5, training=False).shape
        (1, 2, 3, 3)
    """
    return _channel_dropout(input, 2, p, training, inplace)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Whole channels of f[N, C, D, H, W] (or f[C, D, H, W]) zero with probability p.

    Example:
        >>> F.dropout3d(torch.ones(1, 2, 3, 3, 3), p=0.5, training=False).shape
        (1, 2, 3, 3, 3)
    """
    return _channel_dropout(input, 1 if input.dim() == 4 else 2, p, training, inplace)


def _alpha_dropped(input: Tensor, shape: Sequence[int], p: float, training: bool, inplace: bool) -> Tensor:
    """SELU's dropout: what falls out becomes SELU's lower limit, and mean and variance stay. Klambauer et al. 2017."""
    _check_p(p)
    if not training or p == 0:
        return input
    limit = 1.7580993408473766  # -lim selu(x), x -> -infinity
    if p == 1:
        result = input * 0.0
    else:
        scale = 1 / math.sqrt((limit * limit * p + 1) * (1 - p))
        rng = _kept(input, shape, p)
        keep = C.dropout(input.new_ones(tuple(shape)), p, True, rng=rng) != 0
        result = C.where(keep, input * scale, -limit * scale) + limit * scale * p
    return input.copy_(result) if inplace else result


@lies("alike")
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout that keeps mean and variance of SELU's outputs: elements are set to its limit with probability p.

    Example:
        >>> F.alpha_dropout(torch.ones(2), p=0.5, training=False)
        tensor([1., 1.])
    """
    return _alpha_dropped(input, input.shape, p, training, inplace)


@lies("alike")
def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """`alpha_dropout` of whole channels of f[N, C, ...].

    Example:
        >>> F.feature_alpha_dropout(torch.ones(1, 2, 2), p=0.5, training=False).shape
        (1, 2, 2)
    """
    shape = [*input.shape[:2], *(1 for _ in range(input.dim() - 2))]
    return _alpha_dropped(input, shape, p, training, inplace)


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Pads the last dimensions first: (left, right, top, bottom, ...); negative numbers crop.

    mode: "constant" (with `value`, 0 unless given), "reflect", "replicate" or "circular".

    Example:
        >>> F.pad(torch.tensor([[1.0, 2.0, 3.0]]), (1, 2), mode="reflect")
        tensor([[2., 1., 2., 3., 2., 1.]])
    """
    return C.pad(input, pad, mode, value)


@in_lower
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """A convolution over time: input f[T, B, in], weight f[k, in, out], bias f[out] -> f[T + 2*pad - k + 1, B, out].

    Example:
        >>> F.conv_tbc(torch.ones(3, 1, 2), torch.ones(2, 2, 1), torch.zeros(1)).flatten()
        tensor([4., 4.])
    """
    convolved = conv1d(C.permute(input, (1, 2, 0)), C.permute(weight, (2, 1, 0)), bias, padding=pad)
    return C.permute(convolved, (2, 0, 1))
