"""Tracebacks that show interpreted frames as if CPython had run them.

In: an exception on its way through a frame of the machine. Out: `add_entry`: its traceback begins with that frame, and
has no entry of the machine's own.
Method: a traceback entry needs a frame object, which only code that runs has. So there is a generator for each code of
the user's, with its file, name and table of lines, which never runs.
Known limits: locals of such frame objects are not the user's.
"""

from __future__ import annotations

import opcode
from types import CodeType, FrameType, FunctionType, GeneratorType, TracebackType
from typing import TYPE_CHECKING

from compiler_core.bytecode.frame import Frame
from compiler_core.bytecode.kept import table, watch
from compiler_core.bytecode.program import program_of

PACKAGE = __name__.rpartition(".")[0]
hidden = [PACKAGE]  # packages whose frames are not shown: those that run the user's code
if TYPE_CHECKING:
    Never = GeneratorType[object, object, object]  # that never runs
STUB = (lambda: (yield)).__code__
NOP = bytes((opcode.opmap["NOP"], 0))
stubs: dict[int, CodeType] = table()
CALLER = ".function"  # the first variable of the codes that `reflection.call_from` calls from


def is_hidden(name: str) -> bool:
    return any(name == package or name.startswith(package + ".") for package in hidden)


def is_caller(code: CodeType) -> bool:
    """Whether `reflection.call_from` calls from it."""
    return code.co_varnames[:1] == (CALLER,)


def is_own(frame: FrameType) -> bool:
    """Whether a frame is of the machinery."""
    return is_caller(frame.f_code) or is_hidden(frame.f_globals.get("__name__", ""))


def frame_object(frame: Frame) -> FrameType:
    """A frame object that says it is of `frame.code`."""
    stub = stubs.get(id(frame.code))
    if stub is None:
        stub = stubs[watch(frame.code)] = stub_of(frame.code, frame.code.co_firstlineno, frame.code.co_linetable)
    return never_started(frame, stub)


def stub_of(code: CodeType, line: int, lines: bytes) -> CodeType:
    """Code of a generator that has the names of `code`. lines: a table of lines, of this code's or of STUB's.

    It is as long as the table may say: a profiler or debugger has CPython 3.11 write a line for each instruction there.
    """
    missing = (len(code.co_code) - len(STUB.co_code)) // len(NOP)
    return STUB.replace(
        co_code=STUB.co_code + NOP * missing,
        co_filename=code.co_filename,
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_firstlineno=line,
        co_linetable=lines,
    )


def never_started(frame: Frame, stub: CodeType) -> FrameType:
    """The frame object of a generator that never runs. It refers to no other frame."""
    generator: Never = FunctionType(stub, frame.globals)()
    made = generator.gi_frame
    assert made is not None  # it has not ended
    return made


def frame_at(frame: Frame) -> FrameType:
    """A frame object that says it is `frame` at its present line."""
    line = program_of(frame.code).line_at(frame.next)
    return never_started(frame, stub_of(frame.code, line, STUB.co_linetable))


def add_entry(error: BaseException, frame: Frame) -> None:
    """Put `frame`, at its present instruction, in front of what the exception has passed."""
    entries = error.__traceback__
    while entries is not None and is_own(entries.tb_frame):
        entries = entries.tb_next
    if not is_hidden(frame.globals.get("__name__", "")):
        program = program_of(frame.code)
        offset, line = program.instructions[frame.next].offset, program.line_at(frame.next)
        entries = TracebackType(entries, frame_object(frame), offset, line)
    error.__traceback__ = entries
