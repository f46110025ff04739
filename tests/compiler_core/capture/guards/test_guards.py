"""The generated check: which guard fails, in words, and what counts as the same value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.capture.guards.guards import Guards, is_plain
from compiler_core.capture.guards.module_protocol import WatchedModule
from distcompile import nn

NAN = float("nan")


def check_value(known: Any, given: Any) -> bool:
    guards = Guards()
    guards.require_plain("args[0]", known, "args[0]")
    return not isinstance(guards.build("g")((given,), {}), int)


@pytest.mark.parametrize(
    "value", [None, True, 0, -3, 0.0, -0.0, NAN, 1.5, 2j, "a'b\n", b"\x00", (1, ("x", None)), slice(1, None)]
)
def test_a_value_equals_itself(value: Any) -> None:
    assert is_plain(value)
    assert check_value(value, value)


@pytest.mark.parametrize(
    ("known", "given"),
    [
        (1, True),
        (True, 1),
        (1, 1.0),
        (0.0, -0.0),
        (1, 2),
        ((1, 2), [1, 2]),
        ((1,), (True,)),
        ("a", b"a"),
        (None, False),
        (np.float32(1), 1.0),
        (np.int32(1), np.int64(1)),
    ],
)
def test_values_that_differ_are_told_apart(known: Any, given: Any) -> None:
    assert not check_value(known, given)


def test_the_first_guard_that_fails_is_named_and_later_ones_are_not_reached() -> None:
    guards = Guards()
    guards.require("len(args) == 1", "one argument")
    guards.require("args[0] > 2", "args[0] is large")
    guards.inputs.append("args[0] * 10")
    check = guards.build("g")
    assert check((3,), {}) == ([30], ())
    assert guards.describe(check((1,), {})) == "args[0] is large"
    assert guards.describe(check((), {})) == "one argument"


def test_bound_objects_and_locals() -> None:
    guards = Guards()
    thing = object()
    assert guards.bind(thing, "thing") == guards.bind(thing, "other name")
    local = guards.let("item", "args[0]")
    guards.require_same(local, thing, "args[0]")
    guards.outside.append(local)
    check = guards.build("g")
    assert check((thing,), {}) == ([], (thing,))
    assert guards.describe(check((object(),), {})) == "args[0] is the same object"


def test_one_local_stands_for_one_thing() -> None:
    guards = Guards()
    first = guards.let("item", "args[0]['a']", "a")
    assert guards.let("item", "args[0]['a']", "a") == first
    assert guards.let("item", "args[0]['b']", "b") != first
    guards.require(f"{first} == 1", "a is 1")
    assert guards.build("g")(({"a": 1, "b": 2},), {}) == ([], ())


def test_a_condition_that_cannot_be_evaluated_does_not_hold() -> None:
    guards = Guards()
    guards.require("len(args[0]) > 0", "it holds something")
    item = guards.let("item", "args[0]['a']", text="args[0]['a']")
    guards.require(f"{item}.real == 1", "its a is 1")
    check = guards.build("g")
    assert not isinstance(check(({"a": 1},), {}), int)
    for given, words in (
        (3, "it holds something"),
        ({"b": 1}, "there is args[0]['a']"),
        ({"a": None}, "its a is 1"),
        ({"a": 2}, "its a is 1"),
    ):
        failed = check((given,), {})
        assert isinstance(failed, int)
        assert guards.describe(failed) == words
        assert guards.culprits(failed) == []


def test_an_error_while_inputs_are_read_is_raised_and_its_source_is_shown() -> None:
    import linecache
    import traceback

    guards = Guards()
    guards.inputs.append("args[0].missing")
    with pytest.raises(AttributeError) as error:
        guards.build("traced")((1,), {})
    frame = traceback.extract_tb(error.value.__traceback__)[-1]
    assert "args[0].missing" in (frame.line or linecache.getline(frame.filename, frame.lineno or 0))


def test_modules_and_tensors_are_watched() -> None:
    model, other = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Linear(2, 2)
    base = dc.ones(3)
    view = base[1:]
    guards = Guards()
    guards.watch_modules(WatchedModule(m, f"model.{path}") for path, m in model.named_modules())
    guards.fix_tensors([*((p, name) for name, p in model.named_parameters()), (view, "view")])
    guards.inputs.extend(guards.value_of(t._cell) for t in (model[0].weight, view))
    check = guards.build("g")

    def passes() -> bool:
        return not isinstance(check((), {}), int)

    def says() -> str:
        failed = check((), {})
        assert isinstance(failed, int)
        return guards.describe(failed)

    assert passes()
    other.eval().half().extra = 1
    assert passes()
    model[1].slope = 0.1
    assert says() == "model.1.slope is unchanged"
    del model[1].slope
    assert passes()
    model[0].weight.requires_grad_(False)
    assert says() == "0.weight.requires_grad is True"
    model[0].weight.requires_grad_()
    assert passes()
    with dc.no_grad():
        base.add_(1)
    inputs, _ = check((), {})
    assert inputs[1].tolist() == [2.0, 2.0]  # a view that was taken before
    base.mul_(dc.ones(3, requires_grad=True))
    assert says() == "view.requires_grad is False"
