"""compile(): functions that the machine does not run (they look at frames, use except*, are async) run by CPython.

What they find of the stack are the frames of the program.
"""

from __future__ import annotations

import inspect
import sys
import traceback
from typing import Any

import pytest

from compiler_core.capture import compile
from compiler_core.tensor.making.creation import ones
from compiler_core.tensor.tensor import Tensor


def reads_frame(x: Tensor) -> Any:
    return x + sys._getframe().f_lineno - sys._getframe().f_code.co_firstlineno, inspect.currentframe() is not None


def catches_groups(x: Tensor) -> Any:
    try:
        raise ExceptionGroup("g", [ValueError()])
    except* ValueError as group:
        x = x * 2 * len(group.exceptions)
    return x, 1


async def doubles(x: Tensor) -> Tensor:
    return x * 2


def drives_coroutine(x: Tensor) -> Any:
    made = doubles(x + 1)
    try:
        made.send(None)
    except StopIteration as stop:
        x = stop.value
    return x, 2


@pytest.mark.parametrize("function", [reads_frame, catches_groups, drives_coroutine], ids=lambda f: f.__name__)
def test_they_run_whole_and_called(function: Any) -> None:
    def calls(x: Tensor) -> Any:
        found, more = function(x * 3)
        return found - 1, more

    for given in (function, calls):
        compiled = compile(given, backend="aot_eager")
        expected = given(ones(2))
        for _ in range(3):
            made = compiled(ones(2))
            assert (made[0].tolist(), made[1]) == (expected[0].tolist(), expected[1])


look = {"here": inspect.currentframe, "above": sys._getframe}


def asks_the_stack(x: Tensor) -> Any:
    y = x * 2
    names = [info.function for info in inspect.stack()[:1]]
    return y + 1, names


def asks_above(x: Tensor) -> Any:
    unused = 5  # noqa: F841  read from outside
    found = asks_the_stack(x)
    frame = look["here"]()
    return found, frame.f_code.co_name, frame.f_locals["unused"], look["above"](1).f_code is not None


def caller_of_this() -> Any:
    return inspect.stack()[1].function, inspect.stack()[1].lineno, sys._getframe(2).f_locals["flag"]


def asks_in_a_helper(x: Tensor) -> Any:
    return caller_of_this(), x


def asks_two_above(x: Tensor) -> Any:
    flag = "seen"  # noqa: F841  read from outside
    y = x * 3
    return asks_in_a_helper(y)


def asks_for_locals(x: Tensor) -> Any:
    unused = 7
    y = x + 1
    names = locals()
    return y, sorted(names), names["unused"], eval("unused + 1")


def shows_where_it_is(x: Tensor) -> Any:
    y = x * 2
    return y, traceback.extract_stack()[-1].name, traceback.extract_stack()[-1].lineno


ASKING = [asks_the_stack, asks_above, asks_two_above, asks_for_locals, shows_where_it_is]


@pytest.mark.parametrize("function", ASKING, ids=lambda f: f.__name__)
def test_who_looks_at_frames_finds_the_programs(function: Any) -> None:
    compiled = compile(function, backend="eager")
    for _ in range(3):
        assert repr(compiled(ones(2))) == repr(function(ones(2)))
