"""Distributions made of others: Independent, TransformedDistribution, MixtureSameFamily, and named transformed ones.

In: distributions, transforms, parameters. Out: as distribution.py says. The density of a transformed one is the base's
at the inverse, over the determinants.
"""

# mypy: disable-error-code="no-any-return, attr-defined"
# What is composed has the parameters of what it is composed of.
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import distcompile as dc
import distcompile.nn.functional as F
from compiler_core.tensor.tensor import Tensor
from distcompile.distributions import constraints
from distcompile.distributions.categorical import Categorical, ExpRelaxedCategorical, LogitRelaxedBernoulli
from distcompile.distributions.distribution import Constraint, Distribution, Shape
from distcompile.distributions.forms import sum_rightmost
from distcompile.distributions.location_scale import LOC_SCALE, Normal
from distcompile.distributions.transforms import (
    ComposeTransform,
    ExpTransform,
    SigmoidTransform,
    StickBreakingTransform,
    Transform,
)
from distcompile.errors import ArgumentError

POSITIVE = constraints.positive


class Independent(Distribution):
    """`base` with its last `reinterpreted_batch_ndims` batch dims taken for event dims."""

    def __init__(
        self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: bool | None = None
    ) -> None:
        shape, count = tuple(base_distribution.batch_shape), reinterpreted_batch_ndims
        if count > len(shape):
            raise ArgumentError("Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape)",
                                got=f"{count} of {shape}")  # fmt: skip
        keep = len(shape) - count
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, count
        super().__init__(shape[:keep], shape[keep:] + tuple(base_distribution.event_shape), validate_args)
        self.has_rsample = base_distribution.has_rsample
        self.has_enumerate_support = base_distribution.has_enumerate_support and not count

    @constraints.dependent_property
    def support(self) -> Constraint:
        """The base's, for each element."""
        base: Constraint = self.base_dist.support
        count = self.reinterpreted_batch_ndims
        return constraints.independent(base, count) if count else base

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Any:
        new = self._expanded(batch_shape, _instance)
        own = tuple(self.event_shape)[: self.reinterpreted_batch_ndims]
        new.base_dist = self.base_dist.expand((*batch_shape, *own))
        return new

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.reinterpreted_batch_ndims:
            raise NotImplementedError("Enumeration over cartesian product is not implemented")
        return self.base_dist.enumerate_support(expand)

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def __repr__(self) -> str:
        return f"Independent({self.base_dist!r}, {self.reinterpreted_batch_ndims})"


class TransformedDistribution(Distribution):
    """The distribution of t(x), x drawn from `base_distribution`, for a transform or a list of them."""

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | Sequence[Transform],
        validate_args: bool | None = None,
    ) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        if not all(isinstance(t, Transform) for t in self.transforms):
            raise ArgumentError("transforms must be a Transform or a list of Transforms")
        whole = ComposeTransform(self.transforms)
        base, domain = base_distribution, whole.domain.event_dim
        shape = (*base.batch_shape, *base.event_shape)
        if len(shape) < domain:
            raise ArgumentError("base_distribution needs to have shape with size at least the transform's event dims",
                                expected=str(domain), got=str(shape))  # fmt: skip
        result = tuple(whole.forward_shape(shape))
        base = base.expand(tuple(whole.inverse_shape(result))[: len(shape) - len(base.event_shape)])
        more = domain - len(base.event_shape)
        self.base_dist = Independent(base, more) if more > 0 else base
        dims = max(whole.codomain.event_dim, len(base.event_shape) + whole.codomain.event_dim - domain)
        cut = len(result) - dims
        super().__init__(result[:cut], result[cut:], validate_args)
        self.has_rsample = self.base_dist.has_rsample

    @constraints.dependent_property
    def support(self) -> Constraint:
        """Where the last transform leads."""
        last: Constraint = self.transforms[-1].codomain if self.transforms else self.base_dist.support
        more = len(self.event_shape) - last.event_dim
        return constraints.independent(last, more) if more > 0 else last

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Any:
        new = self._expanded(batch_shape, _instance)
        shape = ComposeTransform(self.transforms).inverse_shape((*batch_shape, *self.event_shape))
        new.base_dist = self.base_dist.expand(tuple(shape)[: len(shape) - len(self.base_dist.event_shape)])
        return new

    def _forward(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        with dc.no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        return self._forward(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        dims, total, y = len(self.event_shape), dc.zeros((), dtype=value.dtype, device=value.device), value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            dims += transform.domain.event_dim - transform.codomain.event_dim
            total = total - sum_rightmost(transform.log_abs_det_jacobian(x, y), dims - transform.domain.event_dim)
            y = x
        return total + sum_rightmost(self.base_dist.log_prob(y), dims - len(self.base_dist.event_shape))

    def _sign(self) -> Any:
        return ComposeTransform(self.transforms).sign

    def cdf(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        return self._turned(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._forward(self.base_dist.icdf(self._turned(value)))

    def _turned(self, p: Tensor) -> Tensor:
        """p, or 1 - p where the transform falls."""
        sign = self._sign()
        if isinstance(sign, int) and sign == 1:
            return p
        return sign * (p - 0.5) + 0.5

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist!r}, {self.transforms!r})"


class LogNormal(TransformedDistribution):
    """exp of a Normal."""

    arg_constraints: ClassVar[Mapping[str, Constraint]] = LOC_SCALE
    support = POSITIVE

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale, validate_args=validate_args), ExpTransform(), validate_args)

    @property
    def loc(self) -> Tensor:
        """The mean of the logarithm."""
        return self.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The standard deviation of the logarithm."""
        return self.base_dist.scale

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale**2 / 2).exp()

    @property
    def mode(self) -> Tensor:
        return (self.loc - self.scale**2).exp()

    @property
    def variance(self) -> Tensor:
        square = self.scale**2
        return square.expm1() * (2 * self.loc + square).exp()


class LogisticNormal(TransformedDistribution):
    """A Normal vector of K - 1 numbers, by stick breaking on the simplex of K."""

    arg_constraints: ClassVar[Mapping[str, Constraint]] = LOC_SCALE
    support = constraints.simplex

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand((1,))
        super().__init__(base, StickBreakingTransform(), validate_args)

    @property
    def loc(self) -> Tensor:
        """The base's."""
        return self.base_dist.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The base's."""
        return self.base_dist.base_dist.scale


class _Relaxed(TransformedDistribution):
    """A relaxed discrete distribution: the base's parameters, seen through."""

    @property
    def temperature(self) -> Any:
        """How far from discrete."""
        return self.base_dist.temperature

    @property
    def probs(self) -> Tensor:
        """The base's."""
        return self.base_dist.probs

    @property
    def logits(self) -> Tensor:
        """The base's."""
        return self.base_dist.logits


class RelaxedBernoulli(_Relaxed):
    """A Bernoulli between 0 and 1, whose draws have gradients; discrete as temperature falls to 0."""

    support = constraints.unit_interval

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        super().__init__(LogitRelaxedBernoulli(temperature, probs, logits), SigmoidTransform(), validate_args)


class RelaxedOneHotCategorical(_Relaxed):
    """A OneHotCategorical in the simplex, whose draws have gradients."""

    support = constraints.simplex

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args)


class MixtureSameFamily(Distribution):
    """One of K components, chosen by a Categorical; they are the last batch dim of `component_distribution`."""

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ArgumentError(" The Mixture distribution needs to be an  instance of torch.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ArgumentError("The Component distribution need to be an instance of torch.distributions.Distribution")
        self.mixture_distribution, self.component_distribution = mixture_distribution, component_distribution
        shape = tuple(component_distribution.batch_shape)
        if shape[-1:] != tuple(mixture_distribution.param_shape[-1:]):
            raise ArgumentError("`mixture_distribution component` does not equal `component_distribution.batch_shape`",
                                expected=str(shape[-1:]), got=str(mixture_distribution.param_shape[-1:]))  # fmt: skip
        dc.broadcast_shapes(tuple(mixture_distribution.batch_shape), shape[:-1])
        self._dims = len(component_distribution.event_shape)
        super().__init__(shape[:-1], component_distribution.event_shape, validate_args)

    @constraints.dependent_property
    def support(self) -> Constraint:
        """The components'."""
        return self.component_distribution.support

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Any:
        new = self._expanded(batch_shape, _instance)
        count = self.component_distribution.batch_shape[-1]
        new.component_distribution = self.component_distribution.expand((*batch_shape, count))
        new.mixture_distribution = self.mixture_distribution.expand(batch_shape)
        return new

    def _weights(self) -> Tensor:
        """The mixture's probabilities f[batch, K, 1...]."""
        probs = self.mixture_distribution.probs
        return probs.reshape((*probs.shape, *(1,) * self._dims))

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        with dc.no_grad():
            picks, drawn = (
                self.mixture_distribution.sample(sample_shape),
                self.component_distribution.sample(sample_shape),
            )
            if tuple(picks.shape) != (*sample_shape, *self.batch_shape):
                picks = picks.expand((*sample_shape, *self.batch_shape))
            dim, ones = picks.ndim, (1,) * (self._dims + 1)
            index = picks.reshape((*picks.shape, *ones)).expand((*picks.shape, 1, *self.event_shape))
            return drawn.gather(dim, index).squeeze(dim)

    def _padded(self, value: Tensor) -> Tensor:
        return value.unsqueeze(-1 - self._dims)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        each = self.component_distribution.log_prob(self._padded(value))
        return (each + F.log_softmax(self.mixture_distribution.logits, dim=-1)).logsumexp(-1)

    def cdf(self, value: Tensor) -> Tensor:
        return (self.component_distribution.cdf(self._padded(value)) * self.mixture_distribution.probs).sum(-1)

    @property
    def mean(self) -> Tensor:
        return (self._weights() * self.component_distribution.mean).sum(-1 - self._dims)

    @property
    def variance(self) -> Tensor:
        within = (self._weights() * self.component_distribution.variance).sum(-1 - self._dims)
        apart = (self.component_distribution.mean - self._padded(self.mean)) ** 2
        return within + (self._weights() * apart).sum(-1 - self._dims)

    def __repr__(self) -> str:
        return f"MixtureSameFamily({self.mixture_distribution!r}, {self.component_distribution!r})"
