"""Spectral normalisation under its older names: spectral_norm, remove_spectral_norm, with the state keys of those.

In: a module and its weight's name. Out: the module, with the parameter NAME_orig and the buffers NAME_u and NAME_v; the
weight is NAME_orig over its largest singular value, u·(W v), which every forward in training follows by power
iteration. Source: Miyato et al. 2018.
"""

from __future__ import annotations

from typing import Any, TypeVar

from compiler_core.ops import functional as C
from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.making.random_creation import randn
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError
from distcompile.nn import functional as F
from distcompile.nn.module import Module
from distcompile.nn.parameter import Parameter

M = TypeVar("M", bound=Module)
_TRANSPOSED = ("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")


class _Spectral:
    """One normalised weight: its name, and how it is seen as a matrix."""

    def __init__(self, name: str, iterations: int, dim: int, eps: float) -> None:
        self.name, self.iterations, self.dim, self.eps = name, iterations, dim, eps

    def matrix(self, weight: Tensor) -> Tensor:
        """f[weight.shape[dim], the rest]."""
        others = [d for d in range(weight.dim()) if d != self.dim]
        return C.permute(weight, (self.dim, *others)).reshape(weight.shape[self.dim], -1)  # type: ignore[no-any-return]

    def parts(self, module: Module) -> tuple[Tensor, Tensor, Tensor]:
        """NAME_orig, NAME_u, NAME_v."""
        return tuple(getattr(module, f"{self.name}_{part}") for part in ("orig", "u", "v"))

    def follow(self, module: Module, args: Any) -> None:
        """Before a forward in training: one power iteration (or several)."""
        if not module.training:
            return
        weight, u, v = self.parts(module)
        with no_grad():
            matrix = self.matrix(weight.detach())
            for _ in range(self.iterations):
                v.copy_(F.normalize(matrix.t().mv(u), dim=0, eps=self.eps))
                u.copy_(F.normalize(matrix.mv(v), dim=0, eps=self.eps))

    def value(self, module: Module) -> Tensor:
        """The weight."""
        weight, u, v = self.parts(module)
        return weight / (u.clone() * self.matrix(weight).mv(v.clone())).sum()


def spectral_norm(
    module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> M:
    """weight / its largest singular value. dim: that of the outputs (1 for transposed convolutions, else 0)."""
    weight = module._parameters.get(name)
    if weight is None:
        raise ArgumentError(f"module {type(module).__name__} has no parameter {name!r} to normalise")
    if n_power_iterations <= 0:
        raise ArgumentError(f"Expected n_power_iterations to be positive, but got {n_power_iterations}")
    spectral = _Spectral(
        name, n_power_iterations, int(type(module).__name__ in _TRANSPOSED) if dim is None else dim, eps
    )
    rows, columns = spectral.matrix(weight.detach()).shape
    del module._parameters[name]
    module.register_parameter(f"{name}_orig", weight)
    for part, size in (("u", rows), ("v", columns)):
        start = F.normalize(randn(size, dtype=weight.dtype, device=weight.device), dim=0, eps=eps)
        module.register_buffer(f"{name}_{part}", start)
    hook = module.register_forward_pre_hook(spectral.follow)
    cls = type(module)
    members = {"__module__": cls.__module__, name: property(spectral.value), "_spectral": (name, hook)}
    module.__class__ = type(cls.__name__, (cls,), members)
    return module


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """Make the weight a plain parameter again, with its present value. Undoes the last `spectral_norm`."""
    found, hook = type(module).__dict__.get("_spectral", ("", None))
    if found != name:
        raise ArgumentError(f"spectral_norm of '{name}' not found in {type(module).__name__}")
    with no_grad():
        value = getattr(module, name).clone()
    hook.remove()
    module.__class__ = type(module).__bases__[0]
    del module._parameters[f"{name}_orig"], module._buffers[f"{name}_u"], module._buffers[f"{name}_v"]
    module.register_parameter(name, Parameter(value))
    return module
