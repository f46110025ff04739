"""Variables and attributes: reading them guards what they hold; changing variables from outside is recorded.

In: frames, owners, names. Out: the values, or `Enter` where a property or `__getattr__` of the program's runs.
Attribute lookup follows `object.__getattribute__` (Python's Data Model, "Invoking Descriptors"). Own attributes are
looked at as items of `owner.__dict__`, so that both spellings see each other's changes.
"""

from __future__ import annotations

import functools
import threading
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from compiler_core.bytecode.frame import Frame
from compiler_core.bytecode.semantics import Break
from compiler_core.capture import policy, taking_back
from compiler_core.capture.guards.kinds import is_constant, key_of, own_attributes
from compiler_core.capture.guards.module_protocol import is_module
from compiler_core.capture.guards.sources import Attribute, Bound, CellContents, InDict, Item, Variable
from compiler_core.capture.numbers.symbols import is_symbol, plain_of
from compiler_core.capture.outside import Lazy, Outside, own_source
from compiler_core.capture.polyfills import builtins as polyfills
from compiler_core.capture.tracing.base import Base
from compiler_core.capture.tracing.lookup import (
    ABSENT,
    is_data_descriptor,
    is_fixed_class,
    is_frozen,
    is_unset,
    lookup,
)
from compiler_core.capture.tracing.overriding import asks
from compiler_core.capture.tracing.pure import has_known_zone, is_known_slot, is_ours_class
from compiler_core.location import is_ours
from compiler_core.tensor.tensor import Tensor

TENSOR_FACTS = frozenset({"is_leaf", "grad_fn", "_base", "_version", "__dict__"})
REGISTRIES = ("_parameters", "_buffers", "_modules")

C_METHODS = (MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType, BuiltinFunctionType)


class Access(Base):
    """See the head of this file."""

    # -- variables

    def load_fast(self, frame: Frame, slot: int) -> Any:
        value = frame.locals[slot]
        if type(value) is Lazy:
            value = frame.locals[slot] = self.segment.load(value.source, value.value)
        return value

    def load_cell(self, frame: Frame, slot: int) -> Any:
        cell: CellType = frame.locals[slot]
        try:
            value = cell.cell_contents
        except ValueError:
            self._nothing_in(cell)
            raise  # as the machine expects
        if type(value) is Lazy:
            cell.cell_contents = value = self.segment.load(value.source, value.value)
            return value
        known = self.segment.find(cell)
        if known is None:
            return value
        if (id(cell), "contents") in self.segment.written:
            return self.segment.written[id(cell), "contents"]
        return self.segment.load(CellContents(known.source, _name_of_slot(frame.code, slot)), value)

    def _nothing_in(self, cell: CellType) -> None:
        """A cell of a function from outside is empty."""
        known = self.segment.find(cell)
        if known is not None:
            empty = self.segment.guards.bind(CellType(), "empty")
            self.segment.require_once(f"{self.segment.local(known.source)} == {empty}", f"{known.source.text} is empty")

    def store_cell(self, frame: Frame, slot: int, value: Any) -> None:
        cell: CellType = frame.locals[slot]
        if self.segment.is_outside(cell):
            self.segment.undo.append(taking_back.variable(cell))
            cell.cell_contents = self.plain(value)
            self.segment.effect(setattr, cell, "cell_contents", value)
            self.segment.written[id(cell), "contents"] = value
        else:
            cell.cell_contents = value

    def delete_cell(self, frame: Frame, slot: int) -> None:
        cell: CellType = frame.locals[slot]
        if self.segment.is_outside(cell):
            raise Break("a variable of an outer function is deleted")
        del cell.cell_contents

    def load_global(self, frame: Frame, name: str) -> Any:
        namespace = frame.globals
        key = (id(namespace), name)
        if key in self.globals_seen:
            return self.globals_seen[key]
        if name in namespace:
            value = namespace[name]
            if key not in self.segment.written:
                root = Bound(namespace, "globals")
                fixed = is_ours(frame.code.co_filename)  # our own modules' names stay what they are
                value = self.segment.load(Variable(root, name), value, fixed=fixed)
            else:
                value = self.segment.written[key]
        elif name in frame.builtins:
            value = frame.builtins[name]
            if not is_ours(frame.code.co_filename):
                local = self.segment.local(Bound(namespace, "globals"))
                self.segment.require(f"{name!r} not in {local}", f"no global {name!r} hides the builtin")
                value = self.segment.read_builtin(frame.builtins, name)
        else:
            for table in (Bound(namespace, "globals"), Bound(frame.builtins, "builtins")):
                local = self.segment.local(table)
                self.segment.require_once(f"{name!r} not in {local}", f"there is no name {name!r} in the {table.text}")
            raise NameError(f"name '{name}' is not defined", name=name)
        self.globals_seen[key] = value
        return value

    def store_global(self, frame: Frame, name: str, value: Any) -> None:
        namespace = frame.globals
        self.segment.identify(Bound(namespace, "globals"), namespace, fixed=True)
        self.segment.before_change(namespace)
        namespace[name] = self.plain(value)
        self.segment.effect(dict.__setitem__, namespace, name, value)
        self.segment.written[id(namespace), name] = value
        self.segment.note_numbers(namespace, (value,))
        self.globals_seen[id(namespace), name] = value

    def delete_global(self, frame: Frame, name: str) -> None:
        raise Break(f"the global {name!r} is deleted")

    def load_name(self, frame: Frame, name: str) -> Any:
        if frame.namespace is not None and name in frame.namespace:
            return frame.namespace[name]
        return self.load_global(frame, name)

    def store_name(self, frame: Frame, name: str, value: Any) -> None:
        if frame.namespace is None:
            self.store_global(frame, name, value)
        else:
            frame.namespace[name] = value

    def delete_name(self, frame: Frame, name: str) -> None:
        raise Break(f"the name {name!r} is deleted")

    # -- reading attributes

    def load_attr(self, owner: Any, name: str) -> Any:
        if is_symbol(owner):
            return type(plain_of(owner)) if name == "__class__" else getattr(self.specialise(owner), name)
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
        self.guard_names(type(owner))
        reader, base = lookup(type(owner), "__getattribute__")
        if isinstance(reader, FunctionType):
            return self.call(self.of_class(base, "__getattribute__", reader), (owner, name), {})
        if isinstance(owner, threading.local) and name in owner.__dict__:
            return self._of_thread(owner, name)
        return self.plain_attr(owner, name)

    def _of_thread(self, owner: Any, name: str) -> Any:
        """What this thread has given a `threading.local`: its attributes are no table of the object's."""
        if key_of(owner, name) in self.segment.written:
            return self.segment.written[key_of(owner, name)]
        value, known = getattr(owner, name), self.segment.find(owner)
        return value if known is None else self.segment.load(Attribute(known.source, name), value)

    def plain_attr(self, owner: Any, name: str) -> Any:
        """`object.__getattribute__`, and `__getattr__` after it."""
        cls = type(owner)
        self.guard_names(cls)
        known = self.segment.find(owner)
        found, base = lookup(cls, name)
        if found is not ABSENT and is_data_descriptor(found):
            return self._described(owner, known, name, found, base)
        own = own_attributes(owner)
        if own is not None and known is not None:
            self.segment.note_table(known, own)
        if own is not None and name in own:
            if known is None:
                return own[name]
            if found is not ABSENT and not is_fixed_class(base):  # it may become a property
                local = self.segment.local(Item(Attribute(Bound(base, base.__name__), "__dict__"), name))
                self.guard_names(type(found))
                kind = self.segment.guards.bind(type(found), "type")
                self.segment.require_once(f"type({local}) is {kind}", f"{base.__name__}.{name} is of the same kind")
            return self.segment.read_attribute(owner, known, own_source(known, name), name, own[name])
        if found is not ABSENT:
            if known is not None:
                self.segment.absent(known, name)
            return self._described(owner, known, name, found, base)
        if known is not None:
            self.segment.absent(known, name)
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
            return self.call(self.of_class(base, "__getattr__", fallback), (owner, name), {})
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
        if (id(held), name) in self.segment.written:
            return self.segment.written[id(held), name]
        source = Item(InDict(known.source, registry), name)
        return self.segment.read_attribute(owner, known, source, name, held[name])

    def _described(self, owner: Any, known: Outside | None, name: str, found: Any, base: type) -> Any:
        """The class attribute `found`, bound to `owner`."""
        if isinstance(found, FunctionType):
            return MethodType(self.of_class(base, name, found), owner)
        if isinstance(found, property):
            getter = self.of_class(base, name, found).fget
            if getter is None:
                return getattr(owner, name)
            return self.call(self.part(found, "fget"), (owner,), {})
        if isinstance(found, classmethod):
            return MethodType(self.part(self.of_class(base, name, found), "__func__"), type(owner))
        if isinstance(found, staticmethod):
            return self.part(self.of_class(base, name, found), "__func__")
        if isinstance(found, functools.cached_property):
            found = self.of_class(base, name, found)
            return self.call(polyfills.cached, (owner, found.attrname, self.part(found, "func")), {})
        if isinstance(found, (MemberDescriptorType, GetSetDescriptorType)):
            return self.in_slot(owner, known, name, found)
        getter = self.looked_up(type(found), "__get__")
        if isinstance(getter, FunctionType):
            return self.call(getter, (self.of_class(base, name, found), owner, type(owner)), {})
        if getter is ABSENT:
            return self.of_class(base, name, found)
        value = getattr(owner, name)
        if known is None or isinstance(found, C_METHODS):
            return value
        return self.segment.load(Attribute(known.source, name), value)  # what a descriptor written in C gives

    def in_slot(self, owner: Any, known: Outside | None, name: str, found: Any) -> Any:
        try:
            value = found.__get__(owner, type(owner))
        except AttributeError:
            if key_of(owner, name) not in self.segment.written:
                self._empty_slot(known, name, found)
            return self._missing_attr(owner, known, name)
        if known is None or name == "__class__":
            return value
        if key_of(owner, name) in self.segment.written:
            return self.segment.written[key_of(owner, name)]
        if isinstance(owner, FunctionType) and name in ("__globals__", "__code__", "__dict__"):
            return self.segment.load(Attribute(known.source, name), value)
        fixed = known.fixed and (name == "__dict__" or is_frozen(owner))
        return self.segment.load(Attribute(known.source, name), value, fixed=fixed)

    def _empty_slot(self, known: Outside | None, name: str, slot: Any) -> None:
        """There is nothing in a slot of an object, which may be from outside."""
        if known is not None and isinstance(slot, MemberDescriptorType):
            unset, bound = self.segment.guards.bind(is_unset, "unset"), self.segment.guards.bind(slot, "slot")
            code = f"{unset}({bound}, {self.segment.local(known.source)})"
            self.segment.require_once(code, f"{known.source.text}.{name} is not set")

    def looked_up(self, cls: type, name: str) -> Any:
        """`lookup`, of what is about to be called: a function has a source, so that what its closure holds has one."""
        self.guard_names(cls)
        found, base = lookup(cls, name)
        if isinstance(found, FunctionType) and not is_fixed_class(base):
            return self.of_class(base, name, found)
        return found

    def guard_names(self, cls: type) -> None:
        """No attribute is added to a class or its bases, where it would hide what was found, or be found itself; none
        goes. Of the program's classes all names are compared, of ours what tells them (`guards/classes.py`)."""
        if cls in self.segment.named_classes:
            return
        for base in cls.__mro__:
            if not is_fixed_class(base) and base not in self.segment.named_classes:
                self._guard_names_of(base)
            self.segment.named_classes.add(base)

    def _guard_names_of(self, cls: type) -> None:
        if is_ours_class(cls):
            self.segment.names_of_ours().add(cls)
            return
        bind, table = self.segment.guards.bind, vars(cls)
        code = f"{bind(table.keys(), 'names')} == {bind(frozenset(table), 'known')}"
        if cls.__bases__ != (object,):
            code += f" and {bind(cls, 'class')}.__mro__ is {bind(cls.__mro__, 'order')}"
        self.segment.require(code, f"{cls.__name__} has the same attributes and bases")

    def vouch(self, value: Any, *names: str) -> None:
        """What these operators of an object do, which is about to be done natively. Raises Break for what is written in
        C and is not known to only compute."""
        cls = type(value)
        for name in names:
            found, base = lookup(cls, name)
            if found is ABSENT or found is None or isinstance(found, FunctionType):
                continue
            if not is_known_slot(cls, base, name) or not has_known_zone(value):
                raise Break(f"{name} of a {cls.__name__}, which is written in C")

    def part(self, owner: Any, name: str) -> Any:
        """An attribute that never changes, of a descriptor, a bound method or a partial."""
        value = getattr(owner, name)
        known = self.segment.find(owner)
        return value if known is None else self.segment.load(Attribute(known.source, name), value, fixed=known.fixed)

    def of_class(self, base: type, name: str, found: Any) -> Any:
        """An attribute of a class: guarded, unless it stays what it is."""
        key = (id(base), name)
        if key not in self.class_seen:
            source = Item(Attribute(Bound(base, base.__name__), "__dict__"), name)
            written = self.segment.written.get((id(base), name), ABSENT)
            if written is not ABSENT:
                return written
            fixed = is_fixed_class(base)
            if not fixed and is_ours_class(base) and not is_constant(found):
                self.segment.names_of_ours().keep(base, name)
                fixed = True
            if isinstance(found, (property, staticmethod, classmethod, functools.cached_property)):
                self.segment.identify(source, found, fixed=fixed)
                self.class_seen[key] = found
            else:
                self.class_seen[key] = self.segment.load(source, found, fixed=fixed)
        return self.class_seen[key]

    def _tensor_attr(self, owner: Tensor, name: str) -> Any:
        known = self.segment.find(owner)
        if known is not None:
            if key_of(owner, name) in self.segment.written:
                return self.segment.written[key_of(owner, name)]
            if name in ("grad", "_grad"):
                return self.segment.load(Attribute(known.source, name), owner._grad)
            if name in vars(owner):
                return self.segment.load(InDict(known.source, name), vars(owner)[name])
            if name in TENSOR_FACTS:
                return self._tensor_fact(owner, known, name)
        self.guard_names(type(owner))
        found, base = lookup(type(owner), name)
        if isinstance(found, FunctionType):
            return MethodType(self.looked_up(type(owner), name), owner)
        if isinstance(found, (classmethod, staticmethod)) and not is_fixed_class(base):
            return self._described(owner, known, name, found, base)
        getter = found.fget if isinstance(found, property) else None
        if found is not ABSENT and not is_fixed_class(base):  # to Tensor a program may give what it likes
            found = self.of_class(base, name, found)
            if lookup(type(found), "__get__")[0] is ABSENT:
                return found
        if isinstance(getter, FunctionType) and (asks(owner) or not is_ours(getter.__code__.co_filename)):
            return self.call(self.part(found, "fget"), (owner,), {})
        if found is ABSENT and known is not None:
            self.segment.require(
                f"{name!r} not in {self.segment.local(known.source)}.__dict__", f"{known.source.text}.{name} is not set"
            )
        return self.native(getattr, owner, name)

    def _tensor_fact(self, owner: Tensor, known: Outside, name: str) -> Any:
        """What no guard of a tensor's is about: its history, its memory, the attributes that it was given."""
        no_view = name == "_base" and owner._view is None  # writes do not make it one
        if name != "__dict__" and not no_view and self.segment.trace.has_changed(owner):
            raise Break(f"{name} of a tensor from outside is read")
        value = getattr(owner, name)
        if name in ("grad_fn", "_base") and value is not None:
            raise Break(f"{name} of a tensor from outside is read")
        return self.segment.load(Attribute(known.source, name), value)

    def _python_module_attr(self, owner: ModuleType, name: str) -> Any:
        table = vars(owner)
        if name not in table and (id(table), name) not in self.segment.written:
            try:
                value = getattr(owner, name)  # a module's __getattr__, which may keep a lazy name; or an error
            finally:
                if name not in table:
                    root = self.segment.local(Bound(table, owner.__name__))
                    self.segment.require_once(f"{name!r} not in {root}", f"{owner.__name__}.{name} is not set")
            if name not in table:
                return self._told_by_module(owner, name, value)
        key = (id(table), name)
        if key in self.segment.written:
            return self.segment.written[key]
        if key not in self.globals_seen:
            source = Variable(Bound(table, owner.__name__), name)
            fixed = owner.__name__.partition(".")[0] == "numpy"
            if fixed and callable(table[name]):
                self.segment.identify(source, table[name], fixed=False)
            self.globals_seen[key] = self.segment.load(source, table[name], fixed=fixed)
        return self.globals_seen[key]

    def _told_by_module(self, owner: ModuleType, name: str, value: Any) -> Any:
        """What a `__getattr__` says that a module has, and does not keep: of the program's, it is entered."""
        asked = vars(owner).get("__getattr__")
        if not isinstance(asked, FunctionType) or _is_ours_or_librarys(asked.__code__.co_filename):
            return value
        source = Variable(Bound(vars(owner), owner.__name__), "__getattr__")
        return self.call(self.segment.load(source, asked), (name,), {})

    def _class_attr(self, cls: type, name: str) -> Any:
        self.guard_names(cls)
        self.guard_names(type(cls))
        meta, kind = lookup(type(cls), name)
        if meta is not ABSENT and is_data_descriptor(meta):
            if isinstance(meta, property):
                return self._described(cls, None, name, meta, kind)
            value = getattr(cls, name)
            if (isinstance(value, str) or value is None) and not is_fixed_class(cls):  # __name__, __doc__ ...
                return self.segment.load(Attribute(Bound(cls, cls.__name__), name), value)
            return value
        found, base = lookup(cls, name)
        if found is ABSENT:
            if meta is not ABSENT and not is_fixed_class(kind):
                return self._described(cls, None, name, meta, kind)
            fallback = self.looked_up(type(cls), "__getattr__")
            if isinstance(fallback, FunctionType) and not hasattr(cls, name):
                return self.call(fallback, (cls, name), {})
            return getattr(cls, name)
        value = self.of_class(base, name, found)
        if isinstance(found, staticmethod):
            return self.part(value, "__func__")
        if isinstance(found, classmethod):
            return MethodType(self.part(value, "__func__"), cls)
        getter = self.looked_up(type(found), "__get__")
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
            return self._described(owner, self.segment.find(owner), name, found, base)
        return getattr(proxy, name)

    def _from_super_of_class(self, base: type, start: type, name: str, found: Any) -> Any:
        value = self.of_class(base, name, found)
        if isinstance(found, classmethod):
            return MethodType(self.part(value, "__func__"), start)
        if isinstance(found, staticmethod):
            return self.part(value, "__func__")
        return value if isinstance(found, FunctionType) else getattr(base, name)


def _name_of_slot(code: CodeType, slot: int) -> str:
    """What a slot of `Frame.locals` is called."""
    cells = [name for name in code.co_cellvars if name not in code.co_varnames]
    return (*code.co_varnames, *cells, *code.co_freevars)[slot]


def _is_ours_or_librarys(filename: str) -> bool:
    """Whether a module's `__getattr__` is from code that only looks lazy names up."""
    return is_ours(filename) or policy.is_library_file(filename)
