"""Calls: entered, run natively under the trace, answered by a rule, or a graph break.

In: a callable and its arguments. Out: the result, or `Enter`. Python functions are entered or run natively as `policy`
says; classes are made step by step; builtins have rules (`builtin_rules.py`); `c_calls.py` has what else is written in
C. What nobody knows breaks the graph: it is then called once, as it is, between two segments.
"""

from __future__ import annotations

import functools
import random
import weakref
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any

from compiler_core.bytecode.frame import Enter
from compiler_core.bytecode.native import call_generator
from compiler_core.bytecode.semantics import Break
from compiler_core.capture import policy
from compiler_core.capture.guards.kinds import CONTAINERS, GETTERS, is_constant, own_attributes
from compiler_core.capture.guards.sources import Bound, Referent
from compiler_core.capture.numbers.holding import require_none_held, tensors_in
from compiler_core.capture.numbers.making import made_of
from compiler_core.capture.numbers.operands import operands
from compiler_core.capture.numbers.places import asked_place
from compiler_core.capture.numbers.symbols import leaves_of
from compiler_core.capture.polyfills import builtins as polyfills
from compiler_core.capture.tracing.containers import is_interpreted
from compiler_core.capture.tracing.iteration import RunBetween
from compiler_core.capture.tracing.lookup import lookup
from compiler_core.capture.tracing.native import SHOWING, Seam, is_shared
from compiler_core.capture.tracing.rules import overriding
from compiler_core.capture.tracing.rules.builtin_rules import BY_ID
from compiler_core.capture.tracing.rules.cached import call_cached
from compiler_core.capture.tracing.rules.closures import encloses, is_program
from compiler_core.capture.tracing.rules.library_rules import BY_CODE
from compiler_core.capture.tracing.rules.numpy_rules import call_numpy, is_numpys, loaded
from compiler_core.capture.tracing.rules.pure import (
    getting,
    is_plain_class,
    is_pure,
    is_pure_class,
    is_seeding,
    makes_only,
)
from compiler_core.capture.tracing.rules.pure_calls import call_pure
from compiler_core.location import is_ours
from compiler_core.numpy_trace.array import TracedArray
from compiler_core.ops.registry import use_trace
from compiler_core.overrides.switch import ENTRIES
from compiler_core.symbolic.size import Sym
from compiler_core.tensor.memory.typed_storage import looks_at_storage
from compiler_core.tensor.tensor import Tensor

if TYPE_CHECKING:
    from compiler_core.capture.tracing.parts import Parts

REFER = vars(weakref.ref)["__call__"]
C_FUNCTIONS = (
    BuiltinFunctionType,
    MethodDescriptorType,
    WrapperDescriptorType,
    MethodWrapperType,
    ClassMethodDescriptorType,
)


class Calls:
    """See the head of this file."""

    def __init__(self, parts: Parts) -> None:
        self.parts, self.segment = parts, parts.segment
        self.outside, self.contents, self.numbers, self.code = parts.outside, parts.contents, parts.numbers, parts.code

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.outside.has(args):  # `f(*args)` hands on the very tuple
            self.contents.read_whole(args)
        match policy.said(function):
            case policy.Constant():
                return self.call_constant(function, args, kwargs)
            case policy.Replaced(by):
                return self.call(by, args, kwargs)
            case policy.Breaks(reason, remedy, looks):
                raise Break(reason, remedy, looks)
            case policy.Native():
                self.same_function(function)
                args, kwargs = self._for_program(function, args, kwargs)
                return self.parts.native.run(function, *args, **kwargs)
        kind = type(function)
        if is_numpys(function):
            return call_numpy(self.parts, function, args, kwargs)
        if kind is FunctionType:
            return self.call_function(function, args, kwargs)
        if kind is MethodType:
            return self.call_bound(function, args, kwargs)
        if isinstance(function, type):
            return self.call_class(function, args, kwargs)
        part = overriding.part_of_property(function)
        if part is not None:
            return self.call(part, args[:1] if function.__name__ == "__get__" else args, kwargs)
        if isinstance(function, C_FUNCTIONS):
            return self.parts.c_calls.call_c(function, args, kwargs)
        if kind is functools.partial:
            return self.call_partial(function, args, kwargs)
        original = self.parts.attributes.inner(function)
        if original is not function:
            return self.call(original, args, kwargs)
        if isinstance(function, functools._lru_cache_wrapper):
            return call_cached(self.parts, function, args, kwargs)
        if kind in GETTERS and len(args) == 1 and not kwargs:
            return self.call(*getting(function, *args), {})
        return self.call_object(function, args, kwargs)

    def call_bound(self, function: MethodType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A bound method: of a generator, of a tensor, of any other object."""
        inner, owner = self.parts.classes.part(function, "__func__"), self.parts.classes.part(function, "__self__")
        if hasattr(type(owner), "materialize"):
            raise Break("a parameter without a shape cannot be compiled", "call the module with a first batch before")
        if is_interpreted(owner):
            if self.outside.has(owner):
                raise RunBetween("a generator from outside is advanced")
            return call_generator(owner, function, args, kwargs)
        if isinstance(owner, Tensor):
            return self.call_method(inner, (owner, *args), kwargs)
        return self.call(inner, (owner, *args), kwargs)

    def call_object(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An object that is callable by its class."""
        kind = type(function)
        method = self.parts.classes.looked_up(kind, "__call__")
        if method is REFER and not args and not kwargs:
            return self.call_reference(function)
        if isinstance(method, FunctionType):
            return self.call(self.parts.attributes.load_attr(function, "__call__"), args, kwargs)
        if is_pure(function):
            return call_pure(self.parts, function, args, kwargs)
        name = getattr(function, "__qualname__", "")
        raise Break(f"a call of {f'{name}(), ' if name else ''}a {kind.__module__}.{kind.__name__}")

    def call_reference(self, reference: Any) -> Any:
        """What a weak reference refers to, or None: guarded; no guard or recipe keeps it alive."""
        known = self.outside.find(reference)
        value = reference()
        return value if known is None else self.outside.load(Referent(known.source), value)

    def call_method(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A method of a tensor."""
        self.parts.native.in_method = True
        try:
            return self.call(function, args, kwargs)
        finally:
            self.parts.native.in_method = False

    def call_constant(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A function of which its author says that it gives the same at every call (`assume_constant_result`)."""
        args, kwargs = self._for_program(function, args, kwargs)
        for tensor in tensors_in(args, kwargs):
            self.numbers.specialise(tuple(tensor.shape))
        with use_trace(None):
            result = function(*args, **kwargs)
        if not is_constant(result):
            name = getattr(function, "__name__", "a constant")
            self.code.guards.lasting.add(id(result))
            self.outside.load(Bound(result, f"{name}()"), result, fixed=True)
        return result

    def _for_program(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a function of the program's that runs as it is: it sees numbers. Raises Break."""
        for value in (value for change in self.segment.record.changes for value in change.args):
            if any(isinstance(leaf, Sym) for leaf in leaves_of(value)):
                self.numbers.specialise(value)  # a size that is seen where it was put
        args, kwargs = tuple(map(self.numbers.specialise, args)), self.numbers.named(kwargs)
        if self.numbers.symbols or self.numbers.sizes.are_on:
            require_none_held(getattr(function, "__qualname__", "a function"), args, kwargs)
        return args, kwargs

    def call_partial(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inner, given, named = (self.parts.classes.part(function, name) for name in ("func", "args", "keywords"))
        if self.outside.has(function):
            self.contents.read_whole(given)
            self.contents.read_whole(named)
        return self.call(inner, (*given, *args), {**named, **kwargs})

    def call_function(self, function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        entry = ENTRIES.get(id(function))
        if entry is not None:
            self.same_function(function)
            route = overriding.route_of(entry, args, kwargs)
            if overriding.is_for_program(route):
                return overriding.take(self.parts, entry, route)
            if route is None and id(function) not in BY_ID and not overriding.is_of_other_layout(args, kwargs):
                function = entry.origin  # type: ignore[assignment]
        rule = BY_ID.get(id(function))
        if rule is not None:
            self.same_function(function)
            return rule(self.parts, args, kwargs)
        rule = BY_CODE.get(id(function.__code__))
        if rule is not None:
            return rule(self.parts, function, args, kwargs)
        if args and type(args[0]) is TracedArray and is_ours(function.__code__.co_filename):
            args = tuple(loaded(self.segment, self.parts.classes, arg) for arg in args)
            return self.parts.native.run(
                function,
                *args,
                **{key: loaded(self.segment, self.parts.classes, value) for key, value in kwargs.items()},
            )
        if why := self.segment.memory.breaks_in.get(function.__code__):
            raise Break(f"{why} (in {function.__qualname__}, which is captured whole or not at all)")
        match policy.how(function):
            case policy.Breaks() as breaks:
                return self._call_own_random(function, args, kwargs, breaks)
            case policy.Native():
                calls = not policy.keeps(function) and any(map(is_program, (*args, *kwargs.values())))
                if not calls and not encloses(self.segment, function):
                    return self._call_natively(function, args, kwargs)
        return Enter(self.parts.entering.enter(function, args, kwargs))  # what it calls, and reads, is seen

    def _call_own_random(
        self, function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any], breaks: policy.Breaks
    ) -> Any:
        """A function that breaks the graph, but for a method of a random.Random that the program made itself."""
        own = args and type(args[0]) is random.Random and not self.outside.has(args[0])
        if own and is_seeding(function, args, kwargs):
            raise Break("a generator of random numbers is seeded by chance")
        if own and (function.__name__ != "shuffle" or not self.outside.has(args[-1])):
            self.contents.read_all(args, kwargs)
            return self.parts.native.run(function, *map(self.numbers.specialise, args), **self.numbers.named(kwargs))
        told = "__graph_break__" in function.__dict__
        reason = breaks.reason if told else f"{breaks.reason} ({function.__qualname__})"
        raise (Seam if breaks.is_seam else Break)(reason, breaks.remedy, breaks.looks)

    def _call_natively(self, function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A library function, run as it is under the trace after all that its arguments hold was guarded."""
        self.same_function(function)
        if function.__name__ == "__exit__":
            self._read_state(args[0])
        if looks_at_storage(function, args):
            raise Break("the storage of a tensor is looked at")
        if function.__name__ == "storage_offset" and self.outside.has(args[0]):
            return self._storage_offset(*args)
        self.contents.read_all(args, kwargs)
        if function.__name__ in SHOWING:
            args, kwargs = tuple(map(self.numbers.specialise, args)), self.numbers.named(kwargs)
        place = asked_place(self.numbers, function.__name__, args, kwargs) if self.numbers.symbols else None
        if place is not None:
            return self.parts.items.get_item(*place)
        instead = made_of(self.numbers, function, args, kwargs) if self.numbers.any_change else None
        called, given, named = (function, args, kwargs) if instead is None else instead
        operated, named = operands(self.numbers, called.__name__, given, named)
        result = self.parts.native.run(called, *operated, **named)
        is_given = any(result is arg for arg in args)
        if not is_given and is_shared(result) and not self.outside.has(result):
            raise Break(f"{function.__qualname__}() gives a {type(result).__name__} that others hold, too")
        return result

    def _storage_offset(self, tensor: Tensor) -> Any:
        """Where a tensor from outside begins in its memory, which none of its other guards is about."""
        known = self.outside.find(tensor)
        assert known is not None
        offset: int = tensor._cell.offset()
        code = f"{self.code.local(known.source)}._cell.offset() == {offset}"
        self.code.require_once(code, f"{known.source.text}.storage_offset() == {offset}")
        return offset

    def same_function(self, function: Any) -> None:
        """A function that runs natively is the very one: functions with the same code may hold other things."""
        known = self.outside.find(function)
        if known is not None and not known.fixed:
            same = self.code.guards.same(self.code.local(known.source), function)
            self.code.require_once(same, f"{known.source.text} is the same")

    def _read_state(self, block: Any) -> None:
        """What a block of ours from outside holds counts: the modes that it found, which it brings back, natively."""
        if not self.outside.has(block):
            return
        todo = [self.parts.attributes.load_attr(block, name) for name in own_attributes(block) or ()]
        while todo:
            value = self.numbers.specialise(todo.pop())
            if type(value) in (list, tuple):
                self.contents.read_whole(value)
                todo.extend(value)

    def call_class(self, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rule = BY_ID.get(id(cls))
        if rule is not None:
            return rule(self.parts, args, kwargs)
        maker = self.parts.classes.looked_up(type(cls), "__call__")
        if isinstance(maker, FunctionType):
            if type(cls).__module__ == "enum":
                return self.parts.native.run(cls, *map(self.numbers.specialise, args), **kwargs)
            return self.call(maker, (cls, *args), kwargs)
        if is_pure_class(cls):
            return call_pure(self.parts, cls, args, kwargs)
        said = policy.said(cls)
        if isinstance(said, policy.Breaks):
            raise Break(said.reason, said.remedy)
        if getattr(cls, "__wraps_original__", False):  # `compile()`: a call of what it makes enters the original
            with use_trace(None):
                return cls(*map(self.numbers.specialise, args), **self.numbers.named(kwargs))
        return self._make(cls, args, kwargs)

    def _make(self, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`type.__call__`: __new__, then __init__."""
        self.parts.classes.guard_names(cls)
        new, base = lookup(cls, "__new__")
        init = self.parts.classes.looked_up(cls, "__init__")
        if isinstance(new, staticmethod):
            new = self.parts.classes.part(self.parts.classes.of_class(base, "__new__", new), "__func__")
        if isinstance(new, FunctionType):
            return self.call(polyfills.make_by_new, (cls, new, init, args, kwargs), {})
        if not isinstance(init, FunctionType):
            for value in args:
                if isinstance(value, (*CONTAINERS, dict)):
                    self.contents.read_whole(value)
                elif self.parts.containers.runs_python(value):
                    raise Break(f"{cls.__name__}() of an iterator that runs the program's code")
            if not is_plain_class(cls):
                raise Break(f"a {cls.__name__} is made, by code written in C")
            if not issubclass(cls, (BaseException, tuple, list)):
                named = kwargs if cls is dict else self.numbers.named(kwargs)
                args, kwargs = tuple(map(self.numbers.specialise, args)), named
            return self.parts.native.run(cls, *args, **kwargs)
        if not makes_only(cls.__new__) and cls is not random.Random:  # which is seeded next
            raise Break(f"a {cls.__name__} is made, by code written in C")
        made = self.parts.native.run(
            cls.__new__, cls, *(() if new is object.__new__ else args), **({} if new is object.__new__ else kwargs)
        )
        entered = self.call(init, (made, *args), kwargs)
        if isinstance(entered, Enter):
            return Enter(entered.frame, "INSTANCE", (made,))
        return made
