"""Capturing: one segment from where a call, or a break, left the frames, to where it ends; what this call then does.

In: a point, arguments or frames. Out: `Capture.run`: the result, or `Paused` frames; at the point an entry for later
calls, or what says that they run eager. What is captured does what it does for real, once. Where it fails with sizes as
symbols nothing has happened: it is captured again with fewer, then with constants.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from compiler_core import log, observe
from compiler_core.breaking import UNBROKEN, ends_in
from compiler_core.bytecode.completions import THROW
from compiler_core.bytecode.frame import Enter, Frame
from compiler_core.bytecode.machine import Machine
from compiler_core.bytecode.native import NativeSemantics
from compiler_core.bytecode.semantics import Break
from compiler_core.capture.captured import Captured, Pauses, Survivors, close, settle
from compiler_core.capture.compiled.entry import Paused
from compiler_core.capture.compiled.reached import MethodOf
from compiler_core.capture.compiled.sized import Entry, SizesRefused
from compiler_core.capture.guards.deaths import Deaths
from compiler_core.capture.guards.guards import Check
from compiler_core.capture.lessons import told_of
from compiler_core.capture.marks import check_marked
from compiler_core.capture.numbers.reads import put_back, resolved
from compiler_core.capture.numbers.symbols import is_symbol, plain_of
from compiler_core.capture.recipes.outputs import LeafEscapes
from compiler_core.capture.recipes.plain_numbers import plain_numbers
from compiler_core.capture.recipes.recipes import CannotRebuild
from compiler_core.capture.recipes.transplant import transplant_each
from compiler_core.capture.segment import CaptureSegment
from compiler_core.capture.start import changing_numbers, drop_dead, start_call, start_frames, without_sources
from compiler_core.capture.trace import Mark
from compiler_core.capture.tracing.iteration import RunBetween
from compiler_core.capture.tracing.native import Again, Seam
from compiler_core.capture.tracing.rules.copying import is_copying
from compiler_core.capture.tracing.semantics import TracingSemantics
from compiler_core.errors import DATA_ERRORS, ConstraintViolationError, GraphBreak
from compiler_core.location import interpreting
from compiler_core.numpy_trace.array import TracedArray
from compiler_core.ops.batching.value import levels, set_levels
from compiler_core.ops.registry import use_trace
from compiler_core.records import dataclass
from compiler_core.steps import timed
from compiler_core.tensor.autograd.grad_mode import taping

if TYPE_CHECKING:
    from compiler_core.capture.points import Point


class BrokeInside(Exception):
    """A capture has been taken back that ended in a function that is captured whole or not at all."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """Calls that run eager from this point: the check that knows them, what that relies on, and why."""

    check: Check
    deaths: Deaths
    why: str


@dataclass(frozen=True, slots=True)
class Returned:
    value: Any


@dataclass(frozen=True, slots=True)
class Broke:
    """why, where: the user's line."""

    why: Break
    where: str


@dataclass(frozen=True, slots=True)
class Raised:
    error: Exception


class Capture:
    """One capture of a segment, and the rest of this very call's way to where it ends."""

    def __init__(
        self, point: Point, args: tuple[Any, ...], kwargs: dict[str, Any], refused: SizesRefused | None = None
    ) -> None:
        self.point, self.owner, self.refused = point, point.owner, refused
        self.args, self.kwargs = args, kwargs
        self.segment = CaptureSegment(self.owner.new_name(), point.memory)
        self.segment.trace.draws_as_eager = self.owner.draws_as_eager
        self.segment.trace.is_fullgraph = self.owner.fullgraph
        self.segment.trace.takes_leaves = point.memory.takes_leaves
        self.segment.trace.takes_picked = point.memory.takes_picked
        self.semantics = TracingSemantics(self.segment)
        self.machine = Machine(self.semantics)
        self.semantics.machine = self.machine

    def run(self) -> Any:
        """The result, or Paused. What was found out is forgotten at once: it names objects, and itself in circles."""
        kept = [(frame, frame.copy()) for frame in self.args if isinstance(frame, Frame)]
        try:
            return self._run()
        except SizesRefused as why:
            refused: SizesRefused | None = why
        except BrokeInside:
            refused = self.refused
        finally:
            self.segment.forget()
        for frame, before in kept:
            frame.become(before)
        return self.again(self.point, self.args, self.kwargs, refused).run()

    def again(self, *args: Any) -> Capture:
        """A capture of the same, with fewer sizes as symbols."""
        return Capture(*args)

    def _run(self) -> Any:
        mapping, depth = levels(), (taping.depth, taping.closed)
        try:
            with timed(self.segment.trace.name, "capture"), use_trace(self.segment.trace), interpreting(self.machine):
                start = self.segment.trace.mark()
                ended = self._ended()
                self._end_elsewhere(ended, start)
                self._judge_sizes(ended, start)
                self._judge_picked(start)
                if isinstance(ended, Broke) and self.owner.fullgraph and not self._is_meant(ended.why):
                    self._take_back(start)
                    self.owner.broke(ended.why, ended.where, silent=False)  # raises GraphBreak: nothing has happened
                self._keep_whole(ended, start)
                captured, survivors = self._closed(ended, start)
                for source in self.segment.record.counters:
                    self.point.memory.note_dynamic(source)
        finally:
            set_levels(mapping)  # frames that have not come to their end have not left theirs
            taping.depth, taping.closed = depth
            self.semantics.retire()
            self.segment.trace.leave()
        try:
            return self._go_on(ended, captured, survivors)
        except BaseException:
            if not isinstance(ended, Raised) and self.point.is_root:
                self.segment.trace.ambient.set()  # the frames are left as they are: no `with` of theirs ends
            raise

    @property
    def _has_sizes(self) -> bool:
        """Whether sizes are symbols."""
        return bool(self.segment.sizes.symbols)

    def _judge_sizes(self, ended: Returned | Broke | Raised, start: Mark) -> None:
        """Raises SizesRefused for an end that may not be that of constant sizes. Of these it is remembered."""
        goes_on = isinstance(ended, Broke) and isinstance(ended.why, (RunBetween, Again, Seam))
        if isinstance(ended, Returned) or goes_on:
            why, where = "", ""
        elif isinstance(ended, Broke):
            why, where = ended.why.reason, ended.where
        else:
            why, where = told_of(ended.error), ""
        memory = self.point.memory
        if self._has_sizes:
            if why and (why, where) not in memory.ends_anyway:
                self._refuse_sizes(start, why, where)
        elif self.refused is None:
            if why and isinstance(ended, Broke):
                memory.ends_anyway.add((why, where))
        elif self.refused.is_for(why, where):
            memory.ends_anyway.add((why, where))
            memory.makes_symbols = True
            memory.along = max(memory.along, self.refused.most_along())
        elif not memory.makes_symbols:
            self.point.say_constant(str(self.refused), stacklevel=8)

    def _refuse_sizes(self, start: Mark, why: str, where: str = "") -> None:
        """Raises SizesRefused: nothing has happened, and from here on fewer sizes are symbols, or none."""
        self._take_back(start)
        along = self.segment.outside_sizes.along
        self.point.memory.give_sizes_up(along=along)
        raise SizesRefused(why, where, self.refused, along)

    def _end_elsewhere(self, ended: Returned | Broke | Raised, start: Mark) -> None:
        """Raises BrokeInside for an end in a function that does otherwise when it is captured again."""
        if not isinstance(ended, Broke):
            return
        frames = reversed(self.machine.frames)
        if any(ends_in(frame.code, *frame.locals[: frame.code.co_argcount]) for frame in frames):
            self._take_back(start)
            raise BrokeInside

    def _keep_whole(self, ended: Returned | Broke | Raised, start: Mark) -> None:
        """Raises BrokeInside for an end in a function that is captured whole or not at all: nothing has happened."""
        inside = next((frame.code for frame in self.machine.frames if frame.code in UNBROKEN), None)
        if inside is None or not isinstance(ended, Broke):
            return
        is_root = self.machine.frames[0].code is inside
        self._take_back(start)
        if not is_root:
            self.point.memory.breaks_in[inside] = ended.why.reason
            raise BrokeInside

    def _judge_picked(self, start: Mark) -> None:
        """Raises BrokeInside where what a number in a tensor selects was written: next time the graph ends there."""
        if self._wrote_picked:
            self._take_back(start)
            self.point.memory.takes_picked = False
            raise BrokeInside

    @property
    def _wrote_picked(self) -> bool:
        return self.segment.trace.wrote_picked and self.point.memory.takes_picked

    def _take_back(self, start: Mark) -> None:
        """Nothing has happened."""
        self.semantics.undone = True
        self.machine.frames.clear()
        self.segment.record.take_back()
        self.segment.trace.rollback(start)
        self.segment.trace.ambient.set()

    def _ended(self) -> Returned | Broke | Raised:
        """Run the machine until it returns, breaks or raises."""
        try:
            if self.segment.trace.ambient.overrides.modes:
                raise Break("a TorchFunctionMode is on around what is compiled", "enter it inside")
            if not self.point.is_root:
                frames: list[Frame] = list(self.args)
                start_frames(self.segment, frames)
                return Returned(self.machine.run(frames))
            lasting = not isinstance(self.owner.function, MethodOf)
            answer = start_call(self.semantics.parts, self.owner.called, self.args, self.kwargs, lasting=lasting)
            return Returned(self.machine.run([answer.frame]) if isinstance(answer, Enter) else answer)
        except Break as why:
            if (inner := self.semantics.lost) is not None:
                what = f"{inner.reason}, in a generator that code written in C advances"
                raise GraphBreak(what, where=self.machine.location(), remedy="make a list of it before") from why
            return Broke(why, self.machine.location())
        except GraphBreak:
            raise
        except Exception as error:  # noqa: BLE001 (the program's)
            return Raised(error)

    def _closed(self, ended: Returned | Broke | Raised, start: Mark) -> tuple[Captured, Survivors]:
        """`_close`, and the graph of the sizes of this very call can be made of it. Raises BrokeInside where what it
        leaves has a history that ends in a leaf of its own, or must not be read."""
        try:
            return self._closed_sizes(ended, start)
        except LeafEscapes:
            self._take_back(start)
            if isinstance(ended, Raised) and self.owner.fullgraph:
                raise ended.error from None
            self.point.memory.takes_leaves = False
            raise BrokeInside from None
        except GraphBreak:
            self._judge_picked(start)
            raise

    def _closed_sizes(self, ended: Returned | Broke | Raised, start: Mark) -> tuple[Captured, Survivors]:
        if not self._has_sizes:
            return self._close(ended)
        try:
            captured, survivors = self._close(ended)
            captured.at({symbol: survivors.arguments[place] for symbol, place in captured.sizes})
            check_marked(self.segment.sizes, self.segment.outside_sizes.asked)
        except ConstraintViolationError:
            self._take_back(start)
            raise
        except Exception as error:  # whatever it is: with constants it may go well
            if isinstance(error, LeafEscapes) or self._wrote_picked:
                raise
            self._refuse_sizes(start, f"{type(error).__name__}: {error}")
        if self.segment.trace.lost_sizes:
            self._refuse_sizes(start, "another thread has lent the memory of one of its tensors")
        return captured, survivors

    def _close(self, ended: Returned | Broke | Raised) -> tuple[Captured, Survivors]:
        """The end of the segment, for later calls if they can repeat it."""
        self.repeats = not isinstance(ended, Raised)
        self.put_outside = [change.args for change in self.segment.record.changes]
        if put_off := self.segment.record.put_off:
            self._skip(f"a generator is dropped whose end cannot be captured: {put_off[-1][1]}")
            return settle(self.segment)
        try:
            match ended:
                case Returned(value):
                    return close(self.segment, value, "the result", pauses="")
                case Broke(why, where) if not self.machine.frames:  # before anything was run
                    self._skip(f"{why.reason}, at {where}")
                case Broke(why, where) if any(map(is_copying, self.machine.frames)):
                    self._skip(f"a deep copy is half made, with a memo of ids: {why.reason}, at {where}")
                case Broke(why, _):
                    if not why.looks:
                        drop_dead(self.machine.frames)
                    pauses: Pauses = "again" if isinstance(why, Again) else "step"
                    return close(self.segment, self.machine.frames, "the frames", pauses=pauses)
        except (CannotRebuild, GraphBreak) as error:
            if self._has_sizes or isinstance(error, LeafEscapes) or self._wrote_picked:
                raise
            self._skip(str(error))
        return settle(self.segment)

    def _skip(self, why: str) -> None:
        """Later calls like this one run eager."""
        self.repeats = False
        guards = self.segment.code.guards
        self.point.skipped.append(Skipped(self.segment.check_alone(), guards.deaths, why))
        self.point.watch_over(guards.deaths)
        text = f"{self.owner.name} runs eager for such calls: {why}"
        if self.owner.is_asked_for:
            log.warn_once(f"skip {self.owner.name} {why}", text, stacklevel=6)
        else:
            log.emit("breaks", text)

    def _go_on(self, ended: Returned | Broke | Raised, captured: Captured, survivors: Survivors) -> Any:
        """Compile and run the graph; what this call goes on with."""
        is_whole = self._ends_behind_forwards(ended) or (self.point.is_root and isinstance(ended, Returned))
        entry = self.owner.compile(captured, is_whole)
        inputs: list[Any] = [None if cell is None else cell.current() for cell in survivors.cells]
        with observe.phase("forward", self.owner.name), self.segment.trace.ambient.held():  # as for later calls
            tensors, failure = _tried(entry, inputs, survivors)
            if failure is not None:
                return self._failed(failure, captured, entry)
        transplant_each(survivors.handles, tensors)
        self.segment.arrays.put_back(self.segment.record.changes)
        put_back(self.segment.numbers, self.segment.record.changes)
        for change in self.segment.record.later:
            change.function(change.target, *map(plain_of, change.args))
        for frame, _ in self.segment.record.put_off:
            with contextlib.suppress(GeneratorExit, StopIteration):
                Machine(NativeSemantics()).run([frame])
        self._plain(survivors.hooks)
        if self.repeats:
            self._keep(captured, entry)
        self._plain(self.put_outside)
        bodies = [generator.frame for generator in self.segment.record.generators]
        without_sources(bodies)
        self._plain(bodies)
        match ended:
            case Raised(error):
                self._plain(error)
                raise error
            case Broke(why, where):
                frames = self.machine.frames
                changing = changing_numbers(frames, self.point.memory)
                without_sources(frames or [frame for frame in self.args if isinstance(frame, Frame)])
                self._plain(frames)
                if not self._is_meant(why):
                    self.owner.broke(why, where, isinstance(why, (RunBetween, Again)))
                if not frames:
                    return self.point.eager(self.args, self.kwargs)
                return Paused(frames, isinstance(why, Again), changing)
        return self._plain(ended.value)

    def _is_meant(self, why: Break) -> bool:
        """Whether a graph ends here by design: at a seam, or where a loop goes on that one is in."""
        in_loop = isinstance(why, RunBetween) and why.is_builtin and not self.point.is_root
        return isinstance(why, Seam) or in_loop

    def _ends_behind_forwards(self, ended: Returned | Broke | Raised) -> bool:
        """Whether it is a seam behind the forwards that begin here, all of which are in this graph.

        Not where a graph broke before: what follows a break may depend on data, so ranks do not compare it.
        """
        trace = self.segment.trace
        begun, done = trace.gradient_owners, trace.forwards_ended
        is_seam = isinstance(ended, Broke) and isinstance(ended.why, Seam)
        never_broke = self.point.is_root or self.owner.fullgraph
        return is_seam and never_broke and bool(begun) and all(any(owner is other for other in done) for owner in begun)

    def _keep(self, captured: Captured, entry: Entry) -> None:
        """For later calls."""
        self.point._keep_first((captured.check, entry))
        self.point.watch_over(captured.guards.deaths)
        self.owner.note(self.point, captured, entry)

    def _failed(self, error: Exception, captured: Captured, entry: Entry) -> Any:
        """The graph met data that it cannot take. A call runs plainly, from its beginning: so Python says where, and
        what handles it runs. Behind a break it is raised where the frames stand, or, where they wait for numbers of the
        graph, at once."""
        if self.repeats:
            self._keep(captured, entry)
        record = self.segment.record
        if self.point.is_root and not record.generators:
            record.take_back()
            self.segment.trace.ambient.set()
            return self.point.plainly(self.args, self.kwargs)
        if self.segment.numbers.reads:
            record.take_back()
            raise error
        frames = self.machine.frames
        if not frames:
            raise error
        without_sources(frames)
        self._plain(frames)
        frames[-1].completion, frames[-1].pending = THROW, (error,)
        return Paused(frames)

    def _plain(self, root: Any) -> Any:
        """`root`, its numbers plain ones."""
        if not self.segment.numbers.any_change and not self.segment.arrays.any_made():
            return root
        instead = {TracedArray: self.segment.arrays.real}
        numbers = partial(resolved, self.segment.numbers)
        (plain,), _ = plain_numbers([root], is_symbol, self.segment.outside.has, instead, numbers)
        return plain


def _tried(entry: Entry, inputs: list[Any], survivors: Survivors) -> tuple[Any, Exception | None]:
    """What the graph gives, or the error of data that it cannot take: what is raised then is the same, and does not
    follow from it."""
    try:
        return entry.compute(inputs, survivors.arguments, survivors.hooks), None
    except DATA_ERRORS as error:
        return None, error
