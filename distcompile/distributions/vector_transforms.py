"""Transforms of vectors and matrices: softmax, stick breaking, Cholesky factors, reshaping.

In: a Tensor. Out: as transforms.py says.
"""

# mypy: disable-error-code="no-any-return"
# The core's functions take and return any Value: array, graph node or Tensor.
from __future__ import annotations

import math

import distcompile as dc
import distcompile.nn.functional as F
from compiler_core.tensor.tensor import Tensor
from distcompile.distributions import constraints
from distcompile.distributions.transform import Shape, SigmoidTransform, Transform
from distcompile.errors import ArgumentError


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
        return dc.zeros(tuple(x.shape[: x.ndim - len(self.in_shape)]), dtype=x.dtype, device=x.device)

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
        left = x.shape[-1] - dc.arange(x.shape[-1], dtype=x.dtype, device=x.device)  # K-1 ... 1
        share = SigmoidTransform()(x - left.log())
        rest = (1 - share).cumprod(-1)
        return F.pad(share, (0, 1), value=1.0) * F.pad(rest, (1, 0), value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        before = y[..., :-1]
        left = before.shape[-1] - dc.arange(before.shape[-1], dtype=y.dtype, device=y.device)
        rest = (1 - before.cumsum(-1)).clamp(min=dc.finfo(y.dtype).tiny)
        return before.log() - rest.log() + left.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        left = x.shape[-1] - dc.arange(x.shape[-1], dtype=x.dtype, device=x.device)
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
        r = r + dc.eye(r.shape[-1], dtype=r.dtype, device=r.device)
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
    flat = dc.zeros((*values.shape[:-1], size * size), dtype=values.dtype, device=values.device)
    return flat.index_copy(-1, _places(size, offset), values).unflatten(-1, (size, size))


def _lower_of(matrix: Tensor, offset: int) -> Tensor:
    """f[..., n]: the entries of f[..., D, D] below a diagonal."""
    return matrix.flatten(-2).index_select(-1, _places(matrix.shape[-1], offset))
