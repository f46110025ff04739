"""Whether a backward only computes, so that tracing it once stands for running it at every backward.

In: a function and the context that it will get. Out: a yes or no, from its bytecode and what its names stand for now.
Yes only if all it can reach is: its arguments, contexts of tensors and constants, our own functions, modules, types and
dtypes, `math`, builtins that only compute, and Python functions of which the same is true. Whatever else it mentions
(a number in a global variable, a list in a closure, an object, `print`) may change or be changed: no.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import math
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from compiler_core.dtype import DType
from compiler_core.location import is_ours
from compiler_core.tensor.tensor import Tensor

_OURS = ("compiler_core", "distcompile")
_BUILTINS = frozenset(
    (
        *(abs, all, any, bool, callable, dict, divmod, enumerate, filter, float, getattr, hasattr, int, isinstance),
        *(issubclass, iter, len, list, map, max, min, next, pow, range, repr, reversed, round, set, slice, sorted),
        *(str, sum, super, tuple, type, zip, staticmethod),
    )
)
_EFFECTS = frozenset(("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "IMPORT_NAME", "LOAD_NAME"))
_CONSTANTS = (type(None), bool, int, float, complex, str, bytes, DType, slice, type(Ellipsis))


def only_computes(function: Any, ctx: Any) -> bool:
    """See the head of this file."""
    return all(map(_is_constant, vars(ctx).values())) and _is_pure(function, set())


def _is_constant(value: Any) -> bool:
    """Whether it holds only tensors and constants, or what the context itself keeps."""
    if isinstance(value, tuple) or type(value) in (list, set):
        return all(map(_is_constant, value))
    is_named = hasattr(type(value), "graph_key")  # a group of ranks, an operator: in a graph it is its name
    return isinstance(value, (*_CONSTANTS, Tensor)) or is_named or _is_known(value)


def _is_known(value: Any) -> bool:
    """Whether it is of ours, or of Python, and only computes."""
    if isinstance(value, ModuleType):
        return (
            value is math or getattr(value.__spec__, "name", value.__name__).split(".")[0] in _OURS
        )  # torch, as_torch
    if isinstance(value, type) and issubclass(value, Exception):
        return value.__module__ == "builtins"
    if isinstance(value, FunctionType) and is_ours(value.__code__.co_filename):
        return True
    if isinstance(value, type) and value.__module__.split(".")[0] in _OURS:
        return True
    if isinstance(value, BuiltinFunctionType) and value.__module__ == "math":
        return True
    return isinstance(value, (DType, type(Ellipsis))) or any(value is builtin for builtin in _BUILTINS)


def _is_pure(function: Any, seen: set[CodeType]) -> bool:
    if isinstance(function, MethodType):
        function = function.__func__
    if not isinstance(function, FunctionType):
        return False
    inner = getattr(function, "__wrapped__", None)
    if inner is not None:  # a decorator of ours: `once_differentiable`
        return _is_known(_decorator(function)) and _is_pure(inner, seen)
    if function.__code__ in seen:
        return True
    seen.add(function.__code__)
    if function.__defaults__ or function.__kwdefaults__:
        given = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        if not all(isinstance(value, _CONSTANTS) for value in given):
            return False
    return _code_is_pure(function.__code__, function, seen)


def _decorator(function: FunctionType) -> FunctionType:
    """A function of the file that really holds the code of `function`."""
    made = FunctionType(function.__code__, function.__globals__, closure=function.__closure__)
    made.__module__ = function.__globals__.get("__name__", "")
    return made


def _code_is_pure(code: CodeType, function: FunctionType, seen: set[CodeType]) -> bool:
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and not _code_is_pure(constant, function, seen):
            return False
    if code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return False
    outer = inspect.getclosurevars(function).nonlocals
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        if instruction.opname in _EFFECTS:
            return False
        if instruction.opname == "STORE_DEREF" and name in function.__code__.co_freevars:
            return False
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS") and not _may_be_named(
            _global(function, name), seen
        ):
            return False
        if (
            instruction.opname in ("LOAD_DEREF", "LOAD_CLASSDEREF")
            and name in function.__code__.co_freevars
            and not (name in outer and _may_be_named(outer[name], seen))
        ):
            return False
    return True


def _global(function: FunctionType, name: str) -> Any:
    return function.__globals__.get(name, getattr(builtins, name, None))


def _may_be_named(value: Any, seen: set[CodeType]) -> bool:
    """Whether a function that mentions `value` may still only compute."""
    return _is_known(value) or _is_pure(value, seen)
