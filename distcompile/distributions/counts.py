"""Distributions of counts: Poisson, Geometric, Binomial, NegativeBinomial, Multinomial.

In: their parameters; `probs` or `logits` are those of one trial's success. Out: as distribution.py says.
"""

# mypy: disable-error-code="no-any-return"
# The core's functions take and return any Value: array, graph node or Tensor.
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import distcompile as dc
import distcompile.nn.functional as F
from compiler_core.tensor.making.rejection_draws import binomial, poisson, standard_gamma
from compiler_core.tensor.tensor import Tensor
from distcompile.distributions import constraints
from distcompile.distributions.categorical import Categorical, OverCategorical
from distcompile.distributions.distribution import Constraint, ExponentialFamily, ProbsOrLogits, Shape, uniforms
from distcompile.distributions.forms import broadcast_all

PROBS = {"probs": constraints.unit_interval, "logits": constraints.real}


def log_factorial(n: Tensor) -> Tensor:
    """log n!."""
    return (n + 1).lgamma()


class Poisson(ExponentialFamily):
    """rate^k exp(-rate) / k!."""

    arg_constraints: ClassVar[Mapping[str, Constraint]] = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        return poisson(self.rate.detach().expand(tuple(self._extended_shape(sample_shape))))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return dc.xlogy(value, self.rate) - self.rate - log_factorial(value)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        return self.rate


class Geometric(ProbsOrLogits):
    """(1 - p)^k p: how many failures come before the first success."""

    arg_constraints: ClassVar[Mapping[str, Constraint]] = PROBS
    support = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._take(probs, logits)
        super().__init__(self._parameter.shape, validate_args=validate_args)
        if self._validate_args and probs is not None and dc.is_tensor(probs):
            self._check_argument("probs", constraints.greater_than(0.0))

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        probs = self.probs.detach().expand(tuple(self._extended_shape(sample_shape)))
        return (uniforms(probs.shape, probs).log() / (-probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        value, probs = dc.broadcast_tensors(value, self.probs)
        failing = dc.where((probs == 1) & (value == 0), 0.0, probs)
        return value * (-failing).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs

    @property
    def mean(self) -> Tensor:
        return 1 / self.probs - 1

    @property
    def mode(self) -> Tensor:
        return dc.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1 / self.probs - 1) / self.probs


class Binomial(ProbsOrLogits):
    """n over k · p^k (1 - p)^(n - k), n = total_count."""

    has_enumerate_support = True
    arg_constraints: ClassVar[Mapping[str, Constraint]] = {"total_count": constraints.nonnegative_integer, **PROBS}

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        (self.total_count,) = self._take(probs, logits, total_count)
        super().__init__(self._parameter.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True)
    def support(self) -> Constraint:
        """0 ... total_count."""
        return constraints.integer_interval(0, self.total_count)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        shape = tuple(self._extended_shape(sample_shape))
        return binomial(self.total_count.expand(shape), self.probs.detach().expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        n, logits = self.total_count, self.logits
        ways = log_factorial(n) - log_factorial(value) - log_factorial(n - value)
        return ways + value * logits - n * (logits.clamp(min=0) + (-logits.abs()).exp().log1p())

    def entropy(self) -> Tensor:
        every = self.log_prob(self.enumerate_support(False))
        return -(every.exp() * every).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        most: Any = self.total_count.max()
        if not bool((self.total_count == most).all()):
            raise NotImplementedError("Inhomogeneous total count not supported by `enumerate_support`.")
        return self._enumerated(
            dc.arange(1 + int(most), dtype=self._parameter.dtype, device=self._parameter.device), expand
        )

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return dc.minimum(((self.total_count + 1) * self.probs).floor(), self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)


class NegativeBinomial(ProbsOrLogits):
    """Successes of probability p before total_count failures."""

    arg_constraints: ClassVar[Mapping[str, Constraint]] = {
        "total_count": constraints.nonnegative,
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        (self.total_count,) = self._take(probs, logits, total_count)
        super().__init__(self._parameter.shape, validate_args=validate_args)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        shape = tuple(self._extended_shape(sample_shape))
        with dc.no_grad():
            return poisson(standard_gamma(self.total_count.expand(shape)) * self.logits.expand(shape).exp())

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        n, logits = self.total_count, self.logits
        chances = n * F.logsigmoid(-logits) + value * F.logsigmoid(logits)
        ways = (n + value).lgamma() - log_factorial(value) - n.lgamma()
        return chances + dc.where(n + value == 0, 0.0, ways)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.mean / (-self.logits).sigmoid()


class Multinomial(OverCategorical):
    """How often each of K classes comes in total_count draws, for probs or logits f[..., K]."""

    arg_constraints: ClassVar[Mapping[str, Constraint]] = {
        "probs": constraints.simplex,
        "logits": constraints.real_vector,
    }
    total_count: int

    def __init__(
        self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits)
        batch, event = self._categorical.batch_shape, self._categorical.param_shape[-1:]
        super().__init__(batch, event, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Constraint:
        """Counts, at most total_count in all."""
        return constraints.multinomial(self.total_count)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        drawn = self._categorical.sample((self.total_count, *sample_shape))  # (n, *sample, *batch)
        return F.one_hot(drawn, self.event_shape[0]).sum(0).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = dc.broadcast_tensors(self.logits, value)
        logits = dc.where((value == 0) & (logits == -math.inf), 0.0, logits)
        return log_factorial(value.sum(-1)) - log_factorial(value).sum(-1) + (logits * value).sum(-1)

    def entropy(self) -> Tensor:
        n = dc.tensor(float(self.total_count), dtype=self.probs.dtype, device=self.probs.device)
        single = Binomial(self.total_count, self.probs, validate_args=False)
        support = single.enumerate_support(False)[1:]
        ties = (single.log_prob(support).exp() * log_factorial(support)).sum((0, -1))
        return n * self._categorical.entropy() - log_factorial(n) + ties

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)
