"""Random Python programs: compiled, and in the machine, they return, raise, print and leave behind what Python does.

Four calls of each with changing arguments; those of more of the library also with breaks in what they call, and refused
by fullgraph=True, then run by Python. `--fuzz N`: N programs instead of
50 (250 with --long); DISTCOMPILE_FUZZ_SEED: the first one.
A failing program is made small and shown under its seed; `python -m tests.fuzz.python_check SEED` shows it again.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.fuzz import python_check
from tests.fuzz.program_tree import line, minimise, render
from tests.fuzz.python_programs import write
from tests.fuzz.python_rich import write_rich
from tests.sharing import some

FIRST = int(os.environ.get("DISTCOMPILE_FUZZ_SEED", "0"))
CHUNK = 25
EACH_PURE = 5  # one of so many programs has no tensors


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "chunk" in metafunc.fixturenames:
        asked = metafunc.config.getoption("--fuzz")
        chunks = range(FIRST, FIRST + (asked or 250), CHUNK)
        metafunc.parametrize("chunk", chunks if asked else some(chunks, 2))


def failures(chunk: int, count: int, how: python_check.Compile, tensors: bool | None, write: Any = write) -> str:
    """What is wrong with the first failing seed of a chunk."""
    for seed in range(chunk, chunk + count):
        found = python_check.report(seed, seed % EACH_PURE > 0 if tensors is None else tensors, how, write)
        if found:
            return found
    return ""


@pytest.mark.timeout(3000)
def test_compiled_programs_do_what_python_does(chunk: int) -> None:
    found = failures(chunk, CHUNK, python_check.compiled, None)
    assert not found, found


@pytest.mark.timeout(3000)
def test_compiled_programs_of_more_of_the_library(chunk: int) -> None:
    how = (python_check.compiled, python_check.with_breaks, python_check.refused_or_compiled)[chunk // CHUNK % 3]
    found = failures(chunk, CHUNK // 5, how, None, write_rich)
    assert not found, found


@pytest.mark.timeout(3000)
def test_interpreted_programs_do_what_python_does(chunk: int) -> None:
    found = failures(chunk, CHUNK // 5, python_check.interpreted, False)
    assert not found, found


def test_programs_are_the_seeds_and_mostly_do_not_raise() -> None:
    assert write(3).source() == write(3).source() != write(4).source()
    ends = []
    for seed in range(40):
        program = write(seed)
        seen = python_check.trace(program, program.source(), python_check.plain)
        ends += [result[:2] == ("tuple", "raised") for result in seen[:: len(seen) // python_check.CALLS]]
    assert 0 < sum(ends) < len(ends) / 3


def test_a_compiler_that_runs_twice_is_found_and_the_program_made_small() -> None:
    def twice(fn):
        def run(*args):
            try:
                fn(*args)
            finally:
                return fn(*args)  # noqa: B012

        return run

    seed = next(s for s in range(20) if python_check.judge(write(s), write(s).source(), twice))
    program = write(seed)
    small = python_check.shrink(program, twice)
    assert python_check.judge(program, small, twice)
    assert len(small.splitlines()) < len(program.source().splitlines()) / 3


def test_minimise_keeps_what_is_needed() -> None:
    block = [line("a"), line("b"), line("c")]
    assert render(minimise(block, lambda less: "b" in render(less))) == ["b"]
