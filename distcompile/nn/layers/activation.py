"""Activations as modules: each calls the function of `nn.functional` of (nearly) the same name.

In: f[...]. Out: the same shape. Arguments, defaults and printed form are torch's.
"""

from __future__ import annotations

from typing import ClassVar

from compiler_core.dtype import DType
from compiler_core.tensor.making.creation import DeviceLike
from compiler_core.tensor.tensor import Tensor
from distcompile import empty, sigmoid, tanh
from distcompile.errors import ArgumentError, AssertedArgumentError
from distcompile.nn import functional as F
from distcompile.nn import init as initial
from distcompile.nn.module import Module
from distcompile.nn.parameter import Parameter


class _Activation(Module):
    """Prints the attributes named in `_shown`, and `inplace=True` where it is."""

    _shown: ClassVar[tuple[str, ...]] = ()

    def extra_repr(self) -> str:
        parts = [f"{name}={getattr(self, name)!r}" for name in self._shown]
        if getattr(self, "inplace", False):
            parts.append("inplace=True")
        return ", ".join(parts)


class _InPlace(_Activation):
    """An activation whose one option is to overwrite its input."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


class ReLU(_InPlace):
    """The rectifier: max(x, 0). inplace: overwrite the input.

    Example:
        >>> nn.ReLU()(torch.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input, self.inplace)


class ReLU6(_InPlace):
    """The rectifier up to 6: min(max(x, 0), 6). inplace: overwrite the input.

    Example:
        >>> nn.ReLU6()(torch.tensor([-1.0, 2.0, 8.0]))
        tensor([0., 2., 6.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.relu6(input, self.inplace)


class SiLU(_InPlace):
    """x · sigmoid(x), also called swish. inplace: overwrite the input. Elfwing et al. 2017.

    Example:
        >>> nn.SiLU()(torch.tensor([-1.0, 2.0]))
        tensor([-0.2689,  1.7616])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.silu(input, self.inplace)


class Mish(_InPlace):
    """x · tanh(softplus(x)). inplace: overwrite the input. Source: Misra 2019.

    Example:
        >>> nn.Mish()(torch.tensor([0.0, 2.0]))
        tensor([0.0000, 1.9440])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.mish(input, self.inplace)


class SELU(_InPlace):
    """scale · elu(x, alpha), whose constants keep mean 0 and variance 1 through layers. Source: Klambauer et al. 2017.

    Example:
        >>> nn.SELU()(torch.tensor([-1.0, 1.0]))
        tensor([-1.1113,  1.0507])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.selu(input, self.inplace)


class Hardswish(_InPlace):
    """x · relu6(x + 3) / 6, near SiLU and cheaper. inplace: overwrite the input. Source: Howard et al. 2019.

    Example:
        >>> nn.Hardswish()(torch.tensor([-1.5, 1.5, 3.0]))
        tensor([-0.3750,  1.1250,  3.0000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.hardswish(input, self.inplace)

    def extra_repr(self) -> str:
        return ""


class Hardsigmoid(_InPlace):
    """relu6(x + 3) / 6, near the sigmoid and cheaper. inplace: overwrite the input.

    Example:
        >>> nn.Hardsigmoid()(torch.tensor([-3.0, 0.0, 3.0]))
        tensor([0.0000, 0.5000, 1.0000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.hardsigmoid(input, self.inplace)

    def extra_repr(self) -> str:
        return ""


class Sigmoid(_Activation):
    """1 / (1 + exp(-x)), between 0 and 1.

    Example:
        >>> nn.Sigmoid()(torch.tensor([0.0, 2.0]))
        tensor([0.5000, 0.8808])
    """

    def forward(self, input: Tensor) -> Tensor:
        return sigmoid(input)  # type: ignore[no-any-return]


class Tanh(_Activation):
    """The hyperbolic tangent, between -1 and 1.

    Example:
        >>> nn.Tanh()(torch.tensor([0.0, 1.0]))
        tensor([0.0000, 0.7616])
    """

    def forward(self, input: Tensor) -> Tensor:
        return tanh(input)  # type: ignore[no-any-return]


class LogSigmoid(_Activation):
    """log(sigmoid(x)), without overflow.

    Example:
        >>> nn.LogSigmoid()(torch.tensor([0.0, -200.0]))
        tensor([  -0.6931, -200.0000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.logsigmoid(input)


class Softsign(_Activation):
    """x / (1 + |x|), between -1 and 1.

    Example:
        >>> nn.Softsign()(torch.tensor([-3.0, 1.0]))
        tensor([-0.7500,  0.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softsign(input)


class Tanhshrink(_Activation):
    """x - tanh(x).

    Example:
        >>> nn.Tanhshrink()(torch.tensor([0.0, 1.0]))
        tensor([0.0000, 0.2384])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.tanhshrink(input)


class GELU(_Activation):
    """x · Φ(x), with Φ the distribution function of N(0, 1).

    Args: approximate="tanh" is x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³))). Source: Hendrycks, Gimpel 2016.

    Example:
        >>> nn.GELU()(torch.tensor([-1.0, 1.0]))
        tensor([-0.1587,  0.8413])
        >>> nn.GELU(approximate="tanh")(torch.tensor([-1.0, 1.0]))
        tensor([-0.1588,  0.8412])
    """

    _shown = ("approximate",)

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, approximate=self.approximate)


class ELU(_Activation):
    """x where positive, else alpha · (exp(x) - 1). inplace: overwrite the input. Source: Clevert et al. 2015.

    Example:
        >>> nn.ELU()(torch.tensor([-1.0, 2.0]))
        tensor([-0.6321,  2.0000])
    """

    _shown = ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.elu(input, self.alpha, self.inplace)


class CELU(_Activation):
    """max(x, 0) + min(0, alpha · (exp(x/alpha) - 1)). inplace: overwrite the input. Source: Barron 2017.

    Example:
        >>> nn.CELU(alpha=2.0)(torch.tensor([-2.0, 2.0]))
        tensor([-1.2642,  2.0000])
    """

    _shown = ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.celu(input, self.alpha, self.inplace)


class LeakyReLU(_Activation):
    """x where positive, else negative_slope · x (0.01 unless given). inplace: overwrite the input.

    Example:
        >>> nn.LeakyReLU(0.1)(torch.tensor([-1.0, 2.0]))
        tensor([-0.1000,  2.0000])
    """

    _shown = ("negative_slope",)

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, self.negative_slope, self.inplace)


class RReLU(_Activation):
    """x where positive, else slope · x; the slopes are drawn from U(lower, upper) in training, (lower + upper)/2 else.

    inplace: overwrite the input. Source: Xu et al. 2015.

    Example:
        >>> nn.RReLU(0.1, 0.3).eval()(torch.tensor([-1.0, 2.0]))
        tensor([-0.2000,  2.0000])
    """

    _shown = ("lower", "upper")

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)


class PReLU(_Activation):
    """x where positive, else weight · x, with a learned slope, or one a channel (dimension 1). Source: He et al. 2015.

    Args: num_parameters, 1 or the number of channels; init, the first slope.

    Example:
        >>> nn.PReLU()(torch.tensor([-1.0, 2.0])).detach()
        tensor([-0.2500,  2.0000])
    """

    _shown = ("num_parameters",)

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: DeviceLike = None, dtype: DType | None = None
    ) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Every slope `init`."""
        initial.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)


class Hardtanh(_Activation):
    """x clamped to [min_val, max_val], from -1 to 1 unless given. inplace: overwrite the input.

    Example:
        >>> nn.Hardtanh()(torch.tensor([-2.0, 0.5, 2.0]))
        tensor([-1.0000,  0.5000,  1.0000])
    """

    _shown = ("min_val", "max_val")

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        if max_val <= min_val:
            raise AssertedArgumentError(f"max_val ({max_val}) must be greater than min_val ({min_val})")
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)


class Threshold(_Activation):
    """x where above threshold, else value. inplace: overwrite the input.

    Example:
        >>> nn.Threshold(1.0, 20.0)(torch.tensor([0.5, 1.0, 2.0]))
        tensor([20., 20.,  2.])
    """

    _shown = ("threshold", "value")

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.threshold(input, self.threshold, self.value, self.inplace)


class Softplus(_Activation):
    """log(1 + exp(beta·x)) / beta, a smooth `ReLU`; x itself where beta·x > threshold.

    Example:
        >>> nn.Softplus()(torch.tensor([0.0, 30.0]))
        tensor([ 0.6931, 30.0000])
    """

    _shown = ("beta", "threshold")

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Tensor) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)


class Softshrink(_Activation):
    """x moved towards zero by lambd, and zero where |x| ≤ lambd.

    Example:
        >>> nn.Softshrink(0.5)(torch.tensor([-2.0, 0.25, 1.0]))
        tensor([-1.5000,  0.0000,  0.5000])
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return F.softshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return str(self.lambd)


class Hardshrink(Softshrink):
    """x where |x| > lambd, else zero.

    Example:
        >>> nn.Hardshrink(0.5)(torch.tensor([-2.0, 0.25, 1.0]))
        tensor([-2.,  0.,  1.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.hardshrink(input, self.lambd)


class GLU(_Activation):
    """A gated linear unit: a · sigmoid(b), with a and b the halves of x along dim. Dauphin et al. 2016.

    Example:
        >>> nn.GLU()(torch.tensor([1.0, 2.0, 0.0, 0.0]))
        tensor([0.5000, 1.0000])
    """

    _shown = ("dim",)

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.glu(input, self.dim)


class _AlongDim(_Activation):
    _shown = ("dim",)

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim


class Softmax(_AlongDim):
    """exp(x) / Σ exp(x) along dim: positive numbers whose sum is 1. Say dim; None chooses one, with a warning.

    Example:
        >>> nn.Softmax(dim=-1)(torch.tensor([0.0, 0.0, 1.0]))
        tensor([0.2119, 0.2119, 0.5761])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim)


class Softmin(_AlongDim):
    """softmax(-x) along dim.

    Example:
        >>> nn.Softmin(dim=-1)(torch.tensor([0.0, 0.0, -1.0]))
        tensor([0.2119, 0.2119, 0.5761])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, self.dim)


class LogSoftmax(_AlongDim):
    """log(softmax(x)) along dim, without the loss of digits that the two have one after the other.

    Example:
        >>> nn.LogSoftmax(dim=-1)(torch.tensor([0.0, 0.0]))
        tensor([-0.6931, -0.6931])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self.dim)


class Softmax2d(_Activation):
    """`Softmax` over the channels of f[N, C, H, W] or f[C, H, W], at every place.

    Example:
        >>> nn.Softmax2d()(torch.zeros(2, 4, 4)).sum()
        tensor(16.)
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (3, 4):
            raise ArgumentError(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return F.softmax(input, -3)
