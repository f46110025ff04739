"""Runs one compiled program on a CUDA device: arrays of CuPy's in, arrays out, on CuPy's current stream.

In: a `CudaEntry`, the shared object of its host function, its cubins and constants. Out: `CudaExecutable`, the
backend's `Executable`: it returns when the work is enqueued. Checks are read later, without waiting (checks.py).

Invariants: no address reaches the device before the array's dtype, shape, device and layout were compared with the
entry's; of an array that comes again and again (a parameter) they are the same for as long as it lives, so that is
done twice. Inputs and places that are strided, or do not start on 16 bytes, are copied. Outputs that are given no place
get memory (blocks.py) before their work is enqueued, and become arrays after it: until then the device may be idle.
Values of the host (0-d, random keys, scales) are gathered and uploaded in one copy; the driver has taken them when that
call returns. Kernels are loaded at the first call on a device. Safe in several threads and on several streams: each has
memory of its own.
Raises: DeviceError, ShapeError, DTypeError, IndexError_ from a check, and what events or routines raise.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import field
from threading import Lock, local
from typing import Any

import numpy as np

from compiler_core import cuda, log
from compiler_core.dtype import of
from compiler_core.errors import BackendError, DeviceError
from compiler_core.events import FAILED, Dispatch, Events
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import Array
from compiler_core.records import dataclass
from compiler_core.runtime.callback import RAISED, Callbacks
from compiler_core.runtime.cuda import checks, context, driver, host_memory, products
from compiler_core.runtime.cuda.arguments import ALIGNED, address, elsewhere, is_plain, refuse
from compiler_core.runtime.cuda.blocks import Stack, lay_out
from compiler_core.runtime.cuda.definitions import definition_on_device, device_array_at
from compiler_core.runtime.cuda.entry import CALL_FAILED, WORKSPACE_NBYTES, CudaEntry, GpuCall
from compiler_core.runtime.cuda.known import Known
from compiler_core.runtime.cuda.marks import Marks, copy_rate
from compiler_core.runtime.profiler import StepCost, announce

COMINGS = 4  # times that an input may come to be known: short-lived arrays are new ones, even with the same id


@dataclass(frozen=True, slots=True)
class Loaded:
    """A program on one device. table: the address of the numbers, then `lib`. constants: held, and their addresses."""

    table: ctypes.Array[ctypes.c_void_p]
    constants: tuple[Array, ...]
    addresses: tuple[int, ...]


@dataclass(slots=True)
class Prepared:
    """One call, ready to be enqueued: the addresses of inputs and outputs, and what they are of.

    results: the places that were given. pointers: to the blocks of the other outputs, by their number. uploads: (offset
    behind `host`, array) of the host's values. kept: arrays that must live until all is enqueued. copies: (from, to)
    after it ran.
    """

    addresses: list[int] = field(default_factory=list)
    results: list[Array | None] = field(default_factory=list)
    pointers: Sequence[Any] = ()
    uploads: list[tuple[int, Array]] = field(default_factory=list)
    kept: list[Array] = field(default_factory=list)
    copies: list[tuple[Array, Array]] = field(default_factory=list)


class CudaExecutable:
    """One compiled graph of a CUDA device. cubins: file -> contents. number: of the device; None: the current one.

    costs: what each step moves and computes. calls: how often it was called. spends: the inputs that a call writes
    over: nobody may want them afterwards. over_inputs: see `backend.WritesOver`. blocks: of its outputs. stack: see
    `backend.stack_of`.
    """

    hosts = True  # takes saved values in the host's memory

    def __init__(
        self,
        entry: CudaEntry,
        library: ctypes.CDLL,
        cubins: Mapping[str, bytes],
        constants: Sequence[Array] = (),
        number: int | None = None,
        costs: Sequence[StepCost] = (),
    ) -> None:
        self.entry, self.library, self.number = entry, library, number
        self.costs, self.symbol, self.stack = tuple(costs), entry.symbol, entry.stack
        self._marks: list[Marks] | None = None  # of the calls that are measured
        self.output_metas, self.working_nbytes = entry.outputs, entry.arena_nbytes
        self.calls, self.spends, self.over_inputs = 0, entry.spent, frozenset(entry.over_inputs)
        self.constants = tuple(constants)
        self._cubins = cubins
        self._loaded: dict[int, Loaded] = {}
        self._lock, self._local = Lock(), local()
        self._callbacks = Callbacks(entry.callbacks, device_array_at, definition_on_device)
        self._function: Callable[..., int] = getattr(library, entry.symbol)
        sizes = [size for f in entry.functions for size in (f.threads, f.shared, f.overlaps)]
        self._blocks = (ctypes.c_uint32 * (len(sizes) + 1))(*sizes)
        self._numbers = (ctypes.c_int64 * len(entry.numbers))(*entry.numbers)
        self._uses_blas = any(name.startswith("cublas") for name in entry.symbols)
        self._dtypes = [meta.dtype.numpy for meta in (*entry.inputs, *entry.outputs)]
        self._last = [0] * len(entry.inputs)  # ids of arrays of the call before, while they are not known
        self._comings = [0] * len(entry.inputs)
        self._known = Known(-1, (), (), ())
        self._hosted = frozenset(entry.fetched)
        self.blocks = lay_out(entry.outputs)
        announce(self)

    def hold_together(self, groups: Sequence[Sequence[int]], stacks: Sequence[Stack] = ()) -> None:
        """The outputs of a group live equally long: small ones may share memory. Those of a stack lie in one block."""
        groups = [[k for k in group if k not in self.entry.sent] for group in groups]
        self.blocks = lay_out(self.entry.outputs, groups, stacks)

    def made(self, output: int, array: Array) -> bool:
        """Whether an array is memory for an output that is handed out again: here there is none."""
        return False

    def __call__(
        self, inputs: Sequence[Array], outs: Sequence[Array | None] | None = None, events: Events | None = None
    ) -> list[Array]:
        """Enqueue it on `inputs`. outs[i], where given, receives output i and is returned in its place."""
        self.calls += 1
        checks.look()
        with context.on(self.number):
            return self._run(inputs, outs, events)

    def _run(self, inputs: Sequence[Array], outs: Sequence[Array | None] | None, events: Events | None) -> list[Array]:
        try:
            prepared = self.prepare(inputs, self.with_hosts(outs))
        except MemoryError as error:
            cuda.raise_out_of_memory(error, cuda.current())
        if events is None:
            self.run(prepared, None)
        else:
            self._check_events(inputs, prepared)
            with Dispatch(events) as dispatch:
                self.run(prepared, dispatch)
        for source, target in prepared.copies:
            target[...] = source
        return self.results(prepared)

    # -- arguments

    def prepare(
        self, inputs: Sequence[Array], outs: Sequence[Array | None] | None, pointers: Sequence[Any] | None = None
    ) -> Prepared:
        """The arrays of a call, checked. outs: as `with_hosts` gives them. pointers: to the blocks of outputs without a
        place; None: to new ones."""
        entry, xp = self.entry, context.cupy()
        if len(inputs) != len(entry.inputs):
            raise BackendError(f"{entry.symbol} takes {len(entry.inputs)} inputs, got {len(inputs)}")
        if outs is not None and len(outs) != len(entry.outputs):
            raise BackendError(f"{entry.symbol} has {len(entry.outputs)} outputs, got {len(outs)} places for them")
        prepared, device = Prepared(), xp.cuda.runtime.getDevice()
        self._add_inputs(inputs, prepared, device)
        self._stack(inputs, prepared)
        prepared.addresses += self.load(device).addresses
        if pointers is None:
            pointers = self.blocks.allocate(None if outs is None else self.blocks_for(outs))
        prepared.pointers = pointers
        starts = [0 if pointer is None else pointer.ptr for pointer in pointers]
        at = [starts[block] + offset for block, offset in self.blocks.places]
        if outs is None:
            prepared.results = [None] * len(at)
            prepared.addresses += at
        else:
            self._add_outputs(outs, at, prepared, device)
        return prepared

    def with_hosts(self, outs: Sequence[Array | None] | None) -> Sequence[Array | None] | None:
        """`outs`, with memory of the host for the outputs that are to lie there."""
        if not self.entry.sent:
            return outs
        places: list[Any] = [None] * len(self.entry.outputs) if outs is None else list(outs)
        for k in self.entry.sent:
            if places[k] is None:
                places[k] = host_memory.take(self.entry.outputs[k])
        return places

    def _add_inputs(self, inputs: Sequence[Array], prepared: Prepared, device: int) -> None:
        """Their addresses. An array that came in the call before, too, was compared with the entry then."""
        known = self._known
        if known.device == device:
            prepared.addresses += known.addresses
            strangers = known.strangers(inputs)
        else:
            prepared.addresses += [0] * len(inputs)
            strangers = list(range(len(inputs)))
        kind = context.cupy().ndarray
        again = [k for k in strangers if self._looked_at(k, inputs[k], prepared, device, kind)]
        if again:
            self._known = Known(device, inputs, prepared.addresses, set(strangers).difference(again))

    def _stack(self, inputs: Sequence[Array], prepared: Prepared) -> None:
        """Inputs that are to lie in one block are copied into one if they do not: hooks may have had them."""
        if not self.stack:
            return
        at = prepared.addresses
        first = at[self.stack[0][0]]
        if all(at[k] == first + start for k, start in self.stack):
            return
        log.emit("memory", f"{self.symbol}: {len(self.stack)} saved values came apart and are copied into one block")
        block = context.cupy().cuda.alloc(self.entry.stack_nbytes)
        for k, start in self.stack:
            meta = self.entry.inputs[k]
            place = context.cupy().ndarray(meta.shape, meta.dtype.numpy, block + start)
            place[...] = inputs[k]
            prepared.kept.append(place)
            at[k] = address(place)

    def _looked_at(self, k: int, array: Array, prepared: Prepared, device: int, kind: type) -> bool:
        """Put the address of an input in its place. Returns whether the array is to be known from now on."""
        meta = self.entry.inputs[k]
        if type(array) is kind and array.dtype == self._dtypes[k] and array.shape == meta.shape:
            pointer: Any = array.data
            at = pointer.ptr
            if pointer.device_id == device and not at % ALIGNED and array.flags.c_contiguous:
                prepared.addresses[k] = at
                came_before, self._last[k] = self._last[k] == id(array), id(array)
                self._comings[k] += came_before
                return came_before and self._comings[k] <= COMINGS
        self._add_input(k, array, prepared, device)
        return False

    def _add_outputs(self, outs: Sequence[Array | None], at: Sequence[int], prepared: Prepared, device: int) -> None:
        """The addresses of places, and of outputs without one. at: where each of these lies."""
        kind, append, keep = context.cupy().ndarray, prepared.addresses.append, prepared.results.append
        for k, (out, meta, dtype) in enumerate(zip(outs, self.entry.outputs, self._dtypes[len(self.entry.inputs) :])):
            if out is None:
                keep(None)
                append(at[k])
                continue
            if type(out) is kind and out.dtype == dtype and out.shape == meta.shape:
                pointer: Any = out.data
                begin = pointer.ptr
                if pointer.device_id == device and not begin % ALIGNED and out.flags.c_contiguous:
                    keep(out)
                    append(begin)
                    continue
            self._add_output(k, out, prepared, device)

    def blocks_for(self, outs: Sequence[Array | None]) -> set[int]:
        """The blocks that outputs without a place lie in."""
        return {block for out, (block, _) in zip(outs, self.blocks.places) if out is None}

    def results(self, prepared: Prepared) -> list[Array]:
        """The outputs of a call, as arrays."""
        make, first = context.cupy().ndarray, len(self.entry.inputs)
        made: list[Array] = []
        for k, (out, meta, (block, offset)) in enumerate(zip(prepared.results, self.entry.outputs, self.blocks.places)):
            if out is None:
                pointer = prepared.pointers[block]
                out = make(meta.shape, self._dtypes[first + k], pointer + offset if offset else pointer)
            made.append(out)
        return made

    def _add_input(self, k: int, array: Array, prepared: Prepared, device: int) -> None:
        """One that is not given to the device as it is: copied, uploaded or refused."""
        meta = self.entry.inputs[k]
        if not isinstance(array, context.cupy().ndarray):
            self._add_host_input(k, array, prepared)
            return
        if array.dtype != self._dtypes[k] or array.shape != meta.shape:
            refuse(array, meta, f"input {k} of {self.entry.symbol}")
        if array.data.device_id != device:
            raise elsewhere(array, device, f"input {k} of {self.entry.symbol}")
        if not is_plain(array):
            array = context.cupy().array(array, order="C")
            prepared.kept.append(array)
        prepared.addresses[k] = address(array)

    def _add_host_input(self, k: int, array: Array, prepared: Prepared) -> None:
        """A value of the host's, which is uploaded; its address is known when the arena is."""
        meta = self.entry.inputs[k]
        array = np.asarray(array)
        if k in self._hosted:
            self._add_saved_input(k, array, prepared)
            return
        if k not in self.entry.staged and array.size and not any(array.strides):  # a number, expanded
            repeated = context.cupy().empty(array.shape, array.dtype)
            repeated.fill(array[(0,) * array.ndim].item())
            self._add_input(k, repeated, prepared, context.cupy().cuda.runtime.getDevice())
            prepared.kept.append(repeated)
            return
        if k not in self.entry.staged:
            raise DeviceError(
                f"input {k} of {self.entry.symbol} is not on the device that the graph was compiled for",
                expected=f"{meta} on cuda",
                got=f"{TensorMeta(array.shape, of(array.dtype))} on cpu",
                remedy="move it there with .to('cuda')",
            )
        if array.dtype != self._dtypes[k] or array.shape != meta.shape:
            refuse(array, meta, f"input {k} of {self.entry.symbol}")
        prepared.uploads.append((k, np.ascontiguousarray(array)))

    def _add_saved_input(self, k: int, array: Array, prepared: Prepared) -> None:
        """A saved value in the host's memory: the program copies it; what is not pinned is brought here before."""
        meta = self.entry.inputs[k]
        if array.dtype != self._dtypes[k] or array.shape != meta.shape:
            refuse(array, meta, f"input {k} of {self.entry.symbol}")
        if not (array.flags.c_contiguous and cuda.is_pinned(array)):
            array = cuda.put(array, context.cupy().cuda.runtime.getDevice(), dense=True)
            prepared.kept.append(array)
        prepared.addresses[k] = array.ctypes.data if type(array) is np.ndarray else address(array)

    def _add_output(self, k: int, out: Array, prepared: Prepared, device: int) -> None:
        """A place that kernels are not given as it is: written after them, or refused."""
        xp, meta, dtype = context.cupy(), self.entry.outputs[k], self._dtypes[len(self.entry.inputs) + k]
        what = f"the place for output {k} of {self.entry.symbol}"
        if type(out) is np.ndarray and k in self.entry.sent:
            prepared.results.append(out)
            prepared.addresses.append(out.ctypes.data)
            return
        if not isinstance(out, xp.ndarray):
            raise DeviceError(f"{what} is not on the device", expected=f"{meta} on cuda", got="an array of the host")
        if out.dtype != dtype or out.shape != meta.shape:
            refuse(out, meta, what)
        if out.data.device_id != device:
            raise elsewhere(out, device, what)
        place = out if is_plain(out) else xp.empty(meta.shape, dtype)
        if place is not out:
            prepared.copies.append((place, out))
        prepared.results.append(out)
        prepared.addresses.append(address(place))

    def _check_events(self, inputs: Sequence[Array], prepared: Prepared) -> None:
        """What events are about must be where the caller has it: a copy would be made too early, or too late."""
        kept = {id(array) for array in prepared.kept}
        copied = [
            f"input {k}" for k in self.entry.awaited if kept and not (cuda.is_array(inputs[k]) and is_plain(inputs[k]))
        ]
        targets = {id(target) for _, target in prepared.copies}
        copied += [f"output {k}" for k in self.entry.announced if id(prepared.results[k]) in targets]
        if copied:
            raise BackendError(
                f"{', '.join(copied)} of {self.entry.symbol} would be copied, but an event is about it",
                expected=f"C-contiguous arrays that start on {ALIGNED} bytes",
            )

    # -- the device

    def load(self, device: int) -> Loaded:
        """This program on the current device, whose number is `device`."""
        loaded = self._loaded.get(device)
        if loaded is None:
            with self._lock:
                loaded = self._loaded.get(device) or self._load()
                self._loaded[device] = loaded
        return loaded

    def _load(self) -> Loaded:
        entry, xp = self.entry, context.cupy()
        constants = tuple(xp.asarray(constant) for constant in self.constants)
        addresses = [ctypes.addressof(self._numbers), *map(driver.address_of, entry.symbols)]
        addresses += self._callbacks.addresses
        addresses += self._plans()
        addresses += [context.load_function(f, self._cubins[f.file], f.name) for f in entry.functions]
        table = (ctypes.c_void_p * (len(addresses) + 1))(*addresses)
        return Loaded(table, constants, tuple(address(constant) for constant in constants))

    def _plans(self) -> list[int]:
        """What cuDNN prepares for the calls of it; without any it is not even imported."""
        if not self.entry.planned:
            return []
        from compiler_core.runtime.cuda import cudnn

        return [cudnn.make_plan(call) for call in self.entry.planned]

    def run(self, prepared: Prepared, dispatch: Dispatch | None) -> None:
        """Enqueue a prepared call on the current stream."""
        xp = context.cupy()
        device, stream = xp.cuda.runtime.getDevice(), xp.cuda.get_current_stream().ptr
        arena = context.arena(self.entry.arena_nbytes, device, stream)
        base = arena.data.ptr
        self.upload(prepared, base, stream)
        self.enqueue_or_raise(prepared, base, device, stream, dispatch)
        self.ask_status(base, stream)

    def upload(self, prepared: Prepared, base: int, stream: int) -> None:
        """Put the host's values into the arena at `base`, in one copy, and their addresses among the arguments."""
        if not prepared.uploads:
            return
        offsets = [self.entry.staged[k] for k, _ in prepared.uploads]
        first = offsets[0]
        last = offsets[-1] + max(prepared.uploads[-1][1].nbytes, 1)
        staging = bytearray(last - first)
        for (k, array), offset in zip(prepared.uploads, offsets):
            staging[offset - first : offset - first + array.nbytes] = array.tobytes()
            prepared.addresses[k] = base + self.entry.host + offset
        target = ctypes.c_uint64(base + self.entry.host + first)
        source = (ctypes.c_char * len(staging)).from_buffer(staging)
        size = ctypes.c_size_t(len(staging))
        driver.call("cuMemcpyHtoDAsync_v2", target, source, size, ctypes.c_void_p(stream), where=self.entry.symbol)

    def enqueue_or_raise(
        self, prepared: Prepared, base: int, device: int, stream: int, dispatch: Dispatch | None = None
    ) -> None:
        """Call the host function, with the arena at `base`."""
        gpu = GpuCall(stream=stream, tf32=int(context.tf32_is_permitted()))
        if copies := len(self.entry.fetched) + len(self.entry.sent):
            table = context.copies(device, copies)
            gpu.copies = ctypes.addressof(table)
        gpu.units = context.units(device)
        gpu.blocks = ctypes.addressof(self._blocks)
        if self._uses_blas:
            gpu.blas = self._blas(base, device, stream)
            gpu.workspace, gpu.workspace_nbytes = base + self.entry.workspace, WORKSPACE_NBYTES
        if self.entry.products:
            gpu.products = ctypes.addressof(self._products(device))
        if self.entry.planned:
            gpu.dnn = context.dnn_handle(device)
            driver.call("cudnnSetStream", ctypes.c_void_p(gpu.dnn), ctypes.c_void_p(stream))
        if dispatch is not None:
            gpu.events = dispatch.address
        if self._marks is not None:
            marks = Marks(len(self.entry.steps))
            self._marks.append(marks)
            gpu.record, gpu.marks = marks.record, marks.address
        addresses = prepared.addresses
        args = (ctypes.c_void_p * (len(addresses) + 1))(*addresses)
        lib = ctypes.byref(self.load(device).table, ctypes.sizeof(ctypes.c_void_p))
        with nullcontext() if dispatch is None else context.nested_arena():
            code = self._function(args, ctypes.c_void_p(base), lib, ctypes.byref(gpu))
        if code:
            self._fail(code, gpu, dispatch)

    def _blas(self, base: int, device: int, stream: int) -> int:
        handle = context.blas_handle(device)
        at = ctypes.c_void_p(handle)
        driver.call("cublasSetStream_v2", at, ctypes.c_void_p(stream))
        workspace = ctypes.c_void_p(base + self.entry.workspace)
        driver.call("cublasSetWorkspace_v2", at, workspace, ctypes.c_size_t(WORKSPACE_NBYTES))
        return handle

    def _products(self, device: int) -> ctypes.Array[products.Row]:
        """What cuBLASLt is given, of this thread."""
        tables: dict[int, ctypes.Array[products.Row]] = vars(self._local).setdefault("tables", {})
        if device not in tables:
            tables[device] = products.make_table(self.entry, device)
        return tables[device]

    def ask_status(self, base: int, stream: int) -> None:
        """Let the checks of what was enqueued be looked at, if there are any (checks.py)."""
        if self.entry.status >= 0:
            where = f"an earlier call of compiled graph {self.entry.symbol}"
            checks.ask(base + self.entry.status, stream, self.entry.messages, where)

    # -- measuring (runtime/profiler.py)

    @property
    def is_measured(self) -> bool:
        return self._marks is not None

    def start_measuring(self) -> None:
        """Time the steps of every call from now on, by events in its stream."""
        self._marks, self.calls = [], 0

    def stop_measuring(self) -> list[float]:
        """The seconds of each step, of all calls that were measured together. Waits for the device."""
        calls, self._marks = self._marks or [], None
        each = [marks.seconds() for marks in calls]
        return [sum(step) for step in zip(*each)]

    def copy_rate(self) -> float:
        """Bytes a second, read and written, of a copy of large arrays on its device; 0: not known."""
        with context.on(self.number):
            return copy_rate(cuda.current())

    def _fail(self, code: int, gpu: GpuCall, dispatch: Dispatch | None) -> None:
        if code == FAILED and dispatch is not None:
            dispatch.failed()
            return  # leaving the dispatch raises
        if code == RAISED:
            raise self._callbacks.take_error()
        assert code == CALL_FAILED, f"{self.entry.symbol} returned {code}"
        step = self.entry.steps[gpu.step] if gpu.step < len(self.entry.steps) else ""
        raise driver.failure(gpu.call.decode(), gpu.code, f"{step}, step {gpu.step} of {self.entry.symbol}")
