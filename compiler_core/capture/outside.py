"""What a segment knows of an object from outside, or of a variable that nobody has read.

In: an object and its source. Out: records; and where a container's items are found without running its class's code.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from compiler_core.capture.guards.kinds import own_attributes, plain_copy, shows_by_code
from compiler_core.capture.guards.sources import InDict, Item, Raw, Source
from compiler_core.records import dataclass


@dataclass(frozen=True, slots=True)
class Lazy:
    """A variable's value that nobody has read yet."""

    source: Source
    value: Any


@dataclass(frozen=True, slots=True)
class Outside:
    """Something that was there before. fixed: while the guards hold it is sure to be the very object."""

    thing: Any
    source: Source
    fixed: bool


def contents_of(known: Outside) -> Source:
    """Where the items of a container are: with itself, or in a copy, if its class would run code to show them."""
    return Raw(known.source, plain_copy) if shows_by_code(type(known.thing)) else known.source


def own_source(known: Outside, name: str) -> Source:
    """Where an object's own attribute is, without running a `__getattribute__` of the program's."""
    if isinstance(type(known.thing).__getattribute__, FunctionType):
        return Item(Raw(known.source, own_attributes), name)
    return InDict(known.source, name)
