"""A code object as a tuple of instructions, and its table of exception handlers.

In: a code object. Out: `decode(code)`: instructions without CACHE and EXTENDED_ARG; jumps and handlers name indices
into that tuple.
Source: Objects/exception_handling_notes.txt of CPython for the table's encoding.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType
from typing import Any, NamedTuple

from compiler_core.bytecode.versions import BACKWARD, comparison

EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]
CACHE = dis.opmap["CACHE"]
JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)
NAMES = frozenset(dis.hasname)
CONSTANTS = frozenset(dis.hasconst)
VARIABLES = frozenset(dis.haslocal) | frozenset(dis.hasfree)


class Instruction(NamedTuple):
    """arg: as in the code. argval: the constant, the name of a variable, the operator, or the index jumped to."""

    opname: str
    arg: int
    argval: Any
    offset: int  # bytes, into co_code


class Handler(NamedTuple):
    """Instructions from start to before end, if they raise, go on at target with `depth` values left on the stack."""

    start: int
    end: int
    target: int
    depth: int
    lasti: bool  # the index of the instruction is pushed below the exception


class Decoded(NamedTuple):
    instructions: tuple[Instruction, ...]
    handlers: tuple[Handler, ...]


def units(code: CodeType) -> Iterator[tuple[int, int, int, int]]:
    """(offset where it starts, with its EXTENDED_ARGs; offset; opcode; argument) of every instruction."""
    start, extended = 0, 0
    raw = code.co_code
    for offset in range(0, len(raw), 2):
        opcode, arg = raw[offset], raw[offset + 1] | extended
        if opcode == EXTENDED_ARG:
            extended = arg << 8
        elif opcode != CACHE:
            yield start, offset, opcode, arg
            extended = 0
            start = offset + 2
        else:
            start = offset + 2


def variable_names(code: CodeType) -> tuple[str, ...]:
    """Names of `Frame.locals`: CPython's "localsplus" (a parameter that is a cell stands once)."""
    cells = tuple(name for name in code.co_cellvars if name not in code.co_varnames)
    return code.co_varnames + cells + code.co_freevars


def meaning(code: CodeType, opcode: int, arg: int, names: tuple[str, ...]) -> Any:
    """What the argument stands for, of instructions that do not jump."""
    if opcode in CONSTANTS:
        return code.co_consts[arg]
    if opcode in VARIABLES:
        return names[arg] if arg < len(names) else arg
    if opcode in NAMES:
        return code.co_names[arg] if arg < len(code.co_names) else arg
    if dis.opname[opcode] == "COMPARE_OP":
        return comparison(arg)[0]
    return arg


def decode(code: CodeType) -> Decoded:
    """Instructions and handlers of `code`."""
    found = list(units(code))
    index_at = {start: index for index, (start, _, _, _) in enumerate(found)}
    index_at |= {offset: index for index, (_, offset, _, _) in enumerate(found)}
    after = [start for start, _, _, _ in found[1:]] + [len(code.co_code)]
    index_at[len(code.co_code)] = len(found)
    names = variable_names(code)
    instructions = []
    for (_, offset, opcode, arg), end in zip(found, after):
        name = dis.opname[opcode]
        if opcode in JUMPS:
            value: Any = index_at[end + 2 * (-arg if name in BACKWARD else arg)]
        else:
            value = meaning(code, opcode, arg, names)
        instructions.append(Instruction(name, arg, value, offset))
    return Decoded(tuple(instructions), tuple(parse_handlers(code.co_exceptiontable, index_at)))


def parse_handlers(table: bytes, index_at: dict[int, int]) -> Iterator[Handler]:
    """Entries of co_exceptiontable: four numbers each, in groups of six bits, the first of the most weight."""
    numbers = iter(varints(table))
    for start in numbers:
        length, target, depth = next(numbers), next(numbers), next(numbers)
        end = index_at[2 * (start + length)]
        yield Handler(index_at[2 * start], end, index_at[2 * target], depth >> 1, bool(depth & 1))


def varints(table: bytes) -> Iterator[int]:
    value = 0
    for byte in table:
        value = value << 6 | byte & 63
        if not byte & 64:
            yield value
            value = 0


def lines_of(code: CodeType, instructions: tuple[Instruction, ...]) -> list[int]:
    """The source line of each instruction, or that of the function where it has none."""
    ranges = iter(code.co_lines())
    end, line, found = 0, None, []
    for instruction in instructions:
        while instruction.offset >= end:
            _, end, line = next(ranges)
        found.append(line or code.co_firstlineno)
    return found
