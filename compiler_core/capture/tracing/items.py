"""Items: containers from outside are guarded as far as they are read.

In: containers, keys. Out: items. An exact container, or one of a subclass that does not define the method in question,
is handled here; the program's own `__getitem__` ... are entered.
"""

from __future__ import annotations

from collections import defaultdict, deque
from types import FunctionType, MappingProxyType
from typing import Any

from compiler_core.bytecode.semantics import Break
from compiler_core.capture.arrays import is_opaque
from compiler_core.capture.guards.kinds import is_registry, plain_copy, viewed
from compiler_core.capture.guards.sources import Attribute, Raw
from compiler_core.capture.numbers.lifting import beside_tensor
from compiler_core.capture.numbers.operands import handed
from compiler_core.capture.numbers.places import read_place, written_place
from compiler_core.capture.numbers.selections import is_selection
from compiler_core.capture.numbers.symbols import KINDS, is_symbol
from compiler_core.capture.polyfills import builtins as polyfills
from compiler_core.capture.tracing.attributes import Attributes
from compiler_core.capture.tracing.classes import Classes
from compiler_core.capture.tracing.containers import USING_UP, WRITES, Containers, c_method, drained, kind_of
from compiler_core.capture.tracing.keys import Keys
from compiler_core.capture.tracing.native import OPAQUE, Call, Native
from compiler_core.capture.tracing.part import Part
from compiler_core.capture.tracing.rules.numpy_rules import is_indexed, loaded
from compiler_core.capture.tracing.rules.overriding import asks
from compiler_core.numpy_trace.array import TracedArray
from compiler_core.numpy_trace.creation import joined
from compiler_core.records import dataclass
from compiler_core.tensor.tensor import Tensor

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


@dataclass(eq=False, repr=False)
class Items(Part):
    """See the head of this file."""

    native: Native
    classes: Classes
    attributes: Attributes
    keys: Keys
    containers: Containers
    call: Call

    def get_item(self, owner: Any, key: Any) -> Any:
        if type(key) is slice and any(self.program_index(bound) for bound in (key.start, key.stop, key.step)):
            raise Break("a slice whose bounds are objects of the program's")
        if isinstance(owner, Tensor):
            return self._tensor_item(owner, key)
        method = self.classes.method_of(owner, "__getitem__")
        if method is not None and not is_indexed(owner):
            return self.call(self.attributes.load_attr(owner, "__getitem__"), (key,), {})
        if is_indexed(owner):
            return self.native.run(joined, owner, loaded(self.segment, self.classes, key))  # np.r_[key] and its kin
        owner = self.numbers.specialise(owner) if is_symbol(owner) else owner
        key = self.looked_for(owner, key)
        if not isinstance(owner, (dict, type)) and self.classes.method_of(key, "__index__") is not None:
            raise Break("an object of the program's is an index")
        if type(key) is TracedArray and isinstance(owner, dict):
            raise Break("a traced number is used as a key")
        if isinstance(owner, dict):
            self.keys.key_in(owner, key)
        if type(owner) is MappingProxyType:
            return self.get_item(self.behind(owner), key)
        if not self.outside.has(owner):
            return self._own_item(owner, key)
        return self.outside_item(owner, key)

    def _tensor_item(self, owner: Tensor, key: Any) -> Any:
        """What a mask selects, a place told by numbers that change, or a view."""
        if (own := self.classes.program_method(owner, "__getitem__")) is not None:
            return self.call(own, (owner, key), {})
        if asks(key):
            return self.call(Tensor.__getitem__, (owner, key), {})
        self.contents.read_deeply(key)
        numbers = self.numbers
        if isinstance(key, Tensor):
            selection = self.native.hand_on(numbers.selections.take, owner, key)
            if selection is not None:
                return selection
        place = self.native.hand_on(read_place, numbers, owner, key) if numbers.symbols else None
        return self.native.run(Tensor.__getitem__, owner, handed(numbers, key)) if place is None else place

    def program_index(self, bound: Any) -> bool:
        """Whether a slice's bound is told by the program's own `__index__`."""
        own = self.classes.method_of(bound, "__index__") is not None
        return own and not isinstance(bound, Tensor) and not is_symbol(bound)

    def looked_for(self, owner: Any, key: Any) -> Any:
        """A key that is looked for, as a constant. One that a dictionary or set from outside lacks, it must lack."""
        if (
            type(key) in KINDS.values()
            and isinstance(owner, (dict, set, frozenset))
            and not isinstance(owner, defaultdict)
        ):
            known = self.outside.find(owner)
            if known is not None and id(owner) not in self.record.originals and key not in plain_copy(owner):
                self.contents.require_without(known, key)
                return key
        return self.numbers.specialise(key)

    def behind(self, proxy: Any) -> Any:
        """The mapping that a proxy shows."""
        known = self.outside.find(proxy)
        if known is None:
            return viewed(proxy)
        return self.outside.load(Raw(known.source, viewed), viewed(proxy), fixed=known.fixed)

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
            meta = self.classes.looked_up(type(owner), "__getitem__")
            if isinstance(meta, FunctionType) and type(owner).__module__ != "enum":
                return self.call(meta, (owner, key), {})
            return owner[key]  # type: ignore[index]
        if isinstance(owner, defaultdict) and key not in owner:
            return self._default(owner, key)
        if isinstance(owner, dict) and key not in owner and self.classes.method_of(owner, "__missing__") is not None:
            return self.call(self.attributes.load_attr(owner, "__missing__"), (key,), {})
        return owner[key]

    def _default(self, owner: Any, key: Any) -> Any:
        factory = owner.default_factory
        if (known := self.outside.find(owner)) is not None:
            factory = self.outside.load(Attribute(known.source, "default_factory"), factory)
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
        self.contents.read_key(owner, key, present)
        if present:
            return self.contents.read_item(owner, key)
        if isinstance(owner, defaultdict):
            return self._default(owner, key)
        if self.classes.method_of(owner, "__missing__") is not None:
            return self.call(self.attributes.load_attr(owner, "__missing__"), (key,), {})
        raise KeyError(key)

    def _sequence_item(self, owner: Any, key: Any) -> Any:
        if isinstance(key, slice):
            self.contents.read_whole(owner)
            return owner[key]
        try:
            owner[key]
        except IndexError:
            self.contents.read_length(owner)
            raise
        return self.contents.read_item(owner, self.containers.from_the_start(owner, key))

    def store_item(self, owner: Any, key: Any, value: Any) -> Any:
        if isinstance(owner, Tensor) and (own := self.classes.program_method(owner, "__setitem__")) is not None:
            return self.call(own, (owner, key, value), {})
        if isinstance(owner, Tensor):
            self.contents.read_all((key, value), {})
            if is_selection(value) and self.native.hand_on(self.numbers.selections.put, owner, key, value):
                return None
            index = self.native.hand_on(written_place, self.numbers, owner, key) if self.numbers.symbols else None
            value = beside_tensor(self.numbers, value, owner) if is_symbol(value) else self.numbers.specialise(value)
            self.native.run(Tensor.__setitem__, owner, handed(self.numbers, key) if index is None else index, value)
            return None
        if self.classes.method_of(owner, "__setitem__") is not None and not is_registry(owner):
            return self.call(self.attributes.load_attr(owner, "__setitem__"), (key, value), {})
        if self.outside.has(owner) and not isinstance(owner, (list, dict, deque)):
            raise Break(f"an item of a {type(owner).__name__} is assigned")
        if type(key) is TracedArray and isinstance(owner, dict):
            raise Break("a traced number is used as a key")
        if is_opaque(owner):
            raise Break(OPAQUE)
        return self.containers.change(owner, "__setitem__", (self.numbers.specialise(key), value), {})

    def delete_item(self, owner: Any, key: Any) -> Any:
        if self.classes.method_of(owner, "__delitem__") is not None and not is_registry(owner):
            return self.call(self.attributes.load_attr(owner, "__delitem__"), (key,), {})
        return self.containers.change(owner, "__delitem__", (self.numbers.specialise(key),), {})

    def container_method(self, owner: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`owner.name(*args)`, of a container from outside or not."""
        kind = kind_of(owner)
        if isinstance(owner, (dict, set, frozenset)) and args and self.numbers.sizes.symbols:
            args = (self.numbers.specialise(drained(args[0])), *args[1:])
        if name not in KEEPING and not (name in ("get", "__contains__") and self.outside.has(owner)):
            self._settle(owner, name, args)
        if name in HASHING:
            if isinstance(owner, (dict, set, frozenset)) and args:
                self.keys.key_in(owner, args[0])
            self.keys.check_keys(owner, *args)
            self.keys.check_members(args)
        elif name in ("index", "count", "remove") and args:
            self.keys.tell_apart(args[0], owner)
        if name in WRITES.get(kind, set()) or name in CHANGES.get(kind, set()):
            return self.containers.change(owner, name, args, kwargs)
        method = c_method(owner, name)
        if kind is set and any(map(self.containers.runs_python, args)):
            if name in USING_UP:
                return self.call(polyfills.call_with_lists, (method, (owner, *args), {}), {})
            raise Break(f"{name}() of an iterator that runs the program's code")
        if name in ("index", "count") and any(self.containers.compares_in_python(item) for item in (*args, *owner)):
            raise Break("what to find in a container is told by code of the program's")
        if not self.outside.has(owner):
            return method(owner, *args, **kwargs)
        if name == "__getitem__":
            return self.outside_item(owner, *args)
        if name == "__len__":
            self.contents.read_length(owner)
        elif name == "__contains__" and isinstance(owner, dict):
            return self.has_key(owner, self.looked_for(owner, args[0]))
        elif name == "get" and isinstance(owner, dict):
            return self._get(owner, *args)
        elif name in ("keys", "values", "items", "copy", "__iter__", "__reversed__"):
            self.contents.read_whole(owner)
        else:
            self.numbers.settle(owner, args, compared=True)
            self.contents.read_deeply(owner)
            self.contents.read_all(args, kwargs)
        return method(owner, *args, **kwargs)

    def _settle(self, owner: Any, name: str, args: tuple[Any, ...]) -> None:
        """What a container's method compares: of dictionaries that one is updated with the keys alone."""
        parts = (owner, *args)
        if name == "update" and isinstance(owner, dict):
            parts = tuple(list(part) if isinstance(part, dict) else part for part in parts)
        self.numbers.settle(*parts, compared=True)

    def has_key(self, owner: Any, key: Any) -> bool:
        present = dict.__contains__(owner, key)
        self.contents.read_key(owner, key, present)
        return present

    def _get(self, owner: Any, key: Any, default: Any = None) -> Any:
        key = self.looked_for(owner, key)
        present = dict.__contains__(owner, key)
        self.contents.read_key(owner, key, present)
        return self.contents.read_item(owner, key) if present else default
