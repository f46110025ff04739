"""Plans for instances of classes written in Python, without running any of their code: no `__init__`, no `__setattr__`.

In: an object. Out: `plan_of(thing)`, its `RebuildPlan`. An instance is made by the `__new__` of the C type that it
extends (object, list, dict, int, str, an exception ...), then gets that type's content, its slots and its `__dict__`.
Raises Refusal for what holds resources (files, locks, threads), what others know by identity (modules, optimizers), and
anything else of a C type that is not listed here or in `kinds`.
"""

from __future__ import annotations

import collections
import inspect
import types
import weakref
from collections.abc import Callable
from typing import Any

from compiler_core.aot.boundary import Spread
from compiler_core.aot.tensor_hooks import TensorHooks
from compiler_core.bytecode.frame import Frame
from compiler_core.bytecode.generators import CLOSED, InterpretedGenerator
from compiler_core.bytecode.native import NativeSemantics
from compiler_core.capture.guards.module_protocol import is_module
from compiler_core.capture.recipes.kinds import EXACT, exact
from compiler_core.capture.recipes.plans import (
    SELF,
    Code,
    Fixed,
    Found,
    Part,
    RebuildPlan,
    Refusal,
    items,
    listed,
    pairs,
)
from compiler_core.capture.recipes.transplant import classed
from compiler_core.tensor.autograd.tape import HookHandle
from compiler_core.tensor.tensor import Tensor

_MACHINERY = (
    *("aot", "capture", "graph", "runtime", "tensor.memory.cell", "tensor.autograd.segment", "tensor.autograd.tape"),
    *("bytecode.machine", "bytecode.native", "bytecode.program", "bytecode.semantics"),
)


def plan_of(thing: Any) -> RebuildPlan:
    """How to make the like of `thing`. Raises Refusal."""
    kind = type(thing)
    if kind in EXACT:
        return EXACT[kind](thing)
    if issubclass(kind, weakref.ref):
        return _weak_reference(thing)
    if kind is Frame:
        return _frame(thing)
    if kind is InterpretedGenerator:
        return _generator(thing)
    refuse_known(thing)
    base = c_base(kind)
    if issubclass(base, BaseException):
        return _attributes(thing, base, *_exception(thing, base))
    content = _CONTENTS.get(base)
    if content is None:
        raise Refusal(*_why_not(thing))
    return _attributes(thing, base, *content(thing, base))


def refuse_known(thing: Any) -> None:
    """Raise Refusal for what others know by identity, or what belongs to the machinery."""
    kind = type(thing)
    if issubclass(kind, Tensor):
        raise Refusal("a tensor that is neither the graph's nor from outside", "make it inside the compiled function")
    if is_module(thing):
        raise Refusal("a module made by compiled code", "make modules outside")
    if hasattr(kind, "zero_grad") and hasattr(kind, "add_param_group"):
        raise Refusal("an optimizer made by compiled code", "make optimizers outside")
    if is_machinery(kind):
        raise Refusal("it belongs to the compiler", "do not keep it in the compiled function")


HOOKS = (HookHandle, TensorHooks, Spread)  # of one call, and the user's


def is_machinery(kind: type) -> bool:
    """Whether its instances stand for graphs, traces, tapes and cells."""
    machinery = tuple(f"compiler_core.{folder}." for folder in _MACHINERY)
    return f"{kind.__module__}.".startswith(machinery) and kind not in HOOKS


_REASONS: tuple[tuple[type | tuple[type, ...], str, str], ...] = (
    (
        (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType),
        "a running generator cannot be copied",
        "use it up inside the compiled function, or make it outside",
    ),
    ((types.FrameType, types.TracebackType), "it refers to a call that is over", "do not keep it"),
)


def _why_not(thing: Any) -> tuple[str, str]:
    for kinds, why, remedy in _REASONS:
        if issubclass(type(thing), kinds):
            return why, remedy
    return "an object of a class written in C, whose state cannot be read", "make it outside the compiled function"


def c_base(kind: type) -> type:
    """The class among its bases that allocates instances: the first that no `class` statement made."""
    for base in kind.__mro__:
        new = vars(base).get("__new__")
        own = isinstance(new, types.BuiltinFunctionType) and new.__self__ is base
        if own or base in _CONTENTS or not base.__flags__ & _HEAP_TYPE or base.__flags__ & _C_ONLY:
            return kind if base is object and is_larger(kind) else base
    return object


def is_larger(kind: Any) -> bool:
    """Whether instances hold more than `__dict__`, weak references and slots: the class was not made in Python."""
    slots = sum(
        isinstance(member, types.MemberDescriptorType) for base in kind.__mro__ for member in vars(base).values()
    )
    words = (kind.__dictoffset__ != 0) + (kind.__weakrefoffset__ != 0) + slots
    return bool(kind.__basicsize__ > object.__basicsize__ + 8 * words)


_HEAP_TYPE = 1 << 9  # of `type.__flags__`: made at run time, as those of `class` statements are
_C_ONLY = 1 << 7 | 1 << 8  # may not be instantiated, may not be changed: no class of a `class` statement


# -- the content that a C type gives its instances: (how to make one, how to fill it, what hashes)

Content = tuple[Code, tuple[Code, ...], tuple[Code, ...]]


def new(base: type, thing: Any, *arguments: str | Part) -> Code:
    """`base.__new__(its class, ...)`."""
    rest = [piece for argument in arguments for piece in (", ", argument)]
    return (Fixed(base.__new__, f"new_{base.__name__}"), "(", Fixed(type(thing), type(thing).__name__), *rest, ")")


def _plain(thing: Any, base: type) -> Content:
    return new(base, thing), (), ()


def _list(thing: Any, base: type) -> Content:
    values = list(list.__iter__(thing))
    fill: Code = (Fixed(list.extend, "extend"), "(", SELF, ", ", *listed(items(values), "[", "])"))
    return new(base, thing), (fill,) if values else (), ()


def _tuple(thing: Any, base: type) -> Content:
    values = items(tuple.__iter__(thing))
    head = new(base, thing)[:-1]
    return (*head, ", ", *listed(values, "(", ")", ","), ")"), (), ()


def _set(thing: Any, base: type) -> Content:
    values = [Part(item, f", its item {type(item).__name__}") for item in set.__iter__(thing)]
    fill: Code = (Fixed(set.update, "update"), "(", SELF, ", ", *listed(values, "[", "])"))
    return new(base, thing), (), (fill,) if values else ()


def _frozenset(thing: Any, base: type) -> Content:
    values = [Part(item, f", its item {type(item).__name__}") for item in frozenset.__iter__(thing)]
    return (*new(base, thing)[:-1], ", ", *listed(values, "(", ")", ","), ")"), (), ()


def _dict(thing: Any, base: Any) -> Content:
    content = pairs(base.items(thing), "{", "}")
    update = (Fixed(base.update, "update"), "(", SELF, ", ", *content, ")")
    if base is not collections.OrderedDict:
        return new(base, thing), (), (update,) if len(content) > 2 else ()
    rows: list[Code] = []  # an OrderedDict's `update` would call `__setitem__` of the class
    for key, value in base.items(thing):
        key_and_value = (Part(key, ", a key"), ", ", Part(value, ", a value"))
        rows.append((Fixed(base.__setitem__, "put"), "(", SELF, ", ", *key_and_value, ")"))
    return new(base, thing), (), tuple(rows)


def _defaults(thing: Any, base: type) -> Content:
    _, fill, hashing = _dict(thing, dict)
    factory = collections.defaultdict.__dict__["default_factory"].__get__(thing)
    setter = Fixed(collections.defaultdict.__dict__["default_factory"], "factory")
    rows: Code = (setter, ".__set__(", SELF, ", ", Part(factory, ".default_factory"), ")")
    return new(base, thing), (rows, *fill), hashing


def _deque(thing: Any, base: type) -> Content:
    values, limit = list(collections.deque.__iter__(thing)), collections.deque.__dict__["maxlen"].__get__(thing)
    content = listed(items(values), "[", "]")
    initialize = Fixed(vars(collections.deque)["__init__"], "initialize")
    return new(base, thing), ((initialize, "(", SELF, ", ", *content, f", {limit!r})"),), ()


def _scalar(thing: Any, base: Any) -> Content:
    return new(base, thing, Part(_AS_BASE[base](thing))), (), ()


_AS_BASE: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    complex: complex.__pos__,
    str: str.__str__,
    bytes: lambda thing: bytes.__getitem__(thing, slice(None)),
}


def _exception(thing: BaseException, base: type) -> Content:
    """Its arguments, its cause, and what C exceptions keep beside (`.value`, `.errno`, `.name`)."""
    values = _ARGS.__get__(thing)
    arguments = [piece for part in items(values) for piece in (", ", part)]
    make = (*new(base, thing)[:-1], *arguments, ")")
    fill: list[Code] = []
    if _CAUSE.__get__(thing) is not None:
        fill.append((Fixed(_CAUSE, "cause"), ".__set__(", SELF, ", ", Part(_CAUSE.__get__(thing), ".__cause__"), ")"))
    for kind in base.__mro__:
        for name, member in vars(kind).items():
            if inspect.ismemberdescriptor(member) and name not in ("message", "exceptions", "__suppress_context__"):
                value = member.__get__(thing)
                if value is not None:
                    fill.append((Fixed(member, name), ".__set__(", SELF, ", ", Part(value, f".{name}"), ")"))
    return make, tuple(fill), ()


_CAUSE, _ARGS = vars(BaseException)["__cause__"], vars(BaseException)["args"]
_CONTENTS: dict[type, Callable[[Any, Any], Content]] = {
    object: _plain,
    types.SimpleNamespace: _plain,
    list: _list,
    tuple: _tuple,
    set: _set,
    frozenset: _frozenset,
    dict: _dict,
    collections.OrderedDict: _dict,
    collections.defaultdict: _defaults,
    collections.deque: _deque,
    **dict.fromkeys(_AS_BASE, _scalar),
}


# -- what classes written in Python add


def _attributes(thing: Any, base: type, make: Code, fill: tuple[Code, ...], hashing: tuple[Code, ...]) -> RebuildPlan:
    """Slots and `__dict__`, on top of the C type's content."""
    table = own_table(thing)
    slots = tuple(_slots(thing))
    stem = type(thing).__name__.lower().strip("_") or "object"
    done = not fill and not hashing and not slots
    constant = done and table is None and base in (tuple, frozenset, *_AS_BASE)
    return RebuildPlan(make, slots + fill, hashing, make if done else None, table, stem, immutable=constant)


_Descriptor = types.GetSetDescriptorType | types.MemberDescriptorType


def table_descriptor(kind: type) -> Any:
    """What reads and sets the `__dict__` of instances, whatever the class says of that name; None if there is none."""
    found = (vars(base).get("__dict__") for base in kind.__mro__)
    return next((member for member in found if isinstance(member, _Descriptor)), None)


def has_fixed_table(thing: Any) -> bool:
    """Whether the object keeps the `__dict__` that it was made with (a namespace)."""
    return isinstance(table_descriptor(type(thing)), types.MemberDescriptorType)


def own_table(thing: Any) -> dict[str, Any] | None:
    """The `__dict__` of an instance; None if it has none."""
    descriptor = table_descriptor(type(thing))
    return None if descriptor is None else descriptor.__get__(thing)


def filled_table(thing: Any, table: dict[str, Any]) -> Code:
    """A statement that fills the `__dict__` of an object, without running code of its class."""
    kind: Any = type(thing)
    simple = not isinstance(kind.__getattribute__, types.FunctionType)
    if simple and isinstance(inspect.getattr_static(kind, "__dict__", None), _Descriptor):
        return (SELF, ".__dict__.update(", *pairs(table.items(), "{", "}"), ")")
    read = Fixed(table_descriptor(kind), "table")
    return (read, ".__get__(", SELF, ").update(", *pairs(table.items(), "{", "}"), ")")


def shared_table(thing: Any, table: dict[str, Any]) -> Code:
    """A statement that gives an object a `__dict__` which others hold too."""
    return (Fixed(table_descriptor(type(thing)), "table"), ".__set__(", SELF, ", ", Part(table), ")")


def _slots(thing: Any) -> list[Code]:
    """A statement for each slot that is set."""
    kind: Any = type(thing)
    plain = kind.__setattr__ is object.__setattr__
    found: list[Code] = []
    for base in reversed(type(thing).__mro__):
        for name, member in vars(base).items() if "__slots__" in vars(base) else ():
            if not isinstance(member, types.MemberDescriptorType):
                continue
            try:
                value = Part(member.__get__(thing), f".{name}")
            except AttributeError:  # not set
                continue
            if plain and inspect.getattr_static(type(thing), name, None) is member:
                found.append((SELF, f".{name} = ", value))
            else:
                found.append((Fixed(member, name), ".__set__(", SELF, ", ", value, ")"))
    return found


# -- kinds with rules of their own


def tensor_plan(thing: Tensor, code: str) -> RebuildPlan:
    """A traced tensor, by the expression for it: with its attributes and its `.grad`."""
    fill: list[Code] = []
    kind = type(thing)
    make: Code = (code,) if kind is Tensor else (exact(classed), f"({code}, ", exact(kind), ")")
    if thing._grad is not None:
        fill.append((SELF, "._grad = ", Part(thing._grad, ".grad")))
    return RebuildPlan(make, tuple(fill), whole=None if fill else make, table=vars(thing), stem="tensor")


def _weak_reference(thing: Any) -> RebuildPlan:
    target = weakref.ref.__call__(thing)
    if target is None:
        raise Refusal("what it refers to is gone", "keep it outside the compiled function")
    parts = [Part(target, ", what it refers to")]
    if thing.__callback__ is not None:
        parts.append(Part(thing.__callback__, ".__callback__"))
    if type(thing) is weakref.ref:
        make: Code = (exact(weakref.ref), *listed(parts, "(", ")"))
        return RebuildPlan(make, whole=make, stem="reference")
    make = (*new(weakref.ref, thing)[:-1], ", ", *listed(parts, "", ""), ")")
    return _attributes(thing, weakref.ref, make, (), ())


def _frame(thing: Frame) -> RebuildPlan:
    """A frame of the machine: its names stay, its variables and stack are rebuilt, what the semantics kept is gone."""
    fill: list[Code] = []
    for name in ("locals", "stack", "handled"):
        values = [Part(value, f".{name}[{i}]") for i, value in enumerate(getattr(thing, name))]
        if values:
            fill.append((SELF, f".{name}.extend(", *listed(values, "[", "]"), ")"))
    for name in ("namespace", "pending", "generator", "function", "completion", "keyword_names", "next"):
        value = getattr(thing, name)
        if value not in (None, "", (), 0):
            fill.append((SELF, f".{name} = ", Part(value, f".{name}")))
    make: Code = (
        exact(Frame), "(", Fixed(thing.code, "code"), ", ", Found(thing.globals), ", ", Found(thing.builtins), ", [])",
    )  # fmt: skip
    return RebuildPlan(make, tuple(fill), stem="frame")


def _generator(thing: InterpretedGenerator) -> RebuildPlan:
    """A generator of the machine: it goes on from its frame, natively where C code advances it."""
    rows = [
        (SELF, f".{name} = ", Part(value, f".{name}")) for name, value in vars(thing).items() if name != "semantics"
    ]
    return RebuildPlan((Fixed(_blank_generator, "new_generator"), "()"), tuple(rows), stem="generator")


def _blank_generator() -> InterpretedGenerator:
    new = InterpretedGenerator.__new__(InterpretedGenerator)
    new.semantics, new.state = NativeSemantics(), CLOSED
    return new
