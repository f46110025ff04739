"""Attributes: reading them guards what they hold.

In: owners, names. Out: the values, or `Enter` where a property or `__getattr__` of the program's runs.
Attribute lookup follows `object.__getattribute__` (Python's Data Model, "Invoking Descriptors"). Own attributes are
looked at as items of `owner.__dict__`, so that both spellings see each other's changes.
"""

from __future__ import annotations

import functools
import threading
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from compiler_core.bytecode.semantics import Break
from compiler_core.capture import policy
from compiler_core.capture.guards.kinds import key_of, own_attributes
from compiler_core.capture.guards.module_protocol import is_module, unwrapped
from compiler_core.capture.guards.sources import Attribute, Bound, InDict, Item, Variable
from compiler_core.capture.numbers.symbols import is_symbol, plain_of
from compiler_core.capture.outside import Outside, own_source
from compiler_core.capture.polyfills import builtins as polyfills
from compiler_core.capture.tracing.classes import Classes
from compiler_core.capture.tracing.lookup import ABSENT, is_data_descriptor, is_fixed_class, is_frozen, is_unset, lookup
from compiler_core.capture.tracing.native import Call, Native
from compiler_core.capture.tracing.part import Part
from compiler_core.capture.tracing.rules.overriding import asks
from compiler_core.capture.tracing.variables import Variables
from compiler_core.location import is_ours
from compiler_core.records import dataclass
from compiler_core.tensor.tensor import Tensor

TENSOR_FACTS = frozenset({"is_leaf", "grad_fn", "_base", "_version", "__dict__"})
REGISTRIES = ("_parameters", "_buffers", "_modules")
C_METHODS = (MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType, BuiltinFunctionType)


@dataclass(eq=False, repr=False)
class Attributes(Part):
    """See the head of this file."""

    native: Native
    classes: Classes
    variables: Variables
    call: Call

    def load_attr(self, owner: Any, name: str) -> Any:
        if is_symbol(owner):
            return type(plain_of(owner)) if name == "__class__" else getattr(self.numbers.specialise(owner), name)
        if isinstance(owner, Tensor):
            return self._tensor_attr(owner, name)
        if type(owner) is ModuleType:
            return self._python_module_attr(owner, name)
        if isinstance(owner, type):
            return self._class_attr(owner, name)
        if type(owner) is super:
            proxy: Any = owner
            return self.load_super_attr(proxy.__thisclass__, proxy.__self__, name)
        owner = self.inner(owner)
        return self._instance_attr(owner, name)

    def _instance_attr(self, owner: Any, name: str) -> Any:
        self.classes.guard_names(type(owner))
        reader, base = lookup(type(owner), "__getattribute__")
        if isinstance(reader, FunctionType):
            return self.call(self.classes.of_class(base, "__getattribute__", reader), (owner, name), {})
        if isinstance(owner, threading.local) and name in owner.__dict__:
            return self._of_thread(owner, name)
        return self.plain_attr(owner, name)

    def _of_thread(self, owner: Any, name: str) -> Any:
        """What this thread has given a `threading.local`: its attributes are no table of the object's."""
        if key_of(owner, name) in self.record.written:
            return self.record.written[key_of(owner, name)]
        value, known = getattr(owner, name), self.outside.find(owner)
        return value if known is None else self.outside.load(Attribute(known.source, name), value)

    def plain_attr(self, owner: Any, name: str) -> Any:
        """`object.__getattribute__`, and `__getattr__` after it."""
        cls = type(owner)
        self.classes.guard_names(cls)
        known = self.outside.find(owner)
        found, base = lookup(cls, name)
        if found is not ABSENT and is_data_descriptor(found):
            return self._described(owner, known, name, found, base)
        own = own_attributes(owner)
        if own is not None and known is not None:
            self.outside.note_table(known, own)
        if own is not None and name in own:
            if known is None:
                return own[name]
            if found is not ABSENT and not is_fixed_class(base):  # it may become a property
                local = self.code.local(Item(Attribute(Bound(base, base.__name__), "__dict__"), name))
                self.classes.guard_names(type(found))
                kind = self.code.guards.bind(type(found), "type")
                self.code.require_once(f"type({local}) is {kind}", f"{base.__name__}.{name} is of the same kind")
            return self.outside.read_attribute(owner, known, own_source(known, name), name, own[name])
        if found is not ABSENT:
            if known is not None:
                self.outside.absent(known, name)
            return self._described(owner, known, name, found, base)
        if known is not None:
            self.outside.absent(known, name)
        return self._missing_attr(owner, known, name)

    def _missing_attr(self, owner: Any, known: Outside | None, name: str) -> Any:
        """Neither the object nor its class has the attribute."""
        if is_module(owner):
            for registry in REGISTRIES:
                held = vars(owner).get(registry)
                if held is not None and name in held:
                    return self._registered(owner, known, registry, name, held)
        fallback, base = lookup(type(owner), "__getattr__")
        if isinstance(fallback, FunctionType):
            return self.call(self.classes.of_class(base, "__getattr__", fallback), (owner, name), {})
        if fallback is not ABSENT:  # `__getattr__ = dict.__getitem__`
            return self.call(self._described(owner, known, "__getattr__", fallback, base), (name,), {})
        return getattr(owner, name)  # raises what Python says

    def _registered(self, owner: Any, known: Outside | None, registry: str, name: str, held: Any) -> Any:
        """A parameter, buffer or child of a module: `Module.__getattr__` in one step, if it is ours."""
        fallback = lookup(type(owner), "__getattr__")[0]
        if not is_ours(fallback.__code__.co_filename):
            return self.call(fallback, (owner, name), {})
        if known is None:
            return held[name]
        if (id(held), name) in self.record.written:
            return self.record.written[id(held), name]
        source = Item(InDict(known.source, registry), name)
        return self.outside.read_attribute(owner, known, source, name, held[name])

    def _described(self, owner: Any, known: Outside | None, name: str, found: Any, base: type) -> Any:
        """The class attribute `found`, bound to `owner`."""
        if isinstance(found, FunctionType):
            return MethodType(self.classes.of_class(base, name, found), owner)
        if isinstance(found, property):
            getter = self.classes.of_class(base, name, found).fget
            if getter is None:
                return getattr(owner, name)
            return self.call(self.classes.part(found, "fget"), (owner,), {})
        if isinstance(found, classmethod):
            return MethodType(self.classes.part(self.classes.of_class(base, name, found), "__func__"), type(owner))
        if isinstance(found, staticmethod):
            return self.classes.part(self.classes.of_class(base, name, found), "__func__")
        if isinstance(found, functools.cached_property):
            found = self.classes.of_class(base, name, found)
            return self.call(polyfills.cached, (owner, found.attrname, self.classes.part(found, "func")), {})
        if isinstance(found, (MemberDescriptorType, GetSetDescriptorType)):
            return self.in_slot(owner, known, name, found)
        getter = self.classes.looked_up(type(found), "__get__")
        if isinstance(getter, FunctionType):
            return self.call(getter, (self.classes.of_class(base, name, found), owner, type(owner)), {})
        if getter is ABSENT:
            return self.classes.of_class(base, name, found)
        value = getattr(owner, name)
        if known is None or isinstance(found, C_METHODS):
            return value
        return self.outside.load(Attribute(known.source, name), value)  # what a descriptor written in C gives

    def in_slot(self, owner: Any, known: Outside | None, name: str, found: Any) -> Any:
        try:
            value = found.__get__(owner, type(owner))
        except AttributeError:
            if key_of(owner, name) not in self.record.written:
                self._empty_slot(known, name, found)
            return self._missing_attr(owner, known, name)
        if known is None or name == "__class__":
            return value
        if key_of(owner, name) in self.record.written:
            return self.record.written[key_of(owner, name)]
        if isinstance(owner, FunctionType) and name in ("__globals__", "__code__", "__dict__"):
            return self.outside.load(Attribute(known.source, name), value)
        fixed = known.fixed and (name == "__dict__" or is_frozen(owner))
        return self.outside.load(Attribute(known.source, name), value, fixed=fixed)

    def _empty_slot(self, known: Outside | None, name: str, slot: Any) -> None:
        """There is nothing in a slot of an object, which may be from outside."""
        if known is not None and isinstance(slot, MemberDescriptorType):
            unset, bound = self.code.guards.bind(is_unset, "unset"), self.code.guards.bind(slot, "slot")
            code = f"{unset}({bound}, {self.code.local(known.source)})"
            self.code.require_once(code, f"{known.source.text}.{name} is not set")

    def _tensor_attr(self, owner: Tensor, name: str) -> Any:
        known = self.outside.find(owner)
        if known is not None:
            if key_of(owner, name) in self.record.written:
                return self.record.written[key_of(owner, name)]
            if name in ("grad", "_grad"):
                return self.outside.load(Attribute(known.source, name), owner._grad)
            if name in vars(owner):
                return self.outside.load(InDict(known.source, name), vars(owner)[name])
            if name in TENSOR_FACTS:
                return self._tensor_fact(owner, known, name)
        self.classes.guard_names(type(owner))
        found, base = lookup(type(owner), name)
        if isinstance(found, FunctionType):
            return MethodType(self.classes.looked_up(type(owner), name), owner)
        if isinstance(found, (classmethod, staticmethod)) and not is_fixed_class(base):
            return self._described(owner, known, name, found, base)
        getter = found.fget if isinstance(found, property) else None
        if found is not ABSENT and not is_fixed_class(base):  # to Tensor a program may give what it likes
            found = self.classes.of_class(base, name, found)
            if lookup(type(found), "__get__")[0] is ABSENT:
                return found
        if isinstance(getter, FunctionType) and (asks(owner) or not is_ours(getter.__code__.co_filename)):
            return self.call(self.classes.part(found, "fget"), (owner,), {})
        if found is ABSENT and known is not None:
            self.code.require(
                f"{name!r} not in {self.code.local(known.source)}.__dict__", f"{known.source.text}.{name} is not set"
            )
        return self.native.run(getattr, owner, name)

    def _tensor_fact(self, owner: Tensor, known: Outside, name: str) -> Any:
        """What no guard of a tensor's is about: its history, its memory, the attributes that it was given."""
        no_view = name == "_base" and owner._view is None  # writes do not make it one
        if name != "__dict__" and not no_view and self.segment.trace.has_changed(owner):
            raise Break(f"{name} of a tensor from outside is read")
        value = getattr(owner, name)
        if name in ("grad_fn", "_base") and value is not None:
            raise Break(f"{name} of a tensor from outside is read")
        return self.outside.load(Attribute(known.source, name), value)

    def _python_module_attr(self, owner: ModuleType, name: str) -> Any:
        table = vars(owner)
        if name not in table and (id(table), name) not in self.record.written:
            try:
                value = getattr(owner, name)  # a module's __getattr__, which may keep a lazy name; or an error
            finally:
                if name not in table:
                    root = self.code.local(Bound(table, owner.__name__))
                    self.code.require_once(f"{name!r} not in {root}", f"{owner.__name__}.{name} is not set")
            if name not in table:
                return self._told_by_module(owner, name, value)
        key = (id(table), name)
        if key in self.record.written:
            return self.record.written[key]
        if key not in self.variables.globals_seen:
            source = Variable(Bound(table, owner.__name__), name)
            fixed = owner.__name__.partition(".")[0] == "numpy"
            if fixed and callable(table[name]):
                self.outside.identify(source, table[name], fixed=False)
            self.variables.globals_seen[key] = self.outside.load(source, table[name], fixed=fixed)
        return self.variables.globals_seen[key]

    def _told_by_module(self, owner: ModuleType, name: str, value: Any) -> Any:
        """What a `__getattr__` says that a module has, and does not keep: of the program's, it is entered."""
        asked = vars(owner).get("__getattr__")
        if not isinstance(asked, FunctionType) or _is_ours_or_librarys(asked.__code__.co_filename):
            return value
        source = Variable(Bound(vars(owner), owner.__name__), "__getattr__")
        return self.call(self.outside.load(source, asked), (name,), {})

    def _class_attr(self, cls: type, name: str) -> Any:
        self.classes.guard_names(cls)
        self.classes.guard_names(type(cls))
        meta, kind = lookup(type(cls), name)
        if meta is not ABSENT and is_data_descriptor(meta):
            if isinstance(meta, property):
                return self._described(cls, None, name, meta, kind)
            value = getattr(cls, name)
            if (isinstance(value, str) or value is None) and not is_fixed_class(cls):  # __name__, __doc__ ...
                return self.outside.load(Attribute(Bound(cls, cls.__name__), name), value)
            return value
        found, base = lookup(cls, name)
        if found is ABSENT:
            if meta is not ABSENT and not is_fixed_class(kind):
                return self._described(cls, None, name, meta, kind)
            fallback = self.classes.looked_up(type(cls), "__getattr__")
            if isinstance(fallback, FunctionType) and not hasattr(cls, name):
                return self.call(fallback, (cls, name), {})
            return getattr(cls, name)
        value = self.classes.of_class(base, name, found)
        if isinstance(found, staticmethod):
            return self.classes.part(value, "__func__")
        if isinstance(found, classmethod):
            return MethodType(self.classes.part(value, "__func__"), cls)
        getter = self.classes.looked_up(type(found), "__get__")
        if isinstance(getter, FunctionType) and not isinstance(found, functools.cached_property):
            return self.call(getter, (value, None, cls), {})
        return value if isinstance(found, FunctionType) or getter is ABSENT else getattr(cls, name)

    def load_super_attr(self, cls: type, self_: Any, name: str) -> Any:
        start = self_ if isinstance(self_, type) and cls in self_.__mro__ else type(self_)
        order = start.__mro__
        for base in order[order.index(cls) + 1 :]:
            if name in vars(base):
                found = vars(base)[name]
                if start is self_:
                    return self._from_super_of_class(base, start, name, found)
                return self._described_super(self_, base, name, found, super(cls, self_))
        return getattr(super(cls, self_), name)

    def _described_super(self, owner: Any, base: type, name: str, found: Any, proxy: Any) -> Any:
        if isinstance(found, (FunctionType, property, classmethod, staticmethod)):
            return self._described(owner, self.outside.find(owner), name, found, base)
        return getattr(proxy, name)

    def _from_super_of_class(self, base: type, start: type, name: str, found: Any) -> Any:
        value = self.classes.of_class(base, name, found)
        if isinstance(found, classmethod):
            return MethodType(self.classes.part(value, "__func__"), start)
        if isinstance(found, staticmethod):
            return self.classes.part(value, "__func__")
        return value if isinstance(found, FunctionType) else getattr(base, name)

    def inner(self, thing: Any) -> Any:
        """What a compiled function or module was made of; anything else is itself."""
        original = unwrapped(thing)
        if original is not thing:
            known = self.outside.find(thing)
            if known is not None:
                self.outside.load(Bound(original, known.source.text), original, fixed=True)
        return original


def _is_ours_or_librarys(filename: str) -> bool:
    """Whether a module's `__getattr__` is from code that only looks lazy names up."""
    return is_ours(filename) or policy.is_library_file(filename)
