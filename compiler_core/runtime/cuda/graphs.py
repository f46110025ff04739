"""A program's launches as one CUDA graph: recorded once for a set of addresses, launched whole from then on.

In: a `CudaExecutable`. Out: `Replaying`, an `Executable` that does the same with less time on the host.

A graph holds addresses, so it serves calls whose inputs, outputs and arena lie where they lay when it was recorded.
Parameters stay, and outputs that are given no place get memory that they had in an earlier call on this stream, once
nobody refers to it any more (the pool would hand out blocks of one size in turns). So the memory of results and saved
values is kept from one step to the next; when there is not enough, it is let go. What little lies elsewhere at every
call all the same is copied (settling.py). A set of addresses is recorded when it comes for the second time;
`MAX_GRAPHS` are kept, the latest used last. Values of the host are uploaded before the launch, into the same place.
What cannot be recorded runs as without graphs, and says why once (`log.warn_once`): programs that call back into
Python, calls with events, addresses that never come again.
Recording happens on a stream of its own, for the default stream cannot be recorded; the current one is launched on.
Source: CUDA Driver API, "Stream capture", "Graph management".
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from functools import cache
from sys import getrefcount
from typing import Any, cast

import numpy as np

from compiler_core import cuda, log
from compiler_core.events import Events
from compiler_core.ops.registry import Array
from compiler_core.runtime.cuda import checks, context, driver
from compiler_core.runtime.cuda.blocks import Stack
from compiler_core.runtime.cuda.executable import CudaExecutable, Prepared
from compiler_core.runtime.cuda.settling import Settling

MAX_GRAPHS = 8
KEPT = 2  # of each of a program's blocks, that are remembered: two calls may be under way before their backwards
COMPARED = 4  # earlier calls that one is compared with, to find what lies elsewhere
PATIENCE = 64  # calls in a row, each on addresses of its own, after which no more are remembered
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED: what other threads do meanwhile does not matter

Key = tuple[int, ...]  # thread, stream, the arena's address, whether tf32 is permitted, addresses
HEAD = 4  # of a key: what comes before the addresses


class RecordedGraph:
    """handle: of the executable graph, destroyed with this object. arena: held, for the graph writes there."""

    def __init__(self, handle: int, arena: Array) -> None:
        self.handle, self.arena = handle, arena
        destroy = driver.function("cuGraphExecDestroy")  # of one that still runs: when it is done
        weakref.finalize(self, destroy, ctypes.c_void_p(handle)).atexit = False


class Replaying:
    """One program. replays, records: how often a graph was launched, and made."""

    hosts = True  # takes saved values in the host's memory

    def __init__(self, run: CudaExecutable) -> None:
        self.run, self.entry, self.spends, self.stack = run, run.entry, run.spends, run.stack
        self.output_metas, self.working_nbytes = run.output_metas, run.working_nbytes
        self.replays = self.records = 0
        self._graphs: OrderedDict[Key, RecordedGraph] = OrderedDict()
        self._seen: OrderedDict[Key, None] = OrderedDict()
        self._lock = threading.Lock()
        self.settling = Settling(run)
        self._kept: dict[tuple[int, int], list[list[Any]]] = {}  # by thread and stream: of each block, pointers
        self._strangers = 0  # calls in a row on addresses that had not come before
        self._reason = "it calls back into Python" if run.entry.callbacks else ""
        self.over_inputs = run.over_inputs

    def __call__(
        self, inputs: Sequence[Array], outs: Sequence[Array | None] | None = None, events: Events | None = None
    ) -> list[Array]:
        """As the program's own."""
        if self.run.is_measured:
            return self.run(inputs, outs, events)
        if self._reason or events is not None:
            self._say(self._reason or "its events are heard between its kernels")
            return self.run(inputs, outs, events)
        checks.look()
        with context.on(self.run.number):
            prepared, fresh = self._prepare(inputs, self.run.with_hosts(outs))
            self._enqueue(prepared)
            self.settling.bring_out(prepared, fresh, context.cupy().cuda.get_current_stream().ptr)
            for source, target in prepared.copies:
                target[...] = source
            return self.run.results(prepared)

    def hold_together(self, groups: Sequence[Sequence[int]], stacks: Sequence[Stack] = ()) -> None:
        """As the program's own."""
        self.run.hold_together(groups, stacks)

    def made(self, output: int, array: Array) -> bool:
        """Whether an array lies in memory that is kept here for an output, and nobody else refers to that."""
        xp, pointer = context.cupy(), cast(Any, array.data)
        block, offset = self.run.blocks.places[output]
        with self._lock:
            kept = self._kept.get((threading.get_ident(), xp.cuda.get_current_stream().ptr))
            places = [] if kept is None else [place.ptr + offset for place in kept[block]]
            if kept is None or pointer.ptr not in places:
                return False
            k = places.index(pointer.ptr)
            del pointer
            return _references(kept[block], k) == _used_once(xp, offset > 0)

    def _prepare(self, inputs: Sequence[Array], outs: Sequence[Array | None] | None) -> tuple[Prepared, dict[int, Any]]:
        """A call, and where blocks of its outputs are copied to after it."""
        try:
            pointers, fresh = self._pointers(outs)
            return self.run.prepare(inputs, outs, pointers), fresh
        except MemoryError:
            with self._lock:
                self._kept.clear()
        try:
            return self.run.prepare(inputs, outs), {}
        except MemoryError as error:
            cuda.raise_out_of_memory(error, cuda.current())

    def _pointers(self, outs: Sequence[Array | None] | None) -> tuple[list[Any], dict[int, Any]]:
        """Memory for the outputs that are given no place: that which they had, and that nobody refers to any more.

        Of those that are copied: the memory that stays, and new memory.
        """
        xp = context.cupy()
        stream, sizes, settling = xp.cuda.get_current_stream().ptr, self.run.blocks.sizes, self.settling
        wanted = set(range(len(sizes))) if outs is None else self.run.blocks_for(outs)
        fresh = {k: xp.cuda.alloc(sizes[k]) for k in settling.blocks & wanted}
        with self._lock:
            kept = self._kept.setdefault((threading.get_ident(), stream), [[] for _ in sizes])
            pointers = [
                _unused_of(kept[k], size) if k in wanted and k not in fresh else None for k, size in enumerate(sizes)
            ]
        for k in fresh:
            pointers[k] = settling.place("block", k, sizes[k], stream)
        return pointers, fresh

    def _say(self, reason: str) -> None:
        key = f"cuda graph {self.entry.symbol} {reason}"
        log.warn_once(key, f"{self.entry.symbol} runs without a CUDA graph: {reason}")

    def _enqueue(self, prepared: Prepared) -> None:
        xp = context.cupy()
        device, stream = xp.cuda.runtime.getDevice(), xp.cuda.get_current_stream().ptr
        arena = context.arena(self.entry.arena_nbytes, device, stream)
        base = int(arena.data.ptr)
        self.run.upload(prepared, base, stream)
        self.settling.bring_in(prepared, stream)
        head = (threading.get_ident(), stream, base, int(context.tf32_is_permitted()))
        key = (*head, *prepared.addresses)
        with self._lock:
            recorded = self._find(key)
        if recorded is None and self._comes_again(key, prepared):
            recorded = self._record(prepared, arena, device)
            with self._lock:
                self._keep(key, recorded)
        if recorded is None:
            self.run.enqueue_or_raise(prepared, base, device, stream)
        else:
            self.replays += 1
            driver.call("cuGraphLaunch", ctypes.c_void_p(recorded.handle), ctypes.c_void_p(stream), where=self._where)
        self.run.ask_status(base, stream)

    @property
    def _where(self) -> str:
        return f"compiled graph {self.entry.symbol}"

    def _find(self, key: Key) -> RecordedGraph | None:
        found = self._graphs.get(key)
        if found is not None:
            self._graphs.move_to_end(key)
            self._strangers = 0
        return found

    def _comes_again(self, key: Key, prepared: Prepared) -> bool:
        """Whether these addresses came before; notes that they came."""
        with self._lock:
            if key in self._seen:
                del self._seen[key]
                self._strangers = 0
                return True
            self._strangers += 1
            self._learn(key, prepared)
            if self._strangers > PATIENCE:
                self._reason = "its arrays lie elsewhere at every call"
                self._seen.clear()
                return False
            self._seen[key] = None
            if len(self._seen) > PATIENCE:
                self._seen.popitem(last=False)
            return False

    def _learn(self, key: Key, prepared: Prepared) -> None:
        """Find out what lies elsewhere in this call than in others with the same head."""
        others = [*reversed(self._graphs), *reversed(self._seen)]
        earlier = [other[HEAD:] for other in others if other[:HEAD] == key[:HEAD]]
        self.settling.learn(prepared, earlier[:COMPARED])

    def _keep(self, key: Key, recorded: RecordedGraph) -> None:
        self._graphs[key] = recorded
        if len(self._graphs) > MAX_GRAPHS:
            self._graphs.popitem(last=False)

    def _record(self, prepared: Prepared, arena: Array, device: int) -> RecordedGraph:
        """The graph of a call. Raises DeviceError, with the stream as it was before."""
        self.records += 1
        stream = _recording_stream(device)
        at = ctypes.c_void_p(stream.ptr)
        driver.call("cuStreamBeginCapture_v2", at, _RELAXED, where=self._where)
        graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
        try:
            self.run.enqueue_or_raise(prepared, int(arena.data.ptr), device, stream.ptr)  # type: ignore[attr-defined]
        finally:
            code = int(driver.function("cuStreamEndCapture")(at, ctypes.byref(graph)))
        if code:
            raise driver.failure("cuStreamEndCapture", code, self._where)
        flags = ctypes.c_ulonglong(0)
        driver.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, flags, where=self._where)
        driver.call("cuGraphDestroy", graph, where=self._where)
        return RecordedGraph(executable.value or 0, arena)


def _unused_of(kept: list[Any], nbytes: int) -> Any:
    """A pointer to memory that nobody refers to: one of those kept, or a new one, which is kept from now on."""
    xp = context.cupy()
    for k in range(len(kept)):
        if _references(kept, k) == _unused(xp):
            return kept[k]
    kept.append(xp.cuda.alloc(nbytes))
    del kept[:-KEPT]
    return kept[-1]


def _references(kept: list[Any], k: int) -> tuple[int, int]:
    """How many references there are to a pointer of a list, and to its memory: arrays refer to one or the other."""
    return getrefcount(kept[k]), getrefcount(kept[k].mem)


@cache
def _unused(xp: Any) -> tuple[int, int]:
    """The same of a pointer that only its list refers to."""
    return _references([xp.cuda.alloc(1)], 0)


@cache
def _used_once(xp: Any, apart: bool) -> tuple[int, int]:
    """The same of a pointer that one array has, too. apart: it has one that was made of it, for an offset."""
    kept = [xp.cuda.alloc(2)]
    array = xp.ndarray((1,), np.int8, kept[0] + 1 if apart else kept[0])
    found = _references(kept, 0)
    del array
    return found


class _Streams(threading.local):
    """This thread's streams to record on, by device."""

    def __init__(self) -> None:
        self.by_device: dict[int, Any] = {}


_streams = _Streams()


def _recording_stream(device: int) -> Any:
    found = _streams.by_device.get(device)
    if found is None:
        found = _streams.by_device[device] = context.cupy().cuda.Stream(non_blocking=True)
    return found
