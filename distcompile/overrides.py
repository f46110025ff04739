"""torch.overrides: nothing takes a call of torch's over here, yet.

In: tensors. Out: "no". A TorchFunctionMode can be written, and is refused when it is entered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from compiler_core.tensor.tensor import Tensor
from distcompile.errors import NotSupportedError

__all__ = [
    "TorchFunctionMode",
    "get_default_nowrap_functions",
    "has_torch_function",
    "is_tensor_like",
    "is_tensor_method_or_property",
]


class TorchFunctionMode:
    """A region whose calls its `__torch_function__` would take over. Raises NotSupportedError when it is entered."""

    def __enter__(self) -> Any:
        raise NotSupportedError("TorchFunctionMode: calls cannot be taken over")

    def __exit__(self, *exc: object) -> None:
        return None


def is_tensor_like(inp: Any) -> bool:
    """Whether `inp` is a Tensor, or of a type that takes calls over."""
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether one of these takes calls over: none does."""
    return False


def is_tensor_method_or_property(func: Any) -> bool:
    """Whether `func` is a method of Tensor's, or what gives one of its properties."""
    return getattr(Tensor, getattr(func, "__name__", ""), None) is func or func.__name__ == "__get__"


def get_default_nowrap_functions() -> set[Any]:
    """Functions whose results a subclass leaves as they are."""
    return set()
