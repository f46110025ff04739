"""Capture takes time in proportion to what is captured: a function of eight times the lines about eight times as long.

Times are CPU time, the least of a few, of functions long enough that a part that goes with the square would show.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import pytest

from compiler_core.capture import compile
from compiler_core.tensor.making.creation import ones
from tests.sharing import some

FEW, MANY = 250, 2000
MOST = 3.0  # of a line's time among few: squares would make it eight; clocks and collectors of a busy machine differ


def straight(count: int) -> tuple[str, dict[str, Any]]:
    return "\n".join(f"    x = x * 1.5 + {i}.5" for i in range(count)), {}


def read_globals(count: int) -> tuple[str, dict[str, Any]]:
    return "\n".join(f"    x = x + t{i}" for i in range(count)), {f"t{i}": ones(2) for i in range(count)}


def keep_results(count: int) -> tuple[str, dict[str, Any]]:
    return "\n".join(f"    kept['k{i}'] = x + {i}" for i in range(count)), {"kept": {}}


def handle_errors(count: int) -> tuple[str, dict[str, Any]]:
    block = "    try:\n        raise ValueError\n    except ValueError:\n        x = x + {}"
    return "\n".join(block.format(i) for i in range(count)), {}


def seconds(body: Callable[[int], tuple[str, dict[str, Any]]], count: int) -> float:
    """CPU time of the first call of a function with so many lines."""
    text, names = body(count)
    exec(f"def f(x):\n{text}\n    return x", names)
    compiled = compile(names["f"], backend="eager", fullgraph=True)
    gc.collect()
    start = time.process_time()
    compiled(ones(2))
    return time.process_time() - start


@pytest.mark.parametrize("body", some([straight, keep_results, read_globals, handle_errors], 2))
def test_a_line_takes_as_long_among_many(body: Callable[[int], tuple[str, dict[str, Any]]]) -> None:
    few = min(seconds(body, FEW) for _ in range(3)) / FEW
    many = min(seconds(body, MANY) for _ in range(2)) / MANY
    assert many <= MOST * few, f"{many * 1e6:.0f} us a line among {MANY}, {few * 1e6:.0f} among {FEW}"
