"""Points: the places where captured code starts (a call, or after a graph break), each with what was compiled for it.

In: the arguments of a call, or the frames that a break left. Out: `Point.run`: the result, or `Paused` frames.
A point tries its entries, the last used first; one whose guards hold runs; of several, one that is compiled for the
sizes of this call. Otherwise the segment from here is captured, which does what it does for real, once: then the graph
is compiled and run, the tensors that the program holds get their values, and the call goes on from where the segment
ended. A segment that later calls cannot repeat is remembered by its guards: such calls run eager from here on. Past
`config.recompile_limit` entries (after a break `PLACES` times as many) so do calls that fit none.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, ref

from compiler_core import log, observe
from compiler_core.aot.boundary import Hook
from compiler_core.bytecode.machine import Machine
from compiler_core.bytecode.native import NativeSemantics
from compiler_core.capture.capturing import Capture, Skipped
from compiler_core.capture.compiled.control import stance
from compiler_core.capture.compiled.counts import counters
from compiler_core.capture.compiled.reached import UncompiledSemantics
from compiler_core.capture.compiled.sized import Entry, SizedEntry, SizesFailed, compiled_among
from compiler_core.capture.guards.deaths import Deaths
from compiler_core.capture.guards.guards import Check
from compiler_core.capture.guards.sources import Source
from compiler_core.capture.lessons import Memory
from compiler_core.config import config
from compiler_core.errors import DATA_ERRORS, RecompileLimitError
from compiler_core.watch import Watch

if TYPE_CHECKING:
    from compiler_core.capture.compiled.function import State


MOST_IN_ALL = 32  # times as many captures as entries, of which some have gone with what they relied on
GONE = "what it was compiled for is there"
PLACES = 8  # after a break there may be as many more entries: one place serves every layer of a loop over modules


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
        """An entry gives no graph for the sizes of some call: fewer of them are symbols from here on, or none."""
        self.memory.give_sizes_up(along=item[1].captured.along)
        with self.owner.lock:
            self.entries = [other for other in self.entries if other is not item]
        if not self.memory.makes_symbols:
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
            for guards in dead:
                self.memory.refilled.update(guards.refilled())
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
        counters["frames"]["total"] += 1
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
            self.memory.refilled.update(guards.refilled(failed))
            for thing in guards.culprits(failed):
                self.memory.unstable.add(thing)
            if not position:
                text = guards.describe(failed)
                self._miss(text)
                log.emit(
                    "recompiles", f"{self.owner.name}: {entry.captured.graph.name} does not fit, failed guard: {text}"
                )
        self._drop_moved()

    def _miss(self, why: str) -> None:
        self.misses.append(why)
        self.owner.missed(why)

    def _learn_of_lost(self, watches: list[Watch]) -> None:
        """The same, of an entry that has gone with something that it relied on: a module may hold another thing."""
        for module in (module for watch in watches for module in watch.culprits()):
            self.memory.unstable.add(module)
        text = next(filter(None, (watch.find_difference() for watch in watches)), GONE)
        self._miss(text)
        log.emit("recompiles", f"{self.owner.name}: a graph went with what it was compiled for: {text}")
