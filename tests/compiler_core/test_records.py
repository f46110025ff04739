"""compiler_core/records.py: its classes do what Python's dataclasses do, method by method."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import weakref
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

import pytest

from compiler_core import records

SHAPES: list[dict[str, bool]] = [
    {},
    {"frozen": True},
    {"slots": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "eq": False},
    {"slots": True, "eq": False, "weakref_slot": True},
    {"eq": False, "repr": False},
]


def plain() -> type:
    class Plain:
        """Fields of every kind."""

        shared: ClassVar[int] = 7
        a: int
        b: tuple[int, ...] = (1, 2)
        c: list[int] = field(default_factory=list, compare=False)
        d: int = field(default=3, init=False)
        e: str = field(default="e", repr=False, kw_only=True)
        f: list[int] = field(default_factory=lambda: [9], init=False, hash=False)

    return Plain


def own() -> type:
    class Own:
        """Methods of its own."""

        a: int
        b: Any = None

        def __post_init__(self) -> None:
            object.__setattr__(self, "b", (self.b, self.a))

        def __repr__(self) -> str:
            return "mine"

        def __hash__(self) -> int:
            return 5

    return Own


def comparing() -> type:
    class Comparing:  # noqa: PLW1641
        """Its own equality."""

        a: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self)) and self.a % 2 == other.a % 2

    return Comparing


def both(make: Callable[[], type], words: dict[str, bool]) -> tuple[Any, Any]:
    """(Python's, ours), which the module holds under their names in turn, for pickle."""
    return dataclasses.dataclass(**words)(make()), records.dataclass(**words)(make())


def object_set(thing: object, name: str) -> object:
    setattr(thing, name, 2)
    return None


def done(cls: Any, act: Callable[[Any], object]) -> object:
    """What comes of it, in words."""
    try:
        return act(cls)
    except (AttributeError, TypeError) as error:  # FrozenInstanceError is an AttributeError
        text = str(error)
        return type(error), text.replace("__init__", "f").split("f()", 1)[-1]


ACTS: dict[str, Callable[[Any], object]] = {
    "signature": lambda c: str(inspect.signature(c)),
    "annotations": lambda c: c.__init__.__annotations__,
    "names": lambda c: (c.__init__.__qualname__, c.__init__.__name__, c.__doc__),
    "match": lambda c: c.__match_args__,
    "parameters": lambda c: repr(c.__dataclass_params__),
    "fields": lambda c: [(f.name, f.default, f.init) for f in dataclasses.fields(c)],
    "dictionary": lambda c: dataclasses.asdict(c(1)),
    "repr": lambda c: repr(c(1)).split("0x")[0],
    "equal": lambda c: (c(1) == c(1), c(1) == c(2), c(1) != c(3), c(1) == 1, (lambda x: x == x)(c(1))),
    "hash": lambda c: (lambda x, y: hash(x) == hash(y))(c(1), c(1)),
    "unhashable": lambda c: c.__hash__ is None,
    "too few": lambda c: c(),
    "unknown": lambda c: c(1, nothing=2),
    "factory": lambda c: c(1).c is not c(1).c,
    "given": lambda c: (c(4, c=[5], e="x").c, c(4, b=2).b),
    "not given": lambda c: (c(4).d, c(4).f),
    "assign": lambda c: setattr(c(1), "a", 2),
    "assign another": lambda c: "__slots__" in vars(c) or object_set(c(1), "z"),  # Python 3.11 stumbles over slots
    "delete": lambda c: delattr(c(1), "a"),
    "replace": lambda c: dataclasses.asdict(dataclasses.replace(c(1), a=5)),
    "copy": lambda c: dataclasses.asdict(copy.deepcopy(c(1))),
    "slots": lambda c: (hasattr(c(1), "__dict__"), getattr(c, "__slots__", None)),
    "weak": lambda c: weakref.ref(c(1)) is not None,
    "shared": lambda c: getattr(c, "shared", None),
    "subclass": lambda c: "__slots__" in vars(c) or object_set(type("Sub", (c,), {})(1), "z"),
    "subclass, its field": lambda c: setattr(type("Sub", (c,), {})(1), "a", 2),
}


@pytest.mark.parametrize("words", SHAPES, ids=str)
@pytest.mark.parametrize("make", [plain, own, comparing])
def test_as_pythons(make: Callable[[], type], words: dict[str, bool]) -> None:
    for name, act in ACTS.items():  # of classes made anew: each act is the first
        pythons, ours = both(make, words)
        assert done(ours, act) == done(pythons, act), name


@pytest.mark.parametrize("words", SHAPES, ids=str)
def test_pickled(words: dict[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = records.dataclass(**words)(plain())
    made.__qualname__ = "Made"
    monkeypatch.setitem(globals(), "Made", made)
    there = pickle.loads(pickle.dumps(made(4, c=[5])))
    assert dataclasses.asdict(there) == dataclasses.asdict(made(4, c=[5]))


def test_a_method_is_made_once_and_stays() -> None:
    made: Any = records.dataclass(frozen=True, slots=True)(plain())
    assert not inspect.isfunction(vars(made)["__init__"])
    made(1)
    method = vars(made)["__init__"]
    assert inspect.isfunction(method)
    made(2)
    assert vars(made)["__init__"] is method
    assert not inspect.isfunction(vars(made)["__hash__"])


def test_one_that_inherits_is_pythons() -> None:
    base: Any = records.dataclass(frozen=True)(plain())
    made: Any = records.dataclass(frozen=True)(type("Sub", (base,), {"__annotations__": {"g": "int"}, "g": 8}))
    assert inspect.isfunction(vars(made)["__init__"])
    assert made(1, g=2).g == 2
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
        records.dataclass(type("Sub", (base,), {}))


def test_what_it_does_not_know() -> None:
    with pytest.raises(TypeError, match="does not know order"):
        records.dataclass(order=True)(plain())
    with pytest.raises(TypeError, match="has no InitVar"):
        records.dataclass(type("With", (), {"__annotations__": {"x": "InitVar[int]"}}))
    with pytest.raises(TypeError, match="cannot have another __setattr__"):
        records.dataclass(frozen=True)(type("Sets", (), {"__setattr__": lambda *_: None}))
