"""Weight normalisation and spectral normalisation as parametrisations; torch's names and state dict keys.

In: a module and its weight's name. Out: the module, its weight computed at every use.
Sources: Salimans, Kingma 2016 (weight norm); Miyato et al. 2018 (spectral norm, by power iteration).
"""

from __future__ import annotations

from compiler_core.ops import functional as C
from compiler_core.tensor.grad_mode import no_grad
from compiler_core.tensor.random_creation import randn
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError
from distcompile.nn import functional as F
from distcompile.nn.module import Module
from distcompile.nn.utils.parametrize import register_parametrization

__all__ = ["spectral_norm", "weight_norm"]


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
            self.register_buffer("_u", F.normalize(randn(matrix.shape[0], dtype=weight.dtype), dim=0, eps=eps))
            self.register_buffer("_v", F.normalize(randn(matrix.shape[1], dtype=weight.dtype), dim=0, eps=eps))
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
        scaled: Tensor = weight / (u * matrix.mv(v)).sum()
        return scaled

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
