"""Functions of compiler_core/ops as users call them: as `torch.f`, with `out=`, and as Tensor methods.

In: a place in the table of compiler_core/torch_table.py. Out: the function, or a method, that gives Tensors.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from compiler_core.errors import DeviceError, ShapeError
from compiler_core.meta import Shape
from compiler_core.ops.numpy_names import numpy_names
from compiler_core.torch_table import CREATIONS, FUNCTIONS, Place


@functools.cache
def load(place: Place) -> Callable[..., Any]:
    """The function at `place`."""
    function: Callable[..., Any] = getattr(importlib.import_module(place[0]), place[1])
    return numpy_names(function)


def as_tensors(result: Any) -> Any:
    """A function's result with bare values, which had no Tensor to ask, as Tensors."""
    from compiler_core.tensor.tensor import Tensor

    if isinstance(result, tuple):
        made = [as_tensors(r) for r in result]
        return type(result)(*made) if hasattr(result, "_fields") else tuple(made)
    if isinstance(result, list):
        return [as_tensors(r) for r in result]
    is_value = hasattr(result, "shape") and hasattr(result, "dtype") and not isinstance(result, Tensor)
    return Tensor._wrap(result) if is_value else result


def write_out(out: Any, result: Any) -> Any:
    """Copy `result` into the tensor (or tensors) `out`, and return that. Raises ShapeError where it does not fit."""
    if isinstance(out, (tuple, list)):
        for one, value in zip(out, result, strict=True):
            write_out(one, value)
        return out
    shape: Shape = tuple(result.shape)
    if tuple(out.shape) != shape:
        raise ShapeError("out= has another shape than the result", expected=str(shape), got=str(tuple(out.shape)))
    if out.device != result.device and not (out.is_meta or result.is_meta):
        raise DeviceError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{result.device} and {out.device}!",
            got=f"out= on {out.device}",
        )
    return out.copy_(result)


def public(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` over values as users call it: Tensors come out, and `out=` is where the result is written."""

    @functools.wraps(function)
    def call(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        result = as_tensors(function(*args, **kwargs))
        return result if out is None else write_out(out, result)

    return call


def creation(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` over values as users call it, where it makes a leaf: it takes torch's options of creation."""

    @functools.wraps(function)
    def call(
        *args: Any,
        out: Any = None,
        device: Any = None,
        layout: Any = None,
        requires_grad: bool = False,
        pin_memory: bool = False,
        **kwargs: Any,
    ) -> Any:
        from compiler_core.tensor.creation import leaf
        from compiler_core.tensor.placement import chosen, run_on

        place = chosen(device)
        result = run_on(place, function, *args, **kwargs)
        value = result._cell.value if hasattr(result, "_cell") else result
        return leaf(value, requires_grad, place) if out is None else write_out(out, leaf(value, False, place))

    return call


def named(name: str) -> Callable[..., Any]:
    """The function that the table lists under `name`."""
    return (creation if name in CREATIONS else public)(load(FUNCTIONS[name]))


def late_method(name: str, place: Place) -> Callable[..., Any]:
    """The method that calls the function at `place` with the Tensor as its first argument."""

    def method(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return as_tensors(load(place)(self, *args, **kwargs))

    method.__name__, method.__qualname__ = name, f"Tensor.{name}"
    method.__doc__ = f"See {place[0].replace('.', '/')}.py:{place[1]}."
    return method
