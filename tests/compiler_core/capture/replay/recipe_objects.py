"""Objects of many kinds for tests of recipes, and `World`, which builds recipes of them and compares."""

from __future__ import annotations

import collections
import dataclasses
import enum
import itertools
import weakref
from typing import Any, NamedTuple

import numpy as np

from compiler_core.bytecode.frame import NULL, UNSET, Frame
from compiler_core.capture.recipes.recipes import Recipe
from compiler_core.tensor.making.creation import ones
from compiler_core.tensor.tensor import Tensor
from tests.compiler_core.capture.replay.likeness import alike


class Number(int):
    """Stands for a number computed from outside numbers."""


class World:
    """Objects from outside, traced tensors and numbers of one test."""

    def __init__(self) -> None:
        self.outside: list[Any] = [[1, 2], {"k": [3]}, Holder("outside"), ones(2)]
        self.traced = [ones(i + 1) for i in range(4)]
        self.numbers = [Number(i + 10) for i in range(2)]

    def recipe(self) -> Recipe:
        places = {id(thing): i for i, thing in enumerate(self.outside)}
        tensors = {id(thing): f"fresh[{i}]" for i, thing in enumerate(self.traced)}
        numbers = {id(thing): f"len(outside[0]) * 0 + {int(thing)}" for thing in self.numbers}
        return Recipe(lambda thing: places.get(id(thing)), lambda t: tensors.get(id(t)), lambda v: numbers.get(id(v)))

    def twice(self, *roots: Any) -> list[tuple[tuple[Any, ...], list[Tensor]]]:
        """What the recipe of these roots makes in two calls, and the tensors of each call."""
        recipe = self.recipe()
        for i, root in enumerate(roots):
            recipe.root(f"root {i}", root)
        rebuild = recipe.build("test")
        made = []
        for _ in range(2):
            fresh = [ones(i + 1) for i in range(4)]
            made.append((rebuild(fresh, self.outside), fresh))
        return made

    def check(self, *roots: Any) -> tuple[Any, ...]:
        """Both calls are like the original, and share nothing with it or each other; the second's roots."""
        calls = self.twice(*roots)
        same = {id(thing) for thing in [*self.outside, globals()]}
        originals = [(roots, self.traced), *calls]
        for (a, tensors_a), (b, tensors_b) in itertools.combinations(originals, 2):
            difference = alike(
                [tuple(tensors_a), tuple(a)], [tuple(tensors_b), tuple(b)], lambda thing: id(thing) in same
            )
            assert difference is None
        return calls[1][0]


class Holder:
    """An object of the user's."""

    def __init__(self, *things: Any) -> None:
        self.things = things


class Slots:
    __slots__ = ("__private", "__weakref__", "a", "b")

    def __init__(self, a: Any) -> None:
        self.a, self.__private = a, a

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "b":
            raise AttributeError(name)
        object.__setattr__(self, name, value)


class Both(Slots):
    """Slots, and a __dict__ that the class guards."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise TypeError("may not be set")


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Plain:
    a: Any
    b: Any = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    a: Any


@dataclasses.dataclass(frozen=True)
class Key:
    mark: Any

    def __hash__(self) -> int:
        return hash(self.mark)


class Color(enum.Enum):
    RED = 1


class Bunch(dict):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.__dict__ = self


class Guarded:
    """Attribute access runs code."""

    def __init__(self) -> None:
        object.__getattribute__(self, "__dict__")["hidden"] = [1]

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("asked for " + name)


def subclass(base: type) -> Any:
    return type(f"My{base.__name__.title()}", (base,), {"__module__": __name__})


MyList, MyDict, MyTuple, MySet, MyFrozenSet, MyInt, MyStr, MyFloat, MyBytes, MyDeque, MyOrdered, MyDefault = map(
    subclass,
    (list, dict, tuple, set, frozenset, int, str, float, bytes, collections.deque, collections.OrderedDict,
     collections.defaultdict),
)  # fmt: skip


class Failed(ValueError):
    def __init__(self, one: Any, two: Any) -> None:
        super().__init__("text", one)
        self.two = two


def with_attributes(thing: Any, **attributes: Any) -> Any:
    vars(thing).update(attributes)
    return thing


def advanced(iterator: Any, n: int = 1) -> Any:
    for _ in range(n):
        next(iterator, None)
    return iterator


def counter() -> tuple[Any, Any]:
    n, log = 0, []

    def bump(by: int = 1, *, twice: list[int] | None = None) -> int:
        nonlocal n
        n += by
        log.append(n)
        return n

    return bump, lambda: (n, log, bump)


def annotated(x: Any) -> Any:
    def inner(a: int = 3, *, b: Any = x) -> list[int]:
        """A docstring."""
        return [a, b]

    inner.tag = [x]  # type: ignore[attr-defined]
    inner.__name__ = "renamed"
    return inner


def loop() -> list[Any]:
    items: list[Any] = [1]
    items.append((items, {"again": items}))
    return items


def parent_and_child() -> Any:
    parent, child = Holder(), Holder()
    parent.child, child.parent = child, weakref.ref(parent)  # type: ignore[attr-defined]
    return parent


def bunch_and_borg() -> Any:
    first, second = Holder(1), Holder(2)
    second.__dict__ = first.__dict__
    return [Bunch(a=1), first, second]


def recursive_function() -> Any:
    def fact(n: int) -> int:
        return n * fact(n - 1) if n else 1

    return fact


def unset_cell() -> Any:
    def inner() -> Any:
        return later

    if inner is None:
        later = 1
    return inner


def ordered_by_moves() -> Any:
    table = collections.OrderedDict(a=[1], b=[2], c=[3])
    table.move_to_end("a")
    return table


def shared_arrays() -> list[Any]:
    a = np.arange(12.0).reshape(3, 4)
    return [a, a[1:, ::-2], a.T, np.broadcast_to(a[0], (2, 4)), np.array([[1, None]], dtype=object)]


def an_error() -> Exception:
    try:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise Failed([1], {"a": 2}) from error
    except Failed as error:
        return error


def a_frame() -> Frame:
    frame = Frame(a_frame.__code__, globals(), vars(__import__("builtins")), [[1], UNSET], [NULL, "x"], 5)
    frame.completion, frame.pending, frame.handled = "store", ([2],), [ValueError("v")]
    return frame


def tee() -> Any:
    one, two = itertools.tee(iter([1, 2, 3]))
    return [advanced(one), two]


def closure_over(value: Any) -> Any:
    return lambda: value
