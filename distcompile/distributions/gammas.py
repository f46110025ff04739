"""Distributions of positive numbers and of proportions made of Gamma variates: Gamma, Beta, Dirichlet and their kin.

In: their parameters. Out: as distribution.py says. Draws have implicit gradients (compiler_core/tensor/
rejection_draws.py).
"""

# mypy: disable-error-code="no-any-return"
# The core's functions take and return any Value: array, graph node or Tensor.
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import distcompile as dc
from compiler_core.tensor.making.rejection_draws import sample_dirichlet, standard_gamma, standard_gamma_grad
from compiler_core.tensor.tensor import Tensor
from distcompile.distributions import constraints
from distcompile.distributions.distribution import (
    Constraint,
    Distribution,
    ExponentialFamily,
    Shape,
    exponentials,
    tiny,
)
from distcompile.distributions.forms import broadcast_all
from distcompile.errors import ArgumentError

POSITIVE = constraints.positive


def gamma_cdf(a: Tensor, x: Tensor) -> Tensor:
    """P(a, x) with the gradients of both: that of a is the implicit one of a draw, times the density, negative."""
    a, x = broadcast_all(a, x)
    if not a.requires_grad:
        return dc.igamma(a, x)
    fixed, at = a.detach(), x.detach()
    density = (dc.xlogy(fixed - 1, at) - at - fixed.lgamma()).exp()
    slope = -standard_gamma_grad(fixed, at) * density
    return dc.igamma(fixed, x) + (a - fixed) * slope


class Exponential(ExponentialFamily):
    """rate exp(-rate x)."""

    has_rsample = True
    arg_constraints: ClassVar[Mapping[str, Constraint]] = {"rate": POSITIVE}
    support = constraints.nonnegative

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return exponentials(self._extended_shape(sample_shape), self.rate) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 1 - (-self.rate * value).exp()

    def icdf(self, value: Tensor) -> Tensor:
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        return 1 - self.rate.log()

    @property
    def mean(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def mode(self) -> Tensor:
        return dc.zeros_like(self.rate)

    @property
    def stddev(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def variance(self) -> Tensor:
        return self.rate**-2


class Gamma(ExponentialFamily):
    """rate^a x^(a-1) exp(-rate x) / Γ(a), a = concentration."""

    has_rsample = True
    arg_constraints: ClassVar[Mapping[str, Constraint]] = {"concentration": POSITIVE, "rate": POSITIVE}
    support = constraints.nonnegative

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = tuple(self._extended_shape(sample_shape))
        return (standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)).clamp(min=tiny(self.rate))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a, rate = self.concentration, self.rate
        return dc.xlogy(a, rate) + dc.xlogy(a - 1, value) - rate * value - a.lgamma()

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return gamma_cdf(self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate**2


class Chi2(Gamma):
    """The sum of the squares of df standard normal numbers."""

    arg_constraints: ClassVar[Mapping[str, Constraint]] = {"df": POSITIVE}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        (self.df,) = broadcast_all(df)
        Distribution.__init__(self, self.df.shape, validate_args=validate_args)

    def __getattr__(self, name: str) -> Any:
        if name == "concentration":
            return 0.5 * self.__dict__["df"]
        if name == "rate":
            return dc.full_like(self.__dict__["df"], 0.5)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class InverseGamma(Distribution):
    """1/x of a Gamma."""

    has_rsample = True
    arg_constraints: ClassVar[Mapping[str, Constraint]] = {"concentration": POSITIVE, "rate": POSITIVE}
    support = POSITIVE

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return Gamma(self.concentration, self.rate, validate_args=False).rsample(sample_shape).reciprocal()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a, rate = self.concentration, self.rate
        return dc.xlogy(a, rate) - (a + 1) * value.log() - rate / value - a.lgamma()

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return 1 - gamma_cdf(self.concentration, self.rate / value)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()

    @property
    def mean(self) -> Tensor:
        a = self.concentration
        return dc.where(a > 1, self.rate / (a - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        a = self.concentration
        return dc.where(a > 2, self.rate**2 / ((a - 1) ** 2 * (a - 2)), math.inf)


class Beta(ExponentialFamily):
    """x^(a-1) (1-x)^(b-1) / B(a, b), a = concentration1, b = concentration0."""

    has_rsample = True
    arg_constraints: ClassVar[Mapping[str, Constraint]] = {"concentration1": POSITIVE, "concentration0": POSITIVE}
    support = constraints.unit_interval

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        super().__init__(self.concentration1.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        pair = dc.stack([self.concentration1, self.concentration0], -1)
        return sample_dirichlet(pair.expand((*self._extended_shape(sample_shape), 2)))[..., 0]

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a, b = self.concentration1, self.concentration0
        return dc.xlogy(a - 1, value) + dc.xlogy(b - 1, 1 - value) + (a + b).lgamma() - a.lgamma() - b.lgamma()

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        t = a + b
        log_beta = a.lgamma() + b.lgamma() - t.lgamma()
        return log_beta + (t - 2) * t.digamma() - (a - 1) * a.digamma() - (b - 1) * b.digamma()

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        pair = dc.stack([self.concentration1, self.concentration0], -1)
        return Dirichlet(pair, validate_args=False).mode[..., 0]

    @property
    def variance(self) -> Tensor:
        t = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (t**2 * (t + 1))


class Dirichlet(ExponentialFamily):
    """Π x_k^(a_k - 1) / B(a) on the simplex, for concentration a f[..., K]."""

    has_rsample = True
    arg_constraints: ClassVar[Mapping[str, Constraint]] = {"concentration": constraints.independent(POSITIVE, 1)}
    support = constraints.simplex

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.ndim < 1:
            raise ArgumentError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        shape = tuple(concentration.shape)
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return sample_dirichlet(self.concentration.expand(tuple(self._extended_shape(sample_shape))))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a = self.concentration
        return dc.xlogy(a - 1, value).sum(-1) + a.sum(-1).lgamma() - a.lgamma().sum(-1)

    def entropy(self) -> Tensor:
        a, t = self.concentration, self.concentration.sum(-1)
        log_beta = a.lgamma().sum(-1) - t.lgamma()
        return log_beta - (a.shape[-1] - t) * t.digamma() - ((a - 1) * a.digamma()).sum(-1)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Tensor:
        a = self.concentration
        above = (a - 1).clamp(min=0)
        corner = (dc.arange(a.shape[-1], device=a.device) == 0).to(a.dtype)  # of equals torch takes the first
        return dc.where((a < 1).all(-1, True), corner, above / above.sum(-1, True))

    @property
    def variance(self) -> Tensor:
        t = self.concentration.sum(-1, True)
        return self.concentration * (t - self.concentration) / (t**2 * (t + 1))


class FisherSnedecor(Distribution):
    """The ratio of two Chi2 variates, each over its degrees of freedom."""

    has_rsample = True
    arg_constraints: ClassVar[Mapping[str, Constraint]] = {"df1": POSITIVE, "df2": POSITIVE}
    support = POSITIVE

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = tuple(self._extended_shape(sample_shape))
        above, below = ((standard_gamma((df / 2).expand(shape)) / (df / 2)) for df in (self.df1, self.df2))
        return (above / below.clamp(min=tiny(below))).clamp(min=tiny(below))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        a, b, ratio = self.df1 / 2, self.df2 / 2, self.df1 / self.df2
        scale = (a + b).lgamma() - a.lgamma() - b.lgamma()
        return scale + a * ratio.log() + (a - 1) * value.log() - (a + b) * (ratio * value).log1p()

    @property
    def mean(self) -> Tensor:
        return dc.where(self.df2 > 2, self.df2 / (self.df2 - 2), math.nan)

    @property
    def mode(self) -> Tensor:
        found = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return dc.where(self.df1 > 2, found, math.nan)

    @property
    def variance(self) -> Tensor:
        a, b = self.df1, self.df2
        found = 2 * b**2 * (a + b - 2) / (a * (b - 2) ** 2 * (b - 4))
        return dc.where(b > 4, found, math.nan)
