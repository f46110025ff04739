"""Where one size of a tensor changed, the others but the last are symbols too: a smaller batch is no new capture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import distcompile as dc
from compiler_core.config import config
from distcompile import nn
from distcompile.nn import functional as F


def language_model() -> Callable[..., Any]:
    model = nn.Sequential(nn.Embedding(10, 16), nn.Linear(16, 10))
    return lambda x: F.cross_entropy(model(x).view(-1, 10), x.view(-1))


def over_rows(x: Any) -> Any:
    total = x.sum()
    for row in range(x.shape[0]):
        total = total + row * x.shape[1]
    return total


def three_rows(x: Any) -> Any:
    return x * 2 if x.shape[0] == 3 else x * x.shape[1]


def with_a_break(x: Any) -> Any:
    doubled = x * 2
    print(end="")
    return doubled + x.shape[1]


def tokens(*shape: int) -> Any:
    return dc.randint(0, 10, shape)


# a function, what makes an argument, shapes, captures after each
CASES = {
    "a language model's lengths, and smaller batches": (
        language_model,
        tokens,
        [(4, 7), (4, 9), (4, 11), (3, 5), (2, 8)],
        [1, 2, 2, 2, 2],
    ),
    "steps of a recurrent layer, and smaller batches": (
        lambda: nn.LSTM(5, 6),
        dc.randn,
        [(3, 4, 5), (5, 4, 5), (6, 4, 5), (4, 3, 5), (5, 2, 5)],
        [1, 2, 2, 2, 2],
    ),
    "a growing cache": (
        lambda: lambda x: x.sum(2) * x.shape[2],
        dc.randn,
        [(2, 4, 3, 8), (2, 4, 4, 8), (2, 4, 5, 8), (3, 4, 6, 8)],
        [1, 2, 2, 2],
    ),
    "a loop over rows, which are constants then": (
        lambda: over_rows,
        dc.randn,
        [(3, 4), (3, 5), (3, 6), (3, 7)],
        [1, 2, 2, 2],
    ),
    "rows that the code fixes": (
        lambda: three_rows,
        dc.randn,
        [(3, 4), (3, 5), (3, 6), (4, 7), (5, 7)],
        [1, 2, 2, 3, 3],
    ),
    "the last size, as the batch alone changed": (
        lambda: lambda x: x * 2,
        dc.randn,
        [(4, 5), (3, 5), (2, 5), (2, 6), (2, 7)],
        [1, 2, 2, 3, 3],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_captured_so_often(name: str) -> None:
    make, draw, shapes, counts = CASES[name]
    function = make()
    compiled = dc.compile(function, backend="eager")
    found = []
    for shape in shapes:
        x = draw(*shape)
        got, expected = compiled(x), function(x)
        got, expected = (one[0] if isinstance(one, tuple) else one for one in (got, expected))
        dc.testing.assert_close(got, expected)
        found.append(len(compiled.explain().entries))
    assert found == counts


def test_a_break_that_has_nothing_to_do_with_sizes_keeps_them_symbols() -> None:
    compiled = dc.compile(with_a_break, backend="eager")
    for shape in [(3, 4), (3, 5), (3, 6), (4, 7), (5, 8)]:
        x = dc.randn(*shape)
        dc.testing.assert_close(compiled(x), with_a_break(x))
    assert len(compiled.explain().entries) <= 6  # two places, thrice each at most


def classifier() -> Callable[..., Any]:
    words, head = nn.Embedding(10, 16), nn.Linear(16, 3)
    return lambda x, labels: F.cross_entropy(head(words(x).mean(1)), labels)


def captured(compiled: Any) -> int:
    return len(compiled.explain().entries)


def test_what_has_a_number_for_each_of_another_goes_with_it() -> None:
    """A label for each text: once the lengths of texts have changed, a smaller batch is no capture more."""
    loss = classifier()
    compiled = dc.compile(loss, backend="eager")
    for batch, length in [(8, 10), (8, 12), (8, 9), (5, 7), (3, 11)]:
        x, labels = tokens(batch, length), dc.randint(0, 3, (batch,))
        dc.testing.assert_close(compiled(x, labels), loss(x, labels))
    assert captured(compiled) == 2


def test_sizes_that_are_equal_by_chance_are_not_taken_to_be() -> None:
    def both(x: Any, y: Any) -> Any:
        return x.sum(1) * y.shape[0] + y.sum()

    compiled = dc.compile(both, backend="eager")
    for n, length, other in [(4, 5, 4), (4, 6, 4), (3, 6, 4), (3, 7, 9), (4, 6, 2)]:
        x, y = dc.randn(n, length), dc.randn(other)
        dc.testing.assert_close(compiled(x, y), both(x, y))
    assert captured(compiled) == 2


def test_an_equal_size_that_code_asks_for_costs_no_capture() -> None:
    def asked(x: Any, y: Any) -> Any:
        total = x.sum(1)
        for row in range(y.shape[0]):
            total = total + y[row]
        return total

    compiled = dc.compile(asked, backend="eager")
    for n, length in [(4, 5), (4, 6), (4, 7), (3, 7)]:
        x, y = dc.randn(n, length), dc.randn(4)
        dc.testing.assert_close(compiled(x, y), asked(x, y))
    assert captured(compiled) == 2


class Opaque:
    def __init__(self, number: Any) -> None:
        self.number = number


@dc._dynamo.allow_in_graph
def told(x: Any, held: Opaque) -> Any:
    return x * len(str(held.number))


def test_where_capture_fails_with_equal_sizes_a_tensors_own_still_go_along() -> None:
    def hidden(x: Any, y: Any) -> Any:
        return told(x * x.shape[0], Opaque(y.shape[0])) + y.sum()

    compiled = dc.compile(hidden, backend="eager")
    for n, length in [(4, 5), (4, 6), (4, 7), (3, 7), (2, 5)]:
        x, y = dc.randn(n, length), dc.randn(4)
        dc.testing.assert_close(compiled(x, y), hidden(x, y))
    assert captured(compiled) == 2


def test_marked_static_it_stays_a_constant() -> None:
    compiled = dc.compile(lambda x: x * 2, backend="eager")
    for shape in [(3, 4), (3, 5), (3, 6)]:
        x = dc.randn(*shape)
        dc._dynamo.mark_static(x, 0)
        compiled(x)
    assert len(compiled.explain().entries) == 2
    x = dc.randn(4, 6)
    dc._dynamo.mark_static(x, 0)
    compiled(x)
    assert len(compiled.explain().entries) == 3


def test_nothing_is_taken_along_where_learning_is_off() -> None:
    compiled = dc.compile(lambda x: x * 2, backend="eager")
    with config.patch(automatic_dynamic_shapes=False):
        for shape in [(3, 4), (3, 5), (4, 6)]:
            compiled(dc.randn(*shape))
    assert len(compiled.explain().entries) == 3
