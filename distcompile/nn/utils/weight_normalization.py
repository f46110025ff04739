"""Weight normalisation under its older names: weight_norm, remove_weight_norm, with the state keys of those.

In: a module and its weight's name. Out: the module, with parameters NAME_g and NAME_v in the weight's place; the weight
is computed from them at every use, as a property. Source: Salimans, Kingma 2016.
"""

from __future__ import annotations

from typing import TypeVar

from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError
from distcompile.nn.module import Module
from distcompile.nn.parameter import Parameter
from distcompile.nn.utils.parametrizations import norm_except_dim

M = TypeVar("M", bound=Module)


def weight_norm(module: M, name: str = "weight", dim: int = 0) -> M:
    """weight = g·v/‖v‖, a norm for each index of `dim` (None: one for all)."""
    weight = module._parameters.get(name)
    if weight is None:
        raise ArgumentError(f"module {type(module).__name__} has no parameter {name!r} to normalise")
    with no_grad():
        norm = norm_except_dim(weight, dim)
    del module._parameters[name]
    module.register_parameter(f"{name}_g", Parameter(norm.clone()))
    module.register_parameter(f"{name}_v", Parameter(weight.detach().clone()))

    def read(self: Module) -> Tensor:
        v: Tensor = getattr(self, f"{name}_v")
        return v * (getattr(self, f"{name}_g") / norm_except_dim(v, dim))  # type: ignore[no-any-return]

    cls = type(module)
    members = {"__module__": cls.__module__, name: property(read), "_normalised_weight": name}
    module.__class__ = type(cls.__name__, (cls,), members)
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Make the weight a plain parameter again, with its present value. Undoes the last `weight_norm`."""
    if type(module).__dict__.get("_normalised_weight") != name:
        raise ArgumentError(f"weight_norm of '{name}' not found in {type(module).__name__}")
    with no_grad():
        value = getattr(module, name).clone()
    module.__class__ = type(module).__bases__[0]
    del module._parameters[f"{name}_g"], module._parameters[f"{name}_v"]
    module.register_parameter(name, Parameter(value))
    return module
