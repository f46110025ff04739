"""Python that is captured whole: run plainly and under fullgraph=True, call by call, it shows the same."""

from __future__ import annotations

import collections
import contextlib
import gc
import itertools
import math
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import distcompile
from tests.programs.harness import Entry, attempt, difference, run
from tests.programs.judge import plain_call

PROGRAMS: dict[str, Entry] = {}


def program(function: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    PROGRAMS[function.__name__] = Entry(function.__name__, function)
    return function


def whole(function: Any = None, **options: Any) -> Any:
    return distcompile.compile(function, backend="eager", fullgraph=True, **options)


@pytest.mark.parametrize("name", PROGRAMS_OF_THIS_FILE := [])
def test_captured_whole(name: str) -> None:
    plainly = run(PROGRAMS[name], distcompile, plain_call)
    assert difference(run(PROGRAMS[name], distcompile, whole), plainly) == ""


@program
def containers_take_iterators(torch, compile):
    kept, ends, names = [0], collections.deque([0], maxlen=4), collections.OrderedDict(z=0)

    @compile
    def step(x, k):
        def doubled():
            for i in range(k):
                yield x * i

        made = list(doubled())
        made += (t + 1 for t in doubled())
        made[1:2] = (t - 1 for t in doubled())
        kept.extend(i * i for i in range(k))
        ends.extend(i for i in range(k))
        ends.extendleft(-i for i in range(k))
        names.update((f"n{i}", i) for i in range(k))
        names.update({"last": k}, z=k)
        found = set()
        found.update((i for i in range(k)), (i + 10 for i in range(k)))
        return made, sorted(found)

    for k in (2, 3, 2, 2):
        yield step(torch.arange(2.0), k)
        yield kept, list(ends), dict(names)


@program
def iterators_are_used_up(torch, compile):
    Pair = collections.namedtuple("Pair", "left right")

    @compile
    def step(x, k):
        texts = ", ".join(f"{i}" for i in range(k))
        pair = Pair._make(x * i for i in range(2))
        made = collections.deque((x + i for i in range(k)), maxlen=2), dict.fromkeys((i for i in range(k)), x)
        found = {1, 9}.union(i * 2 for i in range(k))
        found.difference_update(i for i in (4, 5))
        return texts, pair, list(made[0]), made[1], sorted(found), math.prod(i + 1 for i in range(k))

    for k in (2, 3, 2):
        yield step(torch.ones(2), k)


@program
def attributes_are_deleted(torch, compile):
    class Slotted:
        __slots__ = ("a", "b")

    gone = []

    class Guarded:
        def __delattr__(self, name):
            gone.append(name)
            object.__delattr__(self, name)

    state, slotted, guarded = types.SimpleNamespace(n=0), Slotted(), Guarded()

    @compile
    def step(x):
        state.cache = x * 2
        y = state.cache + 1
        del state.cache
        if hasattr(state, "extra"):
            y = y + state.extra
            delattr(state, "extra")
        slotted.a = 3
        del slotted.a
        guarded.value = 1
        del guarded.value
        return y, hasattr(state, "cache"), hasattr(slotted, "a"), attempt(lambda: slotted.a), list(vars(state))

    for k in range(4):
        if k % 2:
            state.extra = float(k)
        yield step(torch.ones(2)), vars(state), gone


@program
def a_module_forgets_its_cache(torch, compile):
    class Net(torch.nn.Module):
        def forward(self, x):
            if hasattr(self, "seen"):
                x = x + self.seen
                del self.seen
            else:
                self.seen = 1.0
            return x

    net = Net()
    run = compile(net)
    for _ in range(4):
        yield run(torch.zeros(1)), "seen" in vars(net)


@program
def referents_come_and_go(torch, compile):
    class Owner:
        def __init__(self, scale):
            self.scale = scale

    owner = Owner(2.0)
    holder = [weakref.ref(owner)]

    @compile
    def step(x):
        found = holder[0]()
        mine = Owner(3.0)
        return x if found is None else x * found.scale, weakref.ref(mine)() is mine

    yield step(torch.ones(1))
    yield step(torch.ones(1))
    holder[0] = weakref.ref(other := Owner(5.0))
    yield step(torch.ones(1)), other.scale
    del other, owner
    gc.collect()
    yield step(torch.ones(1)), holder[0]() is None


@program
def proxies_show_what_is_there(torch, compile):
    table = {"scale": 2.0, "bias": 1.0}
    view = types.MappingProxyType(table)

    class Defaults:
        rate = 0.5

    @compile
    def step(x, key):
        y = x * view["scale"] + view.get(key, 0.0) + vars(Defaults)["rate"]
        mine = types.MappingProxyType({"a": x})
        keys = list(types.MappingProxyType(table)), tuple(view)
        return y, mine["a"], "scale" in view, len(view), sorted(view), list(view.values()), keys

    yield step(torch.ones(1), "bias")
    yield step(torch.ones(1), "absent")
    table["scale"] = 4.0
    yield step(torch.ones(1), "bias")
    table["absent"] = 3.0
    Defaults.rate = 0.25
    yield step(torch.ones(1), "absent")
    yield attempt(lambda: compile(lambda: view["none"])())


@program
def stacks_of_contexts(torch, compile):
    log = []

    @contextlib.contextmanager
    def noted(name, swallow=False):
        log.append(("in", name))
        try:
            yield name
        except ValueError as error:
            log.append(("caught", name, str(error)))
            if not swallow:
                raise
        finally:
            log.append(("out", name))

    @compile
    def step(x, fail):
        with contextlib.ExitStack() as stack:
            stack.enter_context(noted("a", swallow=True))
            stack.enter_context(torch.no_grad())
            stack.callback(log.append, ("called", torch.is_grad_enabled()))
            name = stack.enter_context(noted("b"))
            if fail:
                raise ValueError(name)
            x = x * 2
        return x, torch.is_grad_enabled()

    for fail in (False, True, False, True):
        yield step(torch.ones(1, requires_grad=True), fail), log


@program
def counters_from_outside(torch, compile):
    ticks, odd = itertools.count(3), itertools.count()

    @compile
    def step(xs):
        first = next(ticks)
        pairs = [x * n for x, n in zip(xs, odd)]
        return first, next(ticks) - first, pairs, [n for n, _ in zip(ticks, range(2))]

    for k in range(5):
        yield step([torch.ones(1)] * 2)
        if k == 2:
            yield next(ticks), next(odd)
    yield next(ticks), next(odd)


@program
def exceptions_under_handling(torch, compile):
    @compile
    def step(x, table, key):
        try:
            return x * table[key], sys.exc_info()[0]
        except KeyError:
            kind, error, _ = sys.exc_info()
            return x, kind, error.args, sys.exc_info()[1] is error

    for key in "abab":
        yield step(torch.ones(1), {"a": 2.0}, key)


@program
def draws(torch, compile):
    @compile
    def step(weights, n):
        return torch.multinomial(weights, n, True), weights[0].multinomial(n), torch.randperm(n + 2)

    weights = torch.rand(2, 9)
    weights[:, 7:] = 0
    for n in (1, 5, 5):
        yield step(weights, n)
    for wrong in (weights * 0, -weights, weights / 0):
        yield isinstance(attempt(step, wrong, 5).error, (IndexError, RuntimeError, ValueError))


PROGRAMS_OF_THIS_FILE.extend(PROGRAMS)


def test_a_referent_is_not_kept_alive() -> None:
    class Owner:
        scale = 2.0

    owner = Owner()
    reference = weakref.ref(owner)

    @whole
    def step(x: Any) -> Any:
        found = reference()
        return x if found is None else x * found.scale

    for _ in range(3):
        assert step(distcompile.ones(1)).item() == 2
    gc.disable()
    try:
        del owner
        assert reference() is None
    finally:
        gc.enable()
    assert step(distcompile.ones(1)).item() == 1
