"""Which tests run: turns together are everything, once each; of many parameters some always run."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests import sharing


class Item:
    """As much of a collected test as is asked."""

    def __init__(self, nodeid: str, *, long: bool = False) -> None:
        self.nodeid, self.long, self.path = nodeid, long, sharing.HERE.parent / nodeid.partition("::")[0]
        self.stash: dict[Any, bool] = {}

    def get_closest_marker(self, name: str) -> bool:
        return self.long and name == "long"


def family(name: str, count: int, long_from: int | None = None, file: str = "test_a.py") -> list[Any]:
    """A test's items; from `long_from` on they are marked `long`."""
    last = count if long_from is None else long_from
    return [Item(f"tests/{file}::{name}[{k}]", long=k >= last) for k in range(count)]


def test_turns_are_everything_and_each_once() -> None:
    items = [*family("many", 40), *family("two", 2), Item("tests/test_a.py::one")]
    met = Counter(item for k in (1, 2, 3) for item in sharing.of_turn(items, f"{k}/3"))
    assert met == Counter(items)
    of_many = [sum("many" in item.nodeid for item in sharing.of_turn(items, f"{k}/3")) for k in (1, 2, 3)]
    assert sorted(of_many) == [13, 13, 14]
    assert sharing.of_turn(items, "1/1") == set(items)


@pytest.mark.parametrize("turn", ["0/3", "4/3", "1", "a/b", "1/0", ""])
def test_a_turn_that_is_none_is_refused(turn: str) -> None:
    with pytest.raises(pytest.UsageError, match="expected K/N"):
        sharing.of_turn([], turn)


def test_a_turn_without_long_is_refused() -> None:
    with pytest.raises(pytest.UsageError, match="give --long too"):
        sharing.choose(family("many", 40), is_thin=True, is_long=False, turn="1/3")


def test_of_many_parameters_one_of_five_always_runs() -> None:
    many, few = family("many", 40), family("few", sharing.MANY)
    left = sharing.left_for_long([*many, *few], is_thin=True)
    assert set(left) < set(many)
    assert len(many) - len(left) == 40 // sharing.EACH
    assert sharing.left_for_long([*many, *few], is_thin=False) == []
    assert sharing.left_for_long(family("many", 40, file="compiler_core/graph/test_a.py"), is_thin=True) == []


def test_who_says_which_of_its_parameters_run_is_not_thinned() -> None:
    said = family("said", 40, long_from=20)
    assert sharing.left_for_long(said, is_thin=True) == said[20:]
    marks = [getattr(one, "marks", ()) for one in sharing.every(range(9), 4, 1)]
    assert [not one for one in marks] == [False, True, False, False, False, True, False, False, False]


def test_in_three_turns_everything_runs_and_takes_all_its_samples_once() -> None:
    ran: Counter[str] = Counter()
    in_full: Counter[str] = Counter()
    for k in (1, 2, 3):
        items = [*family("many", 40), *family("said", 9, long_from=2), *family("two", 2)]
        chosen = sharing.choose(items, is_thin=True, is_long=True, turn=f"{k}/3")
        ran.update(item.nodeid for item in chosen)
        in_full.update(item.nodeid for item in chosen if item.stash.get(sharing.IN_FULL, False))
    names = {item.nodeid for item in items}
    assert ran.keys() == names
    assert in_full == Counter(names)


def test_without_long_no_test_takes_all_its_samples() -> None:
    chosen = sharing.choose(family("many", 40), is_thin=True, is_long=False, turn="1/1")
    assert len(chosen) == 40 // sharing.EACH
    assert not any(item.stash for item in chosen)
