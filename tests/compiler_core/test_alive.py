"""The collector's lists: right answers, and no hold on what other threads are making, nor on anything afterwards."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import chain

import pytest

from compiler_core import alive
from compiler_core.alive import importing


class Kind:
    """What is asked for."""

    def __init__(self, held: object = None) -> None:
        self.held = held


class Sub(Kind):
    """A subclass of it."""


class Proxy:
    """Says that it is of another class."""

    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise AssertionError("nobody may ask: it is Python")


MARK = Kind()
QUESTIONS: dict[str, Callable[[], object]] = {
    "objects": lambda: alive.objects(Kind),
    "referrers": lambda: alive.referrers([MARK], Kind),
    "young_referrers": lambda: alive.young_referrers([MARK], Kind),
}


def filled(question: Callable[[], object]) -> Iterator[int]:
    """What fills a tuple, and asks in the middle."""
    yield from range(3)
    question()
    yield from range(60)  # so many that the tuple must grow


@pytest.mark.parametrize("name", QUESTIONS)
def test_nothing_that_was_looked_at_is_held_afterwards(name: str) -> None:
    """The tuple is in the collector's list; if anything of the question were left, growing would be a SystemError."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        assert len(tuple(filled(QUESTIONS[name]))) == 63
        before = len(gc.get_objects())
        for _ in range(4):  # each looks at all there is
            QUESTIONS[name]()
        assert len(gc.get_objects()) <= before + 1
    finally:
        if was_enabled:
            gc.enable()


@pytest.mark.parametrize("name", QUESTIONS)
def test_another_threads_tuples_can_grow_meanwhile(name: str) -> None:
    raised: list[BaseException] = []
    is_over = threading.Event()

    def numbers() -> Iterator[int]:
        for number in range(60):
            if number % 7 == 0:
                time.sleep(0)  # the other thread's turn
            yield number

    def fill() -> None:
        try:
            while not is_over.is_set():
                tuple(numbers())
        except BaseException as error:  # noqa: BLE001  # for the test to raise
            raised.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=fill)
    thread.start()
    try:
        for _ in range(150):
            QUESTIONS[name]()
    finally:
        sys.setswitchinterval(interval)
        is_over.set()
        thread.join(60)
    assert raised == []


def test_who_refers_to_what_is_found_young_and_old() -> None:
    things = [Kind() for _ in range(3)]
    old = [Kind(things[0]), Sub([things[1]]), Sub(things[1])]
    for _ in range(2):
        gc.collect()
    young = [Sub(things[2]), Kind(things[2]), Kind()]
    others = [Proxy(), {"held": things[0]}]
    direct = {id(old[0]), id(old[2]), id(young[0]), id(young[1])}
    assert {id(found) for found in alive.referrers(things, Kind)} == direct
    found = alive.young_referrers(things, Kind)
    assert {id(thing) for thing in found} == {id(young[0]), id(young[1])}
    with_old = alive.young_referrers(things, Kind, [old[0], old[1]])
    assert {id(thing) for thing in with_old} == {id(old[0]), id(young[0]), id(young[1])}
    everyone = {id(thing) for thing in alive.objects(Kind)}
    assert {id(thing) for thing in chain(things, old, young)} <= everyone
    assert id(others[0]) not in everyone


def test_the_collector_is_left_as_it_was() -> None:
    for enabled in (True, False):
        (gc.enable if enabled else gc.disable)()
        try:
            alive.objects(Kind)
            assert gc.isenabled() is enabled
        finally:
            gc.enable()


@pytest.fixture
def unfrozen() -> Iterator[None]:
    """What conftest.py has frozen is not, meanwhile."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.usefixtures("unfrozen")
def test_what_an_import_defines_is_old_at_once() -> None:
    with importing():
        made: list[list[int]] = [[] for _ in range(3000)]
        assert not gc.isenabled()
    assert gc.isenabled()
    old = {*map(id, gc.get_objects(generation=2))}
    assert old.issuperset(map(id, made))


def test_what_a_program_has_frozen_stays_frozen() -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    with importing():
        pass
    assert gc.get_freeze_count() == frozen
