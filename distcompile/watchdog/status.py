"""What this process is doing, written on its status board as it goes: phases, segments, steps, the last exception.

In: phases from the compiler core, the optimizers and waits; the step's number from DDP. Out: records of the board.
A phase is a `with` block; the blocks of the main thread form a stack, whose top is on the board. Other threads' phases
(ranks that are threads of one process) are not told. A thread renews the beat twice a second and notes the user's
line. Cost: two writes of about a microsecond a phase, one word a segment; nothing where there is no board.
An exception that leaves a forward, backward or optimizer step is noted with the user's line, and forgotten when a later
step is reduced well: until then others can be told why this rank is not where they are.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from threading import get_ident
from types import TracebackType

from compiler_core.observe import PhaseName
from launch.board import Board, Phase, Where, now_ns

BEAT_S = 0.5
_MAIN = int(Where.MAIN)
_ROOT = str(Path(__file__).resolve().parents[2])
_OURS = tuple(f"{_ROOT}{os.sep}{name}{os.sep}" for name in ("distcompile", "compiler_core", "collectives", "launch"))
_NOT_USERS = (*_OURS, f"{os.path.dirname(os.__file__)}{os.sep}", "<")
_SEGMENT = re.compile(r"^(.*)_segment(\d+)$")
_PHASES: dict[PhaseName, Phase] = {
    "compiling": Phase.COMPILING,
    "forward": Phase.FORWARD,
    "backward": Phase.BACKWARD,
    "optimizer": Phase.OPTIMIZER,
    "checkpoint": Phase.CHECKPOINT,
}
_TELLS_EXCEPTIONS = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
_NOTHING: AbstractContextManager[None] = nullcontext()

State = tuple[Phase, int, int, int, int, int]  # phase, since, bucket, segment, label, text


class _During(AbstractContextManager[None]):
    """One kind of phase of the main thread, entered as often as it comes."""

    __slots__ = ("phase", "segment", "status", "what")

    def __init__(self, status: Status, phase: Phase, what: str, segment: int = -1) -> None:
        self.status, self.phase, self.what, self.segment = status, phase, what, segment

    def __enter__(self) -> None:
        self.status.enter(self.phase, self.status.board.place(self.what), segment=self.segment)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self.phase in _TELLS_EXCEPTIONS:
            self.status.exception(error)
        self.status.leave()


class Status:
    """The writer of this process's board, used by its main thread (and `beat` by its own)."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.main = threading.main_thread().ident or 0
        self.kinds: dict[tuple[PhaseName, str], _During] = {}
        self.stack: list[State] = []
        self.step = -1
        self.beneath = Phase.USER_CODE  # what the main thread does outside of all phases
        self.excepted = False  # whether the board holds an exception
        self.told: BaseException | None = None
        self.ending = threading.Event()
        self._write((Phase.USER_CODE, now_ns(), -1, -1, 0, 0))
        self.thread = threading.Thread(target=self._beat, name="distcompile status", daemon=True)
        self.thread.start()

    # -- phases

    def during(self, phase: PhaseName, what: str) -> AbstractContextManager[None]:
        """A `with` block in which the main thread does what `phase` says."""
        if get_ident() != self.main:
            return _NOTHING
        return self.kinds.get((phase, what)) or self._new_kind(phase, what)

    def _new_kind(self, phase: PhaseName, what: str) -> _During:
        known, text, number = _PHASES[phase], what, -1
        if known is Phase.COMPILING:
            graph, _, step = what.partition(": ")
            found = _SEGMENT.match(graph)
            name, number = (found[1], int(found[2])) if found else (graph, -1)
            text = f"{name} (step {step!r})" if step else name
        made = self.kinds[phase, what] = _During(self, known, text, number)
        return made

    def enter(self, phase: Phase, label: int = 0, *, segment: int = -1, text: int = 0) -> None:
        """The main thread begins something inside what it did. label, text: places on the board."""
        state = (phase, now_ns(), -1, segment, label, text)
        self.stack.append(state)
        self._write(state)

    def leave(self) -> None:
        """It ended; the main thread does again what it did before."""
        stack = self.stack
        if stack.pop()[0] is Phase.COMPILING:
            self.board.compiled()
        self._write(stack[-1] if stack else (self.beneath, now_ns(), -1, -1, 0, 0))

    def segment(self, number: int) -> None:
        """A compiled backward begins its segment `number`."""
        if get_ident() == self.main and self.stack and self.stack[-1][0] is Phase.BACKWARD:
            phase, since, bucket, _, label, text = self.stack[-1]
            self.stack[-1] = (phase, since, bucket, number, label, text)
            self.board.words[8 + 5] = number

    def begin_step(self, step: int) -> None:
        """A synchronised backward begins, the `step`-th of its kind."""
        if get_ident() == self.main:
            self.step = step
            self.board.words[8 + 3] = step

    def end_step(self) -> None:
        """Its buckets are all reduced: whatever went wrong before is over."""
        if self.excepted:
            self.excepted, self.told = False, None
            self.board.write(Where.EXCEPTION, Phase.STARTING, now_ns())
        if self.board.words[6]:
            self.board.hang("")

    def _write(self, state: State) -> None:
        phase, since, bucket, segment, label, text = state
        self.board.write(_MAIN, phase, since, self.step, bucket, segment, label, text)

    # -- exceptions and the end

    def exception(self, error: BaseException, *, is_last: bool = False) -> None:
        """Note an exception that leaves a step; is_last: that ends the program."""
        if error is not self.told:
            self.told, self.excepted = error, True
            summary = f"{type(error).__name__}: {error}".splitlines()[0]
            self.board.exception(summary, users_line(error.__traceback__), self.step)
        if is_last:
            self._write((Phase.EXCEPTION, now_ns(), -1, -1, 0, 0))

    def finish(self) -> None:
        """The program came to its end."""
        self.ending.set()
        self.beneath = Phase.FINISHED  # a group that is closed after this may still wait
        self._write((Phase.FINISHED, now_ns(), -1, -1, 0, 0))

    # -- the beat

    def _beat(self) -> None:
        while not self.ending.wait(BEAT_S):
            self.board.beat()
            self.board.write(Where.LINE, Phase.USER_CODE, now_ns(), text=self.board.place(_line_of(self.main)))


def _line_of(thread: int) -> str:
    """`train.py:88`, the innermost line of that thread that is not ours nor a library's; "" if there is none.

    No frame outlives the call: what its variables hold, a step's saved values, would live until the next beat.
    """
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if _is_users(frame.f_code.co_filename):
            return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def users_line(trace: TracebackType | None) -> str:
    """The same of a traceback."""
    found = ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if _is_users(name):
            found = f"{os.path.basename(name)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def _is_users(filename: str) -> bool:
    return not filename.startswith(_NOT_USERS) and f"{os.sep}site-packages{os.sep}" not in filename
