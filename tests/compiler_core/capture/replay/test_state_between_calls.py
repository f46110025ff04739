"""State that changes between two calls is noticed: one case, one function and changes of what it reads.

What was found by hand to be missed: slots and cells that were empty, code given to a function, registrations, modules
replaced, metaclasses, facts of classes, switches of ours.
"""

from __future__ import annotations

import abc
import decimal
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import pytest

import distcompile as torch

Case = tuple[Callable[[Any], Any], list[Callable[[], Any]]]
CASES: dict[str, Callable[[], Case]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.use_deterministic_algorithms(False)
    sys.modules.pop("replaced_module", None)


@pytest.mark.parametrize("name", CASES)
def test_noticed(name: str) -> None:
    """Compiled is plain before and after each change; and there is nothing to compile when nothing changed."""
    function, changes = CASES[name]()
    compiled = torch.compile(function, backend="eager")
    for change in [lambda: None, *changes]:
        change()
        expected = function(torch.ones(2)).tolist()
        assert compiled(torch.ones(2)).tolist() == expected
        entries = len(compiled.explain().entries)
        assert compiled(torch.ones(2)).tolist() == expected
        assert len(compiled.explain().entries) == entries


class Slotted:
    __slots__ = ("a",)
    a: int


@case
def slot_that_was_empty() -> Case:
    thing = Slotted()
    return lambda x: x * getattr(thing, "a", 1), [lambda: setattr(thing, "a", 5), lambda: delattr(thing, "a")]


@case
def slot_that_something_is_asked_for() -> Case:
    thing = Slotted()
    return lambda x: x * (2 if hasattr(thing, "a") else 3), [lambda: setattr(thing, "a", 5)]


@case
def slot_of_a_class_that_answers_itself() -> Case:
    class Answering(Slotted):
        __slots__ = ()

        def __getattr__(self, name: str) -> int:
            return 7

    thing = Answering()
    return lambda x: x * thing.a, [lambda: setattr(thing, "a", 5)]


@case
def variable_that_was_empty() -> Case:
    def function(x: Any) -> Any:
        try:
            return x * late
        except NameError:
            return x

    def fill() -> None:
        nonlocal late
        late = 3

    def clear() -> None:
        nonlocal late
        del late

    late = 1
    clear()
    return function, [fill, clear]


@case
def code_of_the_function_itself() -> Case:
    def function(x: Any) -> Any:
        return x * 2

    return function, [lambda: setattr(function, "__code__", (lambda x: x * 5).__code__)]


@case
def code_of_a_static_method() -> Case:
    class Mine:
        @staticmethod
        def scale() -> int:
            return 2

    def change() -> None:
        Mine.scale.__code__ = (lambda: 3).__code__  # type: ignore[attr-defined]

    return lambda x: x * Mine.scale(), [change]


@case
def class_registered_with_an_abstract_one() -> Case:
    class Abstract(abc.ABC):  # noqa: B024
        pass

    class Mine:
        pass

    mine = Mine()
    return lambda x: x * (2 if isinstance(mine, Abstract) else 3), [lambda: Abstract.register(Mine)]


@case
def instance_by_code_of_a_metaclass() -> Case:
    answers = [True]

    class Meta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return answers[0]

    class Fancy(metaclass=Meta):
        pass

    return lambda x: x * (2 if isinstance(3, Fancy) else 3), [lambda: answers.reverse() or answers.insert(0, False)]


@case
def module_that_is_imported() -> Case:
    def named(value: int) -> types.ModuleType:
        module = types.ModuleType("replaced_module")
        module.SCALE = value  # type: ignore[attr-defined]
        sys.modules["replaced_module"] = module
        return module

    def function(x: Any) -> Any:
        import replaced_module
        from replaced_module import SCALE

        return x * SCALE + replaced_module.SCALE

    named(2)
    return function, [lambda: named(9)]


@case
def switch_of_ours() -> Case:
    def switch(on: bool) -> Callable[[], None]:
        return lambda: torch.use_deterministic_algorithms(on)

    asked = torch.are_deterministic_algorithms_enabled
    return lambda x: x * (2 if asked() else 3), [switch(True), switch(False)]


@case
def seed() -> Case:
    return lambda x: x * torch.initial_seed(), [lambda: torch.manual_seed(3)]


@case
def object_that_can_be_called_now() -> Case:
    class Mine:
        pass

    mine = Mine()
    change = lambda: setattr(Mine, "__call__", lambda self: 1)  # noqa: E731
    return lambda x: x * (2 if callable(mine) else 3), [change]


@case
def descriptor_that_sets_now() -> Case:
    class Descriptor:
        def __get__(self, owner: object, kind: type) -> int:
            return 2

    class Mine:
        what = Descriptor()

    mine = Mine()
    mine.__dict__["what"] = 4
    return lambda x: x * mine.what, [lambda: setattr(Descriptor, "__set__", lambda self, owner, value: None)]


@case
def name_of_a_class() -> Case:
    class Mine:
        """Mine."""

    mine = Mine()

    def function(x: Any) -> Any:
        return x * len(Mine.__name__) + len(type(mine).__qualname__) + len(Mine.__doc__ or "")

    changes = {"__name__": "Longer", "__qualname__": "Longer still", "__doc__": "Mine, and not yours."}
    return function, [lambda pair=pair: setattr(Mine, *pair) for pair in changes.items()]  # type: ignore[misc]


@case
def places_that_a_class_matches() -> Case:
    class Mine:
        __match_args__ = ("a", "b")
        a, b = 2, 3

    mine = Mine()

    def function(x: Any) -> Any:
        match mine:
            case Mine(k):
                return x * k
        return x

    return function, [lambda: setattr(Mine, "__match_args__", ("b", "a"))]


@case
def attribute_that_does_not_match() -> Case:
    class Mine:
        pass

    mine = Mine()

    def function(x: Any) -> Any:
        match mine:
            case Mine(k=k):
                return x * k
        return x

    return function, [lambda: setattr(mine, "k", 4), lambda: delattr(mine, "k")]


@case
def attribute_that_a_protocol_asks_for() -> Case:
    @runtime_checkable
    class Asking(Protocol):
        k: int

    class Mine:
        pass

    mine = Mine()
    return lambda x: x * (2 if isinstance(mine, Asking) else 3), [lambda: setattr(mine, "k", 4)]


@case
def numbers_that_are_equal_and_not_spelled_alike() -> Case:
    held = [decimal.Decimal("1.0")]
    return lambda x: x * len(str(held[0])), [lambda: held.insert(0, decimal.Decimal("1.00"))]


def test_what_a_function_sets_is_set_at_every_call() -> None:
    before = torch.get_num_threads()

    def function(x: Any) -> Any:
        torch.set_num_threads(3)
        torch.use_deterministic_algorithms(True)
        return x * 2

    compiled = torch.compile(function, backend="eager")
    try:
        for _ in range(3):
            torch.set_num_threads(before)
            torch.use_deterministic_algorithms(False)
            compiled(torch.ones(2))
            assert torch.get_num_threads() == 3
            assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.set_num_threads(before)
