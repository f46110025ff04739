"""Small questions that model files ask torch itself: an assertion, a type's name.

In: anything. Out: nothing, or an AssertionError; a name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiler_core.dtype import bool_
from compiler_core.tensor.tensor import Tensor
from distcompile.overrides import handle_torch_function, has_torch_function


def _assert(condition: Any, message: str) -> Any:
    """`assert condition, message`; of a condition whose class takes calls over, what that gives."""
    if not isinstance(condition, (bool, Tensor)) and has_torch_function((condition,)):
        return handle_torch_function(_assert, (condition,), condition, message)
    if not condition:
        raise AssertionError(message)
    return None


def _check(cond: Any, message: Callable[[], str] | str | None = None) -> None:
    """Raises a RuntimeError with `message`, or what it returns, unless `cond`."""
    _check_with(RuntimeError, cond, message)


def _check_with(error_type: type[Exception], cond: Any, message: Callable[[], str] | str | None = None) -> None:
    """Raises `error_type` with `message`, or what it returns, unless `cond`."""
    if not cond:
        text = message() if callable(message) else message
        raise error_type(text or "Expected cond to be True, but got False.")


def _check_is_size(i: Any, message: Callable[[], str] | str | None = None, *, max: Any = None) -> None:
    """Raises a RuntimeError unless `i` is 0 or more, and at most `max`."""
    _check_with(RuntimeError, i >= 0 and (max is None or i <= max), message)


def _check_value(cond: Any, message: Callable[[], str] | str | None = None) -> None:
    """Raises a ValueError unless `cond`."""
    _check_with(ValueError, cond, message)


def _check_index(cond: Any, message: Callable[[], str] | str | None = None) -> None:
    """Raises an IndexError unless `cond`."""
    _check_with(IndexError, cond, message)


def _check_type(cond: Any, message: Callable[[], str] | str | None = None) -> None:
    """Raises a TypeError unless `cond`."""
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: Any, message: Callable[[], str] | str | None = None) -> None:
    """Raises a NotImplementedError unless `cond`."""
    _check_with(NotImplementedError, cond, message)


def _check_tensor_all_with(
    error_type: type[Exception], cond: Tensor, message: Callable[[], str] | str | None = None
) -> None:
    """Raises `error_type` unless every element of a Tensor of bools is true; a TypeError for anything else."""
    if not isinstance(cond, Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype is not bool_:
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    _check_with(error_type, bool(cond.all()), message)


def _check_tensor_all(cond: Tensor, message: Callable[[], str] | str | None = None) -> None:
    """Raises a RuntimeError unless every element of a Tensor of bools is true."""
    _check_tensor_all_with(RuntimeError, cond, message)


def _assert_async(input: Tensor, assert_msg: str = "") -> None:
    """Raises a RuntimeError unless a Tensor of one element is not zero. It waits for the value."""
    if input.numel() != 1:
        many = "more than one value" if input.numel() else "no values"
        raise RuntimeError(f"Boolean value of Tensor with {many} is ambiguous")
    _check_with(RuntimeError, bool(input), assert_msg or "Expected Tensor with single nonzero value, but got zero")


def typename(obj: Any) -> str:
    """A tensor's type as `type()` gives it, else the class with its module."""
    if isinstance(obj, Tensor):
        return str(obj.type())
    named = obj if hasattr(obj, "__qualname__") else type(obj)
    module = getattr(named, "__module__", "") or ""
    return named.__qualname__ if module in ("", "builtins") else f"{module}.{named.__qualname__}"
