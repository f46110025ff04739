"""What a compiled entry relies on without keeping it alive: when one of these dies, the entry is dropped.

In: objects of the program's that guards compare by identity, or start from: modules, tensors, closures, instances.
Out: `Deaths.refer`, a weak reference; `happened`, and whoever `tell` names is told, once one has died.
What is not mortal here lives for ever (modules of Python's, our own functions), or as long as what it belongs to: a
class and a function without variables of its own are kept, as the code is that was compiled.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import ReferenceType, ref

from compiler_core.capture.guards.module_protocol import is_module
from compiler_core.device import Device
from compiler_core.dtype import DType
from compiler_core.location import is_ours
from compiler_core.tensor.tensor import Tensor

_LASTING = (type, ModuleType, BuiltinFunctionType, enum.Enum, DType, Device)


class Mortal(ReferenceType[Any]):
    """A weak reference of ours, to tell from what a program refers by."""

    __slots__ = ()


class Deaths:
    """Of the things of one `Guards`. tell: called, without arguments, when the first one dies, in whatever thread."""

    def __init__(self) -> None:
        self.happened = False
        self.tell: Callable[[], object] | None = None
        self._refers: dict[int, Mortal] = {}

    def refer(self, thing: Any) -> Mortal:
        """A weak reference to a mortal thing."""
        if id(thing) not in self._refers:
            self._refers[id(thing)] = Mortal(thing, partial(_died, ref(self)))
        return self._refers[id(thing)]


def _died(deaths: ReferenceType[Deaths], gone: object) -> None:
    """One of its things did, unless it has gone itself."""
    found = deaths()
    if found is not None and not found.happened:
        found.happened = True
        if found.tell is not None:
            found.tell()


def is_mortal(thing: Any) -> bool:
    """Whether a thing of the program's may go while what was compiled for it stays."""
    kind: Any = type(thing)
    if isinstance(thing, Tensor) or is_module(thing):
        return True
    if kind is FunctionType:
        own = thing.__closure__ or thing.__defaults__ or thing.__kwdefaults__ or thing.__dict__
        return bool(own) and not is_ours(thing.__code__.co_filename)
    if isinstance(thing, (*_LASTING, MethodType)) or kind.__module__.partition(".")[0] in ("compiler_core", "re"):
        return False  # a bound method may be made anew whenever it is asked for
    return bool(kind.__weakrefoffset__)


def can_be_bound(thing: Any) -> bool:
    """Whether a thing that is sure to be the same one may be named itself, and need not be found anew by its source."""
    return is_mortal(thing) or isinstance(thing, _LASTING) or type(thing) is FunctionType
