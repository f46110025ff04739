"""NumPy's functions that make arrays and do not ask an array for its protocols: np.zeros, np.array, np.float32(x), ...

In: such a function. Out: `substitute(function)`: what the interpreter of captured code calls in its place, None for all
others. Arrays of Python data are known constants (`known.py`), to be written to like any traced array; `np.array` and
its kin take nested lists with traced arrays in them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from compiler_core.numpy_trace.array import TracedArray, not_traced, numpy_of
from compiler_core.numpy_trace.dispatch import answers, made
from compiler_core.numpy_trace.operands import cast, dtype_in, dtype_of, filled, holds_traced, shape_of, tensor_of
from compiler_core.numpy_trace.shaping import sizes
from compiler_core.ops import functional as F
from compiler_core.ops.registry import current_trace
from compiler_core.tensor.tensor import Tensor

MAKERS: frozenset[Any] = frozenset(
    (
        np.zeros,
        np.ones,
        np.empty,
        np.full,
        np.arange,
        np.linspace,
        np.logspace,
        np.geomspace,
        np.eye,
        np.identity,
        np.tri,
    )
    + (np.indices, np.meshgrid, np.tril_indices, np.triu_indices, np.diag_indices, np.fromiter, np.hanning, np.hamming)
    + (np.blackman, np.bartlett, np.kaiser, np.unravel_index, np.diag, np.diagflat)
)
CONVERTERS: frozenset[Any] = frozenset((np.array, np.asarray, np.asanyarray, np.ascontiguousarray, np.asfortranarray))


def substitute(function: Any) -> Callable[..., Any] | None:
    """What stands in for `function` while code is captured; None if nothing has to."""
    try:
        known = function in MAKERS or function in CONVERTERS
    except TypeError:  # unhashable
        return None
    if known:
        return functools.partial(_convert if function in CONVERTERS else _make, function)
    if isinstance(function, type) and issubclass(function, np.number | np.bool_):
        return functools.partial(_scalar, function)
    return None


def _make(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if function in (np.zeros, np.ones, np.empty, np.full):
        return _filled(function, *args, **kwargs)
    return made(function(*args, **kwargs))


def _filled(function: Callable[..., Any], shape: Any, *args: Any, **kwargs: Any) -> Any:
    """np.zeros and its kin: one node, however large."""
    if function is np.full:
        value = args[0] if args else kwargs["fill_value"]
        if holds_traced(value) or np.ndim(value):
            return _full(sizes(shape), *args, **kwargs)
    sample = function((), *args, **kwargs)
    if sample.dtype.kind not in "biufc":
        return function(shape, *args, **kwargs)
    return TracedArray(filled(sizes(shape), 0 if function is np.empty else sample.item(), sample.dtype))


def _full(shape: tuple[int, ...], fill_value: Any, dtype: Any = None, order: str = "C", **others: Any) -> Any:
    """np.full of an array."""
    value = cast(tensor_of(fill_value), dtype_of(fill_value) if dtype is None else dtype)
    return TracedArray(F.expand(value, shape).clone())


def _convert(function: Callable[..., Any], a: Any = None, dtype: Any = None, **kwargs: Any) -> Any:
    a = kwargs.pop("object", a)
    if isinstance(a, Tensor) and current_trace() is not None:
        a = numpy_of(a)
    if not holds_traced(a):
        result = function(a, dtype, **kwargs) if dtype is not None else function(a, **kwargs)
        return made(result) if result is not a and type(a) is not np.ndarray else result
    tensor = tensor_of(a) if dtype is None else cast(tensor_of(a), dtype)
    copies = function is np.array and kwargs.get("copy", True) is not False
    if type(a) is TracedArray and tensor is a.tensor and not a.is_scalar and not copies:
        return a
    tensor = tensor.clone() if type(a) is TracedArray and tensor is a.tensor else tensor
    missing = kwargs.get("ndmin", 1 if function in (np.ascontiguousarray, np.asfortranarray) else 0) - tensor.ndim
    return TracedArray(F.reshape(tensor, (1,) * missing + shape_of(tensor)) if missing > 0 else tensor)


def _scalar(kind: type, *args: Any) -> Any:
    """np.float32(x), which gives a scalar of a number or a 0-d array, and an array of others."""
    if len(args) != 1 or not holds_traced(args[0]):
        return kind(*args)
    tensor = tensor_of(args[0])
    converted = cast(tensor, kind)
    return TracedArray(converted.clone() if converted is tensor else converted, is_scalar=not tensor.ndim)


# ---- those that ask the protocols of an argument


@answers(np.linspace)
def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None,
             axis: int = 0, *, device: Any = None) -> Any:  # fmt: skip
    kind = np.result_type(dtype_in(start), dtype_in(stop), 1.0)
    first, last = (cast(tensor_of(x), kind) for x in (start, stop))
    parts = num - 1 if endpoint else num
    shape = np.broadcast_shapes(shape_of(first), shape_of(last))
    first, last = F.expand(first, shape), F.expand(last, shape)
    step = F.true_divide(F.sub(last, first), parts) if parts > 0 else F.mul(F.sub(last, first), np.nan)
    places = tensor_of(np.arange(num, dtype=kind).reshape((-1,) + (1,) * len(shape)))
    line = F.add(F.mul(places, step if parts > 0 else F.sub(last, first)), first)
    if endpoint and num > 1:
        line = F.cat([line[:-1], last[None]], 0)
    if dtype is not None:
        line = cast(F.floor(line) if np.dtype(dtype).kind in "iu" else line, dtype)
    line = line.movedim(0, axis) if axis else line
    return (line, step) if retstep else line


def _made_like(function: Callable[..., Any]) -> Callable[..., Any]:
    """The rule for `function(..., like=traced)`."""

    def rule(*args: Any, **kwargs: Any) -> Any:
        return substitute(function)(*args, **kwargs).tensor  # type: ignore[misc]

    return rule


for _function in (np.zeros, np.ones, np.empty, np.full, np.arange, np.eye, np.identity, np.tri, np.array, np.asarray,
                  np.asanyarray, np.ascontiguousarray):  # fmt: skip
    answers(_function, keeps_0d=True)(_made_like(_function))


def joined(maker: Any, key: Any) -> Any:
    """np.c_[key], np.r_[key]: arrays and slices side by side; np.mgrid[key] and its kin, of numbers."""
    if not any(map(holds_traced, key if isinstance(key, tuple) else (key,))):
        return made(maker[key])
    parts = key if isinstance(key, tuple) else (key,)
    if (maker is not np.r_ and maker is not np.c_) or any(isinstance(part, str) for part in parts):
        raise not_traced(f"np.{type(maker).__name__}[...] of traced arrays")
    arrays = [np.r_[part] if isinstance(part, slice) else part for part in parts]
    return np.concatenate([np.atleast_1d(array) for array in arrays]) if maker is np.r_ else np.column_stack(arrays)
