"""A code object as the machine runs it: for each instruction a handler with its argument ready.

In: a code object. Out: `program_of(code)`, made once for each, and kept as long as it lives. `steps[index]` is
(handler, argument), made when the instruction runs for the first time.
"""

from __future__ import annotations

import dis
import weakref
from bisect import bisect_right
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE
from types import CodeType
from typing import TYPE_CHECKING, Any

from compiler_core.bytecode import more_requests  # noqa: F401
from compiler_core.bytecode.frame import Frame
from compiler_core.bytecode.instructions import Handler, Instruction, decode, lines_of
from compiler_core.bytecode.kept import table, watch
from compiler_core.bytecode.moves import MOVES, nothing, refuse
from compiler_core.bytecode.moves import Handler as Run
from compiler_core.bytecode.requests import DIRECT, REQUESTS, Request, ask, drop, push_callable
from compiler_core.bytecode.versions import (
    ALIASES,
    ASYNC,
    NOT_REACHED,
    NOTHING,
    PYTHON,
    UNSUPPORTED,
    UNSUPPORTED_INTRINSICS,
    attribute,
    comparison,
    intrinsic,
)

if TYPE_CHECKING:
    from compiler_core.bytecode.machine import Machine

HandlerCall = tuple[Run, Any]
OPERATORS = [symbol for _, symbol in getattr(dis, "_nb_ops")]  # noqa: B009
UNARY = {"UNARY_NEGATIVE": "-", "UNARY_POSITIVE": "+", "UNARY_INVERT": "~"}
LOOKS_AT_FRAMES = "a function that looks at frames"
FRAME_READERS = {"_getframe", "_getframemodulename", "currentframe"}


class DecodedCode:
    """steps: see above. handlers: of exceptions, in the table's order."""

    __slots__ = ("handlers", "instructions", "lines", "of", "refused", "steps")

    def __init__(self, code: CodeType) -> None:
        decoded = decode(code)
        self.of = weakref.ref(code)
        self.refused: str | None = None  # not known yet
        self.lines: list[int] = []  # made when one is asked for
        self.instructions: tuple[Instruction, ...] = decoded.instructions
        self.handlers: tuple[Handler, ...] = decoded.handlers
        self.steps: list[HandlerCall] = [(first_time, index) for index in range(len(self.instructions))]

    @property
    def code(self) -> CodeType:
        """Whose program it is: somebody who runs it has it."""
        code = self.of()
        assert code is not None
        return code

    def handler_of(self, index: int) -> Handler | None:
        """Where an exception at that instruction is handled: the table is in order, and no two of it overlap."""
        place = bisect_right(self.handlers, index, key=lambda handler: handler.start) - 1
        return self.handlers[place] if place >= 0 and index < self.handlers[place].end else None

    def line_at(self, index: int) -> int:
        """The source line of that instruction."""
        if not self.lines:
            self.lines = lines_of(self.code, self.instructions)
        return self.lines[index]

    def request_at(self, index: int) -> Request:
        """Of an instruction that awaits what it entered."""
        if self.steps[index][0] is first_time:
            self.steps[index] = step(self.code, self.instructions, index)
        request = self.steps[index][1]
        assert isinstance(request, Request)
        return request

    def refusal(self) -> str:
        """Why the machine should not run this code, but CPython; "" if it can."""
        if self.refused is None:
            self.refused = self.find_refusal()
        return self.refused

    def find_refusal(self) -> str:
        if self.code.co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR):
            return ASYNC
        if FRAME_READERS & set(self.code.co_names):
            return LOOKS_AT_FRAMES
        return next(filter(None, map(unsupported, self.instructions)), "")


def unsupported(instruction: Instruction) -> str:
    """Why no machine can do it; "" of one that it can."""
    name, arg = instruction.opname, instruction.arg
    if name.startswith("CALL_INTRINSIC"):
        return UNSUPPORTED_INTRINSICS.get(intrinsic(name, arg), "")
    return UNSUPPORTED.get(name, "")


programs: dict[int, DecodedCode] = table()


def program_of(code: CodeType) -> DecodedCode:
    found = programs.get(id(code))
    if found is None:
        found = programs[watch(code)] = DecodedCode(code)
    return found


def first_time(machine: Machine, frame: Frame, index: int) -> int | None:
    program = program_of(frame.code)
    handler, arg = program.steps[index] = step(frame.code, program.instructions, index)
    return handler(machine, frame, arg)


def step(code: CodeType, instructions: tuple[Instruction, ...], index: int) -> HandlerCall:
    """The handler of one instruction, and its argument."""
    name, arg = canonical(code, instructions, index)
    if why := unsupported(instructions[index]):
        return refuse, why
    if name in NOT_REACHED:
        return refuse, f"{name}: {NOT_REACHED[name]}"
    if name in NOTHING:
        return nothing, None
    if name == "POP_TOP":
        return MOVES[name], Request(no_question, arg, 0, drop, None)  # of a generator, it awaits the end
    if name in MOVES:
        return MOVES[name], arg
    if name in DIRECT:
        run: Run = DIRECT[name]
        return (before_call, (run, arg)) if is_called(instructions[index]) else (run, arg)
    read, pops, finish = REQUESTS[name]
    if name in ("LOAD_ATTR", "LOAD_SUPER_ATTR") and is_called(instructions[index]):
        finish = push_callable
    detail = instructions[index].argval
    if "JUMP_IF" in name:
        detail = ("TRUE" in name, detail)
    return ask, Request(read, arg, pops if isinstance(pops, int) else pops(arg), finish, detail)


def no_question(machine: Machine, frame: Frame, arg: Any) -> None:
    """Of an instruction that asks nothing itself."""


def canonical(code: CodeType, instructions: tuple[Instruction, ...], index: int) -> tuple[str, Any]:
    """(name that the tables of handlers have, the handler's argument)."""
    name, arg, value, _ = instructions[index]
    name = ALIASES.get(name, name)
    if name == "BINARY_OP":
        symbol = OPERATORS[arg]
        return ("INPLACE_OP", symbol[:-1]) if symbol.endswith("=") else (name, symbol)
    if name in UNARY:
        return name, UNARY[name]
    if name == "COMPARE_OP":
        operator, as_bool = comparison(arg)
        return ("COMPARE_AS_BOOL" if as_bool else name), operator
    if name == "CONTAINS_OP" and arg:
        return "CONTAINS_NOT", arg
    if name == "LOAD_GLOBAL":
        return name, code.co_names[arg >> 1]
    if name in ("LOAD_ATTR", "LOAD_METHOD"):
        return "LOAD_ATTR", code.co_names[attribute(name, arg)[0]]
    if name == "LOAD_SUPER_ATTR":
        return name, (code.co_names[arg >> 2], bool(arg & 2))
    if name.startswith("CALL_INTRINSIC"):
        return name, intrinsic(name, arg)
    if name == "CALL":
        return name, (arg, keyword_names(code, instructions, index))
    if name == "MAKE_FUNCTION":
        return name, function_flags(instructions, index)
    if name in ("LOAD_NAME_OR_DEREF", "LOAD_FROM_DICT_OR_DEREF"):
        return name, (arg, value)
    if name in PAIRS:
        return name, (arg >> 4, arg & 15)
    return (name, value) if name in TAKES_VALUE else (name, arg)


PAIRS = {"LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST"}
TAKES_VALUE = {
    *("LOAD_CONST", "RETURN_CONST", "GO_TO", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE"),
    *("STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "STORE_NAME", "DELETE_NAME", "LOAD_FROM_DICT_OR_GLOBALS"),
    *("STORE_ATTR", "DELETE_ATTR", "IMPORT_NAME", "IMPORT_FROM"),
}


def is_called(instruction: Instruction) -> bool:
    """Whether a load leaves the empty slot of a call beside its value."""
    name, arg = instruction.opname, instruction.arg
    if name in ("LOAD_ATTR", "LOAD_METHOD"):
        return attribute(name, arg)[1]
    return name in ("LOAD_GLOBAL", "LOAD_SUPER_ATTR") and bool(arg & 1)


def before_call(machine: Machine, frame: Frame, arg: tuple[Run, Any]) -> None:
    """A load of a global that is to be called."""
    run, name = arg
    run(machine, frame, name)
    push_callable(frame, frame.stack.pop(), None)
    frame.next -= 1


def keyword_names(code: CodeType, instructions: tuple[Instruction, ...], index: int) -> tuple[str, ...]:
    """Those that KW_NAMES gives to the call at `index` (3.11 and 3.12)."""
    before = instructions[index - 1]
    if before.opname == "PRECALL":
        before = instructions[index - 2]
    if before.opname != "KW_NAMES":
        return ()
    names: tuple[str, ...] = code.co_consts[before.arg]
    return names


def function_flags(instructions: tuple[Instruction, ...], index: int) -> tuple[int, ...]:
    """Which attributes of a function lie below its code, the topmost first."""
    if PYTHON < (3, 13):
        return tuple(flag for flag in (8, 4, 2, 1) if instructions[index].arg & flag)
    flags = []
    for later in instructions[index + 1 :]:
        if later.opname != "SET_FUNCTION_ATTRIBUTE":
            break
        flags.append(later.arg)
    return tuple(flags)
