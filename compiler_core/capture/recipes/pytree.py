"""Nested Python containers as a flat list of leaves and a description that builds them again.

In: any object. Containers are tuple, list, dict (insertion order), named tuples, dataclasses, and plain instances that
the caller says were made by what it traced; all else is a leaf.
Out: `flatten(tree) -> (leaves, spec)`, `spec.build(leaves) -> tree`. Specs compare by value: they are guards.
`paths(spec)` spells each leaf's place as a user would write it: `[0]`, `['mask']`, `.logits`.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compiler_core.device import Device
from compiler_core.dtype import DType


@dataclass(frozen=True, slots=True)
class Leaf:
    """The spec of anything that is not a container."""

    def build(self, leaves: Iterator[Any]) -> Any:
        return next(leaves)


@dataclass(frozen=True, slots=True)
class Branch:
    """A container: its type, and key and spec of each child."""

    kind: type
    keys: tuple[Any, ...]
    children: tuple[Spec, ...]

    def build(self, leaves: Iterator[Any]) -> Any:
        values = [child.build(leaves) for child in self.children]
        make: Any = self.kind
        if dataclasses.is_dataclass(self.kind):
            return make(**dict(zip(self.keys, values)))
        if issubclass(self.kind, dict):
            return make(zip(self.keys, values))
        return make(*values) if hasattr(self.kind, "_fields") else make(values)

    def access(self, index: int) -> str:
        """How Python code reaches child `index`: `[0]`, `['x']` or `.x`."""
        key = self.keys[index]
        return f".{key}" if dataclasses.is_dataclass(self.kind) else f"[{key!r}]"


@dataclass(frozen=True, slots=True)
class Instance(Branch):
    """An object of a class written in Python: its class and its attributes. Built without calling `__init__`."""

    def build(self, leaves: Iterator[Any]) -> Any:
        made: Any = object.__new__(self.kind)
        vars(made).update((key, child.build(leaves)) for key, child in zip(self.keys, self.children))
        return made

    def access(self, index: int) -> str:
        return f".{self.keys[index]}"


Spec = Leaf | Branch
LEAF = Leaf()


def children(tree: Any) -> tuple[tuple[Any, ...], list[Any]] | None:
    """(keys, values) of a container, or None for a leaf."""
    kind = type(tree)
    if isinstance(tree, DType | Device):  # dataclasses, and plain values
        return None
    if kind in (dict, OrderedDict):
        return tuple(tree), list(tree.values())
    if kind in (tuple, list) or (isinstance(tree, tuple) and hasattr(kind, "_fields")):
        return tuple(range(len(tree))), list(tree)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type) and _is_all_fields(tree):
        fields = [f.name for f in dataclasses.fields(tree)]
        return tuple(fields), [getattr(tree, name) for name in fields]
    return None


def _is_all_fields(tree: Any) -> bool:
    """Whether a dataclass holds nothing but what its constructor takes."""
    fields = dataclasses.fields(tree)
    return all(f.init for f in fields) and {f.name for f in fields} >= getattr(tree, "__dict__", {}).keys()


def flatten(tree: Any, made: Mapping[int, Any] | None = None) -> tuple[list[Any], Spec]:
    """The leaves of `tree`, left to right, and its spec.

    made: id -> instance, of those that are containers; one that is met again is a leaf there, so that the result never
    has two objects where there was one.
    """
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves, dict(made or {}))


def is_plain_instance(thing: Any) -> bool:
    """Whether an object is all in its `__dict__`: `object.__new__` makes it, and it extends no type written in C."""
    kind: Any = type(thing)
    return kind.__new__ is object.__new__ and kind.__base__ is not None and hasattr(thing, "__dict__") and all(
        "__slots__" not in vars(base) or not vars(base)["__slots__"] for base in kind.__mro__
    )  # fmt: skip


def unflatten(spec: Spec, leaves: Sequence[Any]) -> Any:
    """The tree of shape `spec` with these leaves."""
    return spec.build(iter(leaves))


def paths(spec: Spec, prefix: str = "") -> Iterator[str]:
    """The place of each leaf, as Python code after `prefix`."""
    if isinstance(spec, Leaf):
        yield prefix
        return
    for index, child in enumerate(spec.children):
        yield from paths(child, prefix + spec.access(index))


def _flatten(tree: Any, leaves: list[Any], made: dict[int, Any]) -> Spec:
    parts = children(tree)
    if parts is not None:
        keys, values = parts
        return Branch(type(tree), keys, tuple(_flatten(value, leaves, made) for value in values))
    if made.pop(id(tree), None) is None:
        leaves.append(tree)
        return LEAF
    table = vars(tree)
    return Instance(type(tree), tuple(table), tuple(_flatten(value, leaves, made) for value in table.values()))
