"""A program's launches as one CUDA graph: recorded once for a set of addresses, launched whole from then on.

In: a `CudaExecutable`. Out: `Replaying`, an `Executable` that does the same with less time on the host.

A graph holds addresses, so it serves calls whose inputs, outputs and arena lie where they lay when it was recorded.
Nothing is copied to make them so: CuPy's pool hands the same blocks out to every step of a loop, parameters stay. A set
of addresses is recorded when it comes for the second time; `MAX_GRAPHS` are kept, the latest used last. Values of the
host are uploaded before the launch, into the same place. What cannot be recorded runs as without graphs, and says why
once (`log.warn_once`): programs that call back into Python, calls with events, addresses that never come again.
Recording happens on a stream of its own, for the default stream cannot be recorded; the current one is launched on.
Source: CUDA Driver API, "Stream capture", "Graph management".
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from compiler_core import cuda, log
from compiler_core.events import Events
from compiler_core.ops.registry import Array
from compiler_core.runtime.cuda import checks, context, driver
from compiler_core.runtime.cuda.executable import CudaExecutable, Prepared

MAX_GRAPHS = 8
PATIENCE = 64  # calls in a row, each on addresses of its own, after which no more are remembered
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED: what other threads do meanwhile does not matter

Key = tuple[int, ...]  # thread, stream, the arena's address, whether tf32 is permitted, addresses


class Recorded:
    """handle: of the executable graph, destroyed with this object. arena: held, for the graph writes there."""

    def __init__(self, handle: int, arena: Array) -> None:
        self.handle, self.arena = handle, arena
        destroy = driver.function("cuGraphExecDestroy")  # of one that still runs: when it is done
        weakref.finalize(self, destroy, ctypes.c_void_p(handle)).atexit = False


class Replaying:
    """One program. replays, records: how often a graph was launched, and made."""

    def __init__(self, run: CudaExecutable) -> None:
        self.run, self.entry = run, run.entry
        self.replays = self.records = 0
        self._graphs: OrderedDict[Key, Recorded] = OrderedDict()
        self._seen: OrderedDict[Key, None] = OrderedDict()
        self._lock = threading.Lock()
        self._strangers = 0  # calls in a row on addresses that had not come before
        self._reason = "it calls back into Python" if run.entry.callbacks else ""

    def __call__(
        self, inputs: Sequence[Array], outs: Sequence[Array | None] | None = None, events: Events | None = None
    ) -> list[Array]:
        """As the program's own."""
        if self._reason or events is not None:
            self._say(self._reason or "its events are heard between its kernels")
            return self.run(inputs, outs, events)
        checks.look()
        with context.on(self.run.number):
            try:
                prepared = self.run.prepare(inputs, outs)
            except MemoryError as error:
                cuda.raise_out_of_memory(error, cuda.current())
            self._enqueue(prepared)
            for source, target in prepared.copies:
                target[...] = source
            return prepared.results

    def _say(self, reason: str) -> None:
        key = f"cuda graph {self.entry.symbol} {reason}"
        log.warn_once(key, f"{self.entry.symbol} runs without a CUDA graph: {reason}")

    def _enqueue(self, prepared: Prepared) -> None:
        xp = context.cupy()
        device, stream = xp.cuda.runtime.getDevice(), xp.cuda.get_current_stream().ptr
        arena = context.arena(self.entry.arena_nbytes, device, stream)
        base = int(arena.data.ptr)
        self.run.upload(prepared, base, stream)
        head = (threading.get_ident(), stream, base, int(context.tf32_is_permitted()))
        key = (*head, *prepared.addresses)
        with self._lock:
            recorded = self._find(key)
        if recorded is None and self._comes_again(key):
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

    def _find(self, key: Key) -> Recorded | None:
        found = self._graphs.get(key)
        if found is not None:
            self._graphs.move_to_end(key)
            self._strangers = 0
        return found

    def _comes_again(self, key: Key) -> bool:
        """Whether these addresses came before; notes that they came."""
        with self._lock:
            if key in self._seen:
                del self._seen[key]
                self._strangers = 0
                return True
            self._strangers += 1
            if self._strangers > PATIENCE:
                self._reason = "its arrays lie elsewhere at every call"
                self._seen.clear()
                return False
            self._seen[key] = None
            if len(self._seen) > PATIENCE:
                self._seen.popitem(last=False)
            return False

    def _keep(self, key: Key, recorded: Recorded) -> None:
        self._graphs[key] = recorded
        if len(self._graphs) > MAX_GRAPHS:
            self._graphs.popitem(last=False)

    def _record(self, prepared: Prepared, arena: Array, device: int) -> Recorded:
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
        return Recorded(executable.value or 0, arena)


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
