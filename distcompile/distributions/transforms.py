"""Invertible transforms with their log determinants: torch.distributions.transforms.

In: a Tensor. Out: `t(x)`, `t.inv(y)`, `t.log_abs_det_jacobian(x, y)` of the shape without event dims. `domain` and
`codomain` are constraints. cache_size=1 keeps the last pair, so that inverting a draw costs nothing and is exact.
"""

# mypy: disable-error-code="no-any-return, attr-defined"
# Methods that are loaded late, as lgamma, are not known to type checkers.
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import distcompile as dc
import distcompile.nn.functional as F
from compiler_core.tensor.tensor import Tensor
from distcompile.distributions import constraints
from distcompile.distributions.distribution import Distribution, sum_rightmost
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


class ComposeTransform(Transform):
    """One transform after the other."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else list(parts)

    def with_cache(self, cache_size: int = 1) -> Any:
        return ComposeTransform(self.parts, cache_size)

    @property
    def domain(self) -> Any:
        if not self.parts:
            return constraints.real
        need = self.parts[-1].codomain.event_dim
        for part in reversed(self.parts):
            need = max(need + part.domain.event_dim - part.codomain.event_dim, part.domain.event_dim)
        first = self.parts[0].domain
        return constraints.independent(first, need - first.event_dim) if need > first.event_dim else first

    @property
    def codomain(self) -> Any:
        if not self.parts:
            return constraints.real
        need = self.parts[0].domain.event_dim
        for part in self.parts:
            need = max(need + part.codomain.event_dim - part.domain.event_dim, part.codomain.event_dim)
        last = self.parts[-1].codomain
        return constraints.independent(last, need - last.event_dim) if need > last.event_dim else last

    @property
    def bijective(self) -> bool:  # type: ignore[override]
        return all(part.bijective for part in self.parts)

    @property
    def sign(self) -> Any:
        sign: Any = 1
        for part in self.parts:
            sign = sign * part.sign
        return sign

    @property
    def inv(self) -> Any:
        return ComposeTransform([part.inv for part in reversed(self.parts)])

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def _inv_call(self, y: Tensor) -> Tensor:
        for part in reversed(self.parts):
            y = part._inv_call(y)
        return y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return dc.zeros_like(x)
        total: Any = 0.0
        dims = self.domain.event_dim
        for k, part in enumerate(self.parts):
            following = y if k == len(self.parts) - 1 else part(x)
            total = total + sum_rightmost(part.log_abs_det_jacobian(x, following), dims - part.domain.event_dim)
            dims += part.codomain.event_dim - part.domain.event_dim
            x = following
        return total

    def forward_shape(self, shape: Shape) -> Shape:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Shape) -> Shape:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def _facts(self) -> tuple[Any, ...]:
        return tuple(self.parts)


class IndependentTransform(Transform):
    """A transform of each element of events with more dims: log determinants are summed."""

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform, self.reinterpreted_batch_ndims = base_transform, reinterpreted_batch_ndims
        self.bijective = base_transform.bijective
        self.domain = constraints.independent(base_transform.domain, reinterpreted_batch_ndims)
        self.codomain = constraints.independent(base_transform.codomain, reinterpreted_batch_ndims)

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def _call(self, x: Tensor) -> Tensor:
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.base_transform._inv_call(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Shape) -> Shape:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Shape) -> Shape:
        return self.base_transform.inverse_shape(shape)


class ReshapeTransform(Transform):
    """Events of `in_shape` as events of `out_shape`."""

    bijective, sign = True, 1

    def __init__(self, in_shape: Shape, out_shape: Shape, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        if math.prod(in_shape) != math.prod(out_shape):
            raise ArgumentError("in_shape, out_shape have different numbers of elements")
        self.in_shape, self.out_shape = tuple(in_shape), tuple(out_shape)
        self.domain = constraints.independent(constraints.real, len(in_shape))
        self.codomain = constraints.independent(constraints.real, len(out_shape))

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape((*x.shape[: x.ndim - len(self.in_shape)], *self.out_shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape((*y.shape[: y.ndim - len(self.out_shape)], *self.in_shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return dc.zeros(tuple(x.shape[: x.ndim - len(self.in_shape)]), dtype=x.dtype)

    def forward_shape(self, shape: Shape) -> Shape:
        return (*shape[: len(shape) - len(self.in_shape)], *self.out_shape)

    def inverse_shape(self, shape: Shape) -> Shape:
        return (*shape[: len(shape) - len(self.out_shape)], *self.in_shape)


class SoftmaxTransform(Transform):
    """y = softmax(x): not one to one."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        return F.softmax(x, -1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()


class StickBreakingTransform(Transform):
    """K - 1 real numbers to a point of the simplex of K, by breaking off shares of a stick."""

    domain, codomain, bijective = constraints.real_vector, constraints.simplex, True

    def _call(self, x: Tensor) -> Tensor:
        left = x.shape[-1] - dc.arange(x.shape[-1], dtype=x.dtype)  # K-1 ... 1
        share = SigmoidTransform()(x - left.log())
        rest = (1 - share).cumprod(-1)
        return F.pad(share, (0, 1), value=1.0) * F.pad(rest, (1, 0), value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        before = y[..., :-1]
        left = before.shape[-1] - dc.arange(before.shape[-1], dtype=y.dtype)
        rest = (1 - before.cumsum(-1)).clamp(min=dc.finfo(y.dtype).tiny)
        return before.log() - rest.log() + left.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        left = x.shape[-1] - dc.arange(x.shape[-1], dtype=x.dtype)
        shifted = x - left.log()
        return (-shifted + F.logsigmoid(shifted) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Shape) -> Shape:
        return (*shape[:-1], shape[-1] + 1)

    def inverse_shape(self, shape: Shape) -> Shape:
        return (*shape[:-1], shape[-1] - 1)


class LowerCholeskyTransform(Transform):
    """A matrix to a lower triangular one with a positive diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(0, -2, -1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(0, -2, -1).log().diag_embed()


class PositiveDefiniteTransform(Transform):
    """A matrix to a positive definite one."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(dc.linalg.cholesky(y))


class CorrCholeskyTransform(Transform):
    """D (D-1)/2 real numbers to the Cholesky factor of a D x D correlation matrix, by its partial correlations."""

    domain, codomain, bijective = constraints.real_vector, constraints.corr_cholesky, True

    def _call(self, x: Tensor) -> Tensor:
        eps = dc.finfo(x.dtype).eps
        r = _as_lower(x.tanh().clamp(-1 + eps, 1 - eps), -1)
        left = (1 - r**2).sqrt().cumprod(-1)
        r = r + dc.eye(r.shape[-1], dtype=r.dtype)
        return r * F.pad(left[..., :-1], (1, 0), value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        left = 1 - (y * y).cumsum(-1)
        left = F.pad(left[..., :-1], (1, 0), value=1.0)
        t = _lower_of(y, -1) / _lower_of(left, -1).sqrt()
        return (t.log1p() - (-t).log1p()) / 2

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        left = (1 - (y * y).cumsum(-1)).clamp(min=dc.finfo(y.dtype).tiny)
        inner = _lower_of(left, -2)
        return 0.5 * inner.log().sum(-1) - 2 * (x + F.softplus(-2 * x) - math.log(2.0)).sum(-1)

    def forward_shape(self, shape: Shape) -> Shape:
        size = round((0.25 + 2 * shape[-1]) ** 0.5 + 0.5)
        if size * (size - 1) // 2 != shape[-1]:
            raise ArgumentError("Input is not a flattened lower-diagonal number")
        return (*shape[:-1], size, size)

    def inverse_shape(self, shape: Shape) -> Shape:
        return (*shape[:-2], shape[-1] * (shape[-1] - 1) // 2)


def _places(size: int, offset: int) -> Tensor:
    """The places of the entries below a diagonal in a flattened matrix, row by row."""
    rows, columns = dc.tril_indices(size, size, offset)
    return rows * size + columns


def _as_lower(values: Tensor, offset: int) -> Tensor:
    """Values f[..., n] below a diagonal of zeros f[..., D, D]."""
    size = round((0.25 + 2 * values.shape[-1]) ** 0.5 + 0.5)
    flat = dc.zeros((*values.shape[:-1], size * size), dtype=values.dtype)
    return flat.index_copy(-1, _places(size, offset), values).unflatten(-1, (size, size))


def _lower_of(matrix: Tensor, offset: int) -> Tensor:
    """f[..., n]: the entries of f[..., D, D] below a diagonal."""
    return matrix.flatten(-2).index_select(-1, _places(matrix.shape[-1], offset))


class CumulativeDistributionTransform(Transform):
    """y = cdf(x) of a distribution."""

    bijective, codomain, sign = True, constraints.unit_interval, 1

    def __init__(self, distribution: Distribution, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution, self.domain = distribution, distribution.support

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)


class _Several(Transform):
    """Transforms of parts of a tensor along `dim`; lengths: of the parts, 0 for slices that are stacked."""

    def __init__(self, tseq: Sequence[Transform], dim: int, lengths: Sequence[int], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.transforms, self.dim, self.lengths = list(tseq), dim, list(lengths)
        self.bijective = all(t.bijective for t in self.transforms)

    @property
    def domain(self) -> Any:
        return constraints._Joined([(t.domain, n) for t, n in zip(self.transforms, self.lengths)], self.dim)

    @property
    def codomain(self) -> Any:
        return constraints._Joined([(t.codomain, n) for t, n in zip(self.transforms, self.lengths)], self.dim)

    def _pieces(self, x: Tensor) -> list[Tensor]:
        return list(x.split(self.lengths, self.dim)) if all(self.lengths) else list(x.unbind(self.dim))

    def _joined(self, pieces: list[Tensor]) -> Tensor:
        return dc.cat(pieces, self.dim) if all(self.lengths) else dc.stack(pieces, self.dim)

    def _call(self, x: Tensor) -> Tensor:
        return self._joined([t(piece) for t, piece in zip(self.transforms, self._pieces(x), strict=True)])

    def _inverse(self, y: Tensor) -> Tensor:
        return self._joined([t._inv_call(piece) for t, piece in zip(self.transforms, self._pieces(y), strict=True)])

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        pieces = zip(self.transforms, self._pieces(x), self._pieces(y), strict=True)
        return self._joined([t.log_abs_det_jacobian(a, b) for t, a, b in pieces])


class CatTransform(_Several):
    """Transforms of the parts of a tensor, `lengths` long, along `dim`."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, lengths: Any = None, cache_size: int = 0) -> None:
        super().__init__(tseq, dim, lengths or [1] * len(tseq), cache_size)


class StackTransform(_Several):
    """Transforms of the slices of a tensor along `dim`."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(tseq, dim, [0] * len(tseq), cache_size)


identity_transform = ComposeTransform([])
__all__ = [name for name, value in list(globals().items()) if isinstance(value, type) and name.endswith("Transform")]
__all__ += ["identity_transform"]
