"""The collections of programs under the oracle of `recapture.py`, one program a call, for a small process.

In: the name of a program, or a seed. Out: what is wrong, "" if nothing is. `alone()` gives a process that runs these.
Why: the oracle forks thousands of times, and a fork takes as long as its process is large: 2 ms of CPU in a fresh one,
30 in one that holds all tests of the suite. `test_recapture.py` asks.
"""

from __future__ import annotations

import contextlib
import functools
import io
import multiprocessing
import random
import types
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

import distcompile as torch
from compiler_core import log
from compiler_core.capture.guards.guards import Guards
from compiler_core.ops.registry import current_trace
from tests.compiler_core.capture.replay import test_effects_replayed as effects
from tests.compiler_core.capture.replay.recapture import Oracle, watching
from tests.compiler_core.capture.replay.state_changes import changes
from tests.fuzz import python_check
from tests.fuzz.python_programs import write
from tests.programs.harness import everything, run

PROGRAMS = everything()
EFFECTS = list(effects.PROGRAMS)
CHANGES = 6  # tried of each program
LONGEST_S = 250


def alone() -> ProcessPoolExecutor:
    """A process that has imported this file and little else."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def compiled(fn: Any = None, **options: Any) -> Any:
    if fn is None:
        return lambda fn: compiled(fn, **options)
    return torch.compile(fn, backend="eager", **options)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without warnings and prints; as between tests, none of either is remembered, and no trace is left."""
    log.forget_warnings()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
    assert current_trace() is None, "a trace was left running"


def tried(oracle: Oracle, seed: int) -> str:
    """What some changes of the state that the last call could reach show."""
    if oracle.last is None:
        return ""
    point, args, kwargs = oracle.last
    found = list(changes(point.owner.called, args, kwargs))
    chosen = random.Random(seed).sample(found, min(CHANGES, len(found)))
    return next((f"{what}: {told}" for what, change in chosen if (told := oracle.after(change))), "")


def with_changes(run: Callable[[], Any], seed: int) -> str:
    """At every call of what runs, and after changes then."""
    with quietly(), watching() as oracle:
        run()
        found = tried(oracle, seed)
    return "\n".join([*oracle.differences, *filter(None, [found])])


def of_program(program: str) -> str:
    return with_changes(lambda: run(PROGRAMS[program], torch, compiled), len(program))


def of_effects(program: str) -> str:
    printed: Any = types.SimpleNamespace(readouterr=lambda: types.SimpleNamespace(out="", err=""))  # not compared here
    return with_changes(functools.partial(effects.run, program, compiled, printed), len(program))


def of_random(seed: int) -> str:
    program = write(seed, seed % 5 > 0)
    return with_changes(lambda: python_check.trace(program, program.source(), compiled), seed)


def of_effects_without_guards(program: str) -> str:
    """What must be wrong: every guard passes."""
    require = Guards.require
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Guards, "require", lambda guards, code, text: require(guards, "True", text))
        return of_effects(program)
