"""compile(): functions that the machine does not run (they look at frames, use except*, are async) run by CPython."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import pytest

from compiler_core.capture import compile
from compiler_core.tensor.creation import ones
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
