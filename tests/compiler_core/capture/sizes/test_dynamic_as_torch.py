"""compile(dynamic=), marks and settings of sizes: how often programs are captured, and what is refused, as torch's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import distcompile as dc
from compiler_core.errors import ConstraintViolationError

REFUSED = "refused"


@dataclass(frozen=True)
class Case:
    """calls: of each a shape, or (mark, shape): what is done to the argument first. counts: captures after each call,
    or REFUSED. options: of compile. settings: of torch._dynamo.config."""

    function: Callable[[Any], Any]
    calls: tuple[Any, ...]
    counts: list[Any]
    options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


def double(x: Any) -> Any:
    return x * 2


def if_four(x: Any) -> Any:
    return x * 2 if x.shape[0] == 4 else x


def if_even(x: Any) -> Any:
    return x * 2 if x.shape[0] % 2 == 0 else x


def if_small(x: Any) -> Any:
    return x * 2 if x.shape[0] < 10 else x


def if_tiny(x: Any) -> Any:
    return x * 2 if x.shape[0] < 200 else x


def if_square(x: Any) -> Any:
    return x * 2 if x.shape[0] == x.shape[1] else x


def each(x: Any) -> Any:
    total = x.sum()
    for i in range(x.shape[0]):
        total = total + i
    return total


def rows(*counts: int) -> tuple[tuple[int, int], ...]:
    return tuple((count, 3) for count in counts)


def marked(how: str, *counts: int, dim: Any = 0, **more: Any) -> tuple[Any, ...]:
    """Calls with a tensor of so many rows, marked."""
    return tuple((lambda lib, x: getattr(lib._dynamo.decorators, how)(x, dim, **more), (n, 3)) for n in counts)


ON, OFF = {"dynamic": True}, {"dynamic": False}
STATIC, AUTOMATIC = {"automatic_dynamic_shapes": False}, {"automatic_dynamic_shapes": True}
RANGE = {"min": 2, "max": 100}
CASES = {
    "True": Case(double, (*rows(4, 5, 6, 1, 0), (4, 7)), [1, 1, 1, 2, 3, 3], ON),
    "False": Case(double, rows(4, 5, 6), [1, 2, 3], OFF, AUTOMATIC),
    "automatic": Case(double, rows(4, 5, 6, 1, 0), [1, 2, 2, 3, 4], {}, AUTOMATIC),
    "the default": Case(double, (*rows(4, 5, 6, 1, 0), (4, 7), (9, 8)), [1, 2, 2, 3, 4, 5, 5]),
    "begins empty": Case(double, rows(0, 1, 2, 3, 4), [1, 2, 3, 3, 3]),
    "begins empty, True": Case(double, rows(0, 1, 2, 3, 4), [1, 2, 3, 3, 3], ON),
    "automatic is off": Case(double, rows(4, 5, 6), [1, 2, 3], {}, STATIC),
    "nothing is assumed": Case(double, rows(4, 5), [1, 1], {}, {"assume_static_by_default": False}),
    "nothing is assumed, False": Case(double, rows(4, 5), [1, 2], OFF, {"assume_static_by_default": False}),
    "True, one is asked for": Case(if_four, rows(4, 5, 6), [1, 2, 2], ON),
    "mark": Case(double, (*marked("mark_dynamic", 4, 5), *rows(6)), [1, 1, 1]),
    "mark, False": Case(double, marked("mark_dynamic", 4, 5, 6), [1, 1, 1], OFF),
    "mark after a call": Case(double, (*rows(4), *marked("mark_dynamic", 4), *rows(7)), [1, 2, 2]),
    "mark of 1": Case(double, marked("mark_dynamic", 1), [1]),
    "mark of 0": Case(double, marked("mark_dynamic", 0), [1]),
    "mark, a part": Case(if_small, marked("mark_dynamic", 4, 5, 11), [1, 1, 2]),
    "mark, even ones": Case(if_even, marked("mark_dynamic", 4, 6, 5), [1, 1, 2]),
    "mark, one": Case(if_four, marked("mark_dynamic", 4, 5), [REFUSED, 2]),
    "mark, a range of it": Case(each, marked("mark_dynamic", 4, 5), [REFUSED, REFUSED]),
    "mark, square": Case(if_square, marked("mark_dynamic", 3), [REFUSED]),
    "mark is ignored": Case(
        if_four, marked("mark_dynamic", 4, 5, 6), [1, 2, 2], {}, {"allow_ignore_mark_dynamic": True}
    ),
    "range": Case(double, (*marked("mark_dynamic", 4, min=2, max=10), *marked("mark_dynamic", 12, min=2, max=10)),
                  [1, REFUSED]),
    "range, 1": Case(double, marked("mark_dynamic", 4, 5, 1, min=1, max=9), [1, 1, REFUSED]),
    "range, a part": Case(if_small, marked("mark_dynamic", 4, **RANGE), [REFUSED]),
    "range, even ones": Case(if_even, marked("mark_dynamic", 4, **RANGE), [REFUSED]),
    "range, all of it": Case(if_tiny, marked("mark_dynamic", 4, 100, **RANGE), [1, 1]),
    "range, square": Case(if_square, (*marked("mark_dynamic", 3, dim=(0, 1), **RANGE),), [1]),
    "maybe": Case(double, marked("maybe_mark_dynamic", 4, 5, 1), [1, 1, 2]),
    "maybe, one": Case(if_four, marked("maybe_mark_dynamic", 4, 5), [1, 2]),
    "static": Case(double, marked("mark_static", 4, 5, 6), [1, 2, 3], ON),
    "static, automatic": Case(double, marked("mark_static", 4, 5, 6), [1, 2, 3], {}, AUTOMATIC),
    "unbacked": Case(double, marked("mark_unbacked", 4, 5), [1, 1]),
}  # fmt: skip


def run(lib: Any, case: Case, compiled: Any, captures: Callable[[], int], violation: type[Exception]) -> list[Any]:
    """The captures after each call."""
    counts: list[Any] = []
    with lib._dynamo.config.patch(case.settings):
        for call in case.calls:
            mark, shape = call if callable(call[0]) else (None, call)
            x = lib.ones(shape)
            if mark is not None:
                mark(lib, x)
            try:
                compiled(x)
            except violation:
                counts.append(REFUSED)
            else:
                counts.append(captures())
    return counts


@pytest.mark.parametrize("name", CASES)
def test_captures_are_torchs(name: str) -> None:
    case = CASES[name]
    compiled = dc.compile(case.function, backend="eager", **case.options)
    counts = run(dc, case, compiled, lambda: len(compiled.explain().entries), ConstraintViolationError)
    wanted = [count if count == REFUSED else count - case.counts[:at].count(REFUSED) for at, count in
              enumerate(case.counts)]  # fmt: skip  # torch counts what it refuses
    assert counts == wanted


@pytest.fixture(scope="module")
def torchs() -> dict[str, list[Any]]:
    """What torch counts, in a process of its own: an error out of torch.compile leaves torch's evaluation of frames in
    the process for good."""
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.torch
@pytest.mark.parametrize("name", CASES)
def test_so_torch_says(name: str, torchs: dict[str, list[Any]]) -> None:
    assert torchs[name] == CASES[name].counts


def counted_by_torch(case: Case) -> list[Any]:
    import torch
    from torch._dynamo.testing import CompileCounter
    from torch.fx.experimental.symbolic_shapes import ConstraintViolationError as Violation

    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(case.function, backend=counter, **case.options)
    return run(torch, case, compiled, lambda: counter.frame_count, Violation)


if __name__ == "__main__":
    print(json.dumps({name: counted_by_torch(case) for name, case in CASES.items()}))
