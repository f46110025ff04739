"""Whole steps on a GPU: one graph, and the numbers of eager code there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import whole_step_programs_more
from test_steps_in_the_graph import check, results
from whole_step_programs import BREAKING, PROGRAMS

import distcompile as ours

assert whole_step_programs_more
pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def on_the_gpu() -> Iterator[None]:
    ours.set_default_device("cuda")
    yield
    ours.set_default_device("cpu")


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_eager(program: str, mode: str | None) -> None:
    compiled = ours.compile(fullgraph=program not in BREAKING, mode=mode)
    check(
        results(ours, program, compiled),
        results(ours, program, lambda step: step),
        2e-2 if program == "bf16" else 1e-4,
    )
