"""Random programs end the same way by CPython and by the machine, whole and broken off again and again."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import bytecode_oracle as oracle
import random_bytecode
from test_bytecode_continuations import run_with_breaks

from tests.sharing import some


def made(seed: int) -> Any:
    source = random_bytecode.program(seed)
    namespace: dict[str, Any] = {"note": oracle.note, "__name__": "random_program"}
    exec(compile(source, f"/programs_random_{seed}", "exec", dont_inherit=True), namespace)
    return namespace["main"]


@pytest.mark.parametrize("start", some(range(0, 200, 50), 2))
def test_random_programs_end_as_by_cpython(start: int) -> None:
    for seed in range(start, start + 50):
        main = made(seed)
        expected = oracle.outcome(main)
        assert oracle.outcome(lambda: oracle.interpret(main)) == expected, random_bytecode.program(seed)  # noqa: B023


@pytest.mark.parametrize("start", range(0, 60, 30))
def test_random_programs_go_on_after_breaks(start: int) -> None:
    for seed in range(start, start + 30):
        main, dice = made(seed), random.Random(seed)
        expected = oracle.outcome(main)
        ran = oracle.outcome(lambda: run_with_breaks(main, lambda: dice.random() < 0.2, inline=bool(seed % 2)))  # noqa: B023
        assert ran == expected, random_bytecode.program(seed)


def test_random_programs_differ_in_how_they_end() -> None:
    ends = [oracle.outcome(made(seed)) for seed in range(100)]
    assert 10 < sum(end[0] == "raised" for end in ends) < 95
    assert len({str(end) for end in ends}) > 60
