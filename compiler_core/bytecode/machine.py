"""The machine: runs frames instruction by instruction, with a stack of frames of its own.

In: a list of frames, the innermost last; the others await what the one after them returns. Out: what the first returns
or raises. The list shows the whole state at any time: after a `Break` it is as before the instruction that broke, and
`run` of it, or of copies, goes on from there.
Method: a call that the semantics answers by `Enter` pushes a frame. Its result goes, through `completions`, to the
`finish` of the instruction below. Exceptions are looked up in the frames' tables. While a frame handles an exception
the loop runs inside an `except` block of this file, so that `sys.exc_info` and `__context__` are CPython's own doing.
Source: Python/ceval.c.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import dropwhile
from types import FrameType
from typing import Any

from compiler_core.bytecode.completions import ARRIVED, COMPLETIONS, RECOVERIES, THROW, UNHANDLED
from compiler_core.bytecode.frame import UNSET, Enter, Frame
from compiler_core.bytecode.generators import InterpretedGenerator
from compiler_core.bytecode.instructions import variable_names
from compiler_core.bytecode.intrinsics import escaped_stop
from compiler_core.bytecode.moves import LEAVE, SWITCH
from compiler_core.bytecode.program import program_of
from compiler_core.bytecode.requests import absorb_stop
from compiler_core.bytecode.semantics import Break, Semantics
from compiler_core.bytecode.traceback import add_entry
from compiler_core.bytecode.versions import ASYNC, STOP_IS_WRAPPED

SHALLOW = 20  # calls nested deeper than this are counted against the limit of recursion
RUNNING = object()  # the result of a machine that has none yet


class Machine:
    """frames: those of the run at hand. result: what the outermost one returned (or yielded), else RUNNING."""

    def __init__(self, semantics: Semantics) -> None:
        self.semantics = semantics
        self.frames: list[Frame] = []
        self.result: Any = RUNNING
        self.escaped: BaseException | None = None
        self.outside = 0  # frames of the host's, counted when calls nest deep

    def run(self, frames: list[Frame]) -> Any:
        """What the outermost frame returns; `frames` is empty then.

        Raises: what the program raises; Break, with `frames` as before the instruction that broke.
        """
        self.frames, self.result, self.outside = frames, RUNNING, 0
        while self.result is RUNNING:
            self.go(self.loop)
        return self.result

    def step(self, frames: list[Frame]) -> bool:
        """Run one instruction of the innermost frame. Whether the outermost frame has returned `self.result`."""
        self.frames, self.result = frames, RUNNING
        self.go(self.once)
        return self.result is not RUNNING

    def location(self) -> str:
        """file:line of the innermost frame."""
        if not self.frames:
            return "unknown"
        frame = self.frames[-1]
        return f"{frame.code.co_filename}:{program_of(frame.code).line_at(frame.next)}"

    def augmented(self) -> Any:
        """x, if the instruction at hand is the `+=` of `x[i] += y`; else None."""
        frame = self.frames[-1]
        behind = dropwhile(lambda one: one.opname == "SWAP", program_of(frame.code).instructions[frame.next + 1 :])
        follows = next(behind, None)
        is_stored = follows is not None and follows.opname == "STORE_SUBSCR"
        return frame.stack[-4] if is_stored and len(frame.stack) > 3 else None  # x, i, x[i], y

    def location_outside(self, is_ours: Callable[[str], bool]) -> str:
        """`file:line` of the innermost frame of which the file is not ours; "" if there is none."""
        for frame in reversed(self.frames):
            if not is_ours(frame.code.co_filename):
                return f"{frame.code.co_filename}:{program_of(frame.code).line_at(frame.next)}"
        return ""

    # the loop

    def go(self, body: Callable[[], None]) -> None:
        """Run `body` once, and take up what it raises."""
        outer, self.semantics.machine = getattr(self.semantics, "machine", None), self  # type: ignore[attr-defined]
        try:
            handled = self.handled()
            if handled is None:
                body()
            else:
                self.hold(handled, body)
        except Break:
            raise
        except BaseException as error:
            if not self.unwind(error, new=True):
                raise
        finally:
            self.semantics.machine = outer  # type: ignore[attr-defined]
            handled = None  # an exception and a frame in its traceback would keep each other alive
        if self.escaped is not None:
            self.raise_escaped()

    def raise_escaped(self) -> None:
        """Raise the exception that found no handler, without a new context or entry of the traceback."""
        error, self.escaped = self.escaped, None
        assert error is not None
        context, entries = error.__context__, error.__traceback__
        try:
            raise error
        except BaseException:
            error.__context__, error.__traceback__ = context, entries
            raise
        finally:
            del error, context, entries

    def hold(self, error: BaseException, body: Callable[[], None]) -> None:
        """body() while `error` is what `sys.exc_info` shows."""
        context, entries = error.__context__, error.__traceback__
        try:
            raise error
        except BaseException:  # noqa: BLE001
            error.__context__, error.__traceback__ = context, entries
            body()
        finally:
            del error, context, entries

    def handled(self) -> BaseException | None:
        """The exception under handling: the innermost frame's that has one."""
        for frame in reversed(self.frames):
            if frame.handled:
                return frame.handled[-1]
        return None

    def loop(self) -> None:
        """Run until the outermost frame is done, or another exception is under handling."""
        frames = self.frames
        while True:
            frame = frames[-1]
            if frame.completion:
                if self.take_up(frame) is LEAVE:
                    return
                continue
            steps = program_of(frame.code).steps
            moved = None
            while moved is None:
                handler, arg = steps[frame.next]
                moved = handler(self, frame, arg)
            if moved is LEAVE:
                return

    def once(self) -> None:
        frame = self.frames[-1]
        if frame.completion:
            self.take_up(frame)
        else:
            handler, arg = program_of(frame.code).steps[frame.next]
            handler(self, frame, arg)

    def take_up(self, frame: Frame) -> int:
        """Of an innermost frame: what it was about to be given, a value (after a Break) or an exception."""
        if frame.completion == THROW:
            (error,) = frame.pending
            frame.completion, frame.pending = "", ()
            if frame.handled:
                raise error  # within `hold`, which gives it its context
            return self.throw(error, new=True)
        return self.arrive(frame, None)

    # frames come and go

    def enter(self, frame: Frame, answer: Enter) -> int:
        """Push the frame that a semantics method named."""
        if len(self.frames) > SHALLOW and len(self.frames) + self.depth_outside() >= sys.getrecursionlimit():
            raise RecursionError("maximum recursion depth exceeded")
        frame.completion, frame.pending = answer.then, answer.pending
        self.frames.append(answer.frame)
        return LEAVE if answer.frame.handled else SWITCH

    def depth_outside(self) -> int:
        """How many frames the host had when this run began."""
        if not self.outside:
            frame: FrameType | None = sys._getframe()
            while frame is not None:
                frame, self.outside = frame.f_back, self.outside + 1
        return self.outside

    def finish(self, frame: Frame, value: Any) -> int:
        """The innermost frame returns `value`."""
        frames = self.frames
        frames.pop()
        generator = frame.generator
        if generator is not None:
            generator.finished()
            if frames:
                return self.stop(frames[-1], value)
        if not frames:
            self.result = value
            return LEAVE
        return self.arrive(frames[-1], value)

    def stop(self, frame: Frame, value: Any) -> int:
        """A generator that `frame` advanced has returned `value`."""
        if not frame.completion and absorb_stop(frame, value, program_of(frame.code).request_at(frame.next)):
            return SWITCH
        try:
            raise StopIteration(value) if value is not None else StopIteration
        except StopIteration as error:
            return self.throw(error.with_traceback(None), new=True, awaiting=True)

    def suspend(self, frame: Frame, value: Any) -> int:
        """The innermost frame, a generator's, yields `value`."""
        self.frames.pop()
        frame.generator.suspended()
        if not self.frames:
            self.result = value
            return LEAVE
        signal = self.arrive(self.frames[-1], value)
        return LEAVE if frame.handled else signal

    def make_generator(self, frame: Frame) -> int:
        """The innermost frame becomes the body of a generator, which is its result."""
        if frame.code.co_flags & 0x280:
            raise Break(ASYNC)
        frame.next += 1
        generator = InterpretedGenerator(frame, self.semantics)
        self.frames.pop()
        if not self.frames:
            self.result = generator
            return LEAVE
        return self.arrive(self.frames[-1], generator)

    def arrive(self, frame: Frame, value: Any) -> int:
        """`frame`, now innermost, gets the result of what it entered."""
        then, pending = frame.completion, frame.pending
        if then:
            if then == ARRIVED:
                then, pending, value = pending
            frame.completion, frame.pending = ARRIVED, (then, pending, value)
            if then:
                value = COMPLETIONS[then](self, frame, value, *pending)
            frame.completion, frame.pending = "", ()
            if type(value) is Enter:
                return self.enter(frame, value)
        request = program_of(frame.code).request_at(frame.next)
        request.finish(frame, value, request.detail)
        return SWITCH

    # exceptions

    def throw(self, error: BaseException, new: bool, awaiting: bool = False) -> int:
        """Raise `error` at the innermost frame; new: not reraised there. Its context stays as it is."""
        if not self.unwind(error, new, awaiting):
            self.escaped = error
        return LEAVE

    def unwind(self, error: BaseException, new: bool, awaiting: bool = False) -> bool:
        """Find the handler of `error`: whether there is one. Frames without leave the stack.

        awaiting: what the innermost frame entered has raised it.
        """
        frames, original = self.frames, error
        while frames:
            frame = frames[-1]
            if new or awaiting:
                add_entry(error, frame)
            if awaiting and self.recover(frame, error):
                return True
            frame.completion, frame.pending = "", ()
            handler = program_of(frame.code).handler_of(frame.next)
            if handler is not None:
                del frame.stack[handler.depth :]
                frame.stack += [frame.next, error] if handler.lasti else [error]
                frame.next = handler.target
                return True
            frames.pop()
            if frame.generator is not None:
                frame.generator.finished()
                if not STOP_IS_WRAPPED and isinstance(error, StopIteration):
                    error = escaped_stop(error)
            awaiting = True
        if error is original:
            return False
        self.escaped = error
        return True

    def recover(self, frame: Frame, error: BaseException) -> bool:
        """Whether the instruction that awaits what raised `error` has an answer to it."""
        recovery = RECOVERIES.get(frame.completion)
        if recovery is not None:
            value = recovery(self, frame, error, *frame.pending)
            if value is not UNHANDLED:
                frame.completion, frame.pending = ARRIVED, ("", (), value)
                return True
        if isinstance(error, StopIteration):
            frame.completion, frame.pending = "", ()
            return absorb_stop(frame, error.value, program_of(frame.code).request_at(frame.next))
        return False

    def to_reraise(self) -> BaseException:
        """The operand of a bare `raise`."""
        error = sys.exc_info()[1]
        if error is None:
            raise RuntimeError("No active exception to reraise")
        return error

    def unbound(self, frame: Frame, slot: int) -> NameError:
        """What reading a variable without a value raises."""
        name = variable_names(frame.code)[slot]
        if frame.code.co_freevars and slot >= len(frame.locals) - len(frame.code.co_freevars):
            text = f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope"
            return NameError(text, name=name)
        text = f"cannot access local variable '{name}' where it is not associated with a value"
        return UnboundLocalError(text, name=name)


__all__ = ["RUNNING", "UNSET", "Machine"]
