"""Distributions of yes and no, and of one of K classes; and their relaxations to numbers in between.

In: `probs` or `logits` (of K classes in the last dim). Out: as distribution.py says.
Sources of the relaxations: Maddison et al. 2017, Jang et al. 2017; of ContinuousBernoulli: Loaiza-Ganem et al. 2019.
"""

# mypy: disable-error-code="no-any-return"
# The core's functions take and return any Value: array, graph node or Tensor.
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import distcompile as dc
import distcompile.nn.functional as F
from compiler_core.tensor.tensor import Size, Tensor
from distcompile.distributions import constraints
from distcompile.distributions.distribution import (
    Constraint,
    Distribution,
    ExponentialFamily,
    ProbsOrLogits,
    Shape,
    require_one,
    uniforms,
)
from distcompile.distributions.forms import clamp_probs
from distcompile.errors import ArgumentError

PROBS = {"probs": constraints.unit_interval, "logits": constraints.real}
CLASSES = {"probs": constraints.simplex, "logits": constraints.real_vector}


class Bernoulli(ProbsOrLogits, ExponentialFamily):
    """1 with probability probs, or sigmoid(logits), else 0."""

    has_enumerate_support = True
    arg_constraints: ClassVar[Mapping[str, Constraint]] = PROBS
    support = constraints.boolean

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._take(probs, logits)
        super().__init__(self._parameter.shape, validate_args=validate_args)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        with dc.no_grad():
            return dc.bernoulli(self.probs.expand(tuple(self._extended_shape(sample_shape))))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, target = dc.broadcast_tensors(self.logits, value)
        return -F.binary_cross_entropy_with_logits(logits, target, reduction="none")

    def entropy(self) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._enumerated(dc.arange(2, dtype=self._parameter.dtype, device=self._parameter.device), expand)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return dc.where(self.probs == 0.5, math.nan, (self.probs >= 0.5).to(self.probs.dtype))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)


class ContinuousBernoulli(ProbsOrLogits, ExponentialFamily):
    """C(p) p^x (1 - p)^(1 - x) on [0, 1]; C by its series for p within `lims`, where its formula is 0/0."""

    has_rsample = True
    arg_constraints: ClassVar[Mapping[str, Constraint]] = PROBS
    support = constraints.unit_interval

    def __init__(self, probs: Any = None, logits: Any = None, lims: tuple[float, float] = (0.499, 0.501),
                 validate_args: bool | None = None) -> None:  # fmt: skip
        self._take(probs, logits)
        if probs is not None and validate_args is not False and self._validate_args:
            self._check_argument("probs", constraints.unit_interval)
        if probs is not None:
            self.__dict__["probs"] = clamp_probs(self.__dict__["probs"])
        self._lims = lims
        super().__init__(self._parameter.shape, validate_args=validate_args)

    def _is_outside(self) -> Tensor:
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _safe(self) -> Tensor:
        """probs where the formulas hold, else the lower limit."""
        return dc.where(self._is_outside(), self.probs, self._lims[0])

    def _log_norm(self) -> Tensor:
        p = self._safe()
        below, above = dc.where(p <= 0.5, p, 0.0), dc.where(p >= 0.5, p, 1.0)
        exact = ((-p).log1p() - p.log()).abs().log()
        exact = exact - dc.where(p <= 0.5, (-2 * below).log1p(), (2 * above - 1).log())
        x = (self.probs - 0.5) ** 2
        return dc.where(self._is_outside(), exact, math.log(2.0) + (4 / 3 + 104 / 45 * x) * x)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self.icdf(uniforms(self._extended_shape(sample_shape), self.probs))

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        with dc.no_grad():
            return self.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = dc.broadcast_tensors(self.logits, value)
        return self._log_norm() - F.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        p = self._safe()
        exact = (p**value * (1 - p) ** (1 - value) + p - 1) / (2 * p - 1)
        inside = dc.where(self._is_outside(), exact, value)
        return dc.where(value <= 0, 0.0, dc.where(value >= 1, 1.0, inside))

    def icdf(self, value: Tensor) -> Tensor:
        p = self._safe()
        exact = ((-p + value * (2 * p - 1)).log1p() - (-p).log1p()) / (p.log() - (-p).log1p())
        return dc.where(self._is_outside(), exact, value)

    def entropy(self) -> Tensor:
        inverse = (-self.probs).log1p()
        return self.mean * (inverse - self.probs.log()) - self._log_norm() - inverse

    @property
    def mean(self) -> Tensor:
        p, x = self._safe(), self.probs - 0.5
        exact = p / (2 * p - 1) + 1 / ((-p).log1p() - p.log())
        return dc.where(self._is_outside(), exact, 0.5 + (1 / 3 + 16 / 45 * x**2) * x)

    @property
    def variance(self) -> Tensor:
        p, x = self._safe(), (self.probs - 0.5) ** 2
        exact = p * (p - 1) / (1 - 2 * p) ** 2 + 1 / ((-p).log1p() - p.log()) ** 2
        return dc.where(self._is_outside(), exact, 1 / 12 - (1 / 15 - 128 / 945 * x) * x)


class Categorical(Distribution):
    """Class k of K with probability probs[..., k] over their sum, or softmax(logits)[..., k]."""

    has_enumerate_support = True
    arg_constraints: ClassVar[Mapping[str, Constraint]] = CLASSES

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        require_one(probs, logits)
        name, given = ("probs", probs) if probs is not None else ("logits", logits)
        if given.ndim < 1:
            raise ArgumentError(f"`{name}` parameter must be at least one-dimensional.")
        if probs is not None:
            self.probs = probs / probs.sum(-1, keepdim=True)
        else:
            self.logits = logits - logits.logsumexp(-1, keepdim=True)
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], validate_args=validate_args)

    def __getattr__(self, name: str) -> Any:
        if name == "probs" and "logits" in self.__dict__:
            return F.softmax(self.__dict__["logits"], dim=-1)
        if name == "logits" and "probs" in self.__dict__:
            return clamp_probs(self.__dict__["probs"]).log()
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter that was given."""
        given: Any = self.__dict__.get("probs", self.__dict__.get("logits"))
        return given.shape

    @constraints.dependent_property(is_discrete=True)
    def support(self) -> Constraint:
        """0 ... K-1."""
        return constraints.integer_interval(0, self._num_events - 1)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        rows = self.probs.detach().reshape(-1, self._num_events)
        drawn = dc.multinomial(rows, math.prod(sample_shape), True)  # (batch, samples)
        return drawn.T.reshape(tuple(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        index, logits = dc.broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return logits.gather(-1, index[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        least = dc.finfo(self.logits.dtype).min
        return -(self.logits.clamp(min=least) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._enumerated(dc.arange(self._num_events, device=self.logits.device), expand)

    @property
    def mean(self) -> Tensor:
        return dc.full(tuple(self.batch_shape), math.nan, dtype=self.probs.dtype, device=self.probs.device)

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    @property
    def variance(self) -> Tensor:
        return self.mean


class OverCategorical(Distribution):
    """A distribution that is told by a Categorical: its parameters are that one's."""

    _categorical: Categorical

    @property
    def probs(self) -> Tensor:
        """f[..., K], of sum 1."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """Their logarithms."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter that was given."""
        return self._categorical.param_shape

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Any:
        new = self._expanded(batch_shape, _instance)
        new._categorical = self._categorical.expand(batch_shape)
        return new


class OneHotCategorical(OverCategorical):
    """A Categorical's class as a vector of zeros and a one."""

    has_enumerate_support = True
    arg_constraints: ClassVar[Mapping[str, Constraint]] = CLASSES
    support = constraints.one_hot

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._categorical = Categorical(probs, logits, validate_args)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args)

    def _one_hot(self, classes: Tensor) -> Tensor:
        return F.one_hot(classes, self.event_shape[0]).to(self.probs.dtype)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        return self._one_hot(self._categorical.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n = self.event_shape[0]
        values = dc.eye(n, dtype=self.probs.dtype, device=self.probs.device).view((n, *(1,) * len(self.batch_shape), n))
        return values.expand((n, *self.batch_shape, n)) if expand else values

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return self._one_hot(self.probs.argmax(-1))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """OneHotCategorical whose draws pass the gradient to probs as they are (Bengio et al. 2013)."""

    has_rsample = True

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class LogitRelaxedBernoulli(ProbsOrLogits):
    """The logit of a RelaxedBernoulli."""

    has_rsample = True
    arg_constraints: ClassVar[Mapping[str, Constraint]] = PROBS
    support = constraints.real

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self.temperature = temperature
        self._take(probs, logits)
        super().__init__(self._parameter.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        probs = clamp_probs(self.probs.expand(tuple(self._extended_shape(sample_shape))))
        u = clamp_probs(uniforms(probs.shape, probs))
        return (u.log() - (-u).log1p() + probs.log() - (-probs).log1p()) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        logits, value = dc.broadcast_tensors(self.logits, value)
        difference = logits - value * self.temperature
        log_temperature = dc.as_tensor(self.temperature, dtype=logits.dtype, device=logits.device).log()
        return log_temperature + difference - 2 * difference.exp().log1p()


class ExpRelaxedCategorical(OverCategorical):
    """The logarithm of a RelaxedOneHotCategorical."""

    has_rsample = True
    arg_constraints: ClassVar[Mapping[str, Constraint]] = CLASSES
    support = constraints.real_vector

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._categorical = Categorical(probs, logits)
        self.temperature = temperature
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        u = clamp_probs(uniforms(self._extended_shape(sample_shape), self.logits))
        scores = (self.logits - (-u.log()).log()) / self.temperature
        return scores - scores.logsumexp(-1, keepdim=True)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        count = self.event_shape[0]
        logits, value = dc.broadcast_tensors(self.logits, value)
        log_temperature = dc.as_tensor(self.temperature, dtype=logits.dtype, device=logits.device).log()
        score = logits - value * self.temperature
        score = (score - score.logsumexp(-1, keepdim=True)).sum(-1)
        return score + math.lgamma(count) + (count - 1) * log_temperature
