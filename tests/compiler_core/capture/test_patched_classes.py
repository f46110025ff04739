"""Classes and functions of ours that a program adds to, replaces and deletes: the next call does what eager does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
