"""What programs see of memory is what they see with torch: `memory_programs.py` and those beside it."""

from __future__ import annotations

import inference_programs  # noqa: F401  # enters its programs
import pytest
import storage_programs  # noqa: F401
from memory_programs import PROGRAMS, seen

import distcompile

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_sees_what_it_sees_with_torch(name: str) -> None:
    program = PROGRAMS[name]
    # each step is looked at before the next one is made
    assert [seen(step) for step in program(distcompile)] == [seen(step) for step in program(torch)]
