"""What every transform has, and those of single numbers.

In: a Tensor. Out: as transforms.py says.
"""

# mypy: disable-error-code="no-any-return"
# The core's functions take and return any Value: array, graph node or Tensor.
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import distcompile as dc
import distcompile.nn.functional as F
from compiler_core.tensor.tensor import Tensor
from distcompile.distributions import constraints
from distcompile.distributions.forms import sum_rightmost
from distcompile.errors import ArgumentError

Shape = Sequence[int]


class Transform:
    """x -> y. bijective: one to one. sign: 1 if it grows, -1 if it falls; of numbers, not of vectors."""

    bijective = False
    domain: Any = constraints.real
    codomain: Any = constraints.real

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ArgumentError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._kept: tuple[Any, Any] = (None, None)

    @property
    def event_dim(self) -> int:
        """How many dims an event has."""
        if self.domain.event_dim == self.codomain.event_dim:
            return int(self.domain.event_dim)
        raise ArgumentError("Please use either .domain.event_dim or .codomain.event_dim")

    @property
    def sign(self) -> Any:
        """The sign of the derivative, of a monotone transform of numbers."""
        raise NotImplementedError

    @property
    def inv(self) -> Any:
        """y -> x."""
        return _Inverse(self)

    def with_cache(self, cache_size: int = 1) -> Any:
        """The same transform with this cache size."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        Transform.__init__(new, cache_size)
        return new

    def __call__(self, x: Tensor) -> Tensor:
        if self._cache_size and self._kept[0] is x:
            return self._kept[1]
        y = self._call(x)
        self._kept = (x, y) if self._cache_size else (None, None)
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        if self._cache_size and self._kept[1] is y:
            return self._kept[0]
        x = self._inverse(y)
        self._kept = (x, y) if self._cache_size else (None, None)
        return x

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |dy/dx|."""
        raise NotImplementedError

    def forward_shape(self, shape: Shape) -> Shape:
        """The shape of y for one of x."""
        return shape

    def inverse_shape(self, shape: Shape) -> Shape:
        """The shape of x for one of y."""
        return shape

    def _facts(self) -> tuple[Any, ...]:
        return ()

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, Transform):
            return False
        pairs = zip(self._facts(), other._facts(), strict=True)
        return all(a is b or bool(dc.as_tensor(a == b).all()) for a, b in pairs)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _Inverse(Transform):
    def __init__(self, of: Transform) -> None:
        super().__init__(of._cache_size)
        self._of = of

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return self._of.bijective

    @property
    def sign(self) -> Any:
        return self._of.sign

    @property
    def domain(self) -> Any:
        return self._of.codomain

    @property
    def codomain(self) -> Any:
        return self._of.domain

    @property
    def inv(self) -> Any:
        return self._of

    def with_cache(self, cache_size: int = 1) -> Any:
        return self._of.with_cache(cache_size).inv

    def __call__(self, x: Tensor) -> Tensor:
        return self._of._inv_call(x)

    def _inv_call(self, y: Tensor) -> Tensor:
        return self._of(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._of.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Shape) -> Shape:
        return self._of.inverse_shape(shape)

    def inverse_shape(self, shape: Shape) -> Shape:
        return self._of.forward_shape(shape)

    def _facts(self) -> tuple[Any, ...]:
        return (self._of,)


class ExpTransform(Transform):
    """y = exp(x)."""

    codomain, bijective, sign = constraints.positive, True, 1

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class PowerTransform(Transform):
    """y = x^exponent, of positive numbers."""

    domain, codomain, bijective = constraints.positive, constraints.positive, True

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = dc.as_tensor(exponent)

    @property
    def sign(self) -> Any:
        return self.exponent.sign()

    def _call(self, x: Tensor) -> Tensor:
        return x.pow(self.exponent)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Shape) -> Shape:
        return dc.broadcast_shapes(tuple(shape), tuple(self.exponent.shape))

    inverse_shape = forward_shape

    def _facts(self) -> tuple[Any, ...]:
        return (self.exponent,)


class SigmoidTransform(Transform):
    """y = 1/(1 + exp(-x))."""

    codomain, bijective, sign = constraints.unit_interval, True, 1

    def _call(self, x: Tensor) -> Tensor:
        y = x.sigmoid()
        return y.clamp(dc.finfo(y.dtype).tiny, 1 - dc.finfo(y.dtype).eps)

    def _inverse(self, y: Tensor) -> Tensor:
        inside = y.clamp(dc.finfo(y.dtype).tiny, 1 - dc.finfo(y.dtype).eps)
        return inside.log() - (-inside).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -F.softplus(-x) - F.softplus(x)


class SoftplusTransform(Transform):
    """y = log(1 + exp(x))."""

    codomain, bijective, sign = constraints.positive, True, 1

    def _call(self, x: Tensor) -> Tensor:
        return F.softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -F.softplus(-x)


class TanhTransform(Transform):
    """y = tanh(x)."""

    codomain, bijective, sign = constraints.interval(-1.0, 1.0), True, 1

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return dc.atanh(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2 * (math.log(2) - x - F.softplus(-2 * x))


class AbsTransform(Transform):
    """y = |x|: not one to one."""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class AffineTransform(Transform):
    """y = loc + scale x."""

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim
        self.domain = self.codomain = (
            constraints.independent(constraints.real, event_dim) if event_dim else constraints.real
        )

    @property
    def event_dim(self) -> int:
        return self._event_dim

    @property
    def sign(self) -> Any:
        return self.scale.sign() if isinstance(self.scale, Tensor) else (self.scale > 0) - (self.scale < 0)

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        shape = tuple(x.shape)
        scale = self.scale.abs().log() if isinstance(self.scale, Tensor) else dc.full_like(x, math.log(abs(self.scale)))
        return sum_rightmost(scale.expand(shape), self._event_dim)

    def forward_shape(self, shape: Shape) -> Shape:
        others = [tuple(v.shape) for v in (self.loc, self.scale) if isinstance(v, Tensor)]
        return dc.broadcast_shapes(tuple(shape), *others)

    inverse_shape = forward_shape

    def _facts(self) -> tuple[Any, ...]:
        return (self.loc, self.scale)
