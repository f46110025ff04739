"""Normal, Uniform, Categorical, Bernoulli: torch's classes of these names.

In: their parameters. Out: as distribution.py says. A Categorical's parameters have its K classes as the last dim.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import distcompile as dc
import distcompile.nn.functional as F
from distcompile.distributions.distribution import Distribution, parameters, require
from distcompile.errors import ArgumentError


class Normal(Distribution):
    """exp(-(x - loc)²/(2 scale²)) / (scale √2π), for f[...] loc and scale > 0."""

    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = parameters(loc, scale)
        if validate_args is not False:
            require(self.scale > 0, "Normal takes a scale greater than zero")
        super().__init__(self.loc.shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> dc.Tensor:
        return self.loc + self.scale * dc.randn(self._extended(sample_shape), dtype=self.loc.dtype)

    def log_prob(self, value: dc.Tensor) -> dc.Tensor:
        centred = (value - self.loc) ** 2
        return -centred / (2 * self.scale**2) - self.scale.log() - math.log(math.sqrt(2 * math.pi))

    def entropy(self) -> dc.Tensor:
        return 0.5 + 0.5 * math.log(2 * math.pi) + self.scale.log()

    def cdf(self, value: dc.Tensor) -> dc.Tensor:
        """The probability of at most `value`."""
        return 0.5 * (1 + ((value - self.loc) * self.scale.reciprocal() / math.sqrt(2)).erf())

    @property
    def mean(self) -> dc.Tensor:
        return self.loc

    @property
    def variance(self) -> dc.Tensor:
        return self.scale**2


class Uniform(Distribution):
    """1/(high - low) in [low, high), nothing elsewhere."""

    has_rsample = True

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = parameters(low, high)
        if validate_args is not False:
            require(self.low < self.high, "Uniform is not defined when low >= high")
        super().__init__(self.low.shape)

    def rsample(self, sample_shape: Sequence[int] = ()) -> dc.Tensor:
        return self.low + dc.rand(self._extended(sample_shape), dtype=self.low.dtype) * (self.high - self.low)

    def log_prob(self, value: dc.Tensor) -> dc.Tensor:
        inside = self.low.le(value).to(self.low.dtype) * self.high.gt(value).to(self.low.dtype)
        return inside.log() - (self.high - self.low).log()

    def entropy(self) -> dc.Tensor:
        return (self.high - self.low).log()

    @property
    def mean(self) -> dc.Tensor:
        return (self.high + self.low) / 2

    @property
    def variance(self) -> dc.Tensor:
        return (self.high - self.low) ** 2 / 12


def _one_of(probs: Any, logits: Any) -> None:
    if (probs is None) == (logits is None):
        raise ArgumentError("Either `probs` or `logits` must be specified, but not both.")


def _clamped(probs: dc.Tensor) -> dc.Tensor:
    """Away from 0 and 1 by the dtype's epsilon."""
    eps = dc.finfo(probs.dtype).eps
    return probs.clamp(eps, 1 - eps)


class Categorical(Distribution):
    """Class k of K with probability probs[..., k] over their sum, or softmax(logits)[..., k]."""

    def __init__(
        self, probs: dc.Tensor | None = None, logits: dc.Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        _one_of(probs, logits)
        if probs is not None:
            if validate_args is not False:
                require(probs >= 0, "Categorical takes probs of at least zero")
            self.probs = probs / probs.sum(-1, keepdim=True)
            self.logits = _clamped(self.probs).log()
        else:
            assert logits is not None
            self.logits = logits - logits.logsumexp(-1, keepdim=True)
            self.probs = F.softmax(self.logits, dim=-1)
        self._num_events = self.logits.shape[-1]
        super().__init__(self.logits.shape[:-1])

    def sample(self, sample_shape: Sequence[int] = ()) -> dc.Tensor:
        rows = self.probs.detach().reshape(-1, self._num_events)
        drawn = dc.multinomial(rows, math.prod(sample_shape), True)  # (batch, samples)
        return drawn.T.reshape(self._extended(sample_shape))

    def log_prob(self, value: dc.Tensor) -> dc.Tensor:
        index, logits = dc.broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return logits.gather(-1, index[..., :1]).squeeze(-1)

    def entropy(self) -> dc.Tensor:
        least = dc.finfo(self.logits.dtype).min
        return -(self.logits.clamp(min=least) * self.probs).sum(-1)

    @property
    def mode(self) -> dc.Tensor:
        """The most probable class."""
        return self.probs.argmax(-1)


class Bernoulli(Distribution):
    """1 with probability probs, or sigmoid(logits), else 0."""

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        _one_of(probs, logits)
        if probs is not None:
            (self.probs,) = parameters(probs)
            if validate_args is not False:
                require((self.probs >= 0) & (self.probs <= 1), "Bernoulli takes probs from zero to one")
            inner = _clamped(self.probs)
            self.logits = inner.log() - (-inner).log1p()
        else:
            (self.logits,) = parameters(logits)
            self.probs = self.logits.sigmoid()
        super().__init__(self.logits.shape)

    def sample(self, sample_shape: Sequence[int] = ()) -> dc.Tensor:
        with dc.no_grad():
            return dc.bernoulli(self.probs.expand(self._extended(sample_shape)))

    def log_prob(self, value: dc.Tensor) -> dc.Tensor:
        logits, target = dc.broadcast_tensors(self.logits, value)
        return -F.binary_cross_entropy_with_logits(logits, target, reduction="none")

    def entropy(self) -> dc.Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    @property
    def mean(self) -> dc.Tensor:
        return self.probs

    @property
    def variance(self) -> dc.Tensor:
        return self.probs * (1 - self.probs)
