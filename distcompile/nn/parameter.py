"""Parameters and buffers: tensors that a module takes note of when they are assigned to it.

In: a tensor (or None: an empty one). Out: a handle on the same cell, so both see each other's writes.
Invariant: a Parameter or Buffer is a leaf of autograd; making one records nothing, also inside `no_grad`.
"""

from __future__ import annotations

from typing import Any

from compiler_core.overrides.state import disabled
from compiler_core.tensor.making.creation import empty
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import RegistrationTypeError


class _Marks(type):
    """Classes that also count tensors of other classes that are marked: `Parameter(x)` of a subclass is of it."""

    mark: str

    def __instancecheck__(cls, instance: Any) -> bool:
        return super().__instancecheck__(instance) or (
            cls.__module__ == __name__ and isinstance(instance, Tensor) and cls.mark in instance.__dict__
        )


class Parameter(Tensor, metaclass=_Marks):
    """A tensor that a module takes note of when it is assigned to it: `parameters()` and `state_dict()` have it.

    It shares the data of the tensor that it is made of. Of a subclass of Tensor it is another instance of that class,
    marked as a parameter, as in torch.

    Args:
        data: the tensor; None: an empty one
        requires_grad: whether gradients are computed for it

    Example:
        >>> layer = nn.Module()
        >>> layer.scale = nn.Parameter(torch.ones(2))
        >>> dict(layer.named_parameters())
        {'scale': Parameter containing:
        tensor([1., 1.], requires_grad=True)}
    """

    mark, printed_as = "_is_param", "tensor"
    __torch_function__ = disabled  # type: ignore[assignment]

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Any:
        data = empty(0) if data is None else data
        if type(data) is Tensor or isinstance(data, cls) or not isinstance(data, Tensor):
            return Tensor.__new__(cls, data._detach()._cell, requires_grad)
        detached: Any = data.detach()._require(requires_grad)
        if type(detached) is not type(data):
            raise RegistrationTypeError(
                f"Creating a Parameter from an instance of type {type(data).__name__} requires that detach() returns "
                f"an instance of the same type, but return type {type(detached).__name__} was found instead. To use "
                "the type as a Parameter, please correct the detach() semantics defined by its __torch_function__() "
                "implementation."
            )
        vars(detached)[cls.mark] = True
        return detached

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override] # mypy takes no names here
        text = super().__repr__()
        return f"Parameter containing:\n{text if type(self) is Parameter else f'Parameter({text})'}"

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.detach().clone(), self.requires_grad)  # without .grad, as in torch
        return memo[id(self)]  # type: ignore[no-any-return]


class Buffer(Tensor, metaclass=_Marks):
    """A tensor that is a module's buffer when assigned to it: state that is saved and moved, but not trained.

    What is made is of `data`'s class, marked as a buffer, as in torch.

    Args:
        data: the tensor; None: an empty one
        persistent: whether it is part of the state dict

    Example:
        >>> layer = nn.Module()
        >>> layer.mean = nn.Buffer(torch.zeros(2))
        >>> list(layer.state_dict()), list(layer.parameters())
        (['mean'], [])
    """

    mark = "_is_buffer"
    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Any:
        data = empty(0) if data is None else data
        made: Any = data.detach()._require(data.requires_grad)
        made.persistent, made._is_buffer = persistent, True
        return made


def __getattr__(name: str) -> Any:
    """torch keeps what has no sizes yet in this module too."""
    if name in ("UninitializedBuffer", "UninitializedParameter", "UninitializedTensorMixin", "is_lazy"):
        from distcompile.nn import lazy

        return getattr(lazy, name)
    raise AttributeError(f"module 'distcompile.nn.parameter' has no attribute {name!r}")
