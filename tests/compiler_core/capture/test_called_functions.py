"""Which function objects a call ran: found without looking through all objects, or with, always the same ones."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType, FunctionType
from typing import Any

import pytest

from compiler_core.capture import called
from compiler_core.capture.called import CalledFunctions


def top(x: int, more: int = 2) -> int:
    return x + more


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return function(*args)

    return wrapper


@decorated
def wrapped(x: int) -> int:
    return sum(value for value in range(x))


class Outer:
    class Inner:
        @property
        def size(self) -> int:
            return 3

        @staticmethod
        def double(x: int) -> int:
            return 2 * x

    @classmethod
    def make(cls) -> Outer.Inner:
        return cls.Inner()


@dataclass
class Record:
    number: int = 3


def closures(count: int) -> list[Callable[[int], int]]:
    def one(offset: int) -> Callable[[int], int]:
        def add(x: int) -> int:
            return x + offset

        return add

    return [one(1000 + k) for k in range(count)]


def with_defaults(count: int) -> list[Callable[..., int]]:
    def one(offset: int) -> Callable[..., int]:
        def add(x: int, y: int = offset) -> int:
            return x + y

        return add

    return [one(2000 + k) for k in range(count)]


def local_class() -> Any:
    class Local:
        def __init__(self) -> None:
            self.value = 1

        def read(self) -> int:
            return self.value

    return Local


def run(function: Callable[[], object]) -> CalledFunctions:
    calls, seen = CalledFunctions(), set()

    def trace(frame: FrameType, event: str, arg: object) -> None:
        if frame.f_code.co_filename in (__file__, "<string>"):
            if frame.f_code not in seen:
                seen.add(frame.f_code)
                calls.first_call(frame)
            calls.call(frame)

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return calls


def by_search(calls: CalledFunctions) -> set[int]:
    """What looking through all objects finds."""
    every = gc.get_referrers(*calls.namespaces)
    functions = (f for f in every if type(f) is FunctionType and f.__code__ in calls.namespaces)
    return {id(f) for f in functions if called.contents(f) in calls.held.get(f.__code__, {()})}


TWO, DEFAULTS, LOCAL = closures(3), with_defaults(3), local_class()
PROGRAMS: dict[str, tuple[Callable[[], object], bool]] = {
    "a module's functions": (lambda: top(1) + wrapped(3), False),
    "methods": (lambda: Outer.make().size + Outer.Inner.double(2), False),
    "a dataclass's methods": (lambda: Record(4) == Record(5), False),
    "a local class's methods": (lambda: LOCAL().read(), False),
    "closures": (lambda: TWO[0](1) + TWO[2](1), True),
    "nested defaults": (lambda: DEFAULTS[0](1) + DEFAULTS[1](1), True),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_those_found_are_those_that_a_search_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, searches = PROGRAMS[name]
    calls = run(program)
    want = by_search(calls)
    looked: list[int] = []
    search = gc.get_referrers
    monkeypatch.setattr(called.gc, "get_referrers", lambda *codes: looked.append(1) or search(*codes))
    assert isinstance(program, FunctionType)
    found = {id(f) for f in calls.functions([program])}
    assert found == want
    assert bool(looked) == searches


def test_a_known_closure_is_enough_if_no_other_was_called(monkeypatch: pytest.MonkeyPatch) -> None:
    first = TWO[0]
    assert isinstance(first, FunctionType)
    calls = run(lambda: first(5))
    calls.namespaces = {code: found for code, found in calls.namespaces.items() if code is first.__code__}
    monkeypatch.setattr(called.gc, "get_referrers", lambda *codes: pytest.fail("looked through all objects"))
    assert calls.functions([first, *(f for f in TWO[1:] if isinstance(f, FunctionType))]) == [first]
