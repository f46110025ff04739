"""Calls of NumPy's functions in captured code: on traced arrays, by NumPy's own dispatch.

In: a callable and its arguments. Out: whether it is NumPy's to answer here, and the result: traced arrays, or what
NumPy computes of numbers. Arguments that come from outside are loaded, item by item, so that arrays among them are
inputs of the graph. What draws random numbers, reads or writes files, or calls the program's functions breaks the
graph.
"""

from __future__ import annotations

import contextlib
import functools
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler_core.bytecode.semantics import Break
from compiler_core.capture.arrays import is_opaque
from compiler_core.config import config
from compiler_core.numpy_trace import substitute
from compiler_core.numpy_trace.creation import joined
from compiler_core.numpy_trace.dispatch import made

if TYPE_CHECKING:
    from compiler_core.capture.tracing.calls import Calls

_DISPATCHER = type(np.sum)
_KINDS = (np.ufunc, _DISPATCHER, FunctionType, BuiltinFunctionType)
_INDEXED = "numpy.lib._index_tricks_impl"
_NOT_PURE = frozenset(
    (np.save, np.savez, np.savez_compressed, np.savetxt, np.load, np.loadtxt, np.genfromtxt, np.fromfile, np.fromregex)
    + (np.seterr, np.seterrcall, np.setbufsize, np.set_printoptions, np.get_printoptions, np.geterr, np.printoptions)
    + (np.show_config, np.info, np.array2string, np.array_repr, np.array_str)
)
_CLASSES = frozenset((np.dtype, np.finfo, np.iinfo))


def is_numpys(function: Any) -> bool:
    """Whether a callable is a function of NumPy's that captured code calls through here."""
    if not config.trace_numpy:
        return False
    if isinstance(function, type):
        return issubclass(function, np.generic) or function in _CLASSES or function is np.errstate
    if type(function) not in _KINDS:
        return False
    if type(function) is BuiltinFunctionType and type(function.__self__) is np.ufunc:
        return True
    module = getattr(function, "__module__", None)
    return isinstance(module, str) and module.partition(".")[0] == "numpy" and not module.startswith("numpy.random")


def call_numpy(semantics: Calls, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the call gives."""
    if function is np.errstate:  # compiled code raises no warnings
        return contextlib.nullcontext()
    if isinstance(function, (_DISPATCHER, FunctionType, BuiltinFunctionType)) and function in _NOT_PURE:
        raise Break(f"np.{function.__name__}() does more than compute")
    args = tuple(loaded(semantics, value) for value in args)
    kwargs = {key: loaded(semantics, value) for key, value in kwargs.items()}
    if any(isinstance(value, (FunctionType, MethodType)) for value in (*args, *kwargs.values())):
        raise Break(f"np.{getattr(function, '__name__', function)}() calls a function of the program's")
    return semantics.native(substitute(function) or functools.partial(_plainly, function), *args, **kwargs)


def _plainly(function: Any, *args: Any, **kwargs: Any) -> Any:
    """A function of NumPy's, whose arrays are traced ones from now on."""
    return made(function(*args, **kwargs))


def loaded(semantics: Calls, value: Any) -> Any:
    """An argument for code that runs natively: numbers as constants, the items of what comes from outside loaded.

    Raises Break for an array that is not traced.
    """
    kind = type(value)
    if kind in (list, tuple):
        if semantics.segment.is_outside(value):
            semantics.segment.read_length(value)
            return kind(loaded(semantics, semantics.segment.read_item(value, place)) for place in range(len(value)))
        return kind(loaded(semantics, item) for item in value)
    if kind is dict and not semantics.segment.is_outside(value):
        return {key: loaded(semantics, item) for key, item in value.items()}
    if is_opaque(value):
        raise Break(f"an array of dtype {value.dtype} is not traced")
    return semantics.specialise(value)


def is_indexed(owner: Any) -> bool:
    """Whether one of NumPy's objects that make arrays of what they are indexed by: np.r_, np.c_, np.mgrid, np.s_."""
    return type(owner).__module__ == _INDEXED


def item_of(semantics: Calls, owner: Any, key: Any) -> Any:
    """np.r_[key] and its kin."""
    return semantics.native(joined, owner, loaded(semantics, key))


__all__ = ["call_numpy", "is_indexed", "is_numpys", "item_of", "loaded"]
