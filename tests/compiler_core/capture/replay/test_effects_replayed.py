"""Effects on Python state happen once in every call, in order: programs run compiled and plainly, call by call.

Each program of `replay_programs` is made twice and called three times on like tensors; what calls return or raise, what
was logged and printed by then, gradients, and the final state must be the same, with the same sharing of objects.
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as torch
from tests.compiler_core.capture.replay import (
    replay_breaks,
    replay_control,
    replay_language,
    replay_objects,
    replay_practice,
    replay_protocols,
    replay_reading,
    replay_state,
    replay_tensors,
    replay_training,
)
from tests.compiler_core.capture.replay.replay_programs import PROGRAMS, reset

CALLS = 3
FILLED_BY = (  # by being imported
    replay_breaks,
    replay_control,
    replay_language,
    replay_objects,
    replay_practice,
    replay_protocols,
    replay_reading,
    replay_state,
    replay_tensors,
    replay_training,
)


def told(thing: Any, seen: dict[int, str] | None = None) -> Any:
    """What can be seen of an object, as plain data: mutable ones met again are named by their number."""
    seen = {} if seen is None else seen
    kind = type(thing)
    if thing is None or kind in (bool, str, bytes) or isinstance(thing, type | types.ModuleType):
        return thing
    if isinstance(thing, int | float | complex) and kind in (int, float, complex):
        return kind.__name__, float(f"{thing:.5g}") if kind is float else thing
    if isinstance(thing, tuple | torch.Size):
        return kind.__name__, [told(item, seen) for item in thing]
    if id(thing) in seen:
        return seen[id(thing)]
    seen[id(thing)] = f"<{kind.__name__} {len(seen)}>"
    KEPT_ALIVE.append(thing)
    if isinstance(thing, torch.Tensor):
        grad = None if thing.grad is None else told(thing.grad, seen)
        values = np.round(thing.detach().numpy().astype(float), 4).tolist()
        return kind.__name__, values, str(thing.dtype), thing.requires_grad, grad, told(vars(thing), seen)
    if isinstance(thing, np.ndarray):
        return thing.tolist(), str(thing.dtype)
    if isinstance(thing, dict):
        return kind.__name__, [(told(key, seen), told(value, seen)) for key, value in thing.items()]
    if isinstance(thing, set | frozenset):
        return kind.__name__, sorted(map(repr, thing))
    if hasattr(thing, "__iter__") and hasattr(thing, "__len__") and kind.__module__ in ("builtins", "collections"):
        return kind.__name__, [told(item, seen) for item in thing]
    if isinstance(thing, BaseException):
        return kind.__name__, told(thing.args, seen)
    if isinstance(thing, types.FunctionType):
        cells = {name: told(cell, seen) for name, cell in zip(thing.__code__.co_freevars, thing.__closure__ or ())}
        return thing.__qualname__, cells
    if isinstance(thing, types.CellType):
        return "cell", told(thing.cell_contents, seen)
    return kind.__name__, told(vars(thing), seen) if hasattr(thing, "__dict__") else None


KEPT_ALIVE: list[Any] = []


def run(name: str, wrap: Callable[[Any], Any], capsys: pytest.CaptureFixture[str]) -> list[Any]:
    """What can be seen of three calls."""
    reset()
    replay_state.COUNT = 0
    log: list[Any] = []
    function, state = PROGRAMS[name](log)
    function = wrap(function)
    seen: dict[int, str] = {}
    found: list[Any] = []
    for call in range(CALLS):
        x = torch.tensor([1.0, -2.0, 3.0]) + call
        try:
            result = function(x)
            found.append(("returned", told(result, seen)))
        except Exception as error:  # noqa: BLE001
            result = None
            found.append(("raised", type(error).__name__, str(error)))
        found.append(("log", told(log, {}), capsys.readouterr().out, told(x, seen)))
        if isinstance(result, torch.Tensor) and result.requires_grad:
            result.sum().backward()
            found.append(("log after backward", told(log, {})))
    found.append(("state", told(state() if callable(state) else state, seen)))
    found.append(("log and results share", told(log, seen)))
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_without_compiling(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    plain = run(name, lambda function: function, capsys)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = run(name, lambda function: torch.compile(function, backend="aot_eager"), capsys)
    for ours, theirs in zip(compiled, plain, strict=True):
        assert ours == theirs
