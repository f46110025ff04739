"""Invertible transforms with their log determinants: torch.distributions.transforms.

In: a Tensor. Out: `t(x)`, `t.inv(y)`, `t.log_abs_det_jacobian(x, y)` of the shape without event dims. `domain` and
`codomain` are constraints. cache_size=1 keeps the last pair, so that inverting a draw costs nothing and is exact.
"""

# mypy: disable-error-code="no-any-return"
# The core's functions take and return any Value: array, graph node or Tensor.
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import distcompile as dc
from compiler_core.tensor.tensor import Tensor
from distcompile.distributions import constraints
from distcompile.distributions.distribution import Distribution
from distcompile.distributions.forms import sum_rightmost
from distcompile.distributions.transform import (
    AbsTransform,
    AffineTransform,
    ExpTransform,
    PowerTransform,
    SigmoidTransform,
    SoftplusTransform,
    TanhTransform,
    Transform,
)
from distcompile.distributions.vector_transforms import (
    CorrCholeskyTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    ReshapeTransform,
    SoftmaxTransform,
    StickBreakingTransform,
)

Shape = Sequence[int]


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
__all__ = [
    "AbsTransform",
    "AffineTransform",
    "CatTransform",
    "ComposeTransform",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "ExpTransform",
    "IndependentTransform",
    "LowerCholeskyTransform",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "TanhTransform",
    "Transform",
    "identity_transform",
]
