"""Versions of module trees: one integer that changes whenever anything a compiled function relies on changes.

In: changes of a module (registration, hooks, attributes, training flag). Out: `Stamp`s, and dicts that keep them.

Every change takes the next number of one process-wide counter and stamps the module with it. The state of a tree is
the largest stamp in it, which no later state can have again (a sum could: swap in a child whose own count is lower by
one), and the training flags, which may return: after eval() and train() a tree has the version that it had before, so
code compiled for either mode stays valid. While the counter stands still nothing has changed anywhere, so a check is
one comparison; otherwise the tree is walked once. No module knows its parents: sharing and copying need no care.

Limits: writing into a module's `__dict__`, or replacing a method on its class, is not seen.
"""

from __future__ import annotations

import itertools
from typing import Any, Protocol, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_numbers = itertools.count(1)  # its next() is atomic: ranks may be threads, and no two changes may share a number
_newest = 0


def newest_stamp() -> int:
    """The stamp of the latest change in this process."""
    return _newest


def next_number() -> int:
    """Something changed (a stamp, or only a training flag): versions must be looked up again."""
    global _newest
    _newest = number = next(_numbers)
    return number


class Stamp:
    """The number of the latest change of one module (or of the global hooks)."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.bump()

    def bump(self) -> None:
        """Record a change: take the next number."""
        self.value = next_number()


class Registry(dict[K, V]):
    """A dict, ordered by insertion, that bumps `stamp` whenever it is changed."""

    stamp: Stamp

    def __new__(cls, *args: object, **kwargs: object) -> Registry[K, V]:
        self = super().__new__(cls)
        self.stamp = Stamp()  # unpickling sets items before attributes
        return self

    def __init__(self, stamp: Stamp) -> None:
        super().__init__()
        self.stamp = stamp

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.stamp.bump()

    def __delitem__(self, key: K) -> None:
        super().__delitem__(key)
        self.stamp.bump()

    def pop(self, key: K, *default: Any) -> Any:
        self.stamp.bump()
        return super().pop(key, *default)

    def popitem(self) -> tuple[K, V]:
        self.stamp.bump()
        return super().popitem()

    def clear(self) -> None:
        self.stamp.bump()
        super().clear()

    def setdefault(self, key: K, default: Any = None) -> Any:
        self.stamp.bump()
        return super().setdefault(key, default)

    def update(self, other: Any = (), /) -> None:
        self.stamp.bump()
        super().update(other)

    def __ior__(self, other: Any) -> Registry[K, V]:  # type: ignore[override,misc]
        self.update(other)
        return self

    def move_to_front(self, key: K) -> None:
        """Make `key` the first item."""
        rest = [(k, v) for k, v in self.items() if k != key]
        for k, v in rest:
            super().__delitem__(k)
            super().__setitem__(k, v)
        self.stamp.bump()


class Versioned(Protocol):
    """A node of a module tree."""

    _stamp: Stamp
    _modules: Registry[str, Any]
    training: bool


def tree_state(root: Versioned) -> tuple[int, tuple[bool, ...]]:
    """The largest stamp of `root` and everything below it, and their training flags. A shared module counts once."""
    largest, seen, todo = 0, {id(root)}, [root]
    modes = []
    while todo:
        module = todo.pop()
        largest = max(largest, module._stamp.value)
        modes.append(module.training)
        for child in module._modules.values():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                todo.append(child)
    return largest, tuple(modes)
