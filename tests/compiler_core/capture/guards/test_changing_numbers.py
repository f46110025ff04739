"""Numbers and texts that change from call to call: every program gives in each call what it gives plainly.

Each is called ten times with another number and text, on a list and a dictionary that stay the same. What is compared:
results, the list and the dictionary after each call, by value and by the exact types of what they hold.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections import Counter, OrderedDict, deque, namedtuple
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import distcompile as torch

CALLS = [(3, "a"), (1, "zz"), (0, "b"), (3, "zz"), (2, "a"), (4, "a"), (3, "b"), (3, "a"), (1, "a"), (5, "")]
Pair = namedtuple("Pair", "a b")


class Number(int):
    """A number of the program's own class."""


class Items(list):  # type: ignore[type-arg]
    """A list of the program's own class."""


class Less:
    """Only knows when it is less; told the other way round, it knows when it is more."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __lt__(self, other: Less) -> bool:
        return self.value < other.value


class Derived(Less):
    """Is asked first."""

    def __gt__(self, other: Less) -> bool:  # type: ignore[override]
        return other.value == 3


class Box:
    """Holds what it is given."""


def own_set(n: int) -> set[int]:
    made = {1, 2}
    made.add(n)
    return made


def same_list(n: int) -> Any:
    made = [n, 1]
    other = made
    made *= n % 3
    return made, other, made is other, (n, made) is (n, made)


def in_many_steps(n: int, s: str) -> Any:
    """Formulas that Python's parser would not take, or nobody's memory."""
    total = m = n
    for i in range(300):
        n, s, m, total = n - 1, f"{s}{i % 2}", max(m, n), total + total if i < 40 else total
    return n, s, m, total


def same_tuple(n: int, s: str) -> Any:
    made = (n, s)
    kept = {"made": made}
    return made is made, kept["made"] is made


def shared_list(n: int) -> Any:
    made = [n, 2]
    run = functools.partial(list, made), enumerate(made), zip(made, made), reversed(made)
    made.append(n + 1)
    return [list(part() if callable(part) else part) for part in run]


def raised(n: int, s: str) -> Any:
    try:
        raise KeyError(n, s)
    except KeyError as error:
        return error.args, str(error), repr(error)


def keywords(n: int, s: str) -> Any:
    def given(**named: Any) -> Any:
        return named

    return given(**{s: n}), {**{s: 1}, "a": n}


def attributes(n: int, s: str) -> Any:
    box = Box()
    setattr(box, f"x{s}", n)
    return getattr(box, f"x{s}"), hasattr(box, "xa"), sorted(vars(box))


def counted(n: int, s: str) -> Any:
    counter: Any = Counter()
    counter[s] += n
    counter.update([n])
    return counter == Counter({"a": 3, 3: 1}), counter.total(), dict(counter)


def popped(n: int, s: str) -> Any:
    table, items = {"a": 1, "b": 2}, [1, 2, 3, 4, 5, 6]
    table.pop(s, None)
    return table, items.pop(n), items


def inserted(n: int, items: list[Any]) -> Any:
    items.insert(n, 9)
    return list(items)


def swapped(n: int, s: str, items: list[Any], table: dict[str, Any]) -> Any:
    n, m = table.get(s, n), n
    items[0], items[1] = m, n
    if n > 2:
        raise ValueError(n)
    return n, m


def stored(n: int, s: str, items: list[Any], table: dict[Any, Any]) -> Any:
    items[n % 3] = s
    table[s], table[n] = n, s
    del table[n]
    return table.setdefault(s, 7), table.pop(n, 8), items.count(s), s in table


def kept_by_a_raise(n: int, items: list[Any]) -> None:
    items.append([n + 1])
    raise ValueError(n)


PROGRAMS: dict[str, Callable[[int, str, list[Any], dict[Any, Any]], Any]] = {
    "get": lambda n, s, items, table: ({"a": 1, "b": 2}.get(s, n), table.get(s, n)),
    "popped": lambda n, s, items, table: popped(n, s),
    "inserted": lambda n, s, items, table: inserted(n, items),
    "own set": lambda n, s, items, table: (len(own_set(n)), {n, 2}, {n: 1, 2: 5}),
    "comprehension": lambda n, s, items, table: (
        len({q % 2 for q in (n, n + 1, n + 3)}),
        {q % 3: q for q in (n, 2)},
        {n + q for q in (0, 2)},
    ),
    "found": lambda n, s, items, table: (items.index(n % 3 + 1), items.count(n), n in items, n in [0, 1]),
    "same list": lambda n, s, items, table: same_list(n),
    "same tuple": lambda n, s, items, table: same_tuple(n, s),
    "shared list": lambda n, s, items, table: shared_list(n),
    "the other way round": lambda n, s, items, table: (
        *(Less(n) > Less(2), max(Less(n), Less(1)).value, Less(n) < Derived(2), Derived(n) > Less(3)),
    ),
    "across a break": lambda n, s, items, table: (*[n, s], os.getpid() > 0, *[n + 1], [*(n,), *(s,)]),
    "raised": lambda n, s, items, table: raised(n, s),
    "keywords": lambda n, s, items, table: keywords(n, s),
    "compared": lambda n, s, items, table: (
        *([n, s] == [3, "a"], [n, s] < [3, "b"], (n, s) < (2, "b"), {"a": n} == {"a": 3}, {n} == {3}),
        *(Items([n, s]) == [3, "a"], Pair(n, s) == (3, "a"), OrderedDict(a=n) == {"a": 3}, deque([n]) == deque([3])),
    ),
    "hashed": lambda n, s, items, table: (hash((n, s)) == hash((3, "a")), hash(n) == 3),
    "derived": lambda n, s, items, table: (Number(n) + 1, Number(n) == 3, f"{Pair(n, s)}"),
    "start": lambda n, s, items, table: (sum(items, start=n), list(enumerate(items, start=n))),
    "drawn": lambda n, s, items, table: (Random(1).randint(0, n), Random(n).random()),
    "attributes": lambda n, s, items, table: attributes(n, s),
    "counted": lambda n, s, items, table: counted(n, s),
    "swapped": lambda n, s, items, table: swapped(n, s, items, table),
    "stored": lambda n, s, items, table: stored(n, s, items, table),
    "in many steps": lambda n, s, items, table: in_many_steps(n, s),
    "kept by a raise": lambda n, s, items, table: kept_by_a_raise(n, items),
}


def told(value: Any) -> Any:
    """A value by its exact type, and what it holds."""
    if isinstance(value, dict):
        return type(value), [(told(key), told(held)) for key, held in value.items()]
    if isinstance(value, (list, tuple, set, deque)):
        return type(value), [told(held) for held in value]
    return type(value), repr(value)


def run(function: Callable[..., Any]) -> list[Any]:
    """What can be seen of all calls."""
    items: list[Any] = [1, 2, 3]
    table: dict[Any, Any] = {"a": 1}
    found = []
    for n, s in CALLS:
        try:
            result = function(n, s, items, table)
        except Exception as error:  # noqa: BLE001 - whichever it is, is the observation
            result = (type(error).__name__, error.args)
        found.append((told(result), told(items), told(table)))
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_without_compiling(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = run(torch.compile(PROGRAMS[name], backend="eager"))
    for ours, theirs in zip(compiled, run(PROGRAMS[name]), strict=True):
        assert ours == theirs
