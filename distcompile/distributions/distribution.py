"""What every distribution has: shapes, checked parameters, draws, log density, moments.

In: parameters that broadcast to one batch shape. Out: `sample(s)` and `rsample(s)` of shape s + batch + event,
`log_prob` and `entropy` of the batch shape. Parameters and values are checked where they are known: not while tracing.
A subclass names its parameters in `arg_constraints`; attributes of these names are what `expand` expands.
"""

# mypy: disable-error-code="no-any-return"
# The core's functions take and return any Value: array, graph node or Tensor.
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import distcompile as dc
from compiler_core.ops.registry import current_trace
from compiler_core.tensor.tensor import Size, Tensor
from distcompile.distributions import constraints
from distcompile.distributions.forms import broadcast_all, logits_to_probs, probs_to_logits
from distcompile.errors import ArgumentError, NotSupportedError

Shape = Sequence[int]
Constraint = constraints.Constraint
HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


class Distribution:
    """A distribution over events of `event_shape`, one for each place of `batch_shape`."""

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__
    arg_constraints: ClassVar[Mapping[str, Constraint]] = {}
    support: Any = constraints.dependent

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions that are not told check their parameters and values."""
        if value not in (True, False):
            raise ArgumentError("validate_args is a bool", got=repr(value))
        Distribution._validate_args = value

    def __init__(self, batch_shape: Shape = (), event_shape: Shape = (), validate_args: bool | None = None) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args and current_trace() is None:
            for name, constraint in self.arg_constraints.items():
                if name in self.__dict__ and not constraints.is_dependent(constraint):
                    self._check_argument(name, constraint)

    def _check_argument(self, name: str, constraint: Constraint) -> None:
        value = self.__dict__[name]
        if not bool(constraint.check(value).all()):
            raise ArgumentError(
                f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution "
                f"{type(self).__name__} to satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
            )

    def _validate_sample(self, value: Any) -> None:
        """Raise ArgumentError (a ValueError) for a value of another shape, or outside the support."""
        if not self._validate_args or current_trace() is not None:
            return
        if not isinstance(value, Tensor):
            raise ArgumentError("The value argument to log_prob must be a Tensor")
        shape, whole = tuple(value.shape), (*self.batch_shape, *self.event_shape)
        if shape[len(shape) - len(self.event_shape) :] != tuple(self.event_shape):
            raise ArgumentError("The right-most size of value must match event_shape", got=f"{shape} vs {whole}")
        for i, j in zip(reversed(shape), reversed(whole)):
            if i != 1 and j != 1 and i != j:
                raise ArgumentError(
                    "Value is not broadcastable with batch_shape+event_shape", got=f"{shape} vs {whole}"
                )
        if not constraints.is_dependent(self.support) and not bool(self.support.check(value).all()):
            raise ArgumentError(
                f"Expected value argument ({type(value).__name__} of shape {shape}) to be within the support "
                f"({self.support!r}) of the distribution {self!r}, but found invalid values:\n{value}"
            )

    def expand(self, batch_shape: Shape, _instance: Any = None) -> Self:
        """The same distribution, its parameters expanded to a larger batch shape."""
        new = self._expanded(batch_shape, _instance)
        for name, constraint in self.arg_constraints.items():
            if isinstance(self.__dict__.get(name), Tensor):
                value = self.__dict__[name]
                event = tuple(value.shape)[value.ndim - constraint.event_dim :]
                new.__dict__[name] = value.expand((*batch_shape, *event))
        return new

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        """An object for `expand` to fill: the one of a subclass, or a new one. Raises NotImplementedError."""
        if _instance is None and _init_of(type(self)) is not _init_of(cls):
            raise NotImplementedError(f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom "
                                      "__init__ method must also define a custom .expand() method.")  # fmt: skip
        return object.__new__(type(self)) if _instance is None else _instance

    def _expanded(self, batch_shape: Shape, instance: Any = None) -> Self:
        """A copy with another batch shape; what a subclass has put into `instance` stays as it is."""
        new: Self = object.__new__(type(self)) if instance is None else instance
        new.__dict__.update({**self.__dict__, **new.__dict__, "_batch_shape": Size(batch_shape)})
        return new

    @property
    def batch_shape(self) -> Size:
        """The shape over which distributions differ."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one draw of one distribution."""
        return self._event_shape

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        """A draw without a gradient, of shape sample_shape + batch_shape + event_shape."""
        with dc.no_grad():
            return self.rsample(sample_shape)

    def sample_n(self, n: int) -> Tensor:
        """n draws."""
        return self.sample((n,))

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        """A draw whose gradient reaches the parameters. Raises NotSupportedError (a NotImplementedError) without."""
        raise NotSupportedError(f"{type(self).__name__} has no draws with a gradient", remedy="sample()")

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or probability, of `value`."""
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most `value`."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """The value below which the probability is `value`."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a discrete distribution: T[count, batch, event]; expand=False: batch dims of size 1."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The mean of -log_prob."""
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        """exp(entropy)."""
        return self.entropy().exp()

    @property
    def mean(self) -> Tensor:
        """The mean."""
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        """The most probable value."""
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        raise NotImplementedError

    @property
    def stddev(self) -> Tensor:
        """The root of the variance."""
        return self.variance.sqrt()

    def _extended_shape(self, sample_shape: Shape = ()) -> Size:
        return Size((*sample_shape, *self.batch_shape, *self.event_shape))

    def _enumerated(self, values: Tensor, expand: bool) -> Tensor:
        """values T[count] of each place of the batch."""
        shaped = values.view((-1, *(1,) * len(self.batch_shape)))
        return shaped.expand((-1, *self.batch_shape)) if expand else shaped

    def __repr__(self) -> str:
        names = [name for name in self.arg_constraints if name in self.__dict__]
        shown = [f"{n}: {v if v.numel() == 1 else v.shape}" for n in names for v in (self.__dict__[n],)]
        return f"{type(self).__name__}({', '.join(shown)})"


def _init_of(kind: type) -> Any:
    return getattr(kind, "__init__")  # noqa: B009  # as a name it would be an instance's, to a type checker


class ExponentialFamily(Distribution):
    """A distribution of the exponential family."""


def tiny(tensor: Tensor) -> float:
    """The smallest normal number of a tensor's dtype."""
    return float(dc.finfo(tensor.dtype).tiny)


def uniforms(shape: Shape, like: Tensor) -> Tensor:
    """Uniform draws away from 0 by the smallest number, in a tensor's dtype."""
    return dc.rand(tuple(shape), dtype=like.dtype, device=like.device).clamp(min=tiny(like))


def exponentials(shape: Shape, like: Tensor) -> Tensor:
    """Exponential draws of rate 1, in a tensor's dtype."""
    return dc.empty(tuple(shape), dtype=like.dtype, device=like.device).exponential_()


def require_one(probs: Any, logits: Any) -> None:
    """Raise ArgumentError (a ValueError) unless one of two is given."""
    if (probs is None) == (logits is None):
        raise ArgumentError("Either `probs` or `logits` must be specified, but not both.")


class ProbsOrLogits(Distribution):
    """`probs` and `logits` of what happens or does not, of which one was given; the other is computed."""

    def _take(self, probs: Any, logits: Any, *others: Any) -> tuple[Tensor, ...]:
        """Keep the one that is given, broadcast with `others`; gives those, broadcast."""
        require_one(probs, logits)
        name, value = ("probs", probs) if probs is not None else ("logits", logits)
        *broadcast, self.__dict__[name] = broadcast_all(*others, value)
        return tuple(broadcast)

    def __getattr__(self, name: str) -> Any:
        if name == "probs" and "logits" in self.__dict__:
            return logits_to_probs(self.__dict__["logits"], is_binary=True)
        if name == "logits" and "probs" in self.__dict__:
            return probs_to_logits(self.__dict__["probs"], is_binary=True)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def _parameter(self) -> Tensor:
        value: Any = self.__dict__.get("probs", self.__dict__.get("logits"))
        return value

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter that was given."""
        return self._parameter.shape
