"""Distributions of vectors and matrices: MultivariateNormal, LowRankMultivariateNormal, Wishart, LKJCholesky.

In: locations f[..., D] and matrices f[..., D, D]. Out: as distribution.py says.
Sources: Woodbury's identity and the determinant lemma; Bartlett's decomposition (Wishart); the onion method of
Lewandowski, Kurowicka, Joe 2009 (LKJ).
"""

# mypy: disable-error-code="no-any-return"
# The core's functions take and return any Value: array, graph node or Tensor.
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import distcompile as dc
from compiler_core.ops.registry import current_trace
from compiler_core.tensor.making.rejection_draws import sample_dirichlet, standard_gamma
from compiler_core.tensor.tensor import Tensor
from distcompile.distributions import constraints
from distcompile.distributions.distribution import HALF_LOG_TAU, Constraint, Distribution, ExponentialFamily, Shape
from distcompile.distributions.forms import broadcast_all
from distcompile.errors import ArgumentError

MATRICES = {
    "covariance_matrix": constraints.positive_definite,
    "precision_matrix": constraints.positive_definite,
    "scale_tril": constraints.lower_cholesky,
}


def log_diagonal(factor: Tensor) -> Tensor:
    """The sum of the logarithms of a triangular matrix' diagonal: half the log determinant of its square."""
    return factor.diagonal(0, -2, -1).log().sum(-1)


def inverse_factor(precision: Tensor) -> Tensor:
    """L with L Lᵀ the inverse of a positive definite matrix."""
    flipped = dc.linalg.cholesky(precision.flip((-2, -1)))
    eye = dc.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return dc.linalg.solve_triangular(flipped.flip((-2, -1)).mT, eye, upper=False)


def whitened(factor: Tensor, difference: Tensor) -> Tensor:
    """The squared length of L⁻¹ d, for L f[..., D, D] and d f[..., D]."""
    solved = dc.linalg.solve_triangular(factor, difference.unsqueeze(-1), upper=False)
    return solved.squeeze(-1).square().sum(-1)


class _ByFactor(Distribution):
    """A positive definite matrix, given as itself, its inverse, or its Cholesky factor; the others are computed."""

    _unbroadcasted_scale_tril: Tensor

    def _take(self, given: dict[str, Any]) -> tuple[str, Tensor]:
        chosen = [(name, value) for name, value in given.items() if value is not None]
        if len(chosen) != 1:
            raise ArgumentError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        name, value = chosen[0]
        if value.ndim < 2:
            raise ArgumentError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
        return name, value

    def _factor(self, name: str, value: Tensor) -> Tensor:
        if name == "scale_tril":
            return value
        return dc.linalg.cholesky(value) if name == "covariance_matrix" else inverse_factor(value)

    def __getattr__(self, name: str) -> Any:
        factor = self.__dict__.get("_unbroadcasted_scale_tril")
        if factor is None or name not in MATRICES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        size = factor.shape[-1]
        if name == "scale_tril":
            made = factor
        elif name == "covariance_matrix":
            made = factor @ factor.mT
        else:
            made = dc.cholesky_inverse(factor)
        return made.expand((*self.batch_shape, size, size))


class MultivariateNormal(_ByFactor, ExponentialFamily):
    """A Normal vector of mean loc f[..., D] and covariance Σ, given as it is, as its inverse, or as its factor."""

    has_rsample = True
    arg_constraints: ClassVar[Mapping[str, Constraint]] = {"loc": constraints.real_vector, **MATRICES}
    support = constraints.real_vector

    def __init__(self, loc: Tensor, covariance_matrix: Tensor | None = None, precision_matrix: Tensor | None = None,
                 scale_tril: Tensor | None = None, validate_args: bool | None = None) -> None:  # fmt: skip
        if loc.ndim < 1:
            raise ArgumentError("loc must be at least one-dimensional.")
        given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        name, value = self._take(given)
        batch = tuple(dc.broadcast_shapes(tuple(value.shape[:-2]), tuple(loc.shape[:-1])))
        self.__dict__[name] = value.expand((*batch, *value.shape[-2:]))
        self.loc = loc.expand((*batch, loc.shape[-1]))
        super().__init__(batch, loc.shape[-1:], validate_args)
        self._unbroadcasted_scale_tril = self._factor(name, value)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        eps = dc.randn(tuple(self._extended_shape(sample_shape)), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (self._unbroadcasted_scale_tril @ eps.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        factor = self._unbroadcasted_scale_tril
        distance = whitened(factor, value - self.loc)
        return -0.5 * distance - log_diagonal(factor) - self.event_shape[0] * HALF_LOG_TAU

    def entropy(self) -> Tensor:
        made = log_diagonal(self._unbroadcasted_scale_tril) + self.event_shape[0] * (0.5 + HALF_LOG_TAU)
        return made.expand(tuple(self.batch_shape))

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self._unbroadcasted_scale_tril.square().sum(-1).expand((*self.batch_shape, *self.event_shape))


class LowRankMultivariateNormal(Distribution):
    """A Normal vector of covariance W Wᵀ + diag(d), W = cov_factor f[..., D, K], d = cov_diag f[..., D]."""

    has_rsample = True
    arg_constraints: ClassVar[Mapping[str, Constraint]] = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None) -> None:
        if loc.ndim < 1:
            raise ArgumentError("loc must be at least one-dimensional.")
        size = loc.shape[-1]
        if cov_factor.ndim < 2 or cov_factor.shape[-2] != size:
            raise ArgumentError(f"cov_factor must be a batch of matrices with shape {size} x m")
        if cov_diag.shape[-1:] != (size,):
            raise ArgumentError(f"cov_diag must be a batch of vectors with shape {size}")
        shapes = (tuple(loc.shape[:-1]), tuple(cov_factor.shape[:-2]), tuple(cov_diag.shape[:-1]))
        batch = tuple(dc.broadcast_shapes(*shapes))
        self.loc, self.cov_diag = loc.expand((*batch, size)), cov_diag.expand((*batch, size))
        self.cov_factor = cov_factor.expand((*batch, *cov_factor.shape[-2:]))
        super().__init__(batch, (size,), validate_args)

    @property
    def _capacitance(self) -> Tensor:
        """The factor of I + Wᵀ D⁻¹ W: f[..., K, K]."""
        w = self.cov_factor
        inner = (w / self.cov_diag.unsqueeze(-1)).mT @ w
        return dc.linalg.cholesky(inner + dc.eye(inner.shape[-1], dtype=inner.dtype, device=inner.device))

    def _log_determinant(self) -> Tensor:
        return 2 * log_diagonal(self._capacitance) + self.cov_diag.log().sum(-1)

    def rsample(self, sample_shape: Shape = ()) -> Tensor:
        shape = tuple(self._extended_shape(sample_shape))
        few = dc.randn((*shape[:-1], self.cov_factor.shape[-1]), dtype=self.loc.dtype, device=self.loc.device)
        common = (self.cov_factor @ few.unsqueeze(-1)).squeeze(-1)
        return self.loc + common + self.cov_diag.sqrt() * dc.randn(shape, dtype=self.loc.dtype, device=self.loc.device)

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        difference = value - self.loc
        scaled = difference / self.cov_diag
        projected = (self.cov_factor.mT @ scaled.unsqueeze(-1)).squeeze(-1)
        distance = (difference * scaled).sum(-1) - whitened(self._capacitance, projected)
        return -0.5 * (distance + self._log_determinant()) - self.event_shape[0] * HALF_LOG_TAU

    def entropy(self) -> Tensor:
        return 0.5 * self._log_determinant() + self.event_shape[0] * (0.5 + HALF_LOG_TAU)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self.cov_factor.square().sum(-1) + self.cov_diag

    @property
    def covariance_matrix(self) -> Tensor:
        """f[..., D, D]."""
        return self.cov_factor @ self.cov_factor.mT + self.cov_diag.diag_embed()

    @property
    def precision_matrix(self) -> Tensor:
        """Its inverse."""
        return dc.cholesky_inverse(self.scale_tril)

    @property
    def scale_tril(self) -> Tensor:
        """The factor of the covariance."""
        return dc.linalg.cholesky(self.covariance_matrix)


class Wishart(_ByFactor, ExponentialFamily):
    """The sum of df outer products of Normal vectors of covariance Σ, given as it is, its inverse, or its factor."""

    has_rsample = True
    arg_constraints: ClassVar[Mapping[str, Constraint]] = {**MATRICES, "df": constraints.greater_than(0)}
    support = constraints.positive_definite

    def __init__(self, df: Any, covariance_matrix: Tensor | None = None, precision_matrix: Tensor | None = None,
                 scale_tril: Tensor | None = None, validate_args: bool | None = None) -> None:  # fmt: skip
        given = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril}
        name, value = self._take(given)
        df = df if isinstance(df, Tensor) else dc.tensor(float(df), dtype=value.dtype, device=value.device)
        batch, event = tuple(dc.broadcast_shapes(tuple(value.shape[:-2]), tuple(df.shape))), tuple(value.shape[-2:])
        if bool((df <= event[-1] - 1).any()):
            raise ArgumentError(f"Value of df={df} expected to be greater than ndim - 1 = {event[-1] - 1}.")
        self.df = df.expand(batch)
        self.__dict__[name] = value.expand((*batch, *event))
        super().__init__(batch, event, validate_args)
        self._unbroadcasted_scale_tril = self._factor(name, value)

    def _halves(self) -> Tensor:
        """(df - i) / 2 for the rows i: f[..., D]."""
        return (self.df.unsqueeze(-1) - dc.arange(self.event_shape[-1], dtype=self.df.dtype, device=self.df.device)) / 2

    def rsample(self, sample_shape: Shape = (), max_try_correction: int | None = None) -> Tensor:
        """Torch draws what is positive definite once more, not what is singular: its numbers are the second draw's."""
        sample = self._bartlett(tuple(sample_shape))
        if current_trace() is not None:
            return sample
        good = self.support.check(sample)
        if self.batch_shape:
            good = good.amax(tuple(range(-len(self.batch_shape), 0)))
        sample[good] = self._bartlett((int(good.sum()),))
        return sample

    def _bartlett(self, sample_shape: tuple[int, ...]) -> Tensor:
        """By Bartlett's decomposition."""
        lead, p = (*sample_shape, *self.batch_shape), self.event_shape[-1]
        chi = (2 * standard_gamma(self._halves().expand((*lead, p)))).sqrt().clamp(min=dc.finfo(self.df.dtype).eps)
        below = dc.randn((*lead, p * (p - 1) // 2), dtype=self.df.dtype, device=self.df.device)
        rows, columns = dc.tril_indices(p, p, offset=-1)
        noise = chi.diag_embed()
        noise[..., rows, columns] = below
        factor = self._unbroadcasted_scale_tril @ noise
        return factor @ factor.mT

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        p, factor = self.event_shape[-1], self._unbroadcasted_scale_tril
        inner = dc.cholesky_solve(value, factor).diagonal(0, -2, -1).sum(-1)
        powers = (self.df - p - 1) / 2 * dc.linalg.slogdet(value).logabsdet - inner / 2
        norm = self.df * (p * math.log(2) / 2 + log_diagonal(factor)) + self._log_gamma()
        return powers - norm

    def _log_gamma(self) -> Tensor:
        p = self.event_shape[-1]
        return self._halves().lgamma().sum(-1) + p * (p - 1) / 4 * math.log(math.pi)

    def entropy(self) -> Tensor:
        p = self.event_shape[-1]
        size = (p + 1) * (log_diagonal(self._unbroadcasted_scale_tril) + p * math.log(2) / 2)
        return size + self._log_gamma() - (self.df - p - 1) / 2 * self._halves().digamma().sum(-1) + self.df * p / 2

    @property
    def mean(self) -> Tensor:
        return self.df.reshape((*self.batch_shape, 1, 1)) * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = (self.df - self.event_shape[-1] - 1).reshape((*self.batch_shape, 1, 1))
        return dc.where(factor <= 0, math.nan, factor) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        sigma = self.covariance_matrix
        diagonal = sigma.diagonal(0, -2, -1)
        both = sigma**2 + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return self.df.reshape((*self.batch_shape, 1, 1)) * both


class LKJCholesky(Distribution):
    """Cholesky factors of D x D correlation matrices, of density det^(concentration - 1)."""

    arg_constraints: ClassVar[Mapping[str, Constraint]] = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ArgumentError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        """By the onion method, as in torch: a radius and a direction for every row, also for the first."""
        shape = tuple(self._extended_shape(sample_shape))
        dtype, device = self.concentration.dtype, self.concentration.device
        with dc.no_grad():
            k = dc.arange(self.dim, dtype=dtype, device=device).sub(1).clamp(min=0)
            pair = [k + 0.5, (self.concentration + (self.dim - 2) / 2).unsqueeze(-1) - k / 2]
            squared = sample_dirichlet(dc.stack(dc.broadcast_tensors(*pair), -1).expand((*shape[:-1], 2)))[..., :1]
            normal = dc.randn(shape, dtype=dtype, device=device).tril(-1)
            rows = (squared.sqrt() * normal / normal.norm(dim=-1, keepdim=True)).nan_to_num(0.0)
            left = (1 - rows.square().sum(-1)).clamp(min=dc.finfo(dtype).tiny).sqrt()
            return rows + left.diag_embed()

    def log_prob(self, value: Tensor) -> Tensor:
        self._validate_sample(value)
        d, rest = self.dim, self.dim - 1
        orders = dc.arange(2, d + 1, dtype=self.concentration.dtype, device=self.concentration.device)
        orders = 2 * (self.concentration - 1).unsqueeze(-1) + d - orders
        powers = (orders * value.diagonal(0, -2, -1)[..., 1:].log()).sum(-1)
        alpha = self.concentration + rest / 2
        norm = rest / 2 * math.log(math.pi) + dc.mvlgamma(alpha - 0.5, rest) - alpha.lgamma() * rest
        return powers - norm


__all__ = ["LKJCholesky", "LowRankMultivariateNormal", "MultivariateNormal", "Wishart"]
