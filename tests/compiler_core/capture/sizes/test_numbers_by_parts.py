"""Sizes that are symbols, in interpreted frames: what is a size again, what is guarded, and what is never read.

The parts of the tracing semantics are asked by hand, in a segment of two sizes: T = 8 and B = 3.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import pytest

import distcompile as torch
from compiler_core.bytecode.frame import Enter
from compiler_core.capture.guards.sources import Argument
from compiler_core.capture.lessons import Memory
from compiler_core.capture.numbers.operands import handed
from compiler_core.capture.numbers.symbols import Input, SymbolFloat, SymbolInt, SymbolText, make
from compiler_core.capture.segment import CaptureSegment
from compiler_core.capture.tracing.parts import Parts
from compiler_core.ops.registry import use_trace
from compiler_core.symbolic.size import Sym
from compiler_core.tensor.size import Size

T_HINT, B_HINT = 8, 3


class Bench:
    """A segment that is captured. T, B: sizes; n: a number from outside that changes, 5."""

    def __init__(self) -> None:
        self.segment = CaptureSegment("f", Memory())
        self.parts = Parts(self.segment, lambda: [])
        self.numbers = self.segment.numbers
        self.T = self.numbers.sizes.symbol(Argument("args[0]", "T"), T_HINT)
        self.B = self.numbers.sizes.symbol(Argument("args[1]", "B"), B_HINT)
        self.n = make(5, Input(Argument("args[2]", "n"), 5))
        self.first = len(self.told())

    def told(self) -> list[str]:
        return list(self.segment.code.guards.texts)

    @property
    def guards(self) -> list[str]:
        """The guards that were made by what was asked."""
        return [text for text in self.told()[self.first :] if text]

    def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        with use_trace(self.segment.trace):
            made = self.parts.call(function, args, kwargs)
        assert not isinstance(made, Enter)
        return made

    def holds(self, t: int, b: int, n: int = 5) -> bool:
        """Whether a call of these sizes would pass the check."""
        self.segment.code.guards.outside.clear()
        check = self.segment.check_alone()
        return not isinstance(check((t, b, n), {}), int)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize(
    ("op", "right", "shown"),
    [
        *(("+", 1, "s0 + 1"), ("-", 1, "s0 - 1"), ("*", 4, "4*s0")),
        *(("//", 3, "(s0 // 3)"), ("%", 3, "(s0 % 3)"), ("**", 2, "s0*s0")),
    ],
)
def test_arithmetic_of_a_size_gives_a_size(bench: Bench, op: str, right: int, shown: str) -> None:
    made = bench.parts.operators.binary(op, bench.T, right)
    assert type(made) is Sym
    assert repr(made) == shown
    assert not bench.guards


def test_a_size_and_a_number_that_changes_give_a_size(bench: Bench) -> None:
    made = bench.parts.operators.binary("*", bench.n, bench.T)
    assert repr(made) == "s0*s2"
    assert bench.guards == ["n >= 2"]
    assert repr(bench.parts.operators.binary("+", bench.T, bench.n)) == "s0 + s2"
    assert bench.guards == ["n >= 2"]


def test_division_and_roots_give_numbers_that_follow(bench: Bench) -> None:
    half = bench.parts.operators.binary("/", bench.T, 2)
    root = bench.call(math.sqrt, bench.T)
    assert type(half) is type(root) is SymbolFloat
    assert (half, root) == (4.0, math.sqrt(8))
    assert all("is a float" in guard for guard in bench.guards)
    assert bench.holds(9, 3)


def test_zero_divisors_raise_as_they_do(bench: Bench) -> None:
    for op in ("//", "%", "/"):
        with pytest.raises(ZeroDivisionError):
            bench.parts.operators.binary(op, bench.T, 0)
    assert bench.holds(9, 4)


@pytest.mark.parametrize(
    ("op", "right", "answer", "others"),
    [("==", 8, True, 9), ("<", 10, True, 10), (">", 8, False, 9), ("!=", 7, True, 7), (">=", 4, True, 3)],
)
def test_a_comparison_is_guarded(bench: Bench, op: str, right: int, answer: bool, others: int) -> None:
    assert bench.parts.operators.compare(op, bench.T, right) is answer
    assert len(bench.guards) == 1
    assert bench.holds(8, 3)
    assert not bench.holds(others, 3)
    assert bench.parts.operators.compare(op, bench.T, right) is answer
    assert len(bench.guards) == 1


def test_what_ranges_decide_is_no_guard(bench: Bench) -> None:
    assert bench.parts.operators.compare(">", bench.T, 1) is True
    assert bench.parts.operators.truth(bench.T) is True
    assert bench.call(max, bench.T, 1) is bench.T
    assert bench.parts.operators.compare("==", bench.T, None) is False
    assert bench.parts.keys.is_same(bench.T, None) is False
    assert not bench.guards


def test_a_size_is_an_int(bench: Bench) -> None:
    assert bench.call(isinstance, bench.T, int) is True
    assert bench.call(isinstance, bench.T, (str, float)) is False
    assert bench.call(type, bench.T) is int
    assert bench.parts.attributes.load_attr(bench.T, "__class__") is int
    assert bench.call(int, bench.T) is bench.T
    assert not bench.guards


def test_loops_are_unrolled_and_say_so(bench: Bench) -> None:
    assert bench.call(range, bench.T) == range(8)
    assert bench.guards == ["T == 8"]
    assert bench.numbers.sizes.guards[-1].fixes
    assert not bench.holds(9, 3)


@pytest.mark.parametrize("shape", [tuple, Size, list])
def test_containers_keep_sizes(bench: Bench, shape: Any) -> None:
    made = shape((bench.B, bench.T, 4))
    assert bench.call(tuple, made)[1] is bench.T
    assert bench.call(list, made)[0] is bench.B
    assert bench.call(math.prod, made) == bench.B * bench.T * 4
    assert repr(bench.call(sum, made)) == "s0 + s1 + 4"
    assert bench.parts.iteration.unpack(made, 3, -1)[1] is bench.T
    assert [type(part) for part in bench.call(zip, made, made).__next__()] == [Sym, Sym]
    assert not bench.guards
    assert bench.parts.operators.compare("==", made, shape((bench.B, bench.T, 4))) is True
    assert not bench.guards
    assert bench.parts.operators.compare("==", made, shape((3, bench.T, 4))) is True
    assert bench.guards == ["B == 3"]


def test_whether_a_size_is_among_numbers_is_asked_one_by_one(bench: Bench) -> None:
    assert bench.parts.iteration.contains(bench.T, (64, 8)) is True
    assert not bench.holds(64, 3)
    assert not bench.holds(9, 3)
    assert bench.holds(8, 7)


@pytest.mark.parametrize(
    "show",
    [
        lambda b: b.parts.text.format(b.T, "", ""),
        lambda b: b.parts.text.format((b.T, 1), "", ""),
        lambda b: b.parts.text.format(Size((b.T, 1)), "r", ""),
        lambda b: b.parts.text.format({"a": [b.T], "b": (b.B, {"c": b.T})}, "", ""),
        lambda b: b.parts.text.format(ValueError("of", (b.T,)), "", ""),
        lambda b: b.parts.operators.binary("%", "%d x %s", (b.T, b.B)),
        lambda b: b.parts.operators.binary("%", "%s", {"a": b.T}),
        lambda b: b.call("{} {}".format, b.T, Size((b.B,))),
        lambda b: b.call(str, {"a": b.T}.values()),
        lambda b: b.call(repr, [b.T]),
    ],
)
def test_text_shows_numbers(bench: Bench, show: Any) -> None:
    text = show(bench)
    assert "s0" not in text
    assert "s1" not in text
    assert "8" in text
    if type(text) is SymbolText:  # one that follows the size, until somebody looks at it
        assert bench.numbers.specialise(text) == "8"
    assert not bench.holds(9, 3)


@pytest.mark.parametrize(
    "hashed",
    [
        lambda b: {b.parts.keys.as_key(b.T)},
        lambda b: b.call(set, (b.T, b.T)),
        lambda b: b.call(frozenset, [b.T]),
        lambda b: b.call(set, zip((b.T,), (b.B,))),
        lambda b: b.call(dict, [(b.T, 1)]),
        lambda b: b.call(dict, zip((b.T,), "a")),
        lambda b: b.call(dict.fromkeys, (b.T,)),
        lambda b: {b.call(hash, b.T)},
    ],
)
def test_what_is_hashed_is_a_number(bench: Bench, hashed: Any) -> None:
    (made,) = hashed(bench)
    assert made in (8, (8, 3))
    assert type(made) in (int, tuple)
    assert not bench.holds(9, 3)


def test_a_dictionary_is_asked_for_a_number(bench: Bench) -> None:
    table = {8: "eight"}
    assert bench.parts.items.get_item(table, bench.T) == "eight"
    assert bench.call(table.get, bench.T) == "eight"
    assert bench.parts.iteration.contains(bench.T, table) is True
    bench.parts.items.store_item(table, bench.B, bench.T)
    assert list(table) == [8, 3]
    assert table[3] is bench.T
    members = {8}
    bench.call(members.add, bench.T)
    bench.call(members.update, Size((bench.T, bench.B)))
    assert members == {8, 3}
    assert all(type(member) is int for member in members)


def test_places_in_lists_are_numbers(bench: Bench) -> None:
    assert bench.parts.items.get_item([1, 2, 3, 4], bench.B) == 4
    assert bench.guards == ["B == 3"]
    assert bench.parts.items.get_item("abcdefghij", slice(None, bench.T)) == "abcdefgh"
    assert bench.guards == ["B == 3", "T == 8"]


def test_functions_of_tensors_are_handed_sizes(bench: Bench) -> None:
    given = (bench.T, [bench.n, 2], slice(None, bench.T), {"size": Size((bench.B, bench.n))}, "text", None)
    got = handed(bench.numbers, given)
    assert got[0] is bench.T
    assert got[2].stop is bench.T
    assert got[3]["size"][0] is bench.B
    assert type(got[3]["size"]) is Size
    assert repr(got[1]) == "[s2, 2]"
    assert got[4:] == ("text", None)
    assert bench.guards == ["n >= 2"]


def test_numbers_below_two_are_constants(bench: Bench) -> None:
    one = make(1, Input(Argument("args[2]", "n"), 1))
    assert handed(bench.numbers, [one]) == [1]
    assert bench.guards == ["n == 1"]


def test_without_sizes_numbers_are_constants_as_ever() -> None:
    segment = CaptureSegment("f", Memory())
    n = make(5, Input(Argument("args[0]", "n"), 5))
    segment.numbers.symbols[n.formula.source] = n
    got = handed(segment.numbers, (n, [n]))
    assert got == (5, [5])
    assert type(got[0]) is int
    assert type(got[1][0]) is int


def test_beside_a_tensor_a_size_is_an_input(bench: Bench) -> None:
    with use_trace(bench.segment.trace):
        made = bench.parts.operators.binary("*", torch.ones(2), bench.T)
    assert made.shape == (2,)
    assert not bench.guards
    assert len(bench.segment.code.guards.outside) == 1


def test_functions_of_numbers_that_follow(bench: Bench) -> None:
    assert bench.call(abs, bench.T) is bench.call(round, bench.T) is bench.call(math.ceil, bench.T) is bench.T
    assert bench.call(divmod, bench.T, 2) == (bench.T // 2, bench.T % 2)
    assert bench.call(pow, bench.T, 2) == bench.T * bench.T
    assert bench.call(operator.sub, bench.T, bench.B) == bench.T - bench.B
    assert not bench.guards
    assert bench.call(min, bench.T, 100) is bench.T
    assert bench.call(min, bench.T, bench.B) is bench.B
    assert bench.holds(50, 7)
    assert not bench.holds(200, 7)
    assert not bench.holds(4, 7)


def test_a_number_computed_of_a_size_becomes_a_size(bench: Bench) -> None:
    part = bench.call(int, bench.parts.operators.binary("*", bench.T, 0.5))
    assert type(part) is SymbolInt
    got = handed(bench.numbers, part)
    assert type(got) is Sym
    assert got.at(lambda symbol: symbol.hint or 0) == 4
    assert bench.holds(9, 3)
