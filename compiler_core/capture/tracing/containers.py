"""Changes of containers: done for real, and recorded for those from outside.

In: a container, the name of a method, its arguments. Out: what the method gives, or `Enter` of what does the same in
Python, where an argument runs the program's code.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType
from typing import Any

from compiler_core.bytecode.generators import InterpretedGenerator
from compiler_core.bytecode.semantics import Break
from compiler_core.capture.guards.kinds import CONTAINERS, _key, is_constant, is_registry
from compiler_core.capture.numbers.numbers import Numbers
from compiler_core.capture.numbers.symbols import is_symbol
from compiler_core.capture.polyfills import builtins as polyfills
from compiler_core.capture.tracing.classes import Classes
from compiler_core.capture.tracing.keys import Keys
from compiler_core.capture.tracing.native import Call, Native
from compiler_core.capture.tracing.part import Part
from compiler_core.records import dataclass
from compiler_core.symbolic.size import Sym
from compiler_core.tensor.tensor import Tensor

WRITES: dict[type, set[str]] = {  # methods that change a container without reading it
    list: {"append", "extend"},
    deque: {"append", "appendleft", "extend", "extendleft"},
    set: {"add", "update", "discard"},
    dict: {"__setitem__", "update"},
}

COPIED = frozenset({"extend", "extendleft", "update", "__iadd__", "__ior__"})  # arguments whose contents count
USING_UP = frozenset({"union", "difference", "symmetric_difference", "issubset"})  # the iterators that they are given
USING_UP |= {"difference_update", "symmetric_difference_update"}


@dataclass(eq=False, repr=False)
class Containers(Part):
    """See the head of this file."""

    native: Native
    classes: Classes
    keys: Keys
    call: Call

    def __post_init__(self) -> None:
        super().__post_init__()
        self.plain = self.segment.arrays.plain

    def change(self, owner: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A method that changes the container: done, and recorded if the container is from outside."""
        if name in COPIED and any(map(self.runs_python, args)):
            by_code = polyfills.CHANGES[kind_of(owner), name]
            return self.call(by_code, (owner, *args), kwargs)
        if name.endswith("_update") and any(map(self.runs_python, args)):
            if name in USING_UP:
                return self.call(polyfills.call_with_lists, (c_method(owner, name), (owner, *args), {}), {})
            raise Break(f"{name}() of an iterator that runs the program's code")
        if name == "__setitem__" and isinstance(args[0], slice) and self.runs_python(args[1]):
            return self.call(polyfills.assign_slice, (owner, *args), {})
        if isinstance(owner, (set, dict)) and args and name not in ("update", "__ior__"):
            args = (self.numbers.specialise(args[0]), *args[1:])
            self.keys.key_in(owner, args[0])
        elif isinstance(owner, set) or name in ("insert", "pop", "rotate"):
            self.numbers.settle(args if isinstance(owner, set) else args[:1])
            args = tuple(map(self.numbers.specialise, args[:1])) + args[1:]
        copied = name in COPIED or (name == "__setitem__" and isinstance(args[0], slice))
        if copied:
            args = tuple(map(drained, args))
            self.contents.read_all(args, {})
            if isinstance(owner, (set, dict)) and self.numbers.sizes.symbols:
                args = tuple(hashable(self.numbers, arg, isinstance(owner, set)) for arg in args)
        if isinstance(owner, (set, dict)):
            self.keys.check_keys(owner, *args)
            if copied and isinstance(owner, set):
                self.keys.check_members(
                    member for arg in args for member in (arg if isinstance(arg, CONTAINERS) else ())
                )
        method = getattr(type(owner), name) if is_registry(owner) else c_method(owner, name)
        if name == "sort":
            key = kwargs.get("key")
            if key is not None and not isinstance(key, (BuiltinFunctionType, MethodDescriptorType)):
                return self.call(polyfills.sort_, (owner,), kwargs)
            self.check_order(owner)
        if name == "remove" and any(self.compares_in_python(item) for item in (*args, *owner)):
            raise Break("what to remove from a container is found by code of the program's")
        if not self.outside.has(owner):
            return method(owner, *args, **kwargs)
        return self._change_outside(owner, name, method, args, kwargs, copied)

    def _change_outside(
        self, owner: Any, name: str, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any], copied: bool
    ) -> Any:
        """A change of a container from outside: done to it now, and recorded. copied: the contents of args count."""
        in_place = name == "__setitem__" and isinstance(owner, (list, deque)) and self._is_place(owner, args[0])
        only_writes = in_place or name in WRITES.get(kind_of(owner), set())
        if not only_writes or (isinstance(owner, (set, frozenset)) and name != "update"):
            self.contents.read_whole(owner)
        if name in ("remove", "sort"):
            self.contents.read_deeply(owner)
        self.record.before(owner)
        plain = tuple(map(self.plain_contents if copied else self.plain, args))
        result = self.native.hand_on(method, owner, *plain, **{key: self.plain(value) for key, value in kwargs.items()})
        recorded = tuple(map(snapshot, args)) if copied else args
        self.note(owner, name, method, recorded, kwargs)
        return result

    def _is_place(self, owner: Any, key: Any) -> bool:
        """Whether a number is the place of an item; how many items there are counts."""
        if type(key) is not int:
            return False
        self.contents.read_length(owner)
        return -len(owner) <= key < len(owner)

    def plain_contents(self, values: Any) -> Any:
        """What `extend` or `update` is given, with plain numbers in it."""
        if isinstance(values, dict):
            return {self.plain(key): self.plain(value) for key, value in dict.items(values)}
        if isinstance(values, set):
            return set(map(self.plain, values))
        if isinstance(values, (list, tuple, deque)):
            parts = [self.plain(value) for value in values]
            return values if all(a is b for a, b in zip(parts, values)) else parts
        return self.plain(values)

    def note(self, owner: Any, name: str, method: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> None:
        if kwargs:
            self.record.made(apply_with, owner, method, args, kwargs)
        else:
            self.record.made(method, owner, *args)
        self.record.note_numbers(owner, (*args, *kwargs.values()))
        if name == "__setitem__" and not isinstance(args[0], slice):
            place = args[0] if isinstance(owner, dict) else self.from_the_start(owner, args[0])
            self.record.note_number(self.outside.find(owner), place, args[1])
            self.record.written[id(owner), _key(place)] = args[1]
        elif name == "update" and isinstance(owner, dict):
            changed = dict(*args, **kwargs)
            self.record.written.update({(id(owner), _key(key)): value for key, value in changed.items()})
        elif name not in WRITES.get(kind_of(owner), set()):
            self.contents.whole.add(id(owner))
            self.record.moved.add(id(owner))
            self.record.forget_written(owner)  # items have moved, or are gone
        else:
            self.record.moved.add(id(owner))

    def from_the_start(self, owner: Any, key: Any) -> Any:
        """A negative index into what captured code changed, counted from the start: a place is told by one number."""
        if type(key) is int and key < 0 and id(owner) in self.record.originals and key >= -len(owner):
            self.contents.read_length(owner)
            return key + len(owner)
        return key

    def runs_python(self, iterable: Any) -> bool:
        """Whether iterating natively would run the program's code, or advance something from outside."""
        if isinstance(iterable, (Tensor, str, bytes, range)) or is_constant(iterable) or is_symbol(iterable):
            return False
        if isinstance(iterable, (dict, *CONTAINERS)):
            return isinstance(self.classes.looked_up(type(iterable), "__iter__"), FunctionType)
        return type(iterable).__module__ != "builtins" or self.outside.has(iterable) or hides_python(iterable)

    def check_order(self, items: Any) -> None:
        """Sorting these must run none of the program's code: how often, and in which order, is CPython's affair."""
        if any(
            self.classes.method_of(item, "__lt__") is not None and not isinstance(item, (Tensor, Sym))
            for item in list(items)
        ):
            raise Break("objects are put in order by code of the program's")

    def compares_in_python(self, value: Any) -> bool:
        return self.classes.method_of(value, "__eq__") is not None and not isinstance(value, (Tensor, Sym))


def kind_of(owner: Any) -> type:
    """The container type that an object's methods are of."""
    for kind in (list, dict, set, deque):
        if isinstance(owner, kind):
            return kind
    return type(owner)


def c_method(owner: Any, name: str) -> Any:
    """The method of that name that the program's classes inherit from a container written in C."""
    for base in type(owner).__mro__:
        found = vars(base).get(name)
        if found is not None and not isinstance(found, FunctionType):
            return found
    raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")


def hashable(numbers: Numbers, values: Any, are_members: bool) -> Any:
    """What a set (are_members) or a dict is given at once, with constants for what it hashes."""
    if are_members:
        return [numbers.specialise(member) for member in values]
    if isinstance(values, dict):
        return values
    return [(numbers.specialise(key), value) for key, value in values]


def drained(values: Any) -> Any:
    """An iterator's items, or a view's: they are asked for once, and needed at every call."""
    is_view = isinstance(values, (type({}.keys()), type({}.values()), type({}.items())))
    return list(values) if is_view or hasattr(values, "__next__") else values


def snapshot(values: Any) -> Any:
    """The contents of an argument as they are now: it may change before the effect is replayed."""
    if isinstance(values, (OrderedDict, dict)):
        return dict(values)
    return list(values) if isinstance(values, (list, set, deque, frozenset)) else values


def apply_with(owner: Any, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """An effect with keyword arguments."""
    method(owner, *args, **kwargs)


def is_interpreted(value: Any) -> bool:
    """Whether a generator that the machine runs."""
    return type(value) is InterpretedGenerator


def hides_python(iterator: Any) -> bool:
    """Whether advancing a builtin iterator would run Python code: zip, map, enumerate over something that does."""
    if type(iterator) in (map, filter):
        return True
    if type(iterator) in (zip, enumerate, reversed):
        return any(
            hides_python(part) or is_interpreted(part) for part in iterator.__reduce__()[1] if hasattr(part, "__next__")
        )
    return type(iterator).__name__ in ("generator", "InterpretedGenerator", "callable_iterator")
