"""What the compiler core knows of modules: a version that changes whenever a traced graph may no longer be right.

In: any object. Out: `is_module`, and typed access to the protocol that `distcompile.nn.Module` implements.
`__tree_version__()` changes with parameters, buffers, children, attributes, hooks and training flags anywhere below;
`__global_version__()` with hooks on all modules. `__gradient_strategy__()`, where there is one, owns the gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from compiler_core.aot.strategy import GradientStrategy, LocalGradients

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor


class ModuleProtocol(Protocol):
    """A tree of parameters and buffers that can be called."""

    def __tree_version__(self) -> int: ...
    @staticmethod
    def __global_version__() -> int: ...
    def named_parameters(self) -> Iterator[tuple[str, Tensor]]: ...
    def named_buffers(self) -> Iterator[tuple[str, Tensor]]: ...
    def modules(self) -> Iterator[ModuleProtocol]: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


def is_module(thing: object) -> bool:
    """Whether `thing` (not a class) follows the protocol."""
    return hasattr(type(thing), "__tree_version__")


def unwrapped(thing: Any) -> Any:
    """What a compiled function or module was made of; anything else is itself."""
    while getattr(type(thing), "__wraps_original__", False):
        thing = thing.__wrapped__
    return thing


def gradient_strategy(module: object | None) -> GradientStrategy:
    """The strategy that `module` announces, or the local one."""
    announce = getattr(module, "__gradient_strategy__", None)
    strategy: GradientStrategy | None = None if announce is None else announce()
    return LocalGradients() if strategy is None else strategy
