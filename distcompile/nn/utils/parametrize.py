"""Parametrisations: a parameter computed from others at every use. torch's names and state dict keys.

In: a module, the name of its parameter, and a module that maps new parameters to the value. Out: the module, whose
attribute is now computed (a property of a class of its own), with `parametrizations.NAME.original` (original0,
... where `right_inverse` gives several) in its state dict. Several are applied one after the other.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, cast

from compiler_core.tensor.autograd.grad_mode import no_grad
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError
from distcompile.nn.layers.containers import ModuleDict, ModuleList
from distcompile.nn.module import Module
from distcompile.nn.parameter import Parameter

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]


_cached: ContextVar[dict[tuple[int, str], Tensor] | None] = ContextVar("cached_parametrizations", default=None)


@contextmanager
def cached() -> Iterator[None]:
    """Inside, each parametrised tensor is computed once, at its first use, and then kept until the end."""
    token = _cached.set({} if _cached.get() is None else _cached.get())
    try:
        yield
    finally:
        _cached.reset(token)


class ParametrizationList(ModuleList):
    """The parametrisations of one tensor, and the parameters that they start from."""

    def __init__(self, modules: Sequence[Module], original: Tensor | Parameter, unsafe: bool = False) -> None:
        super().__init__(modules)
        self.unsafe = unsafe
        value: Any = original.detach()
        with no_grad():
            for module in reversed(list(modules)):
                if hasattr(module, "right_inverse"):
                    with suppress(NotImplementedError):  # then the original starts as the value
                        value = module.right_inverse(value)
        self.is_tensor = isinstance(value, Tensor)
        for name, part in zip(self._names(1 if self.is_tensor else len(value)), _parts(value), strict=True):
            setattr(self, name, Parameter(part.clone(), requires_grad=original.requires_grad))
        self.ntensors = 1 if self.is_tensor else len(value)

    def _names(self, count: int) -> list[str]:
        return ["original"] if self.is_tensor else [f"original{i}" for i in range(count)]

    def forward(self) -> Tensor:
        """The value."""
        first, *rest = cast("list[Module]", list(self._modules.values()))
        value = first(*[getattr(self, name) for name in self._names(self.ntensors)])
        for module in rest:
            value = module(value)
        return cast("Tensor", value)

    def right_inverse(self, value: Tensor) -> None:
        """Set the originals so that the value becomes this one."""
        with no_grad():
            parts: Any = value
            for module in reversed(cast("list[Module]", list(self._modules.values()))):
                if not hasattr(module, "right_inverse"):
                    raise ArgumentError(f"parametrization {type(module).__name__} does not implement right_inverse")
                parts = module.right_inverse(parts)
            for name, part in zip(self._names(self.ntensors), _parts(parts), strict=True):
                getattr(self, name).copy_(part)


def _parts(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else list(value)


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Compute `module.tensor_name` by `parametrization` from now on. unsafe: it may change shape and dtype."""
    if is_parametrized(module, tensor_name):
        entry = cast("ParametrizationList", _table(module)[tensor_name])
        value = getattr(module, tensor_name).detach()
        entry.append(parametrization)
        entry.right_inverse(value) if hasattr(parametrization, "right_inverse") else None
        return module
    if tensor_name not in module._parameters or module._parameters[tensor_name] is None:
        raise ArgumentError(f"module {type(module).__name__} has no parameter {tensor_name!r} to parametrize")
    original = cast("Parameter", module._parameters[tensor_name])
    entry = ParametrizationList([parametrization], original, unsafe)
    with no_grad():
        value = entry()
    if not unsafe and (tuple(value.shape) != tuple(original.shape) or value.dtype is not original.dtype):
        raise ArgumentError("a parametrization keeps shape and dtype", expected=f"{original.shape}, {original.dtype}",
                            got=f"{value.shape}, {value.dtype}", remedy="unsafe=True")  # fmt: skip
    del module._parameters[tensor_name]
    if not is_parametrized(module):
        _give_own_class(module)
        module.parametrizations = ModuleDict()
    _table(module)[tensor_name] = entry
    setattr(type(module), tensor_name, _property(tensor_name))
    return module


def _table(module: Module) -> ModuleDict:
    return cast("ModuleDict", module.parametrizations)


def _give_own_class(module: Module) -> None:
    cls = type(module)
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), {"__module__": cls.__module__})


def _property(name: str) -> property:
    def read(self: Module) -> Tensor:
        values = _cached.get()
        if values is None:
            return cast("Tensor", _table(self)[name]())
        key = (id(self), name)
        if key not in values:
            values[key] = cast("Tensor", _table(self)[name]())
        return values[key]

    def write(self: Module, value: Tensor) -> None:
        (_cached.get() or {}).pop((id(self), name), None)
        cast("ParametrizationList", _table(self)[name]).right_inverse(value)

    return property(read, write)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module (or this tensor of it) is parametrised."""
    table = module._modules.get("parametrizations")
    if not isinstance(table, ModuleDict):
        return False
    return len(table) > 0 if tensor_name is None else tensor_name in table


def type_before_parametrizations(module: Module) -> type:
    """The module's class as it was."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Give `to_module` copies of from_module's parametrisations (of one tensor, or all).

    The original parameters are then shared by both. Raises ArgumentError if from_module has no parametrisation.
    """
    if not is_parametrized(from_module, tensor_name):
        raise ArgumentError("from_module has no such parametrization", got=str(tensor_name))
    for name in [tensor_name] if tensor_name is not None else list(_table(from_module)):
        if getattr(to_module, name, None) is None:
            with no_grad():
                value = getattr(from_module, name).detach().clone()
            to_module.register_parameter(name, Parameter(value))
        source = cast("ParametrizationList", _table(from_module)[name])
        for parametrization in source._modules.values():
            register_parametrization(to_module, name, copy.deepcopy(cast("Module", parametrization)), unsafe=True)
        target = cast("ParametrizationList", _table(to_module)[name])
        for part in source._names(source.ntensors):
            setattr(target, part, getattr(source, part))
    return to_module


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make the tensor a plain parameter again: with its present value, or (not leave_parametrized) the original's."""
    if not is_parametrized(module, tensor_name):
        raise ArgumentError(f"Module {type(module).__name__} does not have a parametrization on {tensor_name}")
    entry = cast("ParametrizationList", _table(module)[tensor_name])
    if not leave_parametrized and not entry.is_tensor:
        raise ArgumentError("cannot leave unparametrized a tensor that is computed from several others")
    with no_grad():
        value = entry() if leave_parametrized else entry.original
    requires_grad = any(parameter.requires_grad for parameter in entry.parameters(recurse=False))
    del _table(module)[tensor_name]
    delattr(type(module), tensor_name)
    module.register_parameter(tensor_name, Parameter(value.detach().clone(), requires_grad=requires_grad))
    if not len(_table(module)):
        del module._modules["parametrizations"]
        module.__class__ = type(module).__bases__[0]
    return module
