"""Changing attributes: done for real, and recorded for owners from outside.

In: owners, names, values. Out: nothing, or `Enter` where a property, `__setattr__` or `__delattr__` of the program's
runs.
"""

from __future__ import annotations

from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any

from compiler_core.bytecode.semantics import Break
from compiler_core.capture.guards.kinds import own_attributes
from compiler_core.capture.guards.module_protocol import is_module
from compiler_core.capture.guards.sources import Bound
from compiler_core.capture.outside import own_source
from compiler_core.capture.tracing.attributes import C_METHODS, REGISTRIES, Attributes
from compiler_core.capture.tracing.classes import Classes
from compiler_core.capture.tracing.lookup import ABSENT, lookup
from compiler_core.capture.tracing.native import Call, Native
from compiler_core.capture.tracing.part import Part
from compiler_core.location import is_ours
from compiler_core.numpy_trace.array import TracedArray
from compiler_core.records import dataclass
from compiler_core.tensor.tensor import Tensor

SLOTS = (MemberDescriptorType, GetSetDescriptorType)
DELETED = object()  # what `written` has of an attribute that captured code deleted: nobody finds it to read it


@dataclass(eq=False, repr=False)
class Changing(Part):
    """See the head of this file."""

    native: Native
    classes: Classes
    attributes: Attributes
    call: Call

    def store_attr(self, owner: Any, name: str, value: Any) -> Any:
        owner = self.attributes.inner(owner)
        cls = type(owner)
        if cls is TracedArray:
            raise Break(f"ndarray.{name} is assigned")
        writer = self.classes.looked_up(cls, "__setattr__")
        if isinstance(writer, FunctionType) and not is_ours(writer.__code__.co_filename):
            return self.call(writer, (owner, name, value), {})
        if isinstance(writer, C_METHODS) and writer.__name__ != "__setattr__":  # `__setattr__ = dict.__setitem__`
            return self.call(writer, (owner, name, value), {})
        found, base = lookup(cls, name)
        if isinstance(found, property) and found.fset is not None and not is_ours(found.fset.__code__.co_filename):
            return self.call(self.classes.part(self.classes.of_class(base, name, found), "fset"), (owner, value), {})
        setter = ABSENT if found is ABSENT else self.classes.looked_up(type(found), "__set__")
        if isinstance(setter, FunctionType):
            return self.call(setter, (self.classes.of_class(base, name, found), owner, value), {})
        return self.set_attribute(setattr, owner, name, value)

    def set_attribute(self, function: Any, owner: Any, name: str, value: Any) -> None:
        """`function(owner, name, value)` (setattr, or what it calls): done, and recorded for owners from outside."""
        if isinstance(owner, type):  # no class is made by captured code; which one it is, was guarded
            self.outside.identify(Bound(owner, owner.__name__), owner, fixed=True)
        if not self.outside.has(owner):
            self.native.hand_on(function, owner, name, value)
            return
        if isinstance(owner, type):
            self.classes.guard_names(owner)  # as they are before
        own = own_attributes(owner)
        if own is not None:
            self.record.before(own)
        self._note_old(owner, name)
        self.native.hand_on(function, owner, name, self.segment.arrays.plain(value))
        self.outside.change_attribute(owner, name, value, function, name, value)
        self.classes.class_seen.pop((id(owner), name), None)
        if is_module(owner):  # what its registries were given before is not what they hold now
            for registry in REGISTRIES:
                held = vars(owner).get(registry, ())
                if name in held:
                    self.record.written[id(held), name] = value

    def _note_old(self, owner: Any, name: str) -> None:
        """What `Record.before` does not see of an attribute that is about to change."""
        slot = isinstance(lookup(type(owner), name)[0], SLOTS) and not isinstance(owner, Tensor)
        if slot or isinstance(owner, type):
            self.record.before_attribute(owner, name)
        elif is_module(owner):
            for registry in REGISTRIES:
                if (table := vars(owner).get(registry)) is not None:
                    self.record.before_registry(table)

    def delete_attr(self, owner: Any, name: str) -> Any:
        owner = self.attributes.inner(owner)
        remover = self.classes.looked_up(type(owner), "__delattr__")
        if isinstance(remover, FunctionType) and not is_ours(remover.__code__.co_filename):
            return self.call(remover, (owner, name), {})
        found, base = lookup(type(owner), name)
        if isinstance(found, property) and found.fdel is not None and not is_ours(found.fdel.__code__.co_filename):
            return self.call(self.classes.part(self.classes.of_class(base, name, found), "fdel"), (owner,), {})
        deleter = ABSENT if found is ABSENT else self.classes.looked_up(type(found), "__delete__")
        if isinstance(deleter, FunctionType):
            return self.call(deleter, (self.classes.of_class(base, name, found), owner), {})
        return self.delete_attribute(delattr, owner, name)

    def delete_attribute(self, function: Any, owner: Any, name: str) -> None:
        """`function(owner, name)` (delattr, or what it calls): done, and recorded for owners from outside."""
        known = self.outside.find(owner)
        if known is None:
            function(owner, name)
            return
        own = own_attributes(owner)
        if isinstance(owner, (type, ModuleType, Tensor)) or (is_module(owner) and name not in (own or ())):
            raise Break(f"the attribute {name!r} of {known.source.text} is deleted")
        if own is not None and name in own:
            self.outside.require_present(own_source(known, name), owner, name)
            self.record.before(own)
        elif own is not None and not isinstance(lookup(type(owner), name)[0], SLOTS):
            self.outside.absent(known, name)
        else:
            self.attributes.in_slot(owner, known, name, lookup(type(owner), name)[0])
        self._note_old(owner, name)
        function(owner, name)
        self.outside.change_attribute(owner, name, DELETED, function, name)
