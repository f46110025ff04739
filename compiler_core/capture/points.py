"""Points: the places where captured code starts (a call, or after a graph break), each with what was compiled for it.

In: the arguments of a call, or the frames that a break left. Out: `Point.run`: the result, or `Paused` frames.
A point tries its entries, the last used first; one whose guards hold runs; of several, one that is compiled for the
sizes of this call. Otherwise the segment from here is captured, which does what it does for real, once: then the graph
is compiled and run, the tensors that the program holds get their values, and the call goes on from where the segment
ended. A segment that later calls cannot repeat is remembered by its guards: such calls run eager from here on. Past
`config.recompile_limit` entries (after a break `PLACES` times as many) so do calls that fit none.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

from compiler_core import log, observe
from compiler_core.aot.boundary import Hook
from compiler_core.bytecode.completions import THROW
from compiler_core.bytecode.frame import Enter, Frame
from compiler_core.bytecode.machine import Machine
from compiler_core.bytecode.native import NativeSemantics
from compiler_core.bytecode.semantics import Break
from compiler_core.capture.captured import Captured, Pauses, Survivors, close, settle
from compiler_core.capture.compiled.control import stance
from compiler_core.capture.compiled.entry import Paused
from compiler_core.capture.compiled.reached import MethodOf, UncompiledSemantics
from compiler_core.capture.compiled.sized import Entry, SizedEntry, SizesFailed, SizesRefused, compiled_among
from compiler_core.capture.guards.deaths import Deaths
from compiler_core.capture.guards.guards import Check
from compiler_core.capture.guards.sources import Source
from compiler_core.capture.lessons import Memory, told_of
from compiler_core.capture.marks import check_marked
from compiler_core.capture.numbers.symbols import is_symbol
from compiler_core.capture.recipes.plain_numbers import plain_numbers
from compiler_core.capture.recipes.recipes import CannotRebuild
from compiler_core.capture.recipes.transplant import transplant_each
from compiler_core.capture.segment import CaptureSegment
from compiler_core.capture.start import changing_numbers, drop_dead, start_call, start_frames, without_sources
from compiler_core.capture.trace import Mark
from compiler_core.capture.tracing.iteration import RunBetween
from compiler_core.capture.tracing.native import Again
from compiler_core.capture.tracing.rules.copying import is_copying
from compiler_core.capture.tracing.semantics import TracingSemantics
from compiler_core.config import config
from compiler_core.errors import DATA_ERRORS, ConstraintViolationError, GraphBreak, RecompileLimitError
from compiler_core.location import interpreting
from compiler_core.numpy_trace.array import TracedArray
from compiler_core.ops.registry import use_trace
from compiler_core.steps import timed
from compiler_core.watch import Watch

if TYPE_CHECKING:
    from compiler_core.capture.compiled.function import State


MOST_IN_ALL = 32  # times as many captures as entries, of which some have gone with what they relied on
GONE = "what it was compiled for is there"
PLACES = 8  # after a break there may be as many more entries: one place serves every layer of a loop over modules


@dataclass(frozen=True, slots=True)
class Skipped:
    """Calls that run eager from this point: the check that knows them, what that relies on, and why."""

    check: Check
    deaths: Deaths
    why: str


def _tell(point: ReferenceType[Point]) -> None:
    found = point()
    if found is not None:
        found.bury()


class Point:
    """See the head of this file. is_root: a call starts here; else a graph break did. changing: numbers that changed
    before that."""

    def __init__(self, owner: State, *, is_root: bool = False, changing: Iterable[Source] = ()) -> None:
        self.owner, self.is_root = owner, is_root
        self.entries: list[tuple[Check, Entry]] = []
        self.skipped: list[Skipped] = []
        self.news_of_death = False
        self.lost: list[list[Watch]] = []  # on modules, of entries that have gone
        self.captures = 0
        self.has_collected = False
        self.misses: list[str] = []
        self.memory = Memory(skips_hooks=owner.skips_hooks, all_sizes_change=owner.dynamic)
        for source in changing:
            self.memory.note_dynamic(source)

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result, or Paused. args: of the call, or the frames to go on with."""
        for position, item in enumerate(self.entries):
            found = item[0](args, kwargs)
            if not isinstance(found, int):
                if type(item[1]) is SizedEntry and item[1].is_new(found[1]):
                    better = compiled_among(self.entries[position + 1 :], args, kwargs)
                    if better is None and item[1].waits(found[1]):
                        return self.plainly(args, kwargs)
                    position, item, found = (1, *better) if better is not None else (position, item, found)
                if position:
                    self._keep_first(item)
                with observe.phase("forward", self.owner.name):
                    entry = item[1]
                    hooks: list[Hook] = []
                    try:
                        tensors = entry.compute(*found, hooks)
                    except DATA_ERRORS:  # nothing was done so far: Python says where, and runs what handles it
                        return self.plainly(args, kwargs)
                    except SizesFailed as why:
                        self._give_sizes_up(item, why)
                        continue
                    return entry.results.build(tensors, found[1], hooks)
        return self._missed(args, kwargs)

    def _give_sizes_up(self, item: tuple[Check, Entry], why: SizesFailed) -> None:
        """An entry gives no graph for the sizes of some call: from here on sizes are constants."""
        self.memory.makes_symbols = False
        with self.owner.lock:
            self.entries = [other for other in self.entries if other is not item]
        self.say_constant(str(why), stacklevel=7)

    def say_constant(self, why: str, *, stacklevel: int) -> None:
        """Sizes are constants from here on: a warning for whoever asked for symbols."""
        text = f"{self.owner.name}: sizes are constants where it is compiled: {why}"
        if self.memory.changing_dims:  # learnt, not asked for
            log.emit("recompiles", text)
        else:
            log.warn_once(f"sizes {id(self)}", text, stacklevel=stacklevel)

    def eager(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result, by Python itself, or by the machine where it is in the middle of frames. What is called may be
        compiled by itself."""
        if self.is_root:
            return self.owner.reached.run(self.owner.called, args, kwargs)
        return Machine(UncompiledSemantics(self.owner.reached)).run(list(args))

    def plainly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The same, and nothing that is called is compiled."""
        if self.is_root:
            return self.owner.called(*args, **kwargs)
        return Machine(NativeSemantics()).run(list(args))

    def _keep_first(self, item: tuple[Check, Entry]) -> None:
        """Put an entry, new or not, in front. Ranks that are threads may share one compiled function."""
        with self.owner.lock:
            self.entries = [item, *(other for other in self.entries if other is not item)]
        while self.news_of_death:  # which a list that was made meanwhile may not know
            self.news_of_death = False
            self._drop_dead()

    def watch_over(self, deaths: Deaths) -> None:
        """An entry, or what is known of calls that run eager, goes with the first thing that it relies on."""
        deaths.tell = partial(_tell, ref(self))
        if deaths.happened:
            self.bury()

    def bury(self) -> None:
        """Something has died, in any thread and at any place: what relies on it is no longer kept."""
        self.news_of_death = True
        self._drop_dead()

    def _drop_dead(self) -> None:
        with self.owner.lock:
            dead = [item[1].captured.guards for item in self.entries if item[1].captured.guards.deaths.happened]
            self.lost += [guards.modules for guards in dead]
            self.entries = [item for item in self.entries if item[1].captured.guards not in dead]
            self.skipped = [skipped for skipped in self.skipped if not skipped.deaths.happened]

    def _drop_moved(self) -> None:
        """Entries of which a tensor has been bound to other memory: they would keep the memory that it had. Captured
        again, it is guarded otherwise."""
        moved = {id(entry): entry.captured.guards.moved() for _, entry in self.entries}
        for tensor in (tensor for tensors in moved.values() for tensor in tensors):
            self.memory.unstable.add(tensor)
        with self.owner.lock:
            self.entries = [item for item in self.entries if not moved.get(id(item[1]))]

    def _missed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for skipped in self.skipped:
            if not isinstance(skipped.check(args, kwargs), int):
                return self.eager(args, kwargs)
        if stance.name != "default" and self._refuses(args, kwargs):
            return self.plainly(args, kwargs)
        limit = config.recompile_limit * (1 if self.is_root else PLACES)
        if len(self.misses) <= limit:
            self._learn(args, kwargs)
        is_full = self._is_full(limit)
        if is_full or self.captures >= limit * MOST_IN_ALL:
            self.owner.over_limit(self.misses, limit if is_full else self.captures)
            return self.plainly(args, kwargs)
        self.captures += 1
        return Capture(self, args, kwargs).run()

    def _is_full(self, limit: int) -> bool:
        """Whether there are as many entries as may be. What is only waiting to be collected does not count, once."""
        if len(self.entries) + len(self.skipped) >= limit and not self.has_collected:
            self.has_collected = True
            gc.collect()
        return len(self.entries) + len(self.skipped) >= limit

    def _refuses(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether the stance has this call run eager. Raises RecompileLimitError where it has it fail."""
        if stance.name == "frozen":
            return True
        if not self.entries or stance.name not in ("fail_on_recompile", "eager_on_recompile"):
            return False
        if stance.name == "eager_on_recompile":
            return True
        check, entry = self.entries[0]
        failed = check(args, kwargs)
        why = entry.captured.guards.describe(failed) if isinstance(failed, int) else ""
        raise RecompileLimitError(
            f"{self.owner.name} would be compiled again, and the stance is fail_on_recompile",
            expected=why,
            remedy="keep this constant, or compile for it before the stance is set",
        )

    def _learn(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Why the entries do not fit: said, and remembered of numbers and modules that change."""
        for watches in self.lost:
            self._learn_of_lost(watches)
        self.lost = []
        for position, (check, entry) in enumerate(self.entries):
            failed = check(args, kwargs)
            assert isinstance(failed, int)
            guards = entry.captured.guards
            self.memory.learn(entry.captured, failed, args, kwargs, sizes=self.owner.learns_sizes)
            for thing in guards.culprits(failed):
                self.memory.unstable.add(thing)
            if not position:
                text = guards.describe(failed)
                self.misses.append(text)
                log.emit(
                    "recompiles", f"{self.owner.name}: {entry.captured.graph.name} does not fit, failed guard: {text}"
                )
        self._drop_moved()

    def _learn_of_lost(self, watches: list[Watch]) -> None:
        """The same, of an entry that has gone with something that it relied on: a module may hold another thing."""
        for module in (module for watch in watches for module in watch.culprits()):
            self.memory.unstable.add(module)
        text = next(filter(None, (watch.find_difference() for watch in watches)), GONE)
        self.misses.append(text)
        log.emit("recompiles", f"{self.owner.name}: a graph went with what it was compiled for: {text}")


class Capture:
    """One capture of a segment, and the rest of this very call's way to where it ends."""

    def __init__(
        self, point: Point, args: tuple[Any, ...], kwargs: dict[str, Any], refused: SizesRefused | None = None
    ) -> None:
        self.point, self.owner, self.refused = point, point.owner, refused
        self.args, self.kwargs = args, kwargs
        self.segment = CaptureSegment(self.owner.new_name(), point.memory)
        self.segment.trace.draws_as_eager = self.owner.draws_as_eager
        self.semantics = TracingSemantics(self.segment)
        self.machine = Machine(self.semantics)
        self.semantics.machine = self.machine

    def run(self) -> Any:
        """The result, or Paused. What was found out is forgotten at once: it names objects, and itself in circles."""
        kept = [(frame, frame.copy()) for frame in self.args if isinstance(frame, Frame)]
        try:
            return self._run()
        except SizesRefused as why:
            refused = why
        finally:
            self.segment.forget()
        for frame, before in kept:
            frame.become(before)
        return Capture(self.point, self.args, self.kwargs, refused).run()

    def _run(self) -> Any:
        try:
            with timed(self.segment.trace.name, "capture"), use_trace(self.segment.trace), interpreting(self.machine):
                start = self.segment.trace.mark()
                ended = self._ended()
                self._judge_sizes(ended, start)
                if isinstance(ended, Broke) and self.owner.fullgraph:
                    self._take_back(start)
                    self.owner.broke(ended.why, ended.where, silent=False)  # raises GraphBreak: nothing has happened
                captured, survivors = self._closed(ended, start)
                for source in self.segment.record.counters:
                    self.point.memory.note_dynamic(source)
        finally:
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
        if isinstance(ended, Returned) or (isinstance(ended, Broke) and isinstance(ended.why, (RunBetween, Again))):
            why, where = "", ""
        elif isinstance(ended, Broke):
            why, where = ended.why.reason, ended.where
        else:
            why, where = told_of(ended.error), ""
        memory = self.point.memory
        if self.refused is None and not self._has_sizes:
            if why and isinstance(ended, Broke):
                memory.ends_anyway.add((why, where))
        elif self.refused is None:
            if why and (why, where) not in memory.ends_anyway:
                self._refuse_sizes(start, why, where)
        elif (self.refused.why, self.refused.where) == (why, where):
            memory.ends_anyway.add((why, where))
            memory.makes_symbols = True
        else:
            self.point.say_constant(str(self.refused), stacklevel=8)

    def _refuse_sizes(self, start: Mark, why: str, where: str = "") -> None:
        """Raises SizesRefused: nothing has happened, and from here on sizes are constants."""
        self._take_back(start)
        self.point.memory.makes_symbols = False
        raise SizesRefused(why, where)

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
        """`_close`, and the graph of the sizes of this very call can be made of it."""
        if not self._has_sizes:
            return self._close(ended)
        try:
            captured, survivors = self._close(ended)
            captured.at({symbol: survivors.arguments[place] for symbol, place in captured.sizes})
            check_marked(self.segment.sizes, self.segment.outside_sizes.asked)
        except ConstraintViolationError:
            self._take_back(start)
            raise
        except Exception as error:  # noqa: BLE001  whatever it is: with constants it may go well
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
            if self._has_sizes:
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
        is_whole = self.point.is_root and isinstance(ended, Returned)
        entry = self.owner.compile(captured, is_whole)
        inputs: list[Any] = [None if cell is None else cell.current() for cell in survivors.cells]
        with observe.phase("forward", self.owner.name), self.segment.trace.ambient.held():  # as for later calls
            try:
                tensors = entry.compute(inputs, survivors.arguments, survivors.hooks)
            except DATA_ERRORS as failure:
                return self._failed(failure, captured, entry)
        transplant_each(survivors.handles, tensors)
        self.segment.arrays.put_back(self.segment.record.changes)
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
                self.owner.broke(why, where, isinstance(why, (RunBetween, Again)))
                if not frames:
                    return self.point.eager(self.args, self.kwargs)
                return Paused(frames, isinstance(why, Again), changing)
        return self._plain(ended.value)

    def _keep(self, captured: Captured, entry: Entry) -> None:
        """For later calls."""
        self.point._keep_first((captured.check, entry))
        self.point.watch_over(captured.guards.deaths)
        self.owner.note(self.point, captured, entry)

    def _failed(self, error: Exception, captured: Captured, entry: Entry) -> Paused:
        """The graph met data that it cannot take: raised where the frames stand, so that they can handle it."""
        if self.repeats:
            self._keep(captured, entry)
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
        (plain,), _ = plain_numbers([root], is_symbol, self.segment.outside.has, instead)
        return plain


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
