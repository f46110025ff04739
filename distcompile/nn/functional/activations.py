"""Activation functions with torch's signatures.

In: f[...]. Out: the same shape. `inplace=True` puts the result in the input's place (and in all that share its memory).
"""

# mypy: disable-error-code="no-any-return"
# The core's functions take and return any Value: array, graph node or Tensor.
from __future__ import annotations

import warnings

from compiler_core.dtype import DType, float64
from compiler_core.errors import DTypeError, GraphBreak, ShapeError
from compiler_core.location import user_location
from compiler_core.ops import functional as C
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import rounded_once
from compiler_core.ops.casting import in_lower
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import current_trace
from compiler_core.tensor.making.creation import empty
from compiler_core.tensor.making.random_creation import rand_like
from compiler_core.tensor.memory.cell import cell_trace
from compiler_core.tensor.memory.writing import takes_place
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError


def _placed(input: Tensor, result: Tensor, inplace: bool) -> Tensor:
    if not inplace or result is input:
        return result
    input._check_in_place()
    return input if takes_place(input, result) else input.copy_(result)


def _kept(input: Tensor, inplace: bool) -> Tensor:
    """What a result that takes input's place is computed from: a copy, where the gradient needs the old values."""
    return input.clone() if inplace and input.requires_grad else input


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0). inplace: overwrite the input.

    Example:
        >>> F.relu(torch.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """
    return _placed(input, C.relu(input), inplace)


def relu_(input: Tensor) -> Tensor:
    """`relu` in place."""
    return relu(input, inplace=True)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x, 0), 6).

    Example:
        >>> F.relu6(torch.tensor([-1.0, 3.0, 8.0]))
        tensor([0., 3., 6.])
    """
    return _placed(input, C.relu6(_kept(input, inplace)), inplace)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """x clamped to [min_val, max_val].

    Example:
        >>> F.hardtanh(torch.tensor([-4.0, 0.5, 4.0]))
        tensor([-1.0000,  0.5000,  1.0000])
    """
    if min_val > max_val:
        raise ArgumentError("min_val cannot be greater than max_val", got=f"{min_val}, {max_val}")
    if input.dtype.kind == "u" and (min_val < 0 or max_val < 0):
        raise DTypeError("cannot do hardtanh on an unsigned type with negative limits", got=f"{min_val}, {max_val}")
    return _placed(input, C.hardtanh(_kept(input, inplace), min_val, max_val), inplace)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """`hardtanh` in place."""
    return hardtanh(input, min_val, max_val, inplace=True)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where positive, else negative_slope · x.

    Example:
        >>> F.leaky_relu(torch.tensor([-1.0, 2.0]), 0.1)
        tensor([-0.1000,  2.0000])
    """
    return _placed(input, C.leaky_relu(_kept(input, inplace), negative_slope), inplace)


@in_lower
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x where positive, else weight · x; weight: f[1], or f[C] for dimension 1.

    Example:
        >>> F.prelu(torch.tensor([-1.0, 1.0]), torch.tensor([0.25]))
        tensor([-0.2500,  1.0000])
    """
    need_kind("prelu", "f", input)
    if weight.dim() > 1:
        raise ShapeError("prelu: Expected `weight` to be a scalar or 1D tensor", got=f"ndim = {weight.dim()}")
    if weight.numel() != 1:
        channels = input.shape[1] if input.dim() > 1 else 1
        if weight.numel() != channels:
            what = "Mismatch of parameter numbers and input channel size"
            raise ShapeError(what, expected=str(channels), got=str(weight.numel()))
        weight = weight.reshape(1, -1, *(1 for _ in range(input.dim() - 2)))
    slope = weight if weight.numel() != 1 else weight.reshape(())
    positive = input > 0
    return C.where(positive, input, slope * C.where(positive, 0.0, input))  # an infinite slope stays out of others


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """`leaky_relu` in place."""
    return leaky_relu(input, negative_slope, inplace=True)


def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """x where positive, else slope · x: slopes drawn from U(lower, upper) an element if training, else their mean.

    Example:
        >>> F.rrelu(torch.tensor([-1.0, 1.0]))
        tensor([-0.2292,  1.0000])
    """
    if lower > upper:
        raise ArgumentError("Lower bound should be less than or equal to the upper bound", got=f"{lower}, {upper}")
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    slope = _slopes(input.detach(), lower, upper)
    x = _kept(input, inplace)
    return _placed(input, C.where(x <= 0, x * slope, x), inplace)


def _slopes(x: Tensor, lower: float, upper: float) -> Tensor:
    """U(lower, upper): on the CPU, as in torch, for elements not above 0; in graphs and on CUDA devices for all."""
    trace = current_trace()
    if trace is not None and not x.is_cuda and cell_trace(trace).draws_outside():
        raise GraphBreak("rrelu draws as many numbers as the data says", where=user_location())
    if trace is not None or x.is_cuda or x.is_meta:
        return rand_like(x) * (upper - lower) + lower
    places = (x <= 0).reshape(-1).nonzero(as_tuple=True)[0]
    drawn = empty(len(places), dtype=float64).uniform_(lower, upper).to(x.dtype)
    return x.new_ones(x.numel()).index_copy(0, places, drawn).reshape(x.shape)


def rrelu_(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Tensor:
    """`rrelu` in place."""
    return rrelu(input, lower, upper, training, inplace=True)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where positive, else alpha · (exp(x) - 1).

    Example:
        >>> F.elu(torch.tensor([-1.0, 1.0]))
        tensor([-0.6321,  1.0000])
    """
    return _placed(input, C.elu(_kept(input, inplace), alpha), inplace)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`elu` in place."""
    return elu(input, alpha, inplace=True)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where positive, else alpha · (exp(x/alpha) - 1).

    Example:
        >>> F.celu(torch.tensor([-1.0, 1.0]))
        tensor([-0.6321,  1.0000])
    """
    return _placed(input, _celu(_kept(input, inplace), alpha), inplace)


@rounded_once
def _celu(x: Tensor, alpha: float) -> Tensor:
    return prims.elu(x, alpha, 1.0, 1.0 / alpha)


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`celu` in place."""
    return celu(input, alpha, inplace=True)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Klambauer et al. 2017.

    Example:
        >>> F.selu(torch.tensor([-1.0, 1.0]))
        tensor([-1.1113,  1.0507])
    """
    return _placed(input, C.selu(_kept(input, inplace)), inplace)


def selu_(input: Tensor) -> Tensor:
    """`selu` in place."""
    return selu(input, inplace=True)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x · sigmoid(x).

    Example:
        >>> F.silu(torch.tensor([-1.0, 2.0]))
        tensor([-0.2689,  1.7616])
    """
    return _placed(input, C.silu(_kept(input, inplace)), inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x · tanh(softplus(x)).

    Example:
        >>> F.mish(torch.tensor([-1.0, 1.0]))
        tensor([-0.3034,  0.8651])
    """
    return _placed(input, C.mish(_kept(input, inplace)), inplace)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """relu6(x + 3) / 6.

    Example:
        >>> F.hardsigmoid(torch.tensor([-4.0, 0.0, 4.0]))
        tensor([0.0000, 0.5000, 1.0000])
    """
    return _placed(input, C.hardsigmoid(_kept(input, inplace)), inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x · relu6(x + 3) / 6.

    Example:
        >>> F.hardswish(torch.tensor([-4.0, 1.0, 4.0]))
        tensor([-0.0000, 0.6667, 4.0000])
    """
    return _placed(input, C.hardswish(_kept(input, inplace)), inplace)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x · Φ(x), or approximate="tanh". See `GELU`.

    Example:
        >>> F.gelu(torch.tensor([-1.0, 1.0]))
        tensor([-0.1587,  0.8413])
    """
    return C.gelu(input, approximate)


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x)).

    Example:
        >>> F.sigmoid(torch.tensor([-1.0, 0.0]))
        tensor([0.2689, 0.5000])
    """
    return input.sigmoid()


def tanh(input: Tensor) -> Tensor:
    """tanh(x).

    Example:
        >>> F.tanh(torch.tensor([0.0, 1.0]))
        tensor([0.0000, 0.7616])
    """
    return input.tanh()


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x)), stable.

    Example:
        >>> F.logsigmoid(torch.tensor([-100.0, 0.0]))
        tensor([-100.0000,   -0.6931])
    """
    return C.logsigmoid(input)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta·x)) / beta; x itself where beta·x > threshold.

    Example:
        >>> F.softplus(torch.tensor([0.0, 30.0]))
        tensor([ 0.6931, 30.0000])
    """
    return C.softplus(input, beta, threshold)


def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|).

    Example:
        >>> F.softsign(torch.tensor([-1.0, 3.0]))
        tensor([-0.5000,  0.7500])
    """
    return C.softsign(input)


def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x).

    Example:
        >>> F.tanhshrink(torch.tensor([0.0, 1.0]))
        tensor([0.0000, 0.2384])
    """
    return input - input.tanh()


@rounded_once
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards zero by lambd.

    Example:
        >>> F.softshrink(torch.tensor([-1.0, 0.2, 1.0]))
        tensor([-0.5000,  0.0000,  0.5000])
    """
    need_kind("softshrink", "f", input)
    if lambd < 0:
        raise ArgumentError(f"lambda must be greater or equal to 0, but found to be {lambd}.")
    return C.where(input > lambd, input - lambd, C.where(input < -lambd, input + lambd, (input * 0.0).abs()))


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| > lambd, else zero.

    Example:
        >>> F.hardshrink(torch.tensor([-1.0, 0.2, 1.0]))
        tensor([-1.,  0.,  1.])
    """
    need_kind("hardshrink", "f", input)
    return C.where(input.abs() > lambd, input, C.where(input.abs() <= lambd, 0.0, input.detach()))


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where above threshold, else value.

    Example:
        >>> F.threshold(torch.tensor([0.5, 2.0]), threshold=1.0, value=-1.0)
        tensor([-1.,  2.])
    """
    need_kind("threshold", "iuf", input)
    if not input.dtype.is_floating_point:
        threshold, value = int(threshold), int(value)
    kept = _kept(input, inplace)
    return _placed(input, C.where(kept.to(kept.dtype.compute) <= threshold, value, input), inplace)


_threshold = threshold  # under a name that its argument does not hide


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """`threshold` in place."""
    return _threshold(input, threshold, value, inplace=True)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """a · sigmoid(b), with a and b the halves of x along dim.

    Example:
        >>> F.glu(torch.tensor([1.0, 2.0, 0.0, 0.0]))
        tensor([0.5000, 1.0000])
    """
    return C.glu(input, dim)


def _dim(dim: int | None, name: str, input: Tensor, level: int) -> int:
    """dim, or where none was said torch's choice of old, with its warning."""
    if dim is None:
        message = f"Implicit dimension choice for {name} has been deprecated. Say dim=X."
        warnings.warn(message, stacklevel=level)
        return 0 if input.dim() in (0, 1, 3) else 1
    return dim


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along dim; dtype: cast first.

    Example:
        >>> F.softmax(torch.tensor([0.0, 0.0, 1.0]), dim=0)
        tensor([0.2119, 0.2119, 0.5761])
    """
    return C.softmax(input, _dim(dim, "softmax", input, _stacklevel), dtype)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """softmax(-x) along dim.

    Example:
        >>> F.softmin(torch.tensor([0.0, 1.0]), dim=0)
        tensor([0.7311, 0.2689])
    """
    return C.softmin(input, _dim(dim, "softmin", input, _stacklevel), dtype)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """log(softmax(x)) along dim.

    Example:
        >>> F.log_softmax(torch.tensor([0.0, 0.0]), dim=0)
        tensor([-0.6931, -0.6931])
    """
    return C.log_softmax(input, _dim(dim, "log_softmax", input, _stacklevel), dtype)


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """softmax((x + Gumbel noise)/tau); hard: one-hot, with the soft one's gradient. Jang et al. 2017.

    Example:
        >>> F.gumbel_softmax(torch.zeros(4, 3), hard=True).sum(-1)
        tensor([1., 1., 1., 1.])
    """
    drawn = empty(tuple(logits.shape), dtype=logits.dtype, device=logits.device).exponential_()
    soft = C.softmax((logits - drawn.log()) / tau, dim)
    if not hard:
        return soft
    best = soft.new_zeros(soft.shape).scatter(dim, soft.argmax(dim, keepdim=True), 1.0)  # one, also where two tie
    return best - soft.detach() + soft
