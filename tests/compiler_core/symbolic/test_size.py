"""Sizes that the call decides, against plain integers: arithmetic, ends, what is decided and what is assumed."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from compiler_core.errors import ClosedSizesError, GraphError, UnknownSizeError
from compiler_core.graph.parse import parse_graph
from compiler_core.graph.print import print_graph
from compiler_core.symbolic.size import (
    Sizes,
    SizeSymbol,
    Sym,
    at_sizes,
    ends_of,
    name_of,
    replaced,
    symbols_in,
    text_of,
    value_at,
)
from compiler_core.symbolic.size_text import show_declarations

Recipe = Callable[[Sequence[Any]], Any]  # of symbols a size, of ints an int
ARITHMETIC = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod)
RELATIONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
SYMBOLS = 3


def recipe(rng: random.Random, depth: int) -> Recipe:
    """A random expression. A divisor is anything: a recipe that divides by 0 raises, of either kind."""
    if depth == 0:
        k, number = rng.randrange(SYMBOLS), rng.randint(-3, 9)
        return (lambda values: values[k]) if rng.random() < 0.7 else (lambda values: number)
    op, left, right = rng.choice(ARITHMETIC), recipe(rng, depth - 1), recipe(rng, rng.randrange(depth))
    return lambda values: op(left(values), right(values))


def captured(rng: random.Random) -> tuple[Sizes, list[Sym], list[int]]:
    sizes = Sizes()
    hints = [rng.randint(2, 12) for _ in range(SYMBOLS)]
    return sizes, [sizes.new(hint) for hint in hints], hints


def table(sizes: Sizes, values: Sequence[int]) -> Callable[[SizeSymbol], int]:
    return dict(zip(sizes.symbols, values)).__getitem__


def others(rng: random.Random) -> list[int]:
    return [rng.randint(2, 40) for _ in range(SYMBOLS)]


def hold(sizes: Sizes, values: Sequence[int]) -> bool:
    return all(guard.holds(table(sizes, values)) for guard in sizes.guards)


@pytest.mark.parametrize("seed", range(30))
def test_random_expressions_are_integers_wherever_their_guards_hold_and_within_their_ends(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        made = recipe(rng, 3)
        sizes, symbols, hints = captured(rng)
        try:
            expected = made(hints)
        except ZeroDivisionError:
            with pytest.raises(ZeroDivisionError):
                made(symbols)
            continue
        size = made(symbols)
        assert value_at(size, table(sizes, hints)) == expected
        low, high = ends_of(size)
        for values in [hints, *(others(rng) for _ in range(4))]:
            if hold(sizes, values):
                assert value_at(size, table(sizes, values)) == made(values), size
                assert low <= made(values) <= high, size


@pytest.mark.parametrize("seed", range(30))
def test_wherever_guards_hold_all_that_was_answered_is_true_and_a_question_makes_one_guard(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(12):
        sizes, symbols, hints = captured(rng)
        asked: list[tuple[Recipe, bool]] = []
        for _ in range(6):
            question = _question(rng)
            try:
                answer = question(hints)
            except ZeroDivisionError:
                continue
            assert question(symbols) is answer
            asked.append((question, answer))
        guards = len(sizes.guards)
        sizes.close()
        assert all(question(symbols) is answer for question, answer in asked)
        assert len(sizes.guards) == guards
        for values in (others(rng) for _ in range(30)):
            if hold(sizes, values):
                assert all(question(values) is answer for question, answer in asked), [str(g) for g in sizes.guards]


def _question(rng: random.Random) -> Recipe:
    relation, left, right = rng.choice(RELATIONS), recipe(rng, rng.randrange(3)), recipe(rng, rng.randrange(2))
    return lambda values: bool(relation(left(values), right(values)))


@pytest.mark.parametrize("seed", range(10))
def test_text_reads_back_as_the_same_expression(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        made, (sizes, symbols, hints) = recipe(rng, 3), captured(rng)
        try:
            expected, size = made(hints), made(symbols)
        except ZeroDivisionError:
            continue
        meta = f"f32[s0, s1, s2, {text_of(size, name_of)}]"
        text = f"{show_declarations(sizes.symbols)}\ngraph g(%x: {meta} input '') {{\n  return %x\n}}\n"
        graph = parse_graph(text)
        again, values = graph.outputs[0].shape[-1], dict(zip(("s0", "s1", "s2"), hints))
        assert print_graph(graph) == text
        assert at_sizes(again, {symbol: values[symbol.name] for symbol in symbols_in(again)}) == expected


def test_what_is_decided_asks_nothing() -> None:
    sizes = Sizes()
    a, b = sizes.new(8), sizes.new(16)
    assert a != 0
    assert a
    assert a >= 2
    assert a + b > a
    assert 2 * a != 7
    assert a * 4 != 4 * a + 2
    assert not a < 0
    assert a + b == b + a
    assert (a + 1) * (a - 1) == a * a - 1
    assert abs(a) is a
    assert (a * b * 64) // (a * 8) == 8 * b
    assert (a * 64) % 8 == 0
    assert (a * a - 1) // (a - 1) == a + 1
    assert (a + 1) // 2 == (a - 1) // 2 + 1
    assert (a + b) % -1 == 0
    assert (2 * a + 1) % 2 == 1
    assert sizes.guards == []


@pytest.mark.parametrize("divisor", [-1, -2, -3, -4, -12])
def test_negative_divisors_round_as_integers_do(divisor: int) -> None:
    sizes = Sizes()
    a = sizes.new(5)
    for value in range(2, 30):
        at = table(sizes, [value])
        assert value_at((6 * a + 5) // divisor, at) == (6 * value + 5) // divisor
        assert value_at((6 * a + 5) % divisor, at) == (6 * value + 5) % divisor
        assert value_at((6 * a + 5) // (divisor * a), at) == (6 * value + 5) // (divisor * value)
        assert value_at((6 * a + 5) % (divisor * a + 1), at) == (6 * value + 5) % (divisor * value + 1)


def test_an_answer_by_the_hint_is_a_guard_that_is_known_from_there_on() -> None:
    told: list[str] = []
    sizes = Sizes(told=lambda guard: told.append(str(guard)))
    a, b, c = (sizes.new(hint, text=text) for hint, text in ((8, "x.shape[0]"), (4, "y.shape[0]"), (9, "")))
    assert a == 2 * b
    assert a != c
    assert a * c > 70
    assert b < 5
    assert told == ["x.shape[0] == 2*y.shape[0]", "not x.shape[0] == s2", "70 < x.shape[0]*s2", "y.shape[0] < 5"]
    assert sizes.normal(a * c) == 2 * b * c
    assert 2 * b != c
    assert b * c >= 36
    assert b <= 4
    assert a <= 8
    assert len(told) == 4
    assert all("test_size.py" in guard.where for guard in sizes.guards)


def test_forms_known_before_an_equality_are_known_after_it() -> None:
    sizes = Sizes()
    a, b, c, d = sizes.new(8, high=9), sizes.new(8), sizes.new(5), sizes.new(5)
    assert a * c <= 41
    assert a != c + 2
    assert a == b
    assert c == d
    guards = len(sizes.guards)
    assert b <= 9
    assert b * d <= 41
    assert b != d + 2
    assert len(sizes.guards) == guards


def test_who_needs_the_number_fixes_it_once() -> None:
    sizes = Sizes()
    a, b = sizes.new(8), sizes.new(4)
    assert list(range(a))[-1] == 7
    assert [0, 1][b - 3] == 1
    assert int(a) == 8
    assert float(b) == 4.0
    assert [(guard.show(lambda s: s.name), guard.fixes) for guard in sizes.guards] == [
        ("s0 == 8", True),
        ("s1 - 3 == 1", True),
    ]
    assert a + b == 12
    assert len(sizes.guards) == 2


NUMBERS: dict[str, Callable[[Any], Any]] = {
    "half": lambda n: n * 0.5,
    "half of": lambda n: 0.5 * n,
    "true division": lambda n: n / 3,
    "divided": lambda n: 3 / n,
    "float": lambda n: n + 0.5 - n,
    "power": lambda n: 2**n,
    "root": lambda n: n**0.5,
    "float is less": lambda n: n > 3.5,
    "equal to a float": lambda n: n == 8.0,
    "float32": lambda n: np.float32(8) == n,
    "array": lambda n: (np.arange(3) * n).tolist(),
    "to array": lambda n: (n + np.arange(3)).tolist(),
    "complex": lambda n: n * 1j,
}


@pytest.mark.parametrize("case", NUMBERS)
def test_arithmetic_with_other_numbers_fixes_the_size(case: str) -> None:
    sizes = Sizes()
    assert NUMBERS[case](sizes.new(8)) == NUMBERS[case](8)
    assert [guard.fixes for guard in sizes.guards] == [True]


def test_numpys_integers_are_integers() -> None:
    sizes = Sizes()
    a, eight = sizes.new(8), np.int64(8)
    for size in (eight + a, a + eight, eight * a - 7 * a + 8 - a + a):
        assert isinstance(size, Sym)
        assert repr(size) == "s0 + 8"
    assert repr(eight - a) == "-s0 + 8"
    assert repr(eight // a) == "(8 // s0)"
    assert repr(a % eight) == "(s0 % 8)"
    assert sizes.guards == []
    assert a == eight
    assert eight == a
    assert not a < eight
    assert [str(guard) for guard in sizes.guards] == ["s0 == 8"]
    assert sizes.guards[0].holds(lambda symbol: 8)


def test_structure_is_identity_for_hashing() -> None:
    sizes = Sizes()
    a, b = sizes.new(8), sizes.new(8)
    assert hash((a + b) // 3) == hash((b + a) // 3)
    assert {a * b: 1}[b * a] == 1
    assert len({a, b, a + 0, (a + b) // 2, (b + a) // 2, (a + b) % 2}) == 4
    assert a != "s0"
    assert a is not None
    assert sizes.guards == []


def test_no_hint_no_answer() -> None:
    sizes = Sizes()
    a = sizes.new(None, low=0, text="nonzero(x)")
    assert a >= 0
    assert a + 1 > 0
    assert sizes.decided("==", a, 3) is None
    with pytest.raises(UnknownSizeError, match=r"nonzero\(x\)"):
        bool(a == 3)
    with pytest.raises(UnknownSizeError):
        range(a)
    with pytest.raises(UnknownSizeError):
        7 // a
    assert sizes.guards == []


def test_closed_sizes_assume_nothing() -> None:
    sizes = Sizes()
    a, b = sizes.new(8), sizes.new(8)
    assert a == b
    sizes.close()
    assert a * 2 == b + a
    assert a >= 2
    for question in (lambda: a == 3, lambda: a < 9, lambda: int(a)):
        with pytest.raises(ClosedSizesError, match="nothing decides it"):
            question()
    assert len(sizes.guards) == 1


def test_sizes_of_two_captures_do_not_meet() -> None:
    with pytest.raises(GraphError, match="two captures"):
        bool(Sizes().new(8) == Sizes().new(8))
    sizes = Sizes()
    sizes.new(8, name="n")
    with pytest.raises(GraphError, match="taken"):
        sizes.new(8, name="n")


def test_attributes_at_sizes() -> None:
    sizes = Sizes()
    a, b = sizes.new(8), sizes.new(4)
    attr = ((a, 2 * b), "sum", slice(0, a + b, None), [1, 2])
    assert symbols_in(attr) == set(sizes.symbols)
    values = dict(zip(sizes.symbols, (5, 7)))
    found = at_sizes(attr, values)
    assert found == ((5, 14), "sum", slice(0, 12, None), [1, 2])
    assert found[3] is attr[3]
    assert at_sizes((1, 2), values) == (1, 2)
    assert sizes.guards == []
    assert replaced((a * b) // 3, lambda symbol: 6) == 12
    assert text_of(a * b * a - 3, lambda symbol: symbol.name.upper()) == "S0*S0*S1 - 3"
