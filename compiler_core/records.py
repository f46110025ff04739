"""`dataclass`, as Python's, but for when methods are made: each when it is first looked up.

In: a class without InitVar, the words frozen, slots, eq, repr, weakref_slot. Out: the class.
Why: Python compiles up to six methods of each class while it is imported, which for the two hundred classes of a first
step took a tenth of a warm process. Most are never compared, hashed or printed, and many never made.
Invariants: what `dataclasses` asks of a class (`fields`, `replace`, `asdict`, its parameters) is there at once; a
method that is looked up, on the class or on an instance, is a plain function from then on. Fields are those of the
class as it was decorated. One that inherits from a dataclass is made by Python's decorator.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, **words: bool) -> Any:
        """See dataclasses.dataclass."""
        return (lambda cls: _decorated(cls, words)) if cls is None else _decorated(cls, words)


Fields = tuple[dataclasses.Field[Any], ...]


class _Factory:
    """The default of a parameter that a factory makes."""

    def __repr__(self) -> str:
        return "<factory>"


class _Late:
    """A method of `owner`, made when it is looked up."""

    __slots__ = ("fields", "name", "owner")

    def __init__(self, owner: type, name: str, fields: Fields) -> None:
        self.owner, self.name, self.fields = owner, name, fields

    def __get__(self, obj: object, kind: type | None = None) -> Any:
        method = self.owner.__dict__[self.name]
        if method is self:  # else another thread was quicker
            method = _MAKERS[self.name](self.owner, self.fields)
            method.__name__, method.__qualname__ = self.name, f"{self.owner.__qualname__}.{self.name}"
            method.__module__ = self.owner.__module__
            setattr(self.owner, self.name, method)
        return method if obj is None else method.__get__(obj, kind)


def _decorated(cls: type, words: dict[str, bool]) -> Any:
    if any("__dataclass_fields__" in vars(base) for base in cls.__mro__[1:]):
        return dataclasses.dataclass(**words)(cls)
    shape = {word: words.pop(word) for word in ("slots", "weakref_slot") if word in words}
    frozen, eq, shown = words.pop("frozen", False), words.pop("eq", True), words.pop("repr", True)
    if words:
        raise TypeError(f"a dataclass of {__name__} does not know {', '.join(words)}; take Python's")
    if any("InitVar" in str(kind) for kind in vars(cls).get("__annotations__", {}).values()):
        raise TypeError(f"a dataclass of {__name__} has no InitVar; take Python's")
    own = set(vars(cls))
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # Python's would read the signature
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, **shape)(cls)
    fields = dataclasses.fields(made)
    facts = made.__dataclass_params__
    facts.init, facts.repr, facts.eq, facts.frozen = True, shown, eq, frozen
    has_hash = "__hash__" in own and not ("__eq__" in own and vars(made)["__hash__"] is None)
    late = {"__init__": True, "__repr__": shown, "__eq__": eq, "__hash__": eq and frozen}
    for name, wanted in late.items():
        if wanted and (not has_hash if name == "__hash__" else name not in own):
            setattr(made, name, _Late(made, name, fields))
    if eq and not frozen and not has_hash:
        made.__hash__ = None
    if frozen:
        _freeze(made, own, slots=shape.get("slots", False))
    return made


def _freeze(cls: Any, own: set[str], *, slots: bool) -> None:
    """Refuse assignments; an object of slots is restored past that."""
    if {"__setattr__", "__delattr__"} & own or cls.__mro__[1].__setattr__ is not object.__setattr__:
        raise TypeError(f"{cls.__name__} is frozen, and cannot have another __setattr__ or __delattr__")
    cls.__setattr__, cls.__delattr__ = _no_assignment, _no_deletion
    if slots and not {"__getstate__", "__setstate__"} & own:
        cls.__getstate__, cls.__setstate__ = _state, _restore


def _is_frozen(kind: Any, name: str) -> bool:
    """Any name of such a class; of one that inherits, and is none itself, the fields'."""
    return "__dataclass_params__" in vars(kind) or name in getattr(kind, "__dataclass_fields__", ())


def _no_assignment(self: Any, name: str, value: Any) -> None:
    if _is_frozen(type(self), name):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _no_deletion(self: Any, name: str) -> None:
    if _is_frozen(type(self), name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore(self: Any, values: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), values, strict=True):
        object.__setattr__(self, field.name, value)


# ---- the methods, as Python's decorator makes them


def _made(cls: type, head: str, lines: list[str], names: dict[str, Any]) -> Any:
    """The one function of this text, which is its class's module's; `names`: what it knows besides."""
    outer = [f"def outer({', '.join(names)}):", f" def method({head}):", *(f"  {line}" for line in lines or ["pass"])]
    there: dict[str, Any] = {}
    exec("\n".join([*outer, " return method"]), vars(sys.modules[cls.__module__]), there)
    return there["outer"](**names)


def _init(cls: Any, fields: Fields) -> Any:
    frozen = cls.__dataclass_params__.frozen
    names: dict[str, Any] = {"_new": _Factory(), "_set": object.__setattr__}
    given = ["self"]
    by_name: list[str] = []
    lines: list[str] = []
    annotations: dict[str, Any] = {"return": None}
    for number, field in enumerate(fields):
        default, maker = f"_default{number}", f"_maker{number}"
        has_maker = field.default_factory is not dataclasses.MISSING
        has_default = field.default is not dataclasses.MISSING
        if has_maker or has_default:
            names[maker if has_maker else default] = field.default_factory if has_maker else field.default
        value = field.name
        if field.init:
            after = "=_new" if has_maker else f"={default}" if has_default else ""
            (by_name if field.kw_only else given).append(field.name + after)
            annotations[field.name] = field.type
            if has_maker:
                value = f"{maker}() if {field.name} is _new else {field.name}"
        elif has_maker:
            value = f"{maker}()"
        elif has_default and field.name in vars(cls).get("__slots__", ()):
            value = default
        else:
            continue
        lines.append(f"_set(self, {field.name!r}, {value})" if frozen else f"self.{field.name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    method = _made(cls, ", ".join([*given, *(["*", *by_name] if by_name else [])]), lines, names)
    method.__annotations__ = annotations
    return method


def _values(whose: str, fields: Fields) -> str:
    return "(" + "".join(f"{whose}.{field.name}," for field in fields) + ")"


def _eq(cls: type, fields: Fields) -> Any:
    compared = tuple(field for field in fields if field.compare)
    same = f"return {_values('self', compared)} == {_values('other', compared)}"
    lines = ["if other.__class__ is self.__class__:", f" {same}", "return NotImplemented"]
    return _made(cls, "self, other", lines, {})


def _hash(cls: type, fields: Fields) -> Any:
    hashed = tuple(field for field in fields if (field.compare if field.hash is None else field.hash))
    return _made(cls, "self", [f"return hash({_values('self', hashed)})"], {})


def _repr(cls: type, fields: Fields) -> Any:
    from reprlib import recursive_repr

    shown = ", ".join(f"{field.name}={{self.{field.name}!r}}" for field in fields if field.repr)
    return recursive_repr()(_made(cls, "self", [f'return f"{{self.__class__.__qualname__}}({shown})"'], {}))


_MAKERS: dict[str, Callable[[type, Fields], Any]] = {
    "__init__": _init, "__repr__": _repr, "__eq__": _eq, "__hash__": _hash,
}  # fmt: skip
