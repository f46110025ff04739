"""Objects that are one at one call and two at the next: what compares by identity, in Python or in C, is told apart.

Each function is called in a row with objects that are the same, or not, compiled and plainly.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import distcompile as torch


class Thing:
    """Compares by identity."""

    def __init__(self, n: int = 0) -> None:
        self.n = n


def read_keys(a: Any, b: Any) -> Any:
    return [key.n for key in {a: 1, b: 2}], {a: 1, b: 2}[a]


def visited(a: Any, b: Any) -> Any:
    seen, found = set(), []
    for thing in (a, b, a):
        if thing not in seen:
            seen.add(thing)
            found.append(thing.n)
    return found


def changed(a: Any, b: Any) -> Any:
    a.n += 1
    return b.n


def removed(a: Any, b: Any) -> Any:
    things = [a, Thing(5)]
    if b in things:
        things.remove(b)
    return [thing.n for thing in things]


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "is": lambda a, b: a is b,
    "==": lambda a, b: (a == b, a != b),
    "in a list": lambda a, b: (a in [b], a in (Thing(), b), a not in [b]),
    "in a set": lambda a, b: (a in {b}, a in frozenset([b])),
    "in a dictionary": lambda a, b: (a in {b: 1}, {b: 1}.get(a, 2)),
    "containers": lambda a, b: ([a] == [b], (1, [a]) == (1, [b]), {"k": a} == {"k": b}, [a] != [b]),
    "tuples as keys": lambda a, b: ((a, 1) in {(b, 1): 2}, {(a, 1): 1, (b, 1): 2}[a, 1], len({(a,), (b,)})),
    "making sets": lambda a, b: (len({a, b}), len(set([a, b])), len(dict.fromkeys([a, b])), len(frozenset((a, b)))),  # noqa: C405
    "sets": lambda a, b: (len({a} | {b}), len({a} & {b}), len({a} - {b}), {a} == {b}, {a} <= {b}),
    "set methods": lambda a, b: (len({a}.union([b])), {a}.isdisjoint({b}), {a}.issubset([b])),
    "places": lambda a, b: ([a, Thing(), b].index(b), [a, b, a].count(a)),
    "keys": read_keys,
    "visited": visited,
    "changed": changed,
    "removed": removed,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_or_two(name: str) -> None:
    function = FUNCTIONS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(function, backend="eager")
        for same in (False, True, False, True):
            given, expected = Thing(1), Thing(1)
            others = (given, expected) if same else (Thing(2), Thing(2))
            assert compiled(given, others[0]) == function(expected, others[1])


def test_keys_of_a_dictionary_from_outside() -> None:
    one, two = Thing(1), Thing(2)
    table = {one: 1.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        get = torch.compile(lambda key: table.get(key, 7.0), backend="eager")
        assert [get(one), get(two), get(Thing()), get(one)] == [1, 7, 7, 1]
        table[two] = 9.0
        assert [get(two), get(one)] == [9, 1]
        keys = torch.compile(lambda x: (x * sum(key.n for key in table), list(table)), backend="eager")
        for n in (1, 4):
            one.n = n
            total, found = keys(torch.ones(1))
            assert total.item() == n + 2
            assert [key is thing for key, thing in zip(found, (one, two))] == [True, True]


@pytest.mark.parametrize("kind", [dict, set])
def test_keys_that_are_equal_and_of_another_type(kind: Any) -> None:
    held = [kind({1: "a", 2: "b"})]
    spell = torch.compile(lambda: sorted(str(key) for key in held[0]), backend="eager")
    for keys in ([1, 2], [1.0, 2.0], [True, 2]):
        held[0] = kind(dict.fromkeys(keys, "a"))
        assert spell() == sorted(map(str, keys))


def test_objects_that_share_their_attributes_and_then_do_not() -> None:
    one, two = Thing(1), Thing(1)
    table = one.__dict__ = two.__dict__ = {"n": 1}

    def function(x: Any) -> Any:
        one.n += 1
        table["k"] = two.n
        return x * one.k  # type: ignore[attr-defined]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(function, backend="eager")
        assert [compiled(torch.ones(1)).item() for _ in range(3)] == [2, 3, 4]
        two.__dict__ = {"n": 50}
        assert compiled(torch.ones(1)).item() == 50
        table = {}
        assert compiled(torch.ones(1)).item() == 50
        assert table == {"k": 50}
