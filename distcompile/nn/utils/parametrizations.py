"""Weight, spectral and orthogonal parametrisations; torch's names and state dict keys.

In: a module and its weight's name. Out: the module, its weight computed at every use.
Sources: Salimans, Kingma 2016 (weight norm); Miyato et al. 2018 (spectral norm, by power iteration); Lezcano-Casado
2019 (orthogonal: the matrix exponential, Cayley's map or Householder reflections, at a base point).
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from compiler_core.ops import functional as C
from compiler_core.ops.linear_algebra.norms import householder_product
from compiler_core.ops.linear_algebra.solvers import matrix_exp, solve
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.making.creation import eye, leaf
from compiler_core.tensor.making.random_creation import randn
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError, NotSupportedError
from distcompile.nn import functional as F
from distcompile.nn.module import Module
from distcompile.nn.utils.parametrize import register_parametrization

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def norm_except_dim(v: Tensor, dim: int | None) -> Tensor:
    """The 2-norm over all dimensions but `dim`, which stays; None or -1: over all, f[]."""
    if dim is None or dim == -1:
        return (v * v).sum().sqrt()
    others = tuple(d for d in range(v.dim()) if d != dim)
    return (v * v).sum(others, keepdim=True).sqrt()


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / norm_except_dim(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except_dim(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int = 0) -> Module:
    """weight = g·v/‖v‖, a norm for each index of `dim` (None: one for all). original0 is g, original1 is v."""
    return register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


class _SpectralNorm(Module):
    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        if n_power_iterations <= 0:
            raise ArgumentError("Expected n_power_iterations to be positive", got=str(n_power_iterations))
        self.dim = dim if dim >= 0 else dim + weight.dim()
        self.eps, self.n_power_iterations = eps, n_power_iterations
        if weight.dim() > 1:
            matrix = self._matrix(weight.detach())
            self.register_buffer(
                "_u", F.normalize(randn(matrix.shape[0], dtype=weight.dtype, device=weight.device), dim=0, eps=eps)
            )
            self.register_buffer(
                "_v", F.normalize(randn(matrix.shape[1], dtype=weight.dtype, device=weight.device), dim=0, eps=eps)
            )
            self._iterate(matrix, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        others = [d for d in range(weight.dim()) if d != self.dim]
        matrix: Tensor = C.permute(weight, (self.dim, *others)) if self.dim else weight
        return matrix.flatten(1)

    def _iterate(self, matrix: Tensor, count: int) -> None:
        with no_grad():
            for _ in range(count):
                self._u.copy_(F.normalize(matrix.mv(self._v), dim=0, eps=self.eps))
                self._v.copy_(F.normalize(matrix.t().mv(self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.dim() == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()
        return weight / (u * matrix.mv(v)).sum()  # type: ignore[no-any-return]

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """weight / its largest singular value, which power iteration follows at every use in training."""
    transposed = {"ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"}
    at = (1 if type(module).__name__ in transposed else 0) if dim is None else dim
    weight = module._parameters.get(name)
    if weight is None:
        raise ArgumentError(f"Module '{type(module).__name__}' has no parameter with name '{name}'")
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, at, eps))


_MAPS = ("matrix_exp", "cayley", "householder")


class _Orthogonal(Module):
    """f[..., n, k] -> a matrix with orthonormal columns (n >= k) or rows. base: the point that the map starts from."""

    base: Tensor | None

    def __init__(self, weight: Tensor, orthogonal_map: str, *, use_trivialization: bool = True) -> None:
        super().__init__()
        self.shape, self.orthogonal_map = weight.shape, orthogonal_map
        self.use_trivialization = use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        wide = X.shape[-2] < X.shape[-1]
        tall = X.mT if wide else X
        Q: Tensor = self._reflections(tall) if self.orthogonal_map == "householder" else self._rotation(tall)
        if self.use_trivialization and self.base is not None:
            Q = C.matmul(self.base, Q)
        return Q.mT if wide else Q

    def _rotation(self, X: Tensor) -> Tensor:
        """The first k columns of exp(A), or of (I + A/2)(I - A/2)^-1, for the skew matrix A of X's lower triangle."""
        n, k = X.shape[-2:]
        lower = X.tril()
        if n != k:
            lower = C.cat([lower, lower.new_zeros((*X.shape[:-2], n, n - k))], -1)
        A = lower - lower.mT
        if self.orthogonal_map == "matrix_exp":
            Q = matrix_exp(A)
        else:
            identity = eye(n, dtype=A.dtype, device=A.device)
            Q = solve(identity - A * 0.5, identity + A * 0.5)
        return Q[..., :k]  # type: ignore[no-any-return]

    def _reflections(self, X: Tensor) -> Tensor:
        A = X.tril(-1)
        tau = 2.0 / (1.0 + (A * A).sum(-2))
        signs = X.detach().diagonal(dim1=-2, dim2=-1).trunc().unsqueeze(-2)
        return householder_product(A, tau) * signs  # type: ignore[no-any-return]

    def right_inverse(self, value: Tensor) -> Tensor:
        if tuple(value.shape) != tuple(self.shape):
            raise ArgumentError(f"Expected a matrix or batch of matrices of shape {self.shape}",
                                got=f"a tensor of shape {value.shape}")  # fmt: skip
        wide = value.shape[-2] < value.shape[-1]
        tall = (value.mT if wide else value)._array("orthogonal()")
        if self.use_trivialization:
            self.base = leaf(_completed(tall)).to(value.device)
            n, k = value.shape[-2:]
            return (-eye(n, k, dtype=value.dtype, device=value.device)).expand(value.shape).clone()
        if self.orthogonal_map != "householder":
            raise NotSupportedError("It is not possible to assign to the matrix exponential or the Cayley "
                                    "parametrizations when use_trivialization=False.")  # fmt: skip
        packed = leaf(_packed_reflections(tall)).to(value.device)
        return packed.mT if wide else packed


def _completed(tall: Array) -> Array:
    """f[..., n, n], orthogonal: f[..., n, k] made orthonormal, and drawn columns beside it."""
    n, k = tall.shape[-2:]
    product = np.swapaxes(tall, -1, -2) @ tall
    if n == k and np.allclose(product, np.eye(n), atol=10 * n * np.finfo(tall.dtype).eps, rtol=0):
        return np.array(tall)
    extra = randn(*tall.shape[:-2], n, n - k, device="cpu").numpy().astype(tall.dtype)
    q, r = np.linalg.qr(np.concatenate([tall, extra], -1))
    diagonal = np.diagonal(r, axis1=-2, axis2=-1)[..., None, :]
    return q * np.where(diagonal < 0, -1, 1).astype(tall.dtype)  # type: ignore[no-any-return]


def _packed_reflections(tall: Array) -> Array:
    """LAPACK's geqrf: reflectors under the diagonal, and there the signs that make R's diagonal positive."""
    packed = np.empty_like(tall)
    k = tall.shape[-1]
    for place in np.ndindex(*tall.shape[:-2]):
        raw, tau = np.linalg.qr(tall[place], mode="raw")
        matrix = np.array(raw.T)
        signs = np.sign(np.diagonal(matrix)) * np.where(tau == 0, -1, 1)
        matrix[np.arange(k), np.arange(k)] = signs
        packed[place] = matrix
    return packed


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """A matrix (or batch of them) with orthonormal columns, or rows where it is wider than high.

    orthogonal_map: "matrix_exp" (the default for square ones), "cayley" or "householder". use_trivialization: the map
    starts from the present value, made orthogonal, which is then the first value.
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ArgumentError(f"Module '{type(module).__name__}' has no parameter or buffer with name '{name}'")
    if weight.dim() < 2:
        raise ArgumentError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.dim()} dimensions.")
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if weight.shape[-2] == weight.shape[-1] else "householder"
    if orthogonal_map not in _MAPS:
        raise ArgumentError(f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". '
                            f"Got: {orthogonal_map}")  # fmt: skip
    made = _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    return register_parametrization(module, name, made, unsafe=True)
