"""Calls of NumPy's functions in captured code: on traced arrays, by NumPy's own dispatch.

In: a callable and its arguments. Out: whether it is NumPy's to answer here, and the result: traced arrays, or what
NumPy computes of numbers. Arguments that come from outside are loaded, item by item, so that arrays among them are
inputs of the graph. What has no rule and is not known to only compute (`pure_table.py`), or calls the program's code,
breaks the graph.
"""

from __future__ import annotations

import contextlib
import functools
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler_core.bytecode.semantics import Break
from compiler_core.capture.arrays import is_opaque
from compiler_core.capture.tracing.rules.pure_table import NUMPY, named
from compiler_core.config import config
from compiler_core.numpy_trace import TracedArray, substitute
from compiler_core.numpy_trace.creation import CONVERTERS, MAKERS
from compiler_core.numpy_trace.dispatch import RULES, made
from compiler_core.numpy_trace.ufuncs import UFUNCS
from compiler_core.tensor.tensor import Tensor

if TYPE_CHECKING:
    from compiler_core.capture.segment import CaptureSegment
    from compiler_core.capture.tracing.classes import Classes
    from compiler_core.capture.tracing.parts import Parts

_DISPATCHER = type(np.sum)
_KINDS = (np.ufunc, _DISPATCHER, FunctionType, BuiltinFunctionType)
_INDEXED = "numpy.lib._index_tricks_impl"
_PURE = frozenset({*RULES, *UFUNCS, *MAKERS, *CONVERTERS, *named(NUMPY)})
_DATES = frozenset(("now", "today"))
_PROTOCOLS = ("__array__", "__array_ufunc__", "__array_function__", "__len__", "__iter__", "__float__", "__int__",
              "__index__", "__complex__", "__bool__", "__fspath__")  # fmt: skip
_CLASSES = frozenset((np.dtype, np.finfo, np.iinfo))


def is_numpys(function: Any) -> bool:
    """Whether a callable is a function of NumPy's that captured code calls through here."""
    if not config.trace_numpy:
        return False
    if isinstance(function, type):
        return issubclass(function, np.generic) or function in _CLASSES or function is np.errstate
    if type(function) not in _KINDS:
        return False
    if type(function) is FunctionType:
        return function in _PURE  # what else is Python is entered as such
    if type(function) is BuiltinFunctionType and type(function.__self__) is np.ufunc:
        return True
    module = getattr(function, "__module__", None)
    return isinstance(module, str) and module.partition(".")[0] == "numpy" and not module.startswith("numpy.random")


def call_numpy(parts: Parts, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the call gives."""
    if function is np.errstate:  # compiled code raises no warnings
        if any(value not in ("ignore", "warn", None) for value in (*args, *kwargs.values())):
            raise Break("np.errstate() has more than warnings made of an error")
        return contextlib.nullcontext()
    if not _is_pure(function, args):
        raise Break(f"np.{getattr(function, '__name__', function)}() may do more than compute")
    args = tuple(loaded(parts.segment, parts.classes, value) for value in args)
    kwargs = {key: loaded(parts.segment, parts.classes, value) for key, value in kwargs.items()}
    if any(callable(value) and not isinstance(value, type) for value in (*args, *kwargs.values())):
        raise Break(f"np.{getattr(function, '__name__', function)}() calls a function that it is given")
    return parts.native.run(substitute(function) or functools.partial(_plainly, function), *args, **kwargs)


def _is_pure(function: Any, args: tuple[Any, ...]) -> bool:
    """Whether a callable of NumPy's only computes."""
    if function is np.datetime64:
        return not any(isinstance(value, str) and value.lower() in _DATES for value in args)
    if isinstance(function, type):
        return True
    of = getattr(function, "__self__", None)
    return (of if isinstance(of, np.ufunc) else function) in _PURE


def _plainly(function: Any, *args: Any, **kwargs: Any) -> Any:
    """A function of NumPy's, whose arrays are traced ones from now on."""
    return made(function(*args, **kwargs))


def loaded(segment: CaptureSegment, classes: Classes, value: Any) -> Any:
    """An argument for code that runs natively: numbers as constants, the items of what comes from outside loaded.

    Raises Break for an array that is not traced.
    """
    kind = type(value)
    if kind in (list, tuple):
        if segment.outside.has(value):
            segment.contents.read_length(value)
            return kind(
                loaded(segment, classes, segment.contents.read_item(value, place)) for place in range(len(value))
            )
        return kind(loaded(segment, classes, item) for item in value)
    if kind is dict and not segment.outside.has(value):
        return {key: loaded(segment, classes, item) for key, item in value.items()}
    if is_opaque(value):
        raise Break(f"an array of dtype {value.dtype} is not traced")
    if not isinstance(value, Tensor) and kind is not TracedArray:
        if any(classes.program_method(value, name) is not None for name in _PROTOCOLS):
            raise Break(f"a {kind.__name__} is made an array of by code of the program's")
        segment.contents.read_data(value)
    return segment.numbers.specialise(value)


def is_indexed(owner: Any) -> bool:
    """Whether one of NumPy's objects that make arrays of what they are indexed by: np.r_, np.c_, np.mgrid, np.s_."""
    return type(owner).__module__ == _INDEXED


__all__ = ["call_numpy", "is_indexed", "is_numpys", "loaded"]
