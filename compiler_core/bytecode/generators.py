"""Generators whose bodies are frames of the machine.

In: a frame at its start, with the semantics to run it by. Out: `InterpretedGenerator`, an iterator with send, throw and
close. The machine enters its frame where interpreted code advances it (`resume`); C code advances it by `__next__`,
which runs a machine of its own.
Invariants: a frame names its generator only while it runs, so that a generator which nobody holds any more is closed
at once, as CPython does; `state` says who has the frame: a suspended frame's stack lacks the value to be sent, which
`resume` pushes.
Known limits: not an instance of types.GeneratorType (but of collections.abc.Generator).
Source: Objects/genobject.c.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from compiler_core.bytecode.completions import THROW
from compiler_core.bytecode.frame import Frame
from compiler_core.bytecode.semantics import Break
from compiler_core.bytecode.versions import CLOSE_RETURNS_VALUE, STOP_ENDS_DELEGATION

if TYPE_CHECKING:
    from compiler_core.bytecode.semantics import Semantics

CREATED, SUSPENDED, RUNNING, CLOSED = "created", "suspended", "running", "closed"


class InterpretedGenerator(Generator[Any, Any, Any]):
    """A generator object of interpreted code."""

    state = CLOSED  # of one that has not been made completely

    def __init__(self, frame: Frame, semantics: Semantics) -> None:
        self.frame, self.semantics, self.state = frame, semantics, CREATED
        named: Any = frame.function
        self.__name__ = frame.code.co_name if named is None else named.__name__
        self.__qualname__ = frame.code.co_qualname if named is None else named.__qualname__

    # what the machine does with it

    def resume(self, value: Any = None) -> Frame | None:
        """The frame to run on, to which `value` has been sent; None where it has ended."""
        if self.state is RUNNING:
            raise ValueError("generator already executing")
        if self.state is CLOSED:
            return None
        if self.state is CREATED and value is not None:
            raise TypeError("can't send non-None value to a just-started generator")
        self.frame.stack.append(value)
        self.state, self.frame.generator = RUNNING, self
        return self.frame

    def resume_raising(self, error: BaseException) -> Frame | None:
        """The frame to run on, at which `error` is raised; None where it has ended."""
        frame = self.resume(None)
        if frame is not None:
            frame.completion, frame.pending = THROW, (error,)
        return frame

    def suspended(self) -> None:
        self.state, self.frame.generator = SUSPENDED, None

    def finished(self) -> None:
        self.state, self.frame.generator = CLOSED, None
        for values in (self.frame.stack, self.frame.locals, self.frame.handled):
            values.clear()

    def is_droppable(self) -> bool:
        """Whether closing it runs its own body first."""
        return self.state is SUSPENDED and self.delegate() is None

    def delegate(self) -> Any:
        """What `yield from` is waiting for, or None."""
        if self.state is not SUSPENDED:
            return None
        from compiler_core.bytecode.program import program_of

        at = program_of(self.frame.code).instructions[self.frame.next]
        return self.frame.stack[-1] if at.opname == "RESUME" and at.arg & 3 >= 2 else None

    # what C code, and Python code that is not interpreted, does with it

    def __iter__(self) -> InterpretedGenerator:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        frame = self.resume(value)
        if frame is None:
            raise StopIteration
        try:
            return self.run(frame)
        except Break as why:
            if hasattr(self.semantics, "driven"):
                self.semantics.driven(why)
            raise

    def run(self, frame: Frame) -> Any:
        from compiler_core.bytecode.machine import Machine

        value = Machine(self.semantics).run([frame])
        if self.state is not CLOSED:
            return value
        raise StopIteration(value) if value is not None else StopIteration

    def throw(self, kind: Any, value: Any = None, entries: TracebackType | None = None) -> Any:
        error = to_exception(kind, value)
        if entries is not None:
            error.__traceback__ = entries
        try:
            delegate = self.delegate()
            if delegate is not None:
                return self.throw_into(delegate, error)
            frame = self.resume_raising(error)
            if frame is None:
                raise error
            return self.run(frame)
        finally:
            del error, kind, value, entries  # a traceback that has this frame

    def throw_into(self, delegate: Any, error: BaseException) -> Any:
        """The delegate of `yield from` gets the exception first. Its StopIteration is the value of the expression; from
        3.12 on any StopIteration there is."""
        is_answer = STOP_ENDS_DELEGATION
        self.state = RUNNING
        try:
            if isinstance(error, GeneratorExit):
                if hasattr(delegate, "close"):
                    delegate.close()
            elif hasattr(delegate, "throw"):
                is_answer = True
                value = delegate.throw(error)
                self.state = SUSPENDED
                return value
        except BaseException as other:  # noqa: BLE001
            error = other
        self.state = SUSPENDED
        if is_answer and isinstance(error, StopIteration):
            return self.go_on_after_delegate(error)
        frame = self.resume_raising(error)
        del error
        assert frame is not None
        return self.run(frame)

    def go_on_after_delegate(self, stop: StopIteration) -> Any:
        """`yield from` has the value that the delegate returned."""
        from compiler_core.bytecode.program import program_of
        from compiler_core.bytecode.requests import absorb_stop

        program, frame = program_of(self.frame.code), self.frame
        index = frame.next
        while program.instructions[index].opname != "SEND":
            index -= 1
        absorb_stop(frame, stop.value, program.request_at(index))
        self.state, frame.generator = RUNNING, self
        return self.run(frame)

    def close(self) -> Any:
        if self.state is CREATED:
            self.state = CLOSED
        if self.state is CLOSED:
            return None
        try:
            self.throw(GeneratorExit())
        except StopIteration as stop:
            return stop.value if CLOSE_RETURNS_VALUE else None
        except GeneratorExit:
            return None
        raise RuntimeError("generator ignored GeneratorExit")

    def __del__(self) -> None:
        if self.state is SUSPENDED and not sys.is_finalizing() and not getattr(self.semantics, "undone", False):
            try:
                self.close()
            except Break as why:
                put_off = getattr(self.semantics, "put_off", None)
                if put_off is None:
                    raise
                put_off(self.frame, why)

    def __repr__(self) -> str:
        return f"<generator object {self.__qualname__} at {id(self):#x}>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("cannot pickle 'generator' object")

    # as of types.GeneratorType

    @property
    def gi_frame(self) -> FrameType | None:
        """A frame object of the same code and line; its variables are not the generator's."""
        from compiler_core.bytecode.traceback import frame_at

        return None if self.state is CLOSED else frame_at(self.frame)

    @property
    def gi_running(self) -> bool:
        return self.state is RUNNING

    @property
    def gi_suspended(self) -> bool:
        return self.state is SUSPENDED

    @property
    def gi_code(self) -> Any:
        return self.frame.code

    @property
    def gi_yieldfrom(self) -> Any:
        return self.delegate()


def to_exception(kind: Any, value: Any = None) -> BaseException:
    """The exception that generator.throw(kind, value) raises."""
    if isinstance(kind, BaseException):
        if value is not None:
            raise TypeError("instance exception may not have a separate value")
        return kind
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        name = type(kind).__name__
        raise TypeError(f"exceptions must be classes or instances deriving from BaseException, not {name}")
    if isinstance(value, kind):
        return value
    made: Any = kind(*(() if value is None else value if isinstance(value, tuple) else (value,)))
    if not isinstance(made, BaseException):
        return TypeError(f"calling {kind!r} should have returned an instance of BaseException, not {type(made)!r}")
    return made
