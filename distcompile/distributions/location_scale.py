"""Continuous distributions on the line with a location, a scale, or both: Normal and its kin.

In: their parameters. Out: as distribution.py says. Draws are by inversion, or normal.
"""

# mypy: disable-error-code="no-any-return"
# The core's functions take and return any Value: array, graph node or Tensor.
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import distcompile as dc
from compiler_core.ops.registry import current_trace
from compiler_core.tensor.making.rejection_draws import standard_gamma, von_mises
from compiler_core.tensor.tensor import Tensor
from distcompile.distributions import constraints
from distcompile.distributions.distribution import (
    HALF_LOG_TAU,
    Constraint,
    Distribution,
    ExponentialFamily,
    Shape,
    uniforms,
)
from distcompile.distributions.forms import broadcast_all, euler_constant
from distcompile.errors import ArgumentError

LOC_SCALE = {"loc": constraints.real, "scale": constraints.positive}


class _LocScale(Distribution):
    """Parameters loc and scale > 0: f[...] each."""

    has_rsample = True
    arg_constraints: ClassVar[Mapping[str, Constraint]] = LOC_SCALE
    support = constraints.real

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def _centred(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return (value - self.loc) / self.scale

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc


class Normal(_LocScale, ExponentialFamily):
    """exp(-z²/2) / (scale √2π), z = (x - loc)/scale."""

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self.loc + self.scale * dc.randn(
            tuple(self._extended_shape(sample_shape)), dtype=self.loc.dtype, device=self.loc.device
        )

    def log_prob(self, value: Tensor) -> Tensor:
        return -(self._centred(value) ** 2) / 2 - self.scale.log() - HALF_LOG_TAU

    def cdf(self, value: Tensor) -> Tensor:
        return 0.5 * (1 + (self._centred(value) / math.sqrt(2)).erf())

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * (2 * value - 1).erfinv() * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + HALF_LOG_TAU + self.scale.log()

    @property
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.scale**2


class Laplace(_LocScale):
    """exp(-|z|) / (2 scale)."""

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        u = 2 * uniforms(self._extended_shape(sample_shape), self.loc) - 1
        u = u.clamp(dc.finfo(u.dtype).eps - 1, 1 - dc.finfo(u.dtype).eps)
        return self.loc - self.scale * u.sign() * (-u.abs()).log1p()

    def log_prob(self, value: Tensor) -> Tensor:
        return -self._centred(value).abs() - (2 * self.scale).log()

    def cdf(self, value: Tensor) -> Tensor:
        z = self._centred(value)
        return 0.5 - 0.5 * z.sign() * (-z.abs()).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * (-2 * term.abs()).log1p()

    def entropy(self) -> Tensor:
        return 1 + (2 * self.scale).log()

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale**2

    @property
    def stddev(self) -> Tensor:
        return math.sqrt(2) * self.scale


class Cauchy(_LocScale):
    """1 / (π scale (1 + z²)): no mean, no variance."""

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = tuple(self._extended_shape(sample_shape))
        return self.loc + dc.empty(shape, dtype=self.loc.dtype, device=self.loc.device).cauchy_() * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        return -math.log(math.pi) - self.scale.log() - (self._centred(value) ** 2).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        return self._centred(value).atan() / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return (math.pi * (value - 0.5)).tan() * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()

    @property
    def mean(self) -> Tensor:
        return dc.full_like(self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        return dc.full_like(self.loc, math.inf)


class Gumbel(_LocScale):
    """exp(-z - exp(-z)) / scale."""

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        u = uniforms(self._extended_shape(sample_shape), self.loc)
        return self.icdf(u.clamp(max=1 - dc.finfo(u.dtype).eps))

    def log_prob(self, value: Tensor) -> Tensor:
        z = self._centred(value)
        return -z - (-z).exp() - self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        return (-(-self._centred(value)).exp()).exp()

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * (-value.log()).log()

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + euler_constant)

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * euler_constant

    @property
    def stddev(self) -> Tensor:
        return (math.pi / math.sqrt(6)) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev**2


class _Half(Distribution):
    """The absolute value of a `base` of location 0."""

    has_rsample = True
    arg_constraints: ClassVar[Mapping[str, Constraint]] = {"scale": constraints.positive}
    support = constraints.nonnegative
    _base: ClassVar[Any]

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        (self.scale,) = broadcast_all(scale)
        super().__init__(self.scale.shape, validate_args=validate_args)

    @property
    def base_dist(self) -> Any:
        """The distribution of both signs."""
        return self._base(dc.zeros_like(self.scale), self.scale, validate_args=False)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape).abs()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return dc.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)

    @property
    def mode(self) -> Tensor:
        return dc.zeros_like(self.scale)


class HalfNormal(_Half):
    """|x| of a Normal of location 0."""

    _base = Normal

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale**2 * (1 - 2 / math.pi)


class HalfCauchy(_Half):
    """|x| of a Cauchy of location 0."""

    _base = Cauchy

    @property
    def mean(self) -> Tensor:
        return dc.full_like(self.scale, math.inf)

    @property
    def variance(self) -> Tensor:
        return dc.full_like(self.scale, math.inf)


class Uniform(Distribution):
    """1/(high - low) in [low, high), nothing elsewhere."""

    has_rsample = True
    arg_constraints: ClassVar[Mapping[str, Constraint]] = {"low": constraints.real, "high": constraints.real}

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        if self._validate_args and current_trace() is None and not bool((self.low < self.high).all()):
            raise ArgumentError("Uniform is not defined when low>= high")

    @constraints.dependent_property
    def support(self) -> Constraint:
        """Between low and high."""
        return constraints.interval(self.low, self.high)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        u = dc.rand(tuple(self._extended_shape(sample_shape)), dtype=self.low.dtype, device=self.low.device)
        return self.low + u * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        inside = self.low.le(value).to(self.low.dtype) * self.high.gt(value).to(self.low.dtype)
        return inside.log() - (self.high - self.low).log()

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return (self.high - self.low).log()

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return self.high * math.nan

    @property
    def stddev(self) -> Tensor:
        return (self.high - self.low) / math.sqrt(12)

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low) ** 2 / 12


class StudentT(_LocScale):
    """Γ((df+1)/2) / (√(π df) Γ(df/2) scale) · (1 + z²/df)^(-(df+1)/2)."""

    arg_constraints: ClassVar[Mapping[str, Constraint]] = {"df": constraints.positive, **LOC_SCALE}

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        Distribution.__init__(self, self.df.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = tuple(self._extended_shape(sample_shape))
        normal = dc.randn(shape, dtype=self.df.dtype, device=self.df.device)
        chi2 = 2 * standard_gamma((self.df / 2).expand(shape))
        return self.loc + self.scale * normal * (chi2 / self.df).rsqrt()

    def log_prob(self, value: Tensor) -> Tensor:
        half = (self.df + 1) / 2
        scale = self.scale.log() + 0.5 * (self.df.log() + math.log(math.pi))
        return half.lgamma() - (self.df / 2).lgamma() - scale - half * (self._centred(value) ** 2 / self.df).log1p()

    def entropy(self) -> Tensor:
        half = (self.df + 1) / 2
        log_beta = (self.df / 2).lgamma() + math.lgamma(0.5) - half.lgamma()
        spread = half * (half.digamma() - (self.df / 2).digamma())
        return self.scale.log() + spread + 0.5 * self.df.log() + log_beta

    @property
    def mean(self) -> Tensor:
        return dc.where(self.df <= 1, math.nan, self.loc)

    @property
    def variance(self) -> Tensor:
        finite = self.scale**2 * self.df / (self.df - 2)
        return dc.where(self.df > 2, finite, dc.where(self.df > 1, math.inf, math.nan).to(self.df.dtype))


class VonMises(Distribution):
    """exp(concentration cos(x - loc)) / (2π I₀(concentration)), on the circle."""

    arg_constraints: ClassVar[Mapping[str, Constraint]] = {
        "loc": constraints.real,
        "concentration": constraints.positive,
    }
    support = constraints.real

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        shape = tuple(self._extended_shape(sample_shape))
        return von_mises(self.loc.detach().expand(shape), self.concentration.detach().expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        log_i0 = dc.special.i0e(self.concentration).log() + self.concentration
        return self.concentration * (value - self.loc).cos() - math.log(2 * math.pi) - log_i0

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return 1 - dc.special.i1e(self.concentration) / dc.special.i0e(self.concentration)
