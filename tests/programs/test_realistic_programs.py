"""Programs as people write them: compiled is eager, and eager is torch's; what torch captures whole, we capture whole.

What torch makes of each (torch_table.json) was written by judge.py. Programs that are not right yet: not_yet.py.
The folder holds more than 25 files since each is one kind of program, under its name.
"""

from __future__ import annotations

import multiprocessing
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from typing import Any

import pytest

import distcompile
from compiler_core.errors import GraphBreak
from tests.programs import not_yet
from tests.programs.harness import difference, everything, run
from tests.programs.judge import TABLE_OF, Watched, judged, judgement, plain_call, table

PROGRAMS = everything()
ONE_GRAPH = [name for name, verdict in table().items() if verdict == "one graph"]
CODEGEN = [name for name, entry in PROGRAMS.items() if entry.codegen]


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@cache
def eager(name: str) -> list[Any]:
    return run(PROGRAMS[name], distcompile, plain_call)


def settle(name: str, found: str, known: dict[str, str]) -> None:
    """The verdict: a difference is a failure, unless it is listed; one that is listed and is no more is a failure."""
    if name in known:
        assert found or sys.version_info[:2] != (3, 11), f"{name} is right now: take it out of not_yet.py"
    else:
        assert not found, f"{name}: {found}"


def compiled_difference(name: str, backend: str) -> str:
    def compile(fn: Any = None, **options: Any) -> Any:
        return distcompile.compile(fn, backend=backend, options={"fallback_random": True}, **options)

    return difference(run(PROGRAMS[name], distcompile, compile), eager(name))


def test_there_are_enough_programs_and_eager_runs_them() -> None:
    assert len(PROGRAMS) >= 200
    last = {name: eager(name)[-1] for name in PROGRAMS}
    assert {name: end for name, end in last.items() if isinstance(end, tuple) and end[:1] == ("left",)} == {}


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_is_eager(name: str) -> None:
    settle(name, compiled_difference(name, "eager"), not_yet.WRONG)


@pytest.mark.long
@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_with_joint_graphs_is_eager(name: str) -> None:
    settle(name, compiled_difference(name, "aot_eager"), not_yet.WRONG)


@pytest.mark.parametrize("name", CODEGEN)
def test_compiled_to_machine_code_is_eager(name: str) -> None:
    settle(name, compiled_difference(name, "codegen"), not_yet.WRONG)


@cache
def fullgraph_difference(name: str) -> str:
    """Why the program is not right under fullgraph=True: a break, or the difference; "" if it is."""
    watch = Watched(distcompile, (GraphBreak,), backend="eager", fullgraph=True)
    found = run(PROGRAMS[name], distcompile, watch)
    return watch.refused or difference(found, eager(name))


@pytest.mark.parametrize("name", ONE_GRAPH)
def test_captured_in_one_graph_as_by_torch(name: str) -> None:
    settle(name, fullgraph_difference(name), not_yet.BROKEN)


@pytest.mark.long
def test_as_many_in_one_graph_as_by_torch() -> None:
    theirs = sum(verdict.startswith("one graph") for verdict in table().values())
    assert sum(not fullgraph_difference(name) for name in PROGRAMS) >= theirs


@pytest.mark.torch
@pytest.mark.parametrize("name", PROGRAMS)
def test_eager_is_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = run(PROGRAMS[name], torch, plain_call)
    settle(name, difference(eager(name), theirs), not_yet.EAGER)


@pytest.mark.torch
@pytest.mark.long
@pytest.mark.parametrize("part", range(3))
def test_the_table_is_what_torch_does(part: int) -> None:
    """Every program that has changed since it was judged (or torch has), and one in twenty of the others."""
    torch = pytest.importorskip("torch")
    verdicts, of = table(), table(TABLE_OF)
    part_of = enumerate(list(PROGRAMS)[part::3])
    names = [name for number, name in part_of if number % 20 == 0 or of.get(name) != judged(PROGRAMS[name], torch)]
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:  # torch evaluates frames from then on
        found = pool.submit(judge_each, names).result(timeout=280)
    assert {name: found[name][:9] for name in names} == {name: verdicts[name][:9] for name in names}


def judge_each(names: list[str]) -> dict[str, str]:
    torch = pytest.importorskip("torch")
    return {name: judgement(PROGRAMS[name], torch) for name in names}
