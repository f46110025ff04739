"""Stamps: one number a module that changes whenever anything a compiled function relies on changes, and who is told.

In: changes of a module (registration, hooks, attributes, training flag). Out: `Stamp`s, dicts that keep them, the
version of a tree of modules (`TreeVersion`); `module_watch.py` watches any set of modules.

Every change takes the next number of one process-wide counter, stamps the module with it, and tells the stamp's
watches (`compiler_core/watch.py`), so that a look at a module costs one flag however many there are, and whatever else
changes. The state of a tree is the largest stamp in it, which no later state can have again (a sum could: swap in a
child whose own count is lower by one), and the training flags, which may return: after eval() and train() a tree has
the version that it had before. No module knows its parents: sharing and copying need no care.

Limits: writing into a module's `__dict__`, or replacing a method on its class, is not seen.
"""

from __future__ import annotations

import itertools
from typing import Any, Protocol, TypeVar

from compiler_core.watch import NOBODY, Watch, Watches, add_watch, tell

K = TypeVar("K")
V = TypeVar("V")

_numbers = itertools.count(1)  # its next() is atomic: ranks may be threads, and no two changes may share a number


class Stamp:
    """The number of the latest change of one module (or of the global hooks). A copy is a stamp of its own.

    latest: the same, or a greater number, if there was a change since that may be taken back.
    """

    __slots__ = ("_watches", "latest", "value")
    _watches: Watches

    def __new__(cls) -> Stamp:
        self = super().__new__(cls)  # unpickling calls no __init__
        self._watches = NOBODY
        self.value = self.latest = next(_numbers)
        return self

    def bump(self) -> None:
        """Record a change that was made: take the next number, and tell who watches."""
        self.value = self.latest = next(_numbers)
        tell(self._watches)

    def flip(self) -> None:
        """Tell of a change that may be taken back: of the training flag."""
        self.latest = next(_numbers)
        tell(self._watches)

    def __getstate__(self) -> None:
        return None

    def __setstate__(self, state: object) -> None:
        """Files of before hold a number; it means nothing here."""


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
        value = super().pop(key, *default)
        self.stamp.bump()
        return value

    def popitem(self) -> tuple[K, V]:
        item = super().popitem()
        self.stamp.bump()
        return item

    def clear(self) -> None:
        super().clear()
        self.stamp.bump()

    def setdefault(self, key: K, default: Any = None) -> Any:
        value = super().setdefault(key, default)
        self.stamp.bump()
        return value

    def update(self, other: Any = (), /, **more: Any) -> None:
        try:
            super().update(other, **more)
        finally:  # an error may come after some items
            self.stamp.bump()

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


class TreeVersion(Watch):
    """The version of the tree below one module, looked up again after a change in the tree."""

    __slots__ = ("_by_mode", "_largest", "_version")

    def __init__(self) -> None:
        super().__init__()
        self._version: tuple[object, int] = (None, 0)  # what was told by then, and the version
        self._largest = -1
        self._by_mode: dict[tuple[bool, ...], int] = {}  # training flags -> version

    def look(self, root: Versioned) -> int:
        """The version now. root: always the same module."""
        told = self.told
        seen, version = self._version
        if seen is not told:
            largest, modes = self._walk(root)
            if self._largest != largest:
                self._largest, self._by_mode = largest, {}
            version = self._by_mode.setdefault(modes, next(_numbers))
            self._version = (told, version)
        return version

    def _walk(self, root: Versioned) -> tuple[int, tuple[bool, ...]]:
        """The largest stamp of `root` and everything below it, and their training flags. A shared module counts once.

        From here on all of them tell of their changes.
        """
        largest, seen, todo = 0, {id(root)}, [root]
        modes = []
        while todo:
            module = todo.pop()
            add_watch(module._stamp, self)
            largest = max(largest, module._stamp.value)
            modes.append(module.training)
            for child in module._modules.values():
                if child is not None and id(child) not in seen:
                    seen.add(id(child))
                    todo.append(child)
        return largest, tuple(modes)
