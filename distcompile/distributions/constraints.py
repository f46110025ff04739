"""Where parameters and draws may lie: torch.distributions.constraints.

In: a Tensor. Out: `check` says, for each event, whether it lies there. `event_dim`: how many of its last dims are one
event. A dependent constraint depends on other parameters and cannot be checked without them.
"""

# mypy: disable-error-code="no-any-return"
# The core's functions take and return any Value: array, graph node or Tensor.
from __future__ import annotations

from typing import Any

import distcompile as dc
from compiler_core.tensor.tensor import Tensor

__all__ = [
    "Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property",
    "greater_than", "greater_than_eq", "half_open_interval", "independent", "integer_interval", "interval",
    "is_dependent", "less_than", "lower_cholesky", "lower_triangular", "multinomial", "nonnegative",
    "nonnegative_integer", "one_hot", "positive", "positive_definite", "positive_integer", "positive_semidefinite",
    "real", "real_vector", "simplex", "square", "stack", "symmetric", "unit_interval",
]  # fmt: skip


class Constraint:
    """A set of values. is_discrete: of separate points."""

    is_discrete = False
    event_dim = 0

    def check(self, value: Tensor) -> Tensor:
        """bool[batch]: whether each event of `value` lies here."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.__class__.__name__[1:] + "()"


class _Dependent(Constraint):
    """A set that other parameters bound. What is_discrete and event_dim are is an error where it was not said."""

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def _said(self, name: str) -> Any:
        if getattr(self, "_" + name) is NotImplemented:
            raise NotImplementedError(f".{name} cannot be determined statically")
        return getattr(self, "_" + name)

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return bool(self._said("is_discrete"))

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return int(self._said("event_dim"))

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> Constraint:
        """The same, of which is_discrete or event_dim is known."""
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, value: Tensor) -> Tensor:
        raise ValueError("Cannot determine validity of dependent constraint")


def is_dependent(constraint: object) -> bool:
    """Whether a constraint can only be checked with other parameters."""
    return isinstance(constraint, _Dependent)


class _DependentProperty(property, _Dependent):
    """A property that computes a constraint from an object's parameters; on the class, a dependent constraint."""

    def __init__(self, fn: Any = None, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        property.__init__(self, fn)
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def __call__(self, fn: Any) -> _DependentProperty:  # type: ignore[override]
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


class _Bounded(Constraint):
    """Real numbers (or whole ones) between two bounds; strict: the bound itself is outside."""

    strict_low = strict_high = False

    def __init__(self, low: Any = None, high: Any = None) -> None:
        self.low, self.high = low, high
        for name, bound in (("lower_bound", low), ("upper_bound", high)):
            if bound is not None:
                setattr(self, name, bound)

    def check(self, value: Tensor) -> Tensor:
        fits = value == value
        if self.low is not None:
            fits = fits & ((value > self.low) if self.strict_low else (value >= self.low))
        if self.high is not None:
            fits = fits & ((value < self.high) if self.strict_high else (value <= self.high))
        return fits & (value % 1 == 0) if self.is_discrete else fits

    def __repr__(self) -> str:
        bounds = [f"{side}={bound}" for side, bound in (("lower_bound", self.low), ("upper_bound", self.high))
                  if bound is not None]  # fmt: skip
        return f"{type(self).__name__[1:]}({', '.join(bounds)})"


class _Real(_Bounded):
    """All numbers."""

    def __init__(self) -> None:
        super().__init__()


class _GreaterThan(_Bounded):
    """Above the bound."""

    strict_low = True

    def __init__(self, lower_bound: Any) -> None:
        super().__init__(lower_bound)


class _GreaterThanEq(_Bounded):
    """At least the bound."""

    def __init__(self, lower_bound: Any) -> None:
        super().__init__(lower_bound)


class _LessThan(_Bounded):
    """Below the bound."""

    strict_high = True

    def __init__(self, upper_bound: Any) -> None:
        super().__init__(high=upper_bound)


class _Interval(_Bounded):
    """Between the bounds, these included."""

    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        super().__init__(lower_bound, upper_bound)


class _HalfOpenInterval(_Interval):
    """Between the bounds, the upper one excluded."""

    strict_high = True


class _IntegerInterval(_Interval):
    """Whole numbers between the bounds."""

    is_discrete = True


class _IntegerLessThan(_Bounded):
    """Whole numbers, at most the bound."""

    is_discrete = True

    def __init__(self, upper_bound: Any) -> None:
        super().__init__(high=upper_bound)


class _IntegerGreaterThan(_Bounded):
    """Whole numbers, at least the bound."""

    is_discrete = True

    def __init__(self, lower_bound: Any) -> None:
        super().__init__(lower_bound)


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    is_discrete, event_dim = True, 1

    def check(self, value: Tensor) -> Tensor:
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(Constraint):
    """Counts, at most the bound in all."""

    is_discrete, event_dim = True, 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class _LowerTriangular(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return (value.tril() == value).flatten(-2).all(-1)


class _LowerCholesky(_LowerTriangular):
    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & (value.diagonal(0, -2, -1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    def check(self, value: Tensor) -> Tensor:
        tolerance = dc.finfo(value.dtype).eps * value.shape[-1] * 10
        return super().check(value) & ((value.square().sum(-1).sqrt() - 1).abs() <= tolerance).all(-1)


class _Square(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return dc.full(tuple(value.shape[:-2]), value.shape[-2] == value.shape[-1], dtype=dc.bool, device=value.device)


class _Symmetric(_Square):
    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & dc.isclose(value, value.mT, atol=1e-6).flatten(-2).all(-1)


class _PositiveSemidefinite(_Symmetric):
    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & (dc.linalg.eigvalsh(value) >= 0).all(-1)


class _PositiveDefinite(_Symmetric):
    def check(self, value: Tensor) -> Tensor:
        return super().check(value) & (dc.linalg.cholesky_ex(value).info == 0)


class _IndependentConstraint(Constraint):
    """`base_constraint` for each element of events with that many dims more."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        fits = self.base_constraint.check(value)
        if fits.ndim < self.reinterpreted_batch_ndims:
            raise ValueError(f"Expected value.dim() >= {self.event_dim}, got {value.ndim}")
        return (
            fits.flatten(fits.ndim - self.reinterpreted_batch_ndims).all(-1) if self.reinterpreted_batch_ndims else fits
        )

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """`base_constraint`, of the components of a mixture, for each of its draws."""

    def __init__(self, base_constraint: Constraint) -> None:
        self.base_constraint = base_constraint

    @property
    def is_discrete(self) -> bool:  # type: ignore[override]
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:  # type: ignore[override]
        return self.base_constraint.event_dim

    def check(self, value: Tensor) -> Tensor:
        if value.ndim < self.event_dim:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.ndim}")
        fits = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        return fits.reshape((*value.shape[: value.ndim - self.event_dim], -1)).all(-1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_constraint!r})"


class _Joined(Constraint):
    """Constraints of parts of a tensor along `dim`. parts: (constraint, length); length 0: one slice, stacked."""

    def __init__(self, parts: list[tuple[Constraint, int]], dim: int) -> None:
        self.parts, self.dim = parts, dim
        self.is_discrete = any(part.is_discrete for part, _ in parts)
        self.event_dim = max(part.event_dim for part, _ in parts)

    def check(self, value: Tensor) -> Tensor:
        checked, start = [], 0
        for part, length in self.parts:
            piece = value.narrow(self.dim, start, length or 1)
            checked.append(part.check(piece if length else piece.squeeze(self.dim)))
            start += length or 1
        if all(length for _, length in self.parts):
            return dc.cat(checked, self.dim)
        return dc.stack(checked, self.dim)


def cat(cseq: Any, dim: int = 0, lengths: Any = None) -> Constraint:
    """The constraints of parts that are joined along `dim`."""
    parts = list(cseq)
    return _Joined(list(zip(parts, lengths or [1] * len(parts))), dim)


def stack(cseq: Any, dim: int = 0) -> Constraint:
    """The constraints of slices that are stacked along `dim`."""
    return _Joined([(part, 0) for part in cseq], dim)


greater_than, greater_than_eq, less_than = _GreaterThan, _GreaterThanEq, _LessThan
interval, half_open_interval, integer_interval = _Interval, _HalfOpenInterval, _IntegerInterval
independent = _IndependentConstraint
dependent_property, multinomial = _DependentProperty, _Multinomial
dependent = _Dependent()
boolean, one_hot, simplex = _Boolean(), _OneHot(), _Simplex()
nonnegative_integer, positive_integer = _IntegerGreaterThan(0), _IntegerGreaterThan(1)
real = _Real()
real_vector = independent(real, 1)
positive, nonnegative = greater_than(0.0), greater_than_eq(0.0)
unit_interval = interval(0.0, 1.0)
lower_triangular, lower_cholesky, corr_cholesky = _LowerTriangular(), _LowerCholesky(), _CorrCholesky()
square, symmetric = _Square(), _Symmetric()
positive_semidefinite, positive_definite = _PositiveSemidefinite(), _PositiveDefinite()
