"""Frames can be left and continued: at any instruction, as copies, by other semantics, after any Break."""

from __future__ import annotations

import copy
import copyreg
import random
import sys
from pathlib import Path
from types import BuiltinMethodType, ModuleType
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import bytecode_oracle as oracle
from test_bytecode_programs import PROGRAMS

from compiler_core.bytecode.binding import make_frame
from compiler_core.bytecode.frame import Frame
from compiler_core.bytecode.generators import InterpretedGenerator
from compiler_core.bytecode.machine import Machine
from compiler_core.bytecode.native import NativeSemantics
from compiler_core.bytecode.semantics import Break, Semantics
from compiler_core.bytecode.traceback import hidden

hidden.append(__name__)

METHODS = [name for name in vars(Semantics) if not name.startswith("_")]
# what these do at one step is seen by the other: recursion up to the limit, which depends on the host's depth
LONG = {"infinite_recursion", "very_deep_delegation", "recursion"}
# what copies share with the original, and change
SHARED = {
    "global_statement",
    "exception_with_notes",
    "parameter_as_cell",
    "mutable_default",
    "init_subclass",
    "dict_changed_while_iterated",
}
SHORT = [program for program in PROGRAMS if program.__name__ not in LONG]
COPIED = [
    program
    for program in SHORT
    if program.__name__ not in SHARED and not program.__code__.co_cellvars and not oracle.outcome(program)[2]
]


class Breaking(NativeSemantics):
    """Breaks once at each call that `chooses` picks; the same call after that is let through."""

    def __init__(self, chooses: Any) -> None:
        super().__init__(inline=True)
        self.chooses, self.owner, self.state = chooses, None, None

    def tick(self) -> None:
        if self.machine is self.owner and self.chooses():
            self.state = state(self.machine.frames)
            raise Break("test")


def breaking(name: str) -> Any:
    def method(self: Breaking, *args: Any, **kwargs: Any) -> Any:
        if sys._getframe(1).f_code.co_filename != native_file:  # not one method calling another
            self.tick()
        return getattr(NativeSemantics, name)(self, *args, **kwargs)

    return method


native_file = NativeSemantics.call.__code__.co_filename
for method_name in METHODS:
    setattr(Breaking, method_name, breaking(method_name))


def state(frames: list[Frame]) -> Any:
    return [(f.code, f.next, f.completion, [id(v) for v in f.stack], [id(v) for v in f.locals]) for f in frames]


def run_with_breaks(function: Any, chooses: Any, inline: bool) -> Any:
    """By a machine that breaks; each instruction that broke is done by a step of native semantics."""
    semantics = Breaking(chooses)
    machine = semantics.owner = Machine(semantics)
    other = Machine(NativeSemantics(inline))
    frames = [make_frame(function, (), {})]
    while True:
        try:
            return machine.run(frames)
        except Break:
            assert state(frames) == semantics.state or frames[-1].completion == "ARRIVED"
        if other.step(frames):
            return other.result


@pytest.mark.parametrize("program", SHORT, ids=lambda program: program.__name__)
def test_every_request_breaks(program: Any) -> None:
    expected = oracle.outcome(program)
    assert oracle.outcome(lambda: run_with_breaks(program, lambda: True, inline=True)) == expected


@pytest.mark.parametrize("program", SHORT, ids=lambda program: program.__name__)
def test_some_requests_break_and_calls_are_done_by_cpython(program: Any) -> None:
    expected = oracle.outcome(program)
    for seed in range(2):
        dice = random.Random(seed)
        ran = oracle.outcome(lambda: run_with_breaks(program, lambda: dice.random() < 0.1, inline=False))  # noqa: B023
        assert ran == expected, seed


@pytest.mark.parametrize("program", COPIED, ids=lambda program: program.__name__)
def test_copies_go_on(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every instruction a copy of everything the frames hold is run on from there, as is the original."""
    monkeypatch.setitem(copyreg.dispatch_table, InterpretedGenerator, parts_of_generator)
    expected = oracle.outcome(program)
    machine, frames = Machine(NativeSemantics(inline=True)), [make_frame(program, (), {})]
    copies = 0
    while copies < 150 and not stepped(machine, frames):
        another = copied(frames, machine.semantics)
        if another is not None:
            copies += 1
            ran = oracle.outcome(lambda: Machine(NativeSemantics(inline=True)).run(another))  # noqa: B023
            assert gist(ran) == gist(expected)


def parts_of_generator(generator: InterpretedGenerator) -> Any:
    return object.__new__, (InterpretedGenerator,), vars(generator)


def gist(ran: tuple[str, Any, list[Any]]) -> Any:
    """Without lines and contexts of exceptions: copies share exceptions with the original, which add to both."""
    return ran[1][:2] if ran[0] == "raised" else ran[1]


def stepped(machine: Machine, frames: list[Frame]) -> bool:
    """Run one instruction: whether that was the last."""
    try:
        return machine.step(frames)
    except Exception:  # noqa: BLE001
        return True


def copied(frames: list[Frame], semantics: Any) -> list[Frame] | None:
    """A copy of the frames with all that they hold, None if some of it cannot be copied. Exceptions are shared."""
    memo: dict[int, Any] = {id(semantics): semantics}
    for frame in frames:
        memo |= {id(frame.globals): frame.globals, id(frame.builtins): frame.builtins}
        for value in (*frame.stack, *frame.locals, *frame.handled):
            if isinstance(value, BaseException):
                memo[id(value)] = value
            if isinstance(value, BuiltinMethodType) and not isinstance(value.__self__, ModuleType):
                return None  # deepcopy would bind the copy to the original
    try:
        made: list[Frame] = copy.deepcopy(frames, memo)
    except TypeError:
        return None
    return made
