"""Instances of Tensor's subclasses: how they are made, and what Tensor's own `__torch_function__` does.

In: a Tensor, a subclass. Out: a handle of that class on the same memory. Like torch, what a function gives for an
instance is of the instance's class, unless the class says `__torch_function__ = disabled`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from compiler_core.errors import AutogradError
from compiler_core.forward import level
from compiler_core.ops import prims
from compiler_core.overrides import switch
from compiler_core.overrides.state import NOT_CONVERTED, disabled, is_tensor, thread_overrides

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor


def rebound_as(kind: type[Any], tensor: Tensor) -> Any:
    """A new handle of class `kind`, bound to what `tensor` is bound to. No code of the class runs."""
    new = object.__new__(kind)
    new._cell, new._node, new._view = tensor._cell, tensor._node, tensor._view
    new._requires_grad = tensor._requires_grad
    new._grad = new._hooks = None
    if level.on:
        level.carry(tensor, new)
    if kind.__torch_function__ is not disabled:
        switch.turn_on()
    return new


def as_subclass(self: Tensor, cls: type[Any]) -> Any:
    """This tensor as an instance of `cls`: the same memory and history, a handle of its own."""
    if not isinstance(cls, type):
        raise TypeError(f"cls must be a type (got {type(cls).__name__})")
    _check_inherits(cls)
    return rebound_as(cls, prims.reshape(self, self._cell.value.shape) if self._edge() is not None else self)


def iterate(self: Tensor) -> Iterator[Tensor]:
    """Its parts along the first dimension, by functions that the class may override."""
    if self.dim() == 0:
        raise TypeError("iteration over a 0-d tensor")
    return iter(self.unbind(0))


def backwards(self: Tensor) -> Tensor:
    """Its first dimension backwards, by a function that the class may override; one without dims is itself."""
    return self.flip(0) if self.dim() else self


def _check_inherits(cls: type) -> None:
    if not hasattr(cls, "_from_cell"):
        raise TypeError(
            "Creating a Tensor subclass from a class that does not inherit from Tensor is not possible. "
            "Make sure your class inherits from Tensor."
        )


def make_subclass(cls: type[Any], data: Tensor, require_grad: bool = False, **policies: Any) -> Any:
    """A leaf of class `cls` on the memory of `data`: `Tensor._make_subclass`."""
    _check_inherits(cls)
    if any(policies.values()):
        raise AutogradError(
            "_make_subclass: sizes, strides and devices of a tensor are its data's", got=", ".join(policies)
        )
    return rebound_as(cls, data.detach())._require(require_grad)


def torch_function(
    cls: Any, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """What subclasses do unless they say otherwise: call `func` as it is, and give the result their class."""
    if not all(issubclass(cls, kind) for kind in types):
        return NotImplemented
    before = thread_overrides.now
    thread_overrides.now = before._replace(subclasses_off=True)
    try:
        result = func(*args, **(kwargs or {}))
        return result if func in NOT_CONVERTED else converted(result, cls)
    finally:
        thread_overrides.now = before


def converted(result: Any, cls: Any) -> Any:
    """`result` with the Tensors in it, also in tuples and lists, as instances of `cls`."""
    if is_tensor(cls):
        return result
    if hasattr(type(result), "_from_cell"):
        return result if isinstance(result, cls) else as_subclass(result, cls)
    if isinstance(result, (tuple, list)):
        items = [converted(item, cls) for item in result]
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
    return result
