"""Python's own library under capture: what it answers, and what the program's objects look like afterwards."""

from __future__ import annotations

import bisect
import calendar
import collections
import colorsys
import copy
import dataclasses
import difflib
import enum
import fractions
import functools
import heapq
import itertools
import json
import keyword
import operator
import posixpath
import pprint
import re
import shlex
import statistics
import string
import sys
import textwrap
import types
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import pytest

import distcompile as dc
from compiler_core.capture.recipes.constants import is_sentinel


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Flags(enum.Flag):
    A = enum.auto()
    B = enum.auto()


class Point(NamedTuple):
    x: int
    y: int = 2


@dataclasses.dataclass(order=True)
class Item:
    weight: int
    name: str = dataclasses.field(compare=False, default="")
    tags: list[str] = dataclasses.field(default_factory=list)


@functools.total_ordering
class Version:
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, text: str) -> None:
        self.parts = tuple(map(int, text.split(".")))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self.parts == other.parts

    def __lt__(self, other: Version) -> bool:
        return self.parts < other.parts


@functools.singledispatch
def describe(value: Any) -> str:
    return "object"


@describe.register
def _(value: int) -> str:
    return "int"


@describe.register(list)
def _of_list(value: list[Any]) -> str:
    return "list of " + ", ".join(map(describe, value))


TEXT = "the quick brown fox jumps over the lazy dog, and runs away " * 3
CASES: dict[str, Callable[[], Any]] = {
    "textwrap": lambda: (textwrap.fill(TEXT, 30), textwrap.dedent("  a\n   b"), textwrap.shorten(TEXT, 20)),
    "difflib": lambda: (difflib.get_close_matches("appel", ["ape", "apple", "peach"]),
                        list(difflib.ndiff(["a", "b"], ["a", "c"]))),
    "statistics": lambda: (statistics.median([3, 1, 2]), statistics.mean([1, 2, 4]), statistics.pstdev([1.0, 2.0])),
    "fractions": lambda: (fractions.Fraction(3, 4) + fractions.Fraction(1, 6), str(fractions.Fraction("0.125"))),
    "string": lambda: (string.Template("$who likes ${what}").substitute(who="tim", what="kung pao"),
                       string.capwords("a b c"), string.Formatter().format("{0:>4}{name!r}", 7, name="x")),
    "heapq": lambda: (list(heapq.merge([1, 4], [2, 3])), heapq.nlargest(2, [5, 1, 9], key=lambda v: -v)),
    "bisect": lambda: (bisect.bisect([1, 3, 5], 3), bisect.bisect_left([1, 3, 5], 3, key=lambda v: v)),
    "collections": lambda: (collections.Counter("abracadabra").most_common(2),
                            collections.ChainMap({"a": 1}, {"b": 2})["b"], collections.UserList([1, 2]) + [3],
                            list(collections.OrderedDict(a=1, b=2).items())),
    "copy": lambda: (copy.deepcopy({"a": [1, {2: (3,)}]}), copy.copy(Item(1, "x")), copy.replace(Point(1), x=5)
                     if hasattr(copy, "replace") else None),
    "dataclasses": lambda: (dataclasses.asdict(Item(1, "x", ["t"])), dataclasses.replace(Item(1), weight=2),
                            sorted([Item(3), Item(1), Item(2)]), Item(1) < Item(2), repr(Item(4))),
    "enum": lambda: (Color(1), Color["BLUE"], [c.name for c in Color], (Flags.A | Flags.B).value),
    "named tuples": lambda: (Point(1)._replace(y=9), Point(1)._asdict(), Point._make([4, 5])),
    "functools": lambda: (functools.reduce(operator.add, [1, 2, 3]), functools.partial(pow, 2)(5),
                          Version("1.10") > Version("1.9"), describe([1, [2]]), functools.cmp_to_key(
                              lambda a, b: b - a)(1) < functools.cmp_to_key(lambda a, b: b - a)(2)),
    "itertools": lambda: (list(itertools.accumulate([1, 2, 3], operator.mul)), list(itertools.product("ab", [1, 2])),
                          [(k, list(g)) for k, g in itertools.groupby("aabbb")], list(itertools.islice(
                              itertools.count(3), 4)), list(itertools.pairwise([1, 2, 3]))),
    "operator": lambda: (operator.itemgetter(1, 0)([3, 4]), operator.attrgetter("x")(Point(7)),
                         operator.methodcaller("upper")("a")),
    "json": lambda: json.loads(json.dumps({"a": [1, 2.5, None], "b": "x"}, indent=2, sort_keys=True)),
    "pprint": lambda: pprint.pformat({"b": list(range(30)), "a": "x" * 40}),
    "re": lambda: (re.sub(r"(\w+) (\w+)", r"\2 \1", "hello world"), re.findall(r"\d+", "a1b22"),
                   re.split(r",\s*", "a, b,c"), [m.span() for m in re.finditer("a", "banana")]),
    "shlex": lambda: shlex.split("a 'b c' d\\ e"),
    "calendar": lambda: (calendar.isleap(2024), calendar.monthrange(2024, 2)),
    "colorsys": lambda: colorsys.rgb_to_hsv(0.2, 0.4, 0.4),
    "posixpath": lambda: (posixpath.normpath("a/./b/../c"), posixpath.splitext("x.tar.gz")),
    "keyword": lambda: keyword.iskeyword("for"),
    "types": lambda: (types.SimpleNamespace(a=1), dict(types.MappingProxyType({"a": 1}))),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_library_answers_as_ever(name: str) -> None:
    case = CASES[name]
    expected = case()

    @dc.compile(backend="eager")
    def function(x: dc.Tensor) -> Any:
        return case(), x + 1

    for n in (1.0, 2.0, 3.0):
        found, y = function(dc.full((1,), n))
        assert repr(found) == repr(expected)
        assert y.tolist() == [n + 1]


class Noted:
    """An iterator that notes how it is asked."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def __iter__(self) -> Noted:
        self.log.append("iter")
        return self

    def __next__(self) -> int:
        self.log.append("next")
        if len(self.log) > 4:
            raise StopIteration
        return len(self.log)


def test_iterators_of_the_program_are_asked_as_ever() -> None:
    uses: list[Callable[[Noted], Any]] = [
        lambda it: list(itertools.chain(it, [9])),
        lambda it: (next(it), next(it, 0), list(it), next(it, 7)),
        lambda it: list(zip(it, "ab", strict=False)),
    ]
    for use in uses:
        compiled = dc.compile(lambda x, it, use=use: (use(it), x + 1), backend="eager")
        for _ in range(3):
            plain, seen = Noted(), Noted()
            assert compiled(dc.ones(1), seen)[0] == use(plain)
            assert seen.log == plain.log


def test_operators_of_what_is_built_in_are_in_the_graph() -> None:
    uses: list[Callable[[Any, Any], Any]] = [operator.or_, operator.and_, operator.xor, operator.eq, operator.lt]
    pairs: list[tuple[Any, Any]] = [(True, False), (True, 6), (5, 6), ({1}, {1, 2}), (frozenset({1}), frozenset({2}))]
    for use in [*uses, operator.ior]:
        for one, other in pairs:
            compiled = dc.compile(lambda x, a, b, use=use: (use(a, b), x + 1), backend="eager", fullgraph=True)
            assert compiled(dc.ones(1), copy.copy(one), other)[0] == use(copy.copy(one), other)


def test_a_module_without_a_table_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    """sys.modules may hold anything: an object with slots, say."""

    class Slotted:
        __slots__ = ()

    held, holder = object(), types.ModuleType("holder")
    vars(holder)["held"] = held
    monkeypatch.setitem(sys.modules, "slotted", cast("Any", Slotted()))
    monkeypatch.setitem(sys.modules, "holder", holder)
    assert is_sentinel(held)
    assert not is_sentinel(object())
