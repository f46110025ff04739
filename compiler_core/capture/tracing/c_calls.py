"""Calls of what is written in C.

In: a function or method and its arguments. Out: the result, or `Enter`. Methods of containers go to `items.py`; what is
known to only compute (`pure_table.py`) is called natively, after all that its arguments hold was guarded. Everything
else breaks the graph.
"""

from __future__ import annotations

import functools
import itertools
import random
import re
from collections import deque
from contextvars import ContextVar
from types import CoroutineType, FunctionType, MappingProxyType, MethodDescriptorType, ModuleType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

from compiler_core.bytecode.semantics import Break
from compiler_core.capture.guards.sources import Bound, Got
from compiler_core.capture.numbers.clocks import CLOCKS, read_clock
from compiler_core.capture.numbers.operands import operands
from compiler_core.capture.numbers.symbols import is_symbol
from compiler_core.capture.polyfills import builtins as polyfills
from compiler_core.capture.polyfills import of_itertools as polyfills_itertools
from compiler_core.capture.tracing.iteration import RunBetween
from compiler_core.capture.tracing.native import SHOWING, drives_program
from compiler_core.capture.tracing.rules.builtin_rules import BY_ID
from compiler_core.capture.tracing.rules.copying import reduced
from compiler_core.capture.tracing.rules.pure import is_pure, is_pure_method, makes_only
from compiler_core.capture.tracing.rules.pure_calls import call_pure
from compiler_core.tensor.tensor import Tensor

if TYPE_CHECKING:
    from compiler_core.capture.tracing.parts import Parts


class CCalls:
    """See the head of this file."""

    def __init__(self, parts: Parts) -> None:
        self.parts, self.segment = parts, parts.segment
        self.outside, self.contents, self.numbers = parts.outside, parts.contents, parts.numbers

    def call_c(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rule = BY_ID.get(id(function))
        if rule is not None:
            return rule(self.parts, args, kwargs)
        if function in CLOCKS and not args and not kwargs:
            return read_clock(self.numbers, function)
        owner = getattr(function, "__self__", None)
        if makes_only(function):
            if any(map(drives_program, args)):
                return self.parts.call(polyfills.call_with_lists, (function, args, kwargs), {})
            if not issubclass(function.__self__, (BaseException, tuple, list)):
                args, kwargs = tuple(map(self.numbers.specialise, args)), self.numbers.named(kwargs)
            return self.parts.native.run(function, *args, **kwargs)
        if owner is None or isinstance(owner, ModuleType):
            if args and isinstance(function, (MethodDescriptorType, WrapperDescriptorType)):
                bound = functools.partial(function, args[0])
                return self.c_method(args[0], function.__name__, bound, args[1:], kwargs)
        elif isinstance(owner, type):
            if owner is itertools.chain and function.__name__ == "from_iterable":
                return self.parts.call(polyfills_itertools.chain_of, args, kwargs)
            if function.__name__ == "__subclasses__" and not args and not kwargs:
                return self.parts.classes.subclasses(owner)
        else:
            if self.outside.has(function):
                owner = self.parts.classes.part(function, "__self__")
            if hasattr(type(owner), "__next__") and self.outside.has(owner):
                raise RunBetween("an iterator from outside is used")
            return self.c_method(owner, function.__name__, function, args, kwargs)
        if is_pure(function):
            return call_pure(self.parts, function, args, kwargs)
        raise Break(f"a call of {getattr(function, '__qualname__', function)!s}(), which is written in C")

    def c_method(self, owner: Any, name: str, bound: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A method written in C, of `owner`. bound: calls it."""
        if is_symbol(owner):
            owner = self.numbers.specialise(owner)
            bound = getattr(owner, name)
        if isinstance(owner, ContextVar) and name == "get":
            return self.context_variable(owner, args)
        if isinstance(owner, Tensor):
            self.contents.read_all(args, kwargs)
            operated, named = operands(self.numbers, name, (owner, *args), kwargs)
            return self.parts.native.run(bound, *operated[1:], **named)
        if name in ("__init__", "__init_subclass__") and not args and not kwargs:
            return None  # object.__init__
        if name in ("__setattr__", "__delattr__", "__getattribute__"):
            return self.raw_attribute(name, bound, owner, args)
        if name == "__reduce_ex__" and (made := reduced(self.parts, owner)) is not None:
            return made
        if isinstance(owner, (list, dict, set, deque)):
            return self.parts.items.container_method(owner, name, args, kwargs)
        if type(owner) is MappingProxyType and not name.startswith("__"):
            return self.parts.call(self.parts.attributes.load_attr(self.parts.items.behind(owner), name), args, kwargs)
        if name == "__get__" and isinstance(owner, FunctionType):
            return bound(*args, **kwargs)  # a bound method
        if isinstance(owner, BaseException) and name in ("__init__", "with_traceback", "add_note"):
            return bound(*args, **kwargs)
        if type(owner) is random.Random and name != "seed" and not self.outside.has(owner):
            return self.parts.native.run(bound, *map(self.numbers.specialise, args), **self.numbers.named(kwargs))
        if isinstance(owner, CoroutineType) or (hasattr(owner, "__next__") and self.outside.has(owner)):
            raise RunBetween("an iterator from outside is advanced")
        if is_pure_method(owner, name):
            self.contents.read_deeply(owner)
            if name in SHOWING and (plain := self.numbers.specialise(owner)) is not owner:
                owner, bound = plain, getattr(plain, name)
            if isinstance(owner, re.Pattern) and name == "sub" and callable(args[0]):
                return self.parts.call(polyfills.substitute, (owner, *args), kwargs)
            if isinstance(owner, str) and name in ("format", "format_map"):
                self.parts.text.check_printable([*args, kwargs])
            return call_pure(self.parts, bound, args, kwargs)
        raise Break(f"a call of {type(owner).__name__}.{name}(), which is written in C")

    def context_variable(self, variable: ContextVar[Any], args: tuple[Any, ...]) -> Any:
        """`variable.get()`: guarded."""
        try:
            value = variable.get(*args)
        except LookupError:
            raise Break("a ContextVar that is not set is read") from None
        self.outside.identify(Bound(variable, variable.name), variable, fixed=True)
        return self.outside.load(Got(Bound(variable, variable.name), args), value)

    def raw_attribute(self, name: str, bound: Any, owner: Any, args: tuple[Any, ...]) -> Any:
        """object.__setattr__(owner, name, value) and its like: what the program's own method ends in."""
        if name == "__setattr__":
            return self.parts.changing.set_attribute(object.__setattr__, owner, *args)
        if name == "__getattribute__":
            return self.parts.attributes.plain_attr(owner, *args)
        return self.parts.changing.delete_attribute(object.__delattr__, owner, *args)
