"""A guard that passes implies the same capture: programs are captured again at every call whose guards pass, and after
changes of what they can reach. See `recapture.py` for how, `state_changes.py` for which changes, `recaptured.py` for
the process in which the collections run.

Some programs of each collection in a plain run, all with --long.
"""

from __future__ import annotations

import contextlib
import functools
import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import distcompile as torch
from compiler_core.capture.guards.guards import Guards
from distcompile.library import custom_op
from tests import sharing
from tests.compiler_core.capture.replay import recaptured
from tests.compiler_core.capture.replay.recapture import watching
from tests.compiler_core.capture.replay.recaptured import LONGEST_S, compiled

EACH = 24  # one of so many programs in a plain run


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(scope="module")
def ask() -> Iterator[Callable[..., str]]:
    """ask(function of recaptured.py, argument): its result, in a small process."""
    with recaptured.alone() as process:
        yield lambda function, argument: process.submit(function, argument).result(LONGEST_S)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    collections = {"program": list(recaptured.PROGRAMS), "effects_of": recaptured.EFFECTS, "seed": range(0, 300, 10)}
    for name, items in collections.items():
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, sharing.every(items, EACH))


def test_programs_are_captured_alike(program: str, ask: Callable[..., str]) -> None:
    """At every call, and after their state is changed."""
    assert ask(recaptured.of_program, program) == ""


def test_effects_are_captured_alike(effects_of: str, ask: Callable[..., str]) -> None:
    assert ask(recaptured.of_effects, effects_of) == ""


def test_random_programs_are_captured_alike(seed: int, ask: Callable[..., str]) -> None:
    assert ask(recaptured.of_random, seed) == ""


def test_the_small_process_tells_what_differs(ask: Callable[..., str]) -> None:
    assert "graph differs" in ask(recaptured.of_effects_without_guards, "break_in_property")
    assert ask(recaptured.of_effects, "break_in_property") == ""


# -- the oracle itself


@pytest.mark.parametrize(
    ("forgotten", "told"),
    [("['scale']", "graph differs"), ("['flag']", "recipe differs"), (".shape", "graph differs"), ("nothing", "")],
)
def test_a_guard_that_is_missing_is_found(forgotten: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    require = Guards.require
    state: dict[str, Any] = {"scale": 2.0, "flag": True, "kept": []}
    x = torch.ones(2)

    def function(x: Any) -> Any:
        state["kept"].append(state["flag"])
        return x * state["scale"]

    def careless(guards: Guards, code: str, text: str) -> None:
        require(guards, "True" if forgotten in text else code, text)

    def change() -> None:
        if forgotten == ".shape":
            x.data = torch.ones(3)
        elif forgotten == "['flag']":
            state["flag"] = False
        else:
            state["scale"] = 3.0

    monkeypatch.setattr(Guards, "require", careless)
    with watching() as oracle:
        f = compiled(function)
        f(x), f(x)
        assert oracle.differences == []
        assert oracle.asked == 1
        found = oracle.after(change)
    assert found.startswith(told) if told else not found, found
    assert state["scale"] == 2.0, "a child changed its parent"
    assert len(state["kept"]) == 2, "an effect happened twice"


# -- what was found by it


class Box:
    """Something of the program's."""


def results(function: Any, *steps: Any) -> list[Any]:
    """What calls return, with a step before each but the first; compiled is plain."""
    found = [function(torch.ones(2)).tolist()]
    for step in steps:
        step()
        found.append(function(torch.ones(2)).tolist())
    return found


def test_attributes_of_a_class_that_are_swapped() -> None:
    class Mine(Box):
        unused = 1

    mine = Mine()

    def function(x: Any) -> Any:
        return x * (2 if mine else 3) + getattr(mine, "extra", 0)

    def swap() -> None:
        del Mine.unused
        Mine.__len__ = lambda self: 0

    def swap_again() -> None:
        del Mine.__len__
        Mine.extra = 5

    assert results(compiled(function), swap, swap_again) == [[2, 2], [3, 3], [7, 7]]


def test_bases_of_a_class_that_are_replaced() -> None:
    class One(Box):
        scale = 2

    class Other(Box):
        scale = 3

    class Mine(One):
        pass

    mine = Mine()
    f = compiled(lambda x: x * mine.scale)
    assert results(f, lambda: setattr(Mine, "__bases__", (Other,))) == [[2, 2], [3, 3]]


def test_a_variable_that_was_shared_and_is_no_more() -> None:
    def inner(n: Any) -> Any:
        return (lambda: n), (lambda: n)

    first, second = inner([1])

    def function(x: Any) -> Any:
        first().append(x)
        return x * len(second())

    def part() -> None:
        nonlocal second
        second = inner([1])[0]

    assert results(compiled(function), part) == [[2, 2], [1, 1]]


@pytest.mark.parametrize("quiet", [False, True])
def test_hashing_and_comparing_by_code_of_the_program(quiet: bool) -> None:
    log: list[Any] = []

    class Key:
        def __init__(self, n: int) -> None:
            self.n = n

        def __hash__(self) -> int:
            log.append(("hash", self.n))
            return hash(self.n)

        def __eq__(self, other: object) -> bool:
            log.append(("eq", self.n))
            return isinstance(other, Key) and self.n == other.n

    class Quiet:
        def __init__(self, n: int) -> None:
            self.n = n

        def __hash__(self) -> int:
            return hash(("key", self.n))

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Quiet) and self.n == other.n

    kind: Any = Quiet if quiet else Key
    table = {kind(1): 2.0, kind(2): 3.0}

    def kept(x: Any) -> Any:
        made: dict[Any, Any] = {}
        made[kind(4)] = x
        made.setdefault(kind(4), x)
        return made.pop(kind(4))

    functions = [
        lambda x: x * table[kind(1)],
        lambda x: x * {kind(1): 3.0, kind(2): 1.0}[kind(1)],
        lambda x: x * len({kind(1), kind(1)}),
        lambda x: x * len(set([kind(1), kind(1)])),  # noqa: C405
        lambda x: x * (2 if kind(1) in table else 3),
        lambda x: x * table.get(kind(3), 4),
        lambda x: x * len(dict.fromkeys([kind(1)])),
        lambda x: x * len({kind(1)} | {kind(2)}),
        lambda x: x * (2 if (kind(1), 2) in {(kind(1), 2)} else 3),
        lambda x: x * (2 if [kind(1)] == [kind(1)] else 3),
        kept,
    ]
    for place, function in enumerate(functions):
        log.clear()
        plain, told = results(function, *[lambda: None] * 2), list(log)
        log.clear()
        f = compiled(function)
        assert results(f, *[lambda: None] * 2) == plain
        assert log == told, place
        assert bool(f.explain().breaks) is not quiet


def test_what_a_key_holds_is_guarded() -> None:
    class Key:
        def __init__(self, n: int) -> None:
            self.n = n

        def __hash__(self) -> int:
            return hash(("key", self.n))

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Key) and self.n == other.n

    table, key = {Key(1): 2.0, Key(2): 3.0}, Key(1)
    f = compiled(lambda x: x * table[key])
    assert results(f, lambda: setattr(key, "n", 2)) == [[2, 2], [3, 3]]
    assert not f.explain().breaks


@pytest.mark.parametrize("options", [{}, {"maxsize": None}, {"maxsize": 2, "typed": True}, {"maxsize": 0}])
def test_a_cache_that_misses_runs_its_function_in_its_place(options: dict[str, Any]) -> None:
    log: list[str] = []

    def cached(n: int, k: int = 0) -> int:
        log.append("miss")
        return n + k

    def calls(wrap: Any) -> list[str]:
        keeping = functools.lru_cache(**options)(cached)

        def function(x: Any) -> Any:
            log.append("before")
            y = x * keeping(3) + keeping(1, k=2)
            log.append("after")
            return y

        log.clear()
        assert results(wrap(function), lambda: None, keeping.cache_clear, lambda: None) == [[6, 6]] * 4
        return [*log]

    assert calls(compiled) == calls(lambda function: function)


def test_a_gradient_of_the_programs_that_is_replaced() -> None:
    def helper(g: Any) -> Any:
        return g * 2

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return helper(g)

    f = compiled(lambda x: Twice.apply(x).sum())

    def gradient() -> Any:
        x = torch.ones(2, requires_grad=True)
        f(x).backward()
        return x.grad.tolist()

    assert gradient() == gradient() == [2, 2]
    Twice.backward = staticmethod(lambda ctx, g: g * 5)  # type: ignore[method-assign]
    assert gradient() == [5, 5]
    Twice.backward = staticmethod(lambda ctx, g: helper(g))  # type: ignore[method-assign]
    assert gradient() == [2, 2]

    def helper(g: Any) -> Any:  # noqa: F811
        return g * 7

    assert gradient() == [7, 7]


def test_an_operator_whose_gradient_or_surroundings_change() -> None:
    seen: list[int] = []
    scale = 3.0

    @custom_op("recapture::scaled", mutates_args=())
    def scaled(x: torch.Tensor, k: float = 2.0) -> torch.Tensor:
        seen.append(1)
        return x * k * scale

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.k = inputs[1]

    scaled.register_autograd(lambda ctx, g: (g * ctx.k, None), setup_context=keep)
    f = compiled(lambda x: scaled(x).sum())

    def call() -> tuple[float, Any]:
        x = torch.ones(2, requires_grad=True)
        y = f(x)
        y.backward()
        return y.item(), x.grad.tolist()

    assert [call(), call()] == [(12, [2, 2])] * 2
    scale = 4.0
    assert call() == (16, [2, 2])
    scaled.register_autograd(lambda ctx, g: (g * 10, None))
    assert call() == (16, [10, 10])
    assert len(seen) == 4
    assert not f.explain().breaks
