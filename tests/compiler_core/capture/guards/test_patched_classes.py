"""Classes and functions of ours that a program adds to, replaces and deletes: the next call does what eager does."""

from __future__ import annotations

import builtins
import threading
import types
from abc import ABC
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import distcompile as dc
import distcompile.nn.functional as F
from distcompile import nn, optim

Patch = tuple[Any, str, Any]  # of what, which attribute, what it becomes
GONE = object()
linear, act = nn.Linear(4, 4), nn.ReLU()


def times(factor: float) -> Callable[..., Any]:
    return lambda x, *args, **kwargs: x * factor


def prop(factor: float) -> property:
    return property(times(factor))


# what is compiled, and the patches, after each of which it is called
CASES: dict[str, tuple[Callable[[Any], Any], list[Patch]]] = {
    "a method added": (
        lambda x: x.added() if hasattr(x, "added") else x,
        [(dc.Tensor, "added", v) for v in (times(2), times(3), GONE, times(4), GONE)],
    ),
    "one that is got": (
        lambda x: getattr(x, "added", times(7))(*(() if hasattr(x, "added") else (x,))),
        [(dc.Tensor, "added", v) for v in (times(2), times(3), GONE)],
    ),
    "a method of its own": (lambda x: x.sin(), [(dc.Tensor, "sin", times(2)), (dc.Tensor, "sin", GONE)]),
    "what is called of the class": (
        lambda x: dc.Tensor.relu(x - 2),
        [(dc.Tensor, "relu", v) for v in (times(5), GONE)],
    ),
    "an operator": (lambda x: x + 1, [(dc.Tensor, "__add__", v) for v in (times(5), times(6), GONE)]),
    "a property": (lambda x: x.given, [(dc.Tensor, "given", v) for v in (prop(2), prop(3), prop(4))]),
    "one of its own": (
        lambda x: x * x.is_leaf,
        [(dc.Tensor, "is_leaf", property(lambda self, n=n: n)) for n in (2, 3)],
    ),
    "a number": (lambda x: x * x.number, [(dc.Tensor, "number", v) for v in (2.0, 3.0, 5.0, 7.0)]),
    "a static method": (lambda x: x.static(x), [(dc.Tensor, "static", staticmethod(times(v))) for v in (2, 3)]),
    "on the result of an op": (lambda x: (x * 2).added(), [(dc.Tensor, "added", times(v)) for v in (2, 3, 4)]),
    "what our own code calls": (lambda x: F.softmax(x, 0), [(dc.Tensor, "exp", v) for v in (times(2), times(3), GONE)]),
    "a function": (lambda x: F.relu(x - 2), [(F, "relu", v) for v in (times(5), times(6))]),
    "one that a module calls": (lambda x: act(x - 2), [(F, "relu", v) for v in (times(5), times(6))]),
    "one of the package": (lambda x: dc.relu(x - 2), [(dc, "relu", v) for v in (times(5), times(6))]),
    "a module's forward": (
        lambda x: linear(x),
        [(nn.Linear, "forward", lambda self, x: x * 3), (nn.Linear, "forward", lambda self, x: x * 4)],
    ),
    "what all modules do": (lambda x: linear(x), [(nn.Module, "__call__", lambda self, x: x * 3)]),
    "an attribute of all modules": (
        lambda x: x * getattr(linear, "extra", 1.0),
        [(nn.Module, "extra", 4.0), (nn.Linear, "extra", 5.0), (nn.Linear, "extra", GONE), (nn.Module, "extra", GONE)],
    ),
    "one name in place of another": (
        lambda x: x * (2 if hasattr(linear, "second") else 3),
        [(nn.Module, "first", 1), (nn.Module, "first", GONE), (nn.Module, "second", 1)],
    ),
    "an optimizer's": (lambda x: x * optim.SGD.speed, [(optim.SGD, "speed", v) for v in (2.0, 3.0, 4.0)]),
}


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "two at a time"])
@pytest.mark.parametrize("name", CASES)
def test_a_patch_is_seen(name: str, together: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    function, patches = CASES[name]
    compiled = dc.compile(function, backend="eager")
    before = [(owner, key, vars(owner).get(key, GONE)) for owner, key, _ in patches]
    assert outcome(compiled) == outcome(function)
    try:
        for step, patch in enumerate(patches):
            _put(*patch)
            if not together or step % 2:
                assert outcome(compiled) == outcome(function), step
    finally:
        for patch in reversed(before):
            _put(*patch)
    assert outcome(compiled) == outcome(function)


def _put(owner: Any, name: str, value: Any) -> None:
    if value is not GONE:
        setattr(owner, name, value)
    elif name in vars(owner):
        delattr(owner, name)


def outcome(function: Callable[[Any], Any]) -> Any:
    try:
        return function(dc.ones(4)).tolist()
    except AttributeError as error:
        return type(error)


def test_the_class_that_differs_is_named() -> None:
    compiled = dc.compile(lambda x: linear(x) + 1, backend="eager")
    compiled(dc.ones(4))
    try:
        nn.Linear.more = 1  # type: ignore[attr-defined]
        compiled(dc.ones(4))
    finally:
        del nn.Linear.more  # type: ignore[attr-defined]
    assert compiled.explain().recompiles == ("Linear has the same attributes",)


class Meta(type):
    def told(cls) -> float:
        return 2.0


class Told(metaclass=Meta):
    pass


class Base(ABC):  # noqa: B024 - classes are registered with it
    pass


class Derived:
    pass


# names that are no attributes of our classes: of Python, of NumPy, of a program's metaclass
ELSEWHERE: dict[str, tuple[Callable[[Any], Any], list[Patch]]] = {
    "len": (lambda x: x * len(x), [(dc.Tensor, "__len__", lambda self: 11)]),
    "abs": (lambda x: abs(x), [(dc.Tensor, "__abs__", lambda self: self * 5)]),
    "rows": (lambda x: sum(row for row in x), [(dc.Tensor, "__iter__", lambda self: iter([self * 5]))]),
    "an item": (lambda x: x[0] * 2, [(dc.Tensor, "__getitem__", lambda self, key: self * 5)]),
    "an item written": (lambda x: written(x * 2), [(dc.Tensor, "__setitem__", lambda self, key, v: self.mul_(5))]),
    "a builtin": (lambda x: x * max(1, 2), [(builtins, "max", v) for v in (lambda *args: 7, lambda *args: 9)]),
    "a name that Python gets": (lambda x: x * spelled(), [(builtins, "zork", v) for v in (3.0, 4.0, GONE)]),
    "a metaclass's method": (lambda x: x * Told.told(), [(Meta, "told", lambda cls, n=n: n) for n in (3, 4)]),  # type: ignore[misc]
    "a metaclass's property": (
        lambda x: x * getattr(Told, "way", 1),
        [(Meta, "way", property(lambda cls, n=n: n)) for n in (3, 4)],  # type: ignore[misc]
    ),
    "a function of NumPy": (lambda x: x * float(np.mean([1, 2, 3])), [(np, "mean", lambda of: 9.0)]),
    "a module compiled": (linear, [(nn.Module, "__call__", lambda self, x, n=n: x * n) for n in (3, 4)]),  # type: ignore[misc]
}


def written(x: Any) -> Any:
    x[0] = 1.0
    return x


def spelled() -> float:
    try:
        return zork  # type: ignore[name-defined,no-any-return]
    except NameError:
        return 1.0


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_patch_elsewhere_is_seen(name: str) -> None:
    function, patches = ELSEWHERE[name]
    compiled = dc.compile(function, backend="eager")
    before = [(owner, key, vars(owner).get(key, GONE)) for owner, key, _ in patches]
    assert outcome(compiled) == outcome(function)
    try:
        for step, patch in enumerate(patches):
            _put(*patch)
            assert outcome(compiled) == outcome(function), step
    finally:
        for patch in reversed(before):
            _put(*patch)
    assert outcome(compiled) == outcome(function)


def test_what_stands_for_print_is_called_every_time() -> None:
    said: list[str] = []

    def function(x: Any) -> Any:
        y = x * 2
        print("said")
        return y + 1

    compiled = dc.compile(function, backend="eager")
    for _ in range(2):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(builtins, "print", said.append)
            compiled(dc.ones(1))
            compiled(dc.ones(1))
        compiled(dc.ones(1))
    assert said == ["said"] * 4


def test_a_class_that_is_registered_is_derived_from_then_on() -> None:
    compiled = dc.compile(lambda x: x * 2 if issubclass(Derived, Base) else x * 5, backend="eager")
    assert compiled(dc.ones(1)).tolist() == [5.0]
    Base.register(Derived)
    assert compiled(dc.ones(1)).tolist() == [2.0]


def test_a_threads_attributes_are_its_own() -> None:
    own = threading.local()
    own.by = 2.0
    compiled = dc.compile(lambda x: x * own.by, backend="eager")
    assert compiled(dc.ones(1)).tolist() == [2.0]
    own.by = 3.0
    assert compiled(dc.ones(1)).tolist() == [3.0]

    def without() -> Any:
        return outcome(compiled)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(without).result(60) is AttributeError


def test_what_a_modules_getattr_says_is_asked_for_again() -> None:
    told, held = types.ModuleType("told"), {"by": 2.0}
    vars(told)["__getattr__"] = lambda name: held[name]
    compiled = dc.compile(lambda x: x * told.by, backend="eager")
    assert compiled(dc.ones(1)).tolist() == [2.0]
    held["by"] = 3.0
    assert compiled(dc.ones(1)).tolist() == [3.0]


def test_draws_in_a_fork_are_drawn_again() -> None:
    def function(x: Any) -> Any:
        with dc.random.fork_rng():
            first = dc.rand(3)
        return first - dc.rand(3) + x

    compiled = dc.compile(function, backend="eager")
    for _ in range(2):
        assert compiled(dc.ones(3)).tolist() == [1.0, 1.0, 1.0]
