"""Distributions whose draws are functions of uniform or exponential ones: Pareto, Weibull and their kin.

In: their parameters. Out: as distribution.py says.
"""

# mypy: disable-error-code="no-any-return"
# The core's functions take and return any Value: array, graph node or Tensor.
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import distcompile as dc
from compiler_core.tensor.tensor import Tensor
from distcompile.distributions import constraints
from distcompile.distributions.distribution import Constraint, Distribution, Shape, exponentials, uniforms
from distcompile.distributions.forms import broadcast_all, euler_constant
from distcompile.distributions.location_scale import LOC_SCALE

POSITIVE = constraints.positive


class _ByInverse(Distribution):
    """Two positive parameters; draws by inversion of the distribution function."""

    has_rsample = True
    support: Any = POSITIVE

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        like = self.__dict__[next(iter(self.arg_constraints))]
        u = uniforms(self._extended_shape(sample_shape), like)
        return self.icdf(u.clamp(max=1 - dc.finfo(u.dtype).eps))


class Pareto(_ByInverse):
    """alpha scale^alpha / x^(alpha + 1), for x > scale."""

    arg_constraints: ClassVar[Mapping[str, Constraint]] = {"alpha": POSITIVE, "scale": POSITIVE}

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        super().__init__(self.scale.shape, validate_args=validate_args)

    @constraints.dependent_property
    def support(self) -> Constraint:
        """Above scale."""
        return constraints.greater_than_eq(self.scale)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self.alpha.log() + self.alpha * self.scale.log() - (self.alpha + 1) * value.log()

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 1 - (self.scale / value) ** self.alpha

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * (1 - value) ** (-1 / self.alpha)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return (exponentials(self._extended_shape(sample_shape), self.alpha) / self.alpha).exp() * self.scale

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + (1 + self.alpha.reciprocal())

    @property
    def mean(self) -> Tensor:
        return dc.where(self.alpha > 1, self.alpha * self.scale / (self.alpha - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        a = self.alpha
        return dc.where(a > 2, self.scale**2 * a / ((a - 1) ** 2 * (a - 2)), math.inf)


class GeneralizedPareto(_ByInverse):
    """What exceeds a threshold `loc`: (1 + c z)^(-1/c - 1) / scale, z = (x - loc)/scale, c = concentration."""

    arg_constraints: ClassVar[Mapping[str, Constraint]] = {**LOC_SCALE, "concentration": constraints.real}

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property
    def support(self) -> Constraint:
        """Above loc; for negative concentrations up to loc - scale / concentration."""
        end = dc.where(self.concentration < 0, self.loc - self.scale / self.concentration, math.inf)
        return constraints.interval(self.loc, end)

    def _safe(self) -> tuple[Tensor, Tensor]:
        """(whether the concentration counts as 0, one by which may be divided)."""
        flat = self.concentration.abs() < 1e-12
        return flat, dc.where(flat, 1.0, self.concentration)

    def _log_survival(self, value: Tensor) -> Tensor:
        z = (value - self.loc) / self.scale
        flat, c = self._safe()
        return -dc.where(flat, z, (c * z).log1p() / c)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return (1 + self.concentration) * self._log_survival(value) - self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return -self._log_survival(value).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        flat, c = self._safe()
        survival = (-value).log1p()
        return self.loc + self.scale * dc.where(flat, -survival, (-c * survival).expm1() / c)

    def entropy(self) -> Tensor:
        return self.scale.log() + self.concentration + 1

    @property
    def mean(self) -> Tensor:
        c = self.concentration
        return dc.where(c < 1, self.loc + self.scale / (1 - c), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        c = self.concentration
        return dc.where(c < 0.5, self.scale**2 / ((1 - c) ** 2 * (1 - 2 * c)), math.inf)


class Weibull(_ByInverse):
    """The c-th root of an Exponential, times scale; c = concentration."""

    arg_constraints: ClassVar[Mapping[str, Constraint]] = {"scale": POSITIVE, "concentration": POSITIVE}

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        super().__init__(self.scale.shape, validate_args=validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        c, z = self.concentration, value / self.scale
        return c.log() - self.scale.log() + (c - 1) * z.log() - z**c

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return -(-((value / self.scale) ** self.concentration)).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        return self.scale * (-(-value).log1p()) ** (1 / self.concentration)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        drawn = exponentials(self._extended_shape(sample_shape), self.scale)
        return self.scale * drawn ** self.concentration.reciprocal()

    def entropy(self) -> Tensor:
        inverse = self.concentration.reciprocal()
        return euler_constant * (1 - inverse) + (self.scale * inverse).log() + 1

    def _moment(self, k: int) -> Tensor:
        return self.scale**k * (1 + k / self.concentration).lgamma().exp()

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        c = self.concentration
        return self.scale * ((c - 1) / c) ** c.reciprocal()

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self._moment(1) ** 2


class Kumaraswamy(_ByInverse):
    """a b x^(a-1) (1 - x^a)^(b-1), a = concentration1, b = concentration0."""

    arg_constraints: ClassVar[Mapping[str, Constraint]] = {"concentration1": POSITIVE, "concentration0": POSITIVE}
    support = constraints.unit_interval

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        super().__init__(self.concentration1.shape, validate_args=validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a, b = self.concentration1, self.concentration0
        return a.log() + b.log() + (a - 1) * value.log() + (b - 1) * (-(value**a)).log1p()

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 1 - (1 - value**self.concentration1) ** self.concentration0

    def icdf(self, value: Tensor) -> Tensor:
        return (1 - (1 - value) ** (1 / self.concentration0)) ** (1 / self.concentration1)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        u = uniforms(self._extended_shape(sample_shape), self.concentration0)
        return (1 - u ** self.concentration0.reciprocal()) ** self.concentration1.reciprocal()

    def _moment(self, k: int) -> Tensor:
        a, b = 1 + k / self.concentration1, self.concentration0
        return (b.log() + a.lgamma() + b.lgamma() - (a + b).lgamma()).exp()

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = (b + 1).digamma() + euler_constant
        return (1 - b.reciprocal()) + (1 - a.reciprocal()) * harmonic - a.log() - b.log()

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return dc.where((a < 1) | (b < 1), math.nan, ((a - 1) / (a * b - 1)) ** a.reciprocal())

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self._moment(1) ** 2
