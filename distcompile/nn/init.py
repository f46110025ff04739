"""Initialisation: fill a tensor in place, by torch's formulas and bounds.

In: a tensor and the distribution's constants. Out: the same tensor, filled; nothing is recorded by autograd.
Random fills draw from `generator`, or from the default one, in torch's order: on the CPU the same seed gives torch's
numbers. Sources: Glorot, Bengio 2010 (xavier); He et al. 2015 (kaiming); Saxe et al. 2013 (orthogonal).
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import ParamSpec

import numpy as np

from compiler_core.log import warn_once
from compiler_core.ops import functional as C
from compiler_core.overrides.functions import make_functions_overridable
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.making.creation import empty_like, leaf
from compiler_core.tensor.making.creation import eye as identity
from compiler_core.tensor.making.random import Generator
from compiler_core.tensor.making.random_creation import randperm
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError

P = ParamSpec("P")
_GAINS = {"sigmoid": 1.0, "tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4, "linear": 1.0} | {
    f"conv{'_transpose' if t else ''}{d}d": 1.0 for t in (False, True) for d in (1, 2, 3)
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor that keeps the variance through a nonlinearity: √2 for "relu", 5/3 for "tanh", 1 for "linear", ...

    param: the slope of "leaky_relu", 0.01 unless given. Raises ArgumentError for an unknown one.

    Example:
        >>> nn.init.calculate_gain("relu")
        1.4142135623730951
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise ArgumentError(f"Unsupported nonlinearity {nonlinearity}", expected=", ".join([*_GAINS, "leaky_relu"]))
    return _GAINS[nonlinearity]


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with draws from U(a, b).

    Example:
        >>> w = nn.init.uniform_(torch.empty(100), -0.5, 0.5)
        >>> bool((w.abs() <= 0.5).all())
        True
    """
    with no_grad():
        return tensor if tensor.is_meta else tensor.uniform_(a, b, generator=generator)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with draws from N(mean, std²).

    Example:
        >>> nn.init.normal_(torch.empty(2, 3), std=0.02).shape
        (2, 3)
    """
    with no_grad():
        return tensor if tensor.is_meta else tensor.normal_(mean, std, generator=generator)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """N(mean, std²) kept within [a, b], by rejection: of normal numbers, or, where few would fit, of uniform ones."""
    if tensor.is_meta:
        return tensor
    if mean < a - 2 * std or mean > b + 2 * std:
        warn_once(
            "init.trunc_normal", "trunc_normal_: mean is more than 2 std from [a, b]; the distribution may be off"
        )
    low, high = (0.5 * (1 + math.erf((x - mean) / std / math.sqrt(2))) for x in (a, b))
    with no_grad():
        if high - low > 0.3:
            return _drawn_again(tensor, mean, std, a, b, generator)
        return _drawn_below(tensor, mean, std, a, b, generator)


def _drawn_again(tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Generator | None) -> Tensor:
    """Normal numbers; those outside of [a, b] are drawn again, in rounds of numbers for all."""
    low, high = (tensor.new_tensor(x).item() for x in (a, b))
    made = tensor.normal_(mean, std, generator=generator).detach()
    while bool((outside := (made < low) | (made > high)).any()):
        made = C.where(outside, empty_like(made).normal_(mean, std, generator=generator), made)
    return tensor.copy_(made)


def _drawn_below(tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Generator | None) -> Tensor:
    """Uniform numbers in [a, b]; taken with the density there over its largest, in rounds of numbers for all."""
    peak = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2
    made = tensor.uniform_(a, b, generator=generator).detach()
    offered, pending = made, None
    while pending is None or bool(pending.any()):
        if pending is not None:
            offered = empty_like(made).uniform_(a, b, generator=generator)
            made = C.where(pending, offered, made)
        log_density = ((offered - mean) / std) ** 2 * -0.5 - peak
        refused = empty_like(made).uniform_(generator=generator).log() > log_density
        pending = refused if pending is None else C.where(pending, refused, pending)
    return tensor.copy_(made)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Set every element to `val`.

    Example:
        >>> nn.init.constant_(torch.empty(2), 0.5)
        tensor([0.5000, 0.5000])
    """
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Set every element to 1.

    Example:
        >>> nn.init.ones_(torch.empty(2))
        tensor([1., 1.])
    """
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Set every element to 0.

    Example:
        >>> nn.init.zeros_(torch.empty(2))
        tensor([0., 0.])
    """
    return constant_(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with the identity: 1 on the diagonal, 0 elsewhere. Raises ArgumentError for another rank.

    Example:
        >>> nn.init.eye_(torch.empty(2, 3))
        tensor([[1., 0., 0.],
                [0., 1., 0.]])
    """
    if tensor.dim() != 2:
        raise ArgumentError("Only tensors with 2 dimensions are supported", got=f"{tensor.dim()}")
    with no_grad():
        return tensor.copy_(identity(*tensor.shape, dtype=tensor.dtype))


def fans(tensor: Tensor) -> tuple[int, int]:
    """(fan_in, fan_out) of a weight f[out, in, *kernel]."""
    if tensor.dim() < 2:
        raise ArgumentError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def correct_fan(tensor: Tensor, mode: str) -> int:
    """The one of a weight's fans that `mode`, "fan_in" or "fan_out", names. Raises ArgumentError (a ValueError)."""
    if mode.lower() not in ("fan_in", "fan_out"):
        raise ArgumentError(f"Mode {mode} not supported", expected="fan_in or fan_out")
    return fans(tensor)[mode.lower() == "fan_out"]


_calculate_fan_in_and_fan_out, _calculate_correct_fan = fans, correct_fan  # the names under which torch's users know it


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with draws from U(-a, a), a = gain·√(6/(fan_in + fan_out)), the fans of a weight f[out, in, *kernel].

    Source: Glorot, Bengio 2010. Raises ArgumentError for fewer than two dimensions.

    Example:
        >>> w = nn.init.xavier_uniform_(torch.empty(2, 4))
        >>> bool((w.abs() <= 1).all())
        True
    """
    bound = math.sqrt(3.0) * gain * math.sqrt(2.0 / sum(fans(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with draws from N(0, σ²), σ = gain·√(2/(fan_in + fan_out)). Source: Glorot, Bengio 2010.

    Example:
        >>> nn.init.xavier_normal_(torch.empty(2, 4)).shape
        (2, 4)
    """
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / sum(fans(tensor))), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    return calculate_gain(nonlinearity, a) / math.sqrt(correct_fan(tensor, mode))


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fill with draws from U(-b, b), b = gain·√(3/fan), so that the variance stays through layers of a rectifier.

    Args:
        a: the negative slope, if the nonlinearity is "leaky_relu"
        mode: "fan_in" keeps the variance of the forward, "fan_out" that of the backward
        nonlinearity: whose gain; see `calculate_gain`
        generator: where to draw from; None: the default one

    Source: He et al. 2015.

    Example:
        >>> w = nn.init.kaiming_uniform_(torch.empty(8, 6), nonlinearity="relu")
        >>> bool((w.abs() <= 1).all())
        True
    """
    if 0 in tensor.shape:
        return tensor
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fill with draws from N(0, σ²), σ = gain/√fan. Args: those of `kaiming_uniform_`. Source: He et al. 2015.

    Example:
        >>> nn.init.kaiming_normal_(torch.empty(8, 6), mode="fan_out", nonlinearity="relu").shape
        (8, 6)
    """
    if 0 in tensor.shape:
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> Tensor:
    """Fill with a (semi-)orthogonal matrix f[rows, the rest], times gain. Source: Saxe et al. 2013.

    Example:
        >>> w = nn.init.orthogonal_(torch.empty(2, 4))
        >>> torch.allclose(w @ w.T, torch.eye(2), atol=1e-6)
        True
    """
    if tensor.is_meta:
        return tensor
    if tensor.dim() < 2:
        raise ArgumentError("Only tensors with 2 or more dimensions are supported", got=f"{tensor.dim()}")
    rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])
    if rows * columns == 0:
        return tensor
    flat = (
        tensor.detach().new_empty((rows, columns)).normal_(0, 1, generator=generator).cpu().numpy().astype(np.float64)
    )
    q, r = np.linalg.qr(flat.T if rows < columns else flat)
    q = q * np.sign(np.diag(r))  # makes the distribution uniform over the orthogonal matrices
    q = q.T if rows < columns else q
    with no_grad():
        return tensor.copy_(leaf((gain * q).astype(tensor.dtype.numpy).reshape(tensor.shape)))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """N(0, std²) with the fraction `sparsity` of each column zero."""
    if tensor.is_meta:
        return tensor
    if tensor.dim() != 2:
        raise ArgumentError("Only tensors with 2 dimensions are supported", got=f"{tensor.dim()}")
    rows, columns = tensor.shape
    normal_(tensor, 0, std, generator)
    keep = np.ones((rows, columns), tensor.dtype.numpy)
    for column in range(columns):  # the places are the default generator's, as in torch
        keep[randperm(rows, device="cpu").numpy()[: math.ceil(sparsity * rows)], column] = 0
    with no_grad():
        return tensor.mul_(leaf(keep).to(tensor.device))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """The identity of a convolution with `groups`: 1 at the kernel's centre from input channel c to output c."""
    if tensor.is_meta:
        return tensor
    if tensor.dim() not in (3, 4, 5):
        raise ArgumentError("Only tensors with 3, 4, or 5 dimensions are supported", got=f"{tensor.dim()}")
    outputs, inputs, *kernel = tensor.shape
    if outputs % groups:
        raise ArgumentError("dim 0 must be divisible by groups", got=f"{outputs}, {groups}")
    values = np.zeros(tuple(tensor.shape), np.float64)
    centre = tuple(k // 2 for k in kernel)
    for first in range(0, outputs, outputs // groups):
        for channel in range(min(outputs // groups, inputs)):
            values[(first + channel, channel, *centre)] = 1
    with no_grad():
        return tensor.copy_(leaf(values.astype(tensor.dtype.numpy)))


def _deprecated(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """`function` under its older name, without the underscore: it warns, as torch does, and fills in place too."""
    new = function.__name__
    old = new.removesuffix("_")

    @functools.wraps(function)
    def renamed(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        warnings.warn(f"`nn.init.{old}` is now deprecated in favor of `nn.init.{new}`.", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    renamed.__name__ = old
    return renamed


uniform, normal, constant, eye, dirac = (_deprecated(f) for f in (uniform_, normal_, constant_, eye_, dirac_))
xavier_uniform, xavier_normal = _deprecated(xavier_uniform_), _deprecated(xavier_normal_)
kaiming_uniform, kaiming_normal = _deprecated(kaiming_uniform_), _deprecated(kaiming_normal_)
orthogonal, sparse = _deprecated(orthogonal_), _deprecated(sparse_)

make_functions_overridable(globals(), ["uniform_", "normal_", "constant_", "kaiming_uniform_"], "nn.init")
