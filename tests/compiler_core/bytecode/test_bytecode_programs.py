"""Every program of programs_*.py ends the same way by CPython and by the machine: value, exception, lines, effects."""

from __future__ import annotations

import dis
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import bytecode_oracle as oracle
import programs_basic
import programs_calls
import programs_classes
import programs_delegation
import programs_delegation_stops
import programs_exceptions
import programs_generators
import programs_match
import programs_metaclasses
import programs_with

from compiler_core.bytecode import instructions, versions
from compiler_core.bytecode.program import DIRECT, MOVES, REQUESTS

MODULES = [
    programs_basic,
    programs_calls,
    programs_classes,
    programs_delegation,
    programs_delegation_stops,
    programs_exceptions,
    programs_generators,
    programs_match,
    programs_metaclasses,
    programs_with,
]
if sys.version_info >= (3, 12):
    MODULES.append(importlib.import_module("programs_only_312"))
PROGRAMS = [program for module in MODULES for program in oracle.programs(module)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_machine_does_as_cpython(program: Any) -> None:
    expected = oracle.outcome(program)
    assert oracle.outcome(lambda: oracle.interpret(program)) == expected


def test_every_opcode_is_handled_or_declared() -> None:
    handled = {*MOVES, *DIRECT, *REQUESTS, *versions.NOTHING, *versions.NOT_REACHED, *versions.UNSUPPORTED}
    own = {"LOAD_METHOD", "CALL_INTRINSIC_1", "CALL_INTRINSIC_2"}  # taken apart by program.canonical
    missing = {versions.ALIASES.get(name, name) for name in dis.opmap} - handled - own
    assert not missing


def test_instructions_are_those_of_dis() -> None:
    for program in PROGRAMS:
        decoded = instructions.decode(program.__code__).instructions
        found = [i for i in dis.get_instructions(program) if i.opname not in ("EXTENDED_ARG", "CACHE")]
        assert [(i.opname, i.offset) for i in decoded] == [(i.opname, i.offset) for i in found]
        for ours, theirs in zip(decoded, found):
            if theirs.opcode in dis.hasjrel:
                before = decoded[ours.argval - 1].offset if ours.argval else -1
                assert before < theirs.argval <= decoded[ours.argval].offset
