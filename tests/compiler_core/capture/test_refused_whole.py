"""A call that fullgraph=True refuses leaves nothing behind: the state is as before, at each of several calls."""

from __future__ import annotations

import collections
import contextlib
import gc
from collections.abc import Callable
from typing import Any

import pytest

import distcompile as dc
from compiler_core.errors import GraphBreak

COUNT = 0
STEPS = {"a": 1}


class Slotted:
    __slots__ = ("n", "unset")
    made = 0

    def __init__(self) -> None:
        self.n = 1


class Net(dc.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = dc.nn.Linear(2, 2)
        self.register_buffer("seen", dc.zeros(1))
        self.calls, self.log = 0, collections.OrderedDict(first=1)

    def forward(self, x: Any, stop: bool) -> Any:
        self.calls += 1
        self.seen += 1
        self.seen = self.seen * 2
        self.log["x"] = self.log.pop("first", 2)
        self.last = self.linear(x)
        if stop:
            print("stop")
        return self.last


def program() -> tuple[Callable[..., Any], Callable[[], Any]]:
    """A function that changes whatever there is, and what shows it."""
    net, slotted = Net(), Slotted()
    items, ends, names = [3, 1, 2], collections.deque([1, 2], maxlen=2), {1, 2}
    weight = dc.ones(2, requires_grad=True)
    weight.grad = dc.ones(2)
    count = 0

    def function(x: Any, stop: bool) -> Any:
        nonlocal count
        global COUNT
        count, COUNT = count + 1, COUNT + 1
        items.sort()
        items.append(count)
        ends.append(count)
        names.discard(1)
        STEPS["b"] = STEPS.pop("a", 0)
        slotted.n += 1
        slotted.unset = 2
        Slotted.made += 1
        weight.grad = None
        x.mul_(2)
        x.tag = "seen"
        with dc.no_grad():
            weight.add_(1)
            return net(x, stop) + sum(n for n in items)

    def state() -> Any:
        tensors = [weight, weight.grad, net.seen, net.linear.weight]
        plain = (COUNT, count, items, list(ends), sorted(names), list(STEPS.items()), slotted.n, Slotted.made)
        own = (hasattr(slotted, "unset"), net.calls, list(net.log.items()), sorted(vars(net)), dc.is_grad_enabled())
        return repr((plain, own, [None if t is None else (t.tolist(), t._version) for t in tensors]))

    return function, state


def test_nothing_has_happened() -> None:
    global COUNT
    function, state = program()
    compiled = dc.compile(function, backend="eager", fullgraph=True)
    before = state()
    for _ in range(2):
        x = dc.ones(1, 2)
        with pytest.raises(GraphBreak, match="print"):
            compiled(x, True)
        assert state() == before
        assert (x.tolist(), hasattr(x, "tag")) == ([[1.0, 1.0]], False)
    shown = []
    for run in (compiled, function):  # and what can be captured is, afterwards
        COUNT, Slotted.made = 0, 0
        STEPS.clear()
        STEPS["a"] = 1
        if run is function:
            run, state = program()
        run(dc.ones(1, 2), False)
        run(dc.ones(1, 2), False)
        shown.append(state().partition("[[")[0].rpartition("[")[0])
    assert shown[0] == shown[1]


def test_generators_and_contexts_are_left() -> None:
    log: list[str] = []

    def numbers() -> Any:
        try:
            yield 1
        finally:
            log.append("closed")

    @dc.compile(backend="eager", fullgraph=True)
    def function(x: Any) -> Any:
        found = numbers()
        with dc.no_grad():
            y = x * next(found)
            print("stop")
        return y

    for _ in range(2):
        with pytest.raises(GraphBreak, match="print"):
            function(dc.ones(1))
        assert (log, dc.is_grad_enabled()) == ([], True)


def test_a_context_manager_of_the_program_does_not_end_later() -> None:
    log: list[str] = []

    @contextlib.contextmanager
    def section() -> Any:
        log.append("+")
        try:
            yield
        finally:
            log.append("-")

    @dc.compile(backend="eager", fullgraph=True)
    def function(x: Any) -> Any:
        with section():
            return x * x.sum().item()

    for _ in range(2):
        with pytest.raises(GraphBreak, match="item"):
            function(dc.ones(1))
        gc.collect()
        assert log == []
