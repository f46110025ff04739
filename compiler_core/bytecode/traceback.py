"""Tracebacks that show interpreted frames as if CPython had run them.

In: an exception on its way through a frame of the machine. Out: `add_entry`: its traceback begins with that frame, and
has no entry of the machine's own.
Method: a traceback entry needs a frame object, which only code that runs has. So there is a generator for each code of
the user's, with its file, name and table of lines, which never runs.
Known limits: locals of such frame objects are not the user's.
"""

from __future__ import annotations

from types import CodeType, FrameType, FunctionType, GeneratorType, TracebackType
from typing import TYPE_CHECKING

from compiler_core.bytecode.frame import Frame
from compiler_core.bytecode.instructions import line_of
from compiler_core.bytecode.program import program_of

PACKAGE = __name__.rpartition(".")[0]
hidden = [PACKAGE]  # packages whose frames are not shown: those that run the user's code
if TYPE_CHECKING:
    Never = GeneratorType[object, object, object]  # that never runs
STUB = (lambda: (yield)).__code__
objects: dict[int, tuple[CodeType, Never, FrameType]] = {}
stubs: set[int] = set()  # ids of the codes that `reflection.call_from` calls from


def is_hidden(name: str) -> bool:
    return any(name == package or name.startswith(package + ".") for package in hidden)


def is_own(frame: FrameType) -> bool:
    """Whether a frame is of the machinery."""
    return id(frame.f_code) in stubs or is_hidden(frame.f_globals.get("__name__", ""))


def frame_of(generator: Never) -> FrameType:
    frame = generator.gi_frame
    assert frame is not None  # it has not ended
    return frame


def frame_object(frame: Frame) -> FrameType:
    """A frame object that says it is of `frame.code`."""
    code = frame.code
    known = objects.get(id(code))
    if known is None:
        generator = never_started(frame, code.co_firstlineno, code.co_linetable)
        known = objects[id(code)] = (code, generator, frame_of(generator))
    return known[2]


def never_started(frame: Frame, line: int, lines: bytes) -> Never:
    """A generator of which the frame object has the names of `frame`. It refers to no other frame."""
    code = frame.code
    stub = STUB.replace(
        co_filename=code.co_filename,
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_firstlineno=line,
        co_linetable=lines,
    )
    made: Never = FunctionType(stub, frame.globals)()
    return made


def frame_at(frame: Frame) -> FrameType:
    """A frame object that says it is `frame` at its present line."""
    line = line_of(frame.code, program_of(frame.code).instructions[frame.next].offset)
    return frame_of(never_started(frame, line, STUB.co_linetable))


def add_entry(error: BaseException, frame: Frame) -> None:
    """Put `frame`, at its present instruction, in front of what the exception has passed."""
    entries = error.__traceback__
    while entries is not None and is_own(entries.tb_frame):
        entries = entries.tb_next
    if not is_hidden(frame.globals.get("__name__", "")):
        offset = program_of(frame.code).instructions[frame.next].offset
        entries = TracebackType(entries, frame_object(frame), offset, line_of(frame.code, offset))
    error.__traceback__ = entries
