"""Python state that a compiled function changes: each change happens once a call, as it does eager."""

from __future__ import annotations

import functools
import gc
import random
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from compiler_core.capture import compile
from compiler_core.tensor.making.creation import ones
from compiler_core.tensor.tensor import Tensor
from distcompile import nn

COUNT = 0
HISTORY: list[Any] = []


class Bag:
    """An object of the user's."""

    def __init__(self) -> None:
        self.n, self.items = 0, []

    @functools.cached_property
    def width(self) -> int:
        return 3


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    global COUNT
    COUNT = 0
    HISTORY.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def count_globally() -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        global COUNT
        COUNT += 1
        return x * COUNT

    return function


def count_in_a_variable() -> Callable[[Tensor], Tensor]:
    n = 0

    def function(x: Tensor) -> Tensor:
        nonlocal n
        n += 1
        return x * n

    return function


def count_in_a_dict() -> Callable[[Tensor], Tensor]:
    state = {"n": 0}

    def function(x: Tensor) -> Tensor:
        state["n"] += 1
        return x * state["n"]

    return function


def count_in_an_object() -> Callable[[Tensor], Tensor]:
    bag = Bag()

    def function(x: Tensor) -> Tensor:
        bag.n += 1
        bag.items.append(x * bag.n)
        return bag.items[-1]

    return function


def count_in_a_long_list() -> Callable[[Tensor], Tensor]:
    seen = [0] * 200

    def function(x: Tensor) -> Tensor:
        seen.append(0)
        return x * (len(seen) - 200)

    return function


def remember() -> None:
    HISTORY.append(None)


def count_in_a_helper() -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        remember()
        return x * len(HISTORY)

    return function


def count_in_a_module() -> nn.Module:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Tensor] = []

        def forward(self, x: Tensor) -> Tensor:
            self.seen.append(x.detach() * 1)
            return sum(self.seen[1:], self.seen[0])

    return nn.Sequential(Counting())


def count_in_a_class() -> Callable[[Tensor], Tensor]:
    class Shared:
        n = 0

    def function(x: Tensor) -> Tensor:
        Shared.n += 1
        return x * Shared.n

    return function


def count_in_a_namespace() -> Callable[[Tensor], Tensor]:
    space = types.SimpleNamespace(n=0)

    def function(x: Tensor) -> Tensor:
        space.n += 1
        return x * space.n

    return function


def count_in_an_array() -> Callable[[Tensor], Tensor]:
    counts = np.zeros(2)

    def function(x: Tensor) -> Tensor:
        counts[1] += 1
        return x * float(counts[1])

    return function


def count_in_a_hook() -> nn.Module:
    seen: list[Tensor] = []

    def hook(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        seen.append(output)
        return output * len(seen)

    model = nn.Sequential(nn.ReLU())
    model[0].register_forward_hook(hook)
    return model


@pytest.mark.parametrize("make", [np.random.default_rng, random.Random])
def test_draws_from_a_generator_of_the_users_are_made_once_in_every_call(make: Callable[[int], Any]) -> None:
    mine, other = make(3), make(3)
    drawing = compile(lambda x: x * mine.random(), backend="aot_eager")
    for _ in range(3):
        np.testing.assert_array_equal(drawing(ones(2)).numpy(), (ones(2) * other.random()).numpy())


COUNTERS = [
    count_in_a_class,
    count_in_a_namespace,
    count_in_an_array,
    count_in_a_hook,
    count_globally,
    count_in_a_variable,
    count_in_a_dict,
    count_in_an_object,
    count_in_a_long_list,
    count_in_a_helper,
    count_in_a_module,
]

BREAKING = [count_in_an_array]  # NumPy arrays from outside are written by Python itself


@pytest.mark.parametrize("make", COUNTERS)
def test_what_a_call_changes_is_changed_once_in_every_call(make: Callable[[], Any]) -> None:
    counted = compile(make(), backend="aot_eager")
    for n in (1, 2, 3):
        np.testing.assert_array_equal(counted(ones(2)).numpy(), [n, n])


@pytest.mark.parametrize("make", [make for make in COUNTERS if make not in BREAKING])
def test_under_fullgraph_too(make: Callable[[], Any]) -> None:
    counted = compile(make(), backend="aot_eager", fullgraph=True)
    for n in (1, 2, 3):
        np.testing.assert_array_equal(counted(ones(2)).numpy(), [n, n])


def test_an_argument_that_is_filled_holds_real_tensors() -> None:
    def function(x: Tensor, kept: dict[str, Tensor]) -> Tensor:
        kept["x"] = x * 2
        return x

    kept: dict[str, Tensor] = {}
    compile(function, backend="aot_eager")(ones(2), kept)
    np.testing.assert_array_equal(kept["x"].numpy(), [2, 2])


def test_what_the_call_makes_itself_may_change() -> None:
    def fill(items: list[Tensor], bag: Bag, x: Tensor) -> None:
        items.append(x)
        bag.n += 1

    @compile(backend="aot_eager", fullgraph=True)
    def function(x: Tensor) -> Tensor:
        items: list[Tensor] = []
        bag = Bag()
        for _ in range(3):
            fill(items, bag, x)
        return sum(items[1:], items[0]) * bag.n

    np.testing.assert_array_equal(function(ones(2)).numpy(), [9, 9])


def test_a_cached_property_is_no_change() -> None:
    bag = Bag()
    function = compile(lambda x: x * bag.width, backend="aot_eager", fullgraph=True)
    np.testing.assert_array_equal(function(ones(2)).numpy(), [3, 3])


def test_callbacks_of_the_garbage_collector_are_not_the_functions_doing() -> None:
    def callback(phase: str, info: dict[str, int]) -> None:
        global COUNT
        COUNT += 1

    def function(x: Tensor) -> Tensor:
        gc.collect()
        return x * 2

    gc.callbacks.append(callback)
    try:
        compiled = compile(function, backend="aot_eager")
        for _ in range(2):
            np.testing.assert_array_equal(compiled(ones(2)).numpy(), [2, 2])
    finally:
        gc.callbacks.remove(callback)
    assert COUNT >= 2


def test_what_was_done_before_the_users_own_exception_stays() -> None:
    def function(x: Tensor) -> Tensor:
        HISTORY.append(1)
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        compile(function, backend="aot_eager")(ones(2))
    assert HISTORY == [1]


def test_a_cache_that_the_first_call_fills_is_read_by_later_ones() -> None:
    HISTORY.clear()

    def function(x: Tensor) -> Tensor:
        if not HISTORY:
            HISTORY.append(3)
        return x * HISTORY[0]

    compiled = compile(function, backend="aot_eager", fullgraph=True)
    for _ in range(4):
        np.testing.assert_array_equal(compiled(ones(2)).numpy(), [3, 3])
    assert len(compiled.explain().entries) == 2  # with an empty list, and with one that holds something


def test_a_counter_becomes_an_input() -> None:
    counted = compile(count_globally(), backend="aot_eager", fullgraph=True)
    for n in range(1, 7):
        np.testing.assert_array_equal(counted(ones(2)).numpy(), [n, n])
    assert len(counted.explain().entries) == 2  # the second takes the number as an input


def test_a_schedule_computed_in_python_is_no_recompile() -> None:
    import math

    @compile(backend="aot_eager", fullgraph=True)
    def scaled(x: Tensor, step: int) -> Tensor:
        warm = min(1.0, (step + 1) / 4)
        return x * (0.5 * warm * (1 + math.cos(math.pi * step / 20)))

    for step in range(12):
        expected = 0.5 * min(1.0, (step + 1) / 4) * (1 + math.cos(math.pi * step / 20))
        np.testing.assert_allclose(scaled(ones(2), step).numpy(), [expected] * 2, rtol=1e-6)
    assert len(scaled.explain().entries) == 2


def test_what_is_changed_may_be_what_is_read_under_another_name() -> None:
    def function(x: Tensor, a: list[int], b: list[int]) -> Tensor:
        a.append(1)
        return x + len(b)

    compiled = compile(function, backend="aot_eager", fullgraph=True)
    for same in (False, True, False, True):
        first: list[int] = []
        assert compiled(ones(1), first, first if same else []).tolist() == [2.0 if same else 1.0]
        assert first == [1]
