"""Where a class has an attribute, of what kind that is, and whether classes and slots stay as they are.

In: classes, what they define. Out: facts; nothing of the program's runs.
"""

from __future__ import annotations

import sys
from typing import Any

from compiler_core.tensor.tensor import Tensor

ABSENT = object()  # what `lookup` finds where there is nothing


def lookup(cls: type, name: str) -> tuple[Any, type]:
    """What the class or a base defines under `name`, and which of them; (ABSENT, cls) if none does."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name], base
    return ABSENT, cls


def is_unset(slot: Any, owner: Any) -> bool:
    """Whether an object has nothing in a slot."""
    try:
        slot.__get__(owner, type(owner))
    except AttributeError:
        return True
    return False


def is_data_descriptor(found: Any) -> bool:
    kind = type(found)
    return hasattr(kind, "__set__") or hasattr(kind, "__delete__")


def is_frozen(owner: Any) -> bool:
    """Whether an object's slots are never set again: a frozen dataclass of ours."""
    facts = getattr(type(owner), "__dataclass_params__", None)
    ours = type(owner).__module__.split(".")[0] in ("compiler_core", "distcompile")
    return ours and facts is not None and facts.frozen


def is_fixed_class(cls: type) -> bool:
    """Whether a class's attributes stay what they are: it is written in C, of Python's library, or ours, and no program
    knows it by name."""
    if not cls.__flags__ & (1 << 9):  # Py_TPFLAGS_HEAPTYPE
        return True
    package = cls.__module__.split(".")[0]
    if package == "compiler_core":
        return cls is not Tensor
    return package in ("enum", "collections", "functools") or (package == "distcompile" and _is_inner(cls))


def _is_inner(cls: type) -> bool:
    """Whether a class that a module of `distcompile.nn` has for itself: no package above it has it."""
    packages = cls.__module__.split(".")[:-1]
    if packages[:2] != ["distcompile", "nn"] or not _has(cls.__module__, cls):
        return False
    return not any(_has(".".join(packages[:depth]), cls) for depth in range(1, len(packages) + 1))


def _has(module: str, cls: type) -> bool:
    return module in sys.modules and vars(sys.modules[module]).get(cls.__name__) is cls
