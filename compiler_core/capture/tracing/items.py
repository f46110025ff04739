"""Items: containers from outside are guarded as far as they are read, and their changes recorded.

In: containers, keys. Out: items. An exact container, or one of a subclass that does not define the method in question,
is handled here; the program's own `__getitem__` ... are entered.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodDescriptorType
from typing import Any

from compiler_core.bytecode.generators import InterpretedGenerator
from compiler_core.bytecode.semantics import Break
from compiler_core.capture.arrays import is_opaque
from compiler_core.capture.guards.kinds import CONTAINERS, _key, is_constant, is_registry, plain_copy, viewed
from compiler_core.capture.guards.sources import Attribute, Raw
from compiler_core.capture.numbers.places import read_place, written_place
from compiler_core.capture.numbers.selections import is_selection
from compiler_core.capture.numbers.symbols import beside_tensor, is_symbol
from compiler_core.capture.polyfills import builtins as polyfills
from compiler_core.capture.tracing.base import OPAQUE
from compiler_core.capture.tracing.keys import Keys
from compiler_core.capture.tracing.lookup import is_fixed_class, lookup
from compiler_core.capture.tracing.numpy_rules import is_indexed, item_of
from compiler_core.capture.tracing.overriding import asks
from compiler_core.numpy_trace.array import TracedArray
from compiler_core.tensor.tensor import Tensor

WRITES: dict[type, set[str]] = {  # methods that change a container without reading it
    list: {"append", "extend"},
    deque: {"append", "appendleft", "extend", "extendleft"},
    set: {"add", "update", "discard"},
    dict: {"__setitem__", "update"},
}
CHANGES: dict[type, set[str]] = {  # methods that read and change it
    list: {"insert", "pop", "remove", "clear", "sort", "reverse", "__setitem__", "__delitem__", "__iadd__", "__imul__"},
    deque: {"pop", "popleft", "remove", "clear", "insert", "rotate", "reverse", "__setitem__", "__delitem__"},
    set: {"remove", "pop", "clear", "difference_update", "intersection_update", "symmetric_difference_update"}
    | {"__ior__", "__iand__", "__isub__", "__ixor__"},
    dict: {"pop", "popitem", "clear", "setdefault", "__delitem__", "move_to_end", "__ior__"},
}
KEEPING = frozenset({"append", "appendleft", "extend", "extendleft", "copy", "clear", "reverse", "__setitem__"})
KEEPING |= {"__getitem__", "__iter__", "__len__", "keys", "values", "items", "__reversed__", "__init__"}
HASHING = frozenset({"__getitem__", "__contains__", "get", "union", "intersection", "difference", "isdisjoint"})
HASHING |= {"symmetric_difference", "issubset", "issuperset", "__eq__"}
USING_UP = frozenset({"union", "difference", "symmetric_difference", "issubset"})  # the iterators that they are given
USING_UP |= {"difference_update", "symmetric_difference_update"}
COPIED = frozenset({"extend", "extendleft", "update", "__iadd__", "__ior__"})  # arguments whose contents count


class RunBetween(Break):
    """Not a graph break: the instruction advances something from outside, and is done between two segments."""


class Items(Keys):
    """See the head of this file."""

    def method_of(self, owner: Any, name: str) -> Any:
        """The program's own method `name` of an object, if it is written in Python."""
        self.guard_names(type(owner))
        found, base = lookup(type(owner), name)
        if not isinstance(found, FunctionType):
            return None
        return found if is_fixed_class(base) else self.of_class(base, name, found)

    # -- items

    def program_index(self, bound: Any) -> bool:
        """Whether a slice's bound is told by the program's own `__index__`."""
        return self.method_of(bound, "__index__") is not None and not isinstance(bound, Tensor)

    def get_item(self, owner: Any, key: Any) -> Any:
        if type(key) is slice and any(self.program_index(bound) for bound in (key.start, key.stop, key.step)):
            raise Break("a slice whose bounds are objects of the program's")
        if isinstance(owner, Tensor) and (own := self.program_method(owner, "__getitem__")) is not None:
            return self.call(own, (owner, key), {})
        if isinstance(owner, Tensor) and asks(key):
            return self.call(Tensor.__getitem__, (owner, key), {})
        if isinstance(owner, Tensor):
            self.segment.read_deeply(key)
            if isinstance(key, Tensor):
                selection = self.handing_on(self.segment.selections.take, owner, key)
                if selection is not None:
                    return selection
            place = self.handing_on(read_place, self.segment, owner, key) if self.segment.symbols else None
            return self.native(Tensor.__getitem__, owner, self.specialise(key)) if place is None else place
        method = self.method_of(owner, "__getitem__")
        if method is not None and not is_indexed(owner):
            return self.call(self.load_attr(owner, "__getitem__"), (key,), {})
        if is_indexed(owner):
            return item_of(self, owner, key)  # type: ignore[arg-type]
        owner = self.specialise(owner) if is_symbol(owner) else owner
        key = self.looked_for(owner, key)
        if not isinstance(owner, (dict, type)) and self.method_of(key, "__index__") is not None:
            raise Break("an object of the program's is an index")
        if type(key) is TracedArray and isinstance(owner, dict):
            raise Break("a traced number is used as a key")
        if isinstance(owner, dict):
            self.key_in(owner, key)
        if type(owner) is MappingProxyType:
            return self.get_item(self.behind(owner), key)
        if not self.segment.is_outside(owner):
            return self._own_item(owner, key)
        return self.outside_item(owner, key)

    def looked_for(self, owner: Any, key: Any) -> Any:
        """A key that is looked for, as a constant. One that a dictionary or set from outside lacks, it must lack."""
        if is_symbol(key) and isinstance(owner, (dict, set, frozenset)) and not isinstance(owner, defaultdict):
            known = self.segment.find(owner)
            if known is not None and id(owner) not in self.segment.originals and key not in plain_copy(owner):
                self.segment.require_without(known, key)
                return key
        return self.specialise(key)

    def behind(self, proxy: Any) -> Any:
        """The mapping that a proxy shows."""
        known = self.segment.find(proxy)
        if known is None:
            return viewed(proxy)
        return self.segment.load(Raw(known.source, viewed), viewed(proxy), fixed=known.fixed)

    def outside_item(self, owner: Any, key: Any) -> Any:
        """The item that a container from outside itself has, whatever its class's `__getitem__` says."""
        if isinstance(owner, dict):
            return self._dict_item(owner, key)
        if isinstance(owner, (list, tuple, deque)):
            return self._sequence_item(owner, key)
        if isinstance(owner, type):  # list[int], Enum["NAME"]
            return owner[key]  # type: ignore[index]
        raise Break(f"an item of a {type(owner).__name__}")

    def _own_item(self, owner: Any, key: Any) -> Any:
        if isinstance(owner, type):
            meta = self.looked_up(type(owner), "__getitem__")
            if isinstance(meta, FunctionType) and type(owner).__module__ != "enum":
                return self.call(meta, (owner, key), {})
            return owner[key]  # type: ignore[index]
        if isinstance(owner, defaultdict) and key not in owner:
            return self._default(owner, key)
        if isinstance(owner, dict) and key not in owner and self.method_of(owner, "__missing__") is not None:
            return self.call(self.load_attr(owner, "__missing__"), (key,), {})
        return owner[key]

    def _default(self, owner: Any, key: Any) -> Any:
        factory = owner.default_factory
        if (known := self.segment.find(owner)) is not None:
            factory = self.segment.load(Attribute(known.source, "default_factory"), factory)
        if factory in (list, dict, set, int, float, tuple, str):
            value = factory()
            self.store_item(owner, key, value)
            return value
        if factory is None:
            raise KeyError(key)
        return self.call(polyfills.missing, (owner, key, factory), {})

    def _dict_item(self, owner: Any, key: Any) -> Any:
        try:
            present = dict.__contains__(owner, key)
        except TypeError:
            return owner[key]  # unhashable: Python's own error
        self.segment.read_key(owner, key, present)
        if present:
            return self.segment.read_item(owner, key)
        if isinstance(owner, defaultdict):
            return self._default(owner, key)
        if self.method_of(owner, "__missing__") is not None:
            return self.call(self.load_attr(owner, "__missing__"), (key,), {})
        raise KeyError(key)

    def _sequence_item(self, owner: Any, key: Any) -> Any:
        if isinstance(key, slice):
            self.segment.read_whole(owner)
            return owner[key]
        try:
            owner[key]
        except IndexError:
            self.segment.read_length(owner)
            raise
        return self.segment.read_item(owner, self._from_the_start(owner, key))

    def _from_the_start(self, owner: Any, key: Any) -> Any:
        """A negative index into what captured code changed, counted from the start: a place is told by one number."""
        if type(key) is int and key < 0 and id(owner) in self.segment.originals and key >= -len(owner):
            self.segment.read_length(owner)
            return key + len(owner)
        return key

    def store_item(self, owner: Any, key: Any, value: Any) -> Any:
        if isinstance(owner, Tensor) and (own := self.program_method(owner, "__setitem__")) is not None:
            return self.call(own, (owner, key, value), {})
        if isinstance(owner, Tensor):
            self.read_all((key, value), {})
            if is_selection(value) and self.handing_on(self.segment.selections.put, owner, key, value):
                return None
            index = self.handing_on(written_place, self.segment, owner, key) if self.segment.symbols else None
            value = beside_tensor(self.segment, value, owner) if is_symbol(value) else self.specialise(value)
            self.native(Tensor.__setitem__, owner, self.specialise(key) if index is None else index, value)
            return None
        if self.method_of(owner, "__setitem__") is not None and not self.is_registry(owner):
            return self.call(self.load_attr(owner, "__setitem__"), (key, value), {})
        if self.segment.is_outside(owner) and not isinstance(owner, (list, dict, deque)):
            raise Break(f"an item of a {type(owner).__name__} is assigned")
        if type(key) is TracedArray and isinstance(owner, dict):
            raise Break("a traced number is used as a key")
        if is_opaque(owner):
            raise Break(OPAQUE)
        return self.change(owner, "__setitem__", (self.specialise(key), value), {})

    def delete_item(self, owner: Any, key: Any) -> Any:
        if self.method_of(owner, "__delitem__") is not None and not self.is_registry(owner):
            return self.call(self.load_attr(owner, "__delitem__"), (key,), {})
        return self.change(owner, "__delitem__", (self.specialise(key),), {})

    def is_registry(self, owner: Any) -> bool:
        """Whether a module's registry: a dictionary of ours, which stamps the module."""
        return is_registry(owner)

    # -- methods of containers written in C

    def container_method(self, owner: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`owner.name(*args)`, of a container from outside or not."""
        kind = kind_of(owner)
        if name not in KEEPING and not (name in ("get", "__contains__") and self.segment.is_outside(owner)):
            self.settle(owner, args)
        if name in HASHING:
            if isinstance(owner, (dict, set, frozenset)) and args:
                self.key_in(owner, args[0])
            self.check_keys(owner, *args)
            self.check_members(args)
        elif name in ("index", "count", "remove") and args:
            self.tell_apart(args[0], owner)
        if name in WRITES.get(kind, set()) or name in CHANGES.get(kind, set()):
            return self.change(owner, name, args, kwargs)
        method = c_method(owner, name)
        if kind is set and any(map(self.runs_python, args)):
            if name in USING_UP:
                return self.call(polyfills.call_with_lists, (method, (owner, *args), {}), {})
            raise Break(f"{name}() of an iterator that runs the program's code")
        if name in ("index", "count") and any(self.compares_in_python(item) for item in (*args, *owner)):
            raise Break("what to find in a container is told by code of the program's")
        if not self.segment.is_outside(owner):
            return method(owner, *args, **kwargs)
        if name == "__getitem__":
            return self.outside_item(owner, *args)
        if name == "__len__":
            self.segment.read_length(owner)
        elif name == "__contains__" and isinstance(owner, dict):
            return self._has_key(owner, self.looked_for(owner, args[0]))
        elif name == "get" and isinstance(owner, dict):
            return self._get(owner, *args)
        elif name in ("keys", "values", "items", "copy", "__iter__", "__reversed__"):
            self.segment.read_whole(owner)
        else:
            self.settle(owner, args)
            self.segment.read_deeply(owner)
            self.read_all(args, kwargs)
        return method(owner, *args, **kwargs)

    def _has_key(self, owner: Any, key: Any) -> bool:
        present = dict.__contains__(owner, key)
        self.segment.read_key(owner, key, present)
        return present

    def _get(self, owner: Any, key: Any, default: Any = None) -> Any:
        key = self.looked_for(owner, key)
        present = dict.__contains__(owner, key)
        self.segment.read_key(owner, key, present)
        return self.segment.read_item(owner, key) if present else default

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
            args = (self.specialise(args[0]), *args[1:])
            self.key_in(owner, args[0])
        elif isinstance(owner, set) or name in ("insert", "pop", "rotate"):
            self.settle(args)
            args = tuple(map(self.specialise, args[:1])) + args[1:]
        copied = name in COPIED or (name == "__setitem__" and isinstance(args[0], slice))
        if copied:
            args = tuple(map(drained, args))
            self.read_all(args, {})
        if isinstance(owner, (set, dict)):
            self.check_keys(owner, *args)
            if copied and isinstance(owner, set):
                self.check_members(member for arg in args for member in (arg if isinstance(arg, CONTAINERS) else ()))
        method = getattr(type(owner), name) if self.is_registry(owner) else c_method(owner, name)
        if name == "sort":
            key = kwargs.get("key")
            if key is not None and not isinstance(key, (BuiltinFunctionType, MethodDescriptorType)):
                return self.call(polyfills.sort_, (owner,), kwargs)
            self.check_order(owner)
        if name == "remove" and any(self.compares_in_python(item) for item in (*args, *owner)):
            raise Break("what to remove from a container is found by code of the program's")
        if not self.segment.is_outside(owner):
            return method(owner, *args, **kwargs)
        return self._change_outside(owner, name, method, args, kwargs, copied)

    def _change_outside(
        self, owner: Any, name: str, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any], copied: bool
    ) -> Any:
        """A change of a container from outside: done to it now, and recorded. copied: the contents of args count."""
        in_place = name == "__setitem__" and isinstance(owner, (list, deque)) and self._is_place(owner, args[0])
        only_writes = in_place or name in WRITES.get(kind_of(owner), set())
        if not only_writes or (isinstance(owner, (set, frozenset)) and name != "update"):
            self.segment.read_whole(owner)
        if name in ("remove", "sort"):
            self.segment.read_deeply(owner)
        self.segment.before_change(owner)
        plain = tuple(map(self.plain_contents if copied else self.plain, args))
        result = self.handing_on(method, owner, *plain, **{key: self.plain(value) for key, value in kwargs.items()})
        recorded = tuple(map(snapshot, args)) if copied else args
        self.record(owner, name, method, recorded, kwargs)
        return result

    def _is_place(self, owner: Any, key: Any) -> bool:
        """Whether a number is the place of an item; how many items there are counts."""
        if type(key) is not int:
            return False
        self.segment.read_length(owner)
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

    def record(self, owner: Any, name: str, method: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> None:
        if kwargs:
            self.segment.effect(apply_with, owner, method, args, kwargs)
        else:
            self.segment.effect(method, owner, *args)
        self.segment.note_numbers(owner, (*args, *kwargs.values()))
        if name == "__setitem__" and not isinstance(args[0], slice):
            place = args[0] if isinstance(owner, dict) else self._from_the_start(owner, args[0])
            self.segment.note_change(owner, place, args[1])
            self.segment.written[id(owner), _key(place)] = args[1]
        elif name == "update" and isinstance(owner, dict):
            changed = dict(*args, **kwargs)
            self.segment.written.update({(id(owner), _key(key)): value for key, value in changed.items()})
        elif name not in WRITES.get(kind_of(owner), set()):
            self.segment.whole.add(id(owner))
            self.segment.moved.add(id(owner))
            self.segment.forget_written(owner)  # items have moved, or are gone
        else:
            self.segment.moved.add(id(owner))

    def runs_python(self, iterable: Any) -> bool:
        """Whether iterating natively would run the program's code, or advance something from outside."""
        if isinstance(iterable, (Tensor, str, bytes, range)) or is_constant(iterable) or is_symbol(iterable):
            return False
        if isinstance(iterable, (dict, *CONTAINERS)):
            return isinstance(self.looked_up(type(iterable), "__iter__"), FunctionType)
        return type(iterable).__module__ != "builtins" or self.segment.is_outside(iterable) or hides_python(iterable)

    def read_all(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Everything that these hold counts."""
        for value in (*args, *kwargs.values()):
            self.segment.read_deeply(value)

    def check_order(self, items: Any) -> None:
        """Sorting these must run none of the program's code: how often, and in which order, is CPython's affair."""
        if any(self.method_of(item, "__lt__") is not None and not isinstance(item, Tensor) for item in list(items)):
            raise Break("objects are put in order by code of the program's")

    def compares_in_python(self, value: Any) -> bool:
        return self.method_of(value, "__eq__") is not None and not isinstance(value, Tensor)


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
