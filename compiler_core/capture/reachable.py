"""From the variables that traced code reads to all that hangs on them, turned into guards.

In: `Walk(guards, names)`, names being the attribute names that the traced code mentions. Out: guards on plain values
and small arrays by content, on containers item by item, on Tensors, functions, types and objects by identity; then on
what these hold: attributes, slots and class attributes by those names, defaults, closures and code of functions, the
instance of a bound method, the parts of a `functools.partial`.
Invariant: an object is walked after it was guarded (or is a fixed one), so its attributes may be guarded as bound ones.
Limits: attributes whose name the code computes, attributes that come into being, containers beyond `LARGEST_CONTAINER`
are guarded by the identity of their items, arrays beyond `LARGEST_ARRAY_NBYTES` by their own.
"""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import CellType, CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import numpy as np

from compiler_core.capture.arguments import IDENTIFIED, guard_module
from compiler_core.capture.guards import Guards, is_plain
from compiler_core.capture.module_protocol import is_module, unwrapped
from compiler_core.tensor.tensor import Tensor

LARGEST_CONTAINER = 64  # items of a container that is guarded item by item
LARGEST_ARRAY_NBYTES = 65536  # of a NumPy array that is guarded by content
DEEPEST = 4  # attributes of attributes of ...


class Walk:
    """From variables to what hangs on them. codes: those that were called; is_users: whether a file is the user's."""

    def __init__(
        self, guards: Guards, names: frozenset[str], codes: Iterable[CodeType], is_users: Callable[[str], bool]
    ) -> None:
        self.guards, self.names, self.codes, self.is_users = guards, names, frozenset(codes), is_users
        self.done: set[tuple[int, str]] = set()
        self.keep: list[object] = []  # what `done` names by id

    def first(self, thing: object, name: str = "") -> bool:
        """Whether this is the first time that `thing` (or a name in it) is come to."""
        if (id(thing), name) in self.done:
            return False
        self.done.add((id(thing), name))
        self.keep.append(thing)
        return True

    def item(self, namespace: Mapping[str, Any], stem: str, name: str, text: str, depth: int = 0) -> None:
        """namespace[name], once."""
        if self.first(namespace, name):
            self.variable(f"{self.guards.bind(namespace, stem)}.get({name!r})", namespace[name], text, depth)

    def variable(self, code: str, value: Any, text: str, depth: int) -> None:
        """Require the variable `code` to be what it is, and what hangs on it too."""
        if unwrapped(value) is not value:
            self.guards.require_same(code, value, text)
            code, value = f"{code}.__wrapped__", unwrapped(value)
        if is_plain(value):
            self.guards.require_plain(code, value, text)
        elif isinstance(value, list | tuple | dict | deque):
            self.container(code, value, text, depth)
        elif isinstance(value, set):
            copy = self.guards.bind(frozenset(value), "items")
            self.guards.require(f"type({code}) is {type(value).__name__} and {code} == {copy}", f"{text} == {value!r}")
        elif is_module(value):
            guard_module(self.guards, code, value, text)
        elif isinstance(value, np.ndarray):
            self.array(code, value, text)
        elif not isinstance(value, ModuleType) or self.is_own(value):
            self.same(code, value, text)
            self.hanging(value, text, depth)

    def same(self, code: str, value: Any, text: str) -> None:
        """Require the very object; of a Tensor that comes anew with every call, that same one."""
        first = self.guards.tensors.get(id(value))
        if first is None:
            self.guards.require_same(code, value, text)
        elif code != first.code:
            self.guards.require(f"{code} is {first.local}", f"{text} and {first.text} are the same tensor")

    def array(self, code: str, value: np.ndarray[Any, Any], text: str) -> None:
        """Require a NumPy array to be the same one, and its content, if it is not large."""
        self.guards.require_same(code, value, text)
        if value.nbytes <= LARGEST_ARRAY_NBYTES and value.dtype != object:
            content = self.guards.bind(value.tobytes(), "content")
            self.guards.require(f"{code}.tobytes() == {content}", f"{text} has the same content")

    def container(self, code: str, value: Any, text: str, depth: int) -> None:
        """Require the type, the keys and the items of a list, tuple, deque or dict."""
        local = self.guards.let("container", code)
        kind = self.guards.bind(type(value), "type")
        self.guards.require(
            f"type({local}) is {kind} and len({local}) == {len(value)}", f"{text} has {len(value)} items"
        )
        if len(value) > LARGEST_CONTAINER or depth > DEEPEST:
            items = list(value.values()) if isinstance(value, dict) else list(value)
            known = self.guards.bind(items, "items")
            now = f"{local}.values()" if isinstance(value, dict) else local
            self.guards.require(f"all(map({self.guards.bind(_is, 'is')}, {now}, {known}))", f"{text}: the same items")
            return
        keys = list(value) if isinstance(value, dict) else range(len(value))
        if isinstance(value, dict):
            if not all(map(is_plain, keys)):
                return
            self.guards.require(f"repr(list({local})) == {repr(keys)!r}", f"{text} has the same keys")
        for key in keys:
            self.variable(f"{local}[{key!r}]", value[key], f"{text}[{key!r}]", depth + 1)

    # -- what hangs on an object that is guarded itself

    def hanging(self, thing: Any, text: str, depth: int) -> None:
        """Guards on what an object holds that traced code may read."""
        if isinstance(thing, FunctionType):
            self.function(thing, text)
            for name in sorted(self.names & vars(thing).keys()):
                self.item(vars(thing), "attributes", name, f"{text}.{name}", depth + 1)
        elif isinstance(thing, MethodType):
            self.hanging(thing.__func__, text, depth)
            self.hanging(thing.__self__, text, depth)
        elif isinstance(thing, functools.partial):
            name = self.guards.bind(thing, "partial")
            for part in ("func", "args", "keywords"):
                self.variable(f"{name}.{part}", getattr(thing, part), f"{text}.{part}", depth + 1)
        elif isinstance(thing, type):
            self.class_attributes(thing, thing.__name__, depth)
        elif not isinstance(thing, IDENTIFIED) or isinstance(thing, ModuleType):
            self.attributes(thing, text, depth)

    def function(self, function: FunctionType, text: str) -> None:
        """The code, defaults and closure of a function that was called."""
        if function.__code__ not in self.codes or not self.first(function):
            return
        name = self.guards.bind(function, "function")
        parts = ("__code__", "__defaults__", "__kwdefaults__")
        same = [f"{name}.{part} is {self.guards.bind(getattr(function, part), 'part')}" for part in parts]
        self.guards.require(" and ".join(same), f"{text} has the same code and defaults")
        for part in parts[1:]:
            values = getattr(function, part) or ()
            for key in values if isinstance(values, dict) else range(len(values)):
                if isinstance(values, dict):
                    self.variable(f"{name}.{part}.get({key!r})", values[key], f"a default of {text}", 1)
                elif not is_plain(values[key]):
                    self.variable(f"{name}.{part}[{key!r}]", values[key], f"a default of {text}", 1)
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            self.cell(cell, variable)

    def cell(self, cell: CellType, name: str) -> None:
        """A closure's variable."""
        if is_set(cell) and self.first(cell):
            self.variable(f"{self.guards.bind(cell, 'cell')}.cell_contents", cell.cell_contents, name, 0)

    def attributes(self, thing: Any, text: str, depth: int) -> None:
        """Require the attributes of `thing` that the code mentions: its own, those in slots, its class's."""
        if depth > DEEPEST:
            return
        table = getattr(thing, "__dict__", {})
        versioned = is_module(thing)  # a module's own attributes are guarded by its version, what they hold is not
        for name in sorted(self.names & table.keys()):
            value = table[name]
            if not (versioned and (is_plain(value) or isinstance(value, Tensor) or is_module(value))):
                self.item(table, "attributes", name, f"{text}.{name}", depth + 1)
        if isinstance(thing, ModuleType):
            return
        own = hasattr(thing, "__dict__") and not versioned  # a module's version tells of attributes that come
        for name in self.class_attributes(type(thing), text, depth):
            if name in table or not self.first(thing, name):
                continue
            bound = f"{self.guards.bind(thing, 'object')}"
            if isinstance(_defined(type(thing), name), MemberDescriptorType):
                if hasattr(thing, name):
                    code = f"getattr({bound}, {name!r}, None)"
                    self.variable(code, getattr(thing, name), f"{text}.{name}", depth + 1)
            elif own:
                self.guards.require(f"{name!r} not in {bound}.__dict__", f"{text}.{name} is its class's")

    def class_attributes(self, cls: type, text: str, depth: int) -> list[str]:
        """Require what the class `cls` and the user's among its bases define under names that the code mentions.

        So too methods that Python calls (`__call__`). A library's class: only `forward`, which is what people replace.
        Returns the names found.
        """
        found = []
        methods = (item for base in cls.__mro__ if self.is_own(base) for item in vars(base).items())
        called = {n for n, f in methods if isinstance(f, FunctionType) and f.__code__ in self.codes}
        for name in sorted({*self.names, "forward"} | called):
            owner = next((base for base in cls.__mro__ if name in vars(base)), None)
            if owner is None or not (self.is_own(owner) or (name == "forward" and hasattr(owner, "__tree_version__"))):
                continue
            found.append(name)
            value = vars(owner)[name]
            if not isinstance(value, MemberDescriptorType) and self.first(cls, name):
                self.class_attribute(cls, owner, name, value, f"{text}.{name}", depth)
        return found

    def class_attribute(self, cls: type, owner: type, name: str, value: Any, text: str, depth: int) -> None:
        """One name of a class; a function, found without a descriptor's doing, through all bases at once."""
        if isinstance(value, FunctionType):
            code = f"getattr({self.guards.bind(cls, 'class')}, {name!r}, None)"
        else:
            code = f"{self.guards.bind(owner, 'class')}.__dict__.get({name!r})"
        self.variable(code, value, text, depth + 1)
        for inner in (getattr(value, "__func__", None), *(getattr(value, f, None) for f in ("fget", "fset"))):
            if isinstance(inner, FunctionType):
                self.function(inner, text)

    def is_own(self, thing: Any) -> bool:
        """Whether a class or a Python module is the user's; what is typed into an interpreter is."""
        module = thing if isinstance(thing, ModuleType) else sys.modules.get(thing.__module__)
        filename = getattr(module, "__file__", None)
        if filename is None:
            return getattr(module, "__name__", "") == "__main__"
        return self.is_users(filename)


def _is(a: object, b: object) -> bool:
    return a is b


def _defined(cls: type, name: str) -> Any:
    """What the class or a base defines under `name`."""
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def is_set(cell: CellType) -> bool:
    """Whether a closure cell holds anything yet."""
    try:
        return bool(cell.cell_contents is not cell)
    except ValueError:
        return False
