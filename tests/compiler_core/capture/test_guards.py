"""The generated check: which guard fails, in words, and what counts as the same value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler_core.capture.guards import Guards, is_plain

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
    guards.arguments.append(local)
    check = guards.build("g")
    assert check((thing,), {}) == ([], (thing,))
    assert guards.describe(check((object(),), {})) == "args[0] is the same object"


def test_its_source_is_shown_in_tracebacks() -> None:
    import linecache
    import traceback

    guards = Guards()
    guards.require("args[0].missing", "has it")
    with pytest.raises(AttributeError) as error:
        guards.build("traced")((1,), {})
    frame = traceback.extract_tb(error.value.__traceback__)[-1]
    assert "args[0].missing" in (frame.line or linecache.getline(frame.filename, frame.lineno or 0))
