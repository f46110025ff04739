"""Patterns, unpacking, keyword arguments and `except` clauses: what CPython does in C for single instructions.

Source: Python/ceval.c (match_keys, match_class, unpack_iterable, format_kwargs_error).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

MAPPING, SEQUENCE, MATCH_SELF = 1 << 6, 1 << 5, 1 << 22  # Py_TPFLAGS_MAPPING, _SEQUENCE, __MATCH_SELF
MISSING = object()


def is_mapping(value: Any) -> bool:
    return bool(type(value).__flags__ & MAPPING)


def is_sequence(value: Any) -> bool:
    return bool(type(value).__flags__ & SEQUENCE)


def match_keys(value: Any, keys: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The values of `keys`; None if one is missing."""
    seen: set[Any] = set()
    values = []
    for key in keys:
        if key in seen:
            raise ValueError(f"mapping pattern checks duplicate key ({key!r})")
        seen.add(key)
        found = value.get(key, MISSING)
        if found is MISSING:
            return None
        values.append(found)
    return tuple(values)


def match_class(value: Any, cls: Any, count: int, names: tuple[str, ...]) -> tuple[Any, ...] | None:
    """Attributes that `cls(<count positional>, name=...)` of a pattern binds; None if it does not match."""
    if not isinstance(cls, type):
        match value:  # raises what CPython says of it
            case cls():
                pass
    if not isinstance(value, cls):
        return None
    seen: set[str] = set()
    values: list[Any] = []
    try:
        if count:
            values = positional_attributes(value, cls, count, seen)
        for name in names:
            check_once(cls, name, seen)
            values.append(getattr(value, name))
    except AttributeError:
        return None
    return tuple(values)


def positional_attributes(value: Any, cls: type, count: int, seen: set[str]) -> list[Any]:
    names = getattr(cls, "__match_args__", None)
    is_itself = names is None and bool(cls.__flags__ & MATCH_SELF)
    if names is None:
        names = ()
    elif not isinstance(names, tuple):
        raise TypeError(f"{cls.__name__}.__match_args__ must be a tuple (got {type(names).__name__})")
    allowed = 1 if is_itself else len(names)
    if allowed < count:
        plural = "" if allowed == 1 else "s"
        raise TypeError(f"{cls.__name__}() accepts {allowed} positional sub-pattern{plural} ({count} given)")
    if is_itself:
        return [value]
    values = []
    for name in names[:count]:
        if not isinstance(name, str):
            raise TypeError(f"__match_args__ elements must be strings (got {type(name).__name__})")
        check_once(cls, name, seen)
        values.append(getattr(value, name))
    return values


def check_once(cls: type, name: str, seen: set[str]) -> None:
    if name in seen:
        raise TypeError(f"{cls.__name__}() got multiple sub-patterns for attribute {name!r}")
    seen.add(name)


def unpack(value: Any, count: int) -> list[Any]:
    """`a, b, c = value`, of any iterable. Raises: as CPython, having taken one item too many at most."""
    if isinstance(value, (tuple, list)) and len(value) == count:
        return list(value)
    iterator = iterator_to_unpack(value)
    items = []
    for index in range(count):
        item = next(iterator, MISSING)
        if item is MISSING:
            raise ValueError(f"not enough values to unpack (expected {count}, got {index})")
        items.append(item)
    if next(iterator, MISSING) is not MISSING:
        raise ValueError(too_many(value, count))
    return items


def too_many(value: Any, count: int) -> str:
    return f"too many values to unpack (expected {count})"


def unpack_with_rest(value: Any, before: int, after: int) -> list[Any]:
    """`a, *b, c = value`: before values, the list of the rest, after values."""
    iterator = iterator_to_unpack(value)
    items: list[Any] = []
    for index in range(before):
        item = next(iterator, MISSING)
        if item is MISSING:
            wanted = f"at least {before + after}"
            raise ValueError(f"not enough values to unpack (expected {wanted}, got {index})")
        items.append(item)
    rest = list(iterator)
    if len(rest) < after:
        raise ValueError(f"not enough values to unpack (expected at least {before + after}, got {before + len(rest)})")
    split = len(rest) - after
    return [*items, rest[:split], *rest[split:]]


def iterator_to_unpack(value: Any) -> Any:
    try:
        return iter(value)
    except TypeError:
        if hasattr(type(value), "__iter__") or hasattr(type(value), "__getitem__"):
            raise
    raise TypeError(f"cannot unpack non-iterable {type(value).__name__} object")


def merge_keywords(target: dict[Any, Any], mapping: Any, call: Any) -> None:
    """`call(**target, **mapping)`, into target."""
    if not isinstance(mapping, Mapping) and not hasattr(mapping, "keys"):
        text = f"argument after ** must be a mapping, not {type(mapping).__name__}"
        raise TypeError(f"{function_name(call)} {text}")
    for key in mapping.keys():  # noqa: SIM118
        if key in target:
            if not isinstance(key, str):
                raise TypeError("keywords must be strings")
            raise TypeError(f"{function_name(call)} got multiple values for keyword argument '{key}'")
        target[key] = mapping[key]


def function_name(function: Any) -> str:
    """As error messages name it: module.qualname()."""
    name = getattr(function, "__qualname__", None)
    if not isinstance(name, str):
        return str(function)
    module = getattr(function, "__module__", None)
    return f"{name}()" if module in (None, "builtins") else f"{module}.{name}()"


def match_exception(error: Any, kinds: Any) -> bool:
    """Whether `except kinds` catches `error`."""
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise TypeError("catching classes that do not inherit from BaseException is not allowed")
    flat: Iterable[Any] = kinds if isinstance(kinds, tuple) else (kinds,)
    return any(kind in type(error).__mro__ for kind in flat)


def context_methods(manager: Any) -> tuple[Any, Any]:
    """The bound __enter__ and __exit__ of `with manager`."""
    enter, leave = lookup(manager, "__enter__"), lookup(manager, "__exit__")
    if enter is MISSING or leave is MISSING:
        with manager:  # raises what CPython says of it
            pass
    return enter, leave


def lookup(owner: Any, name: str) -> Any:
    """The method that the interpreter finds on the type, bound; else MISSING."""
    found = lookup_raw(type(owner), name)
    bind = getattr(type(found), "__get__", None)
    return found if bind is None else bind(found, owner, type(owner))


def lookup_raw(cls: type, name: str) -> Any:
    """What the classes of the order of resolution have under `name`, not bound; else MISSING."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return MISSING
