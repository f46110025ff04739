"""CUDA through CuPy: whether it is there and if not why, its arrays' devices, copies to and from them.

In: nothing but CuPy, imported when a CUDA device is first asked for, never before. Out: `module()`, `device_count()`,
`put` and `fetch` (copies between host and device), `current()` and `on(number)` (the current device of this thread),
`allocating(...)`, which turns CuPy's out-of-memory error into ours. `use(module)` puts another module in CuPy's place.
Invariant: nothing moves between host and device but by `put` and `fetch`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NoReturn

import numpy as np

from compiler_core.config import config
from compiler_core.errors import CudaMemoryError, DeviceError, NoCudaError
from compiler_core.late import Late

Array = Any  # NumPy's or CuPy's
REMEDY = "pip install 'distcompile[cuda]', on a machine with an NVIDIA GPU; or stay on the CPU"


class Precision:
    """tf32: whether products of f32 may be computed with operands rounded to tf32 (10 bits of mantissa), in this
    process."""

    tf32 = False


precision = Precision()


class _Found:
    """What was found of CUDA in this process. why: why it cannot be used; None: not looked for yet, "": it can."""

    module: Any = None
    why: str | None = None
    count = 0
    memory: Any = None


_found = _Found()
array_types: list[type] = []  # CuPy's ndarray, once it is loaded


class _Lone:
    """array: CuPy's ndarray where there is one CUDA device, so that each of this very class is there; None where there
    is none, or several. For who has no time to call `is_array` and `is_alone`."""

    array: type | None = None


lone = _Lone()


def _look() -> _Found:
    """Load CuPy and ask the driver, once."""
    if _found.why is not None:
        return _found
    try:
        module = importlib.import_module("cupy")
    except Exception as error:  # noqa: BLE001 (not installed, or it does not fit the driver's libraries)
        _found.why = f"CuPy cannot be imported: {error}"
        return _found
    _take(module)
    return _found


def _take(module: Any) -> None:
    try:
        count = module.cuda.runtime.getDeviceCount()
    except Exception as error:  # noqa: BLE001 (CUDARuntimeError, of a module that may not have loaded)
        _found.why = f"CUDA says: {error}"
        return
    _found.why = "" if count else "CUDA finds no device"
    _found.module, _found.count = module, count
    array_types[:] = [module.ndarray]
    lone.array = module.ndarray if count == 1 else None
    _found.memory = _Memory(module)
    module.cuda.set_allocator(_found.memory.allocate)
    if count and config.cuda_device >= 0:
        module.cuda.runtime.setDevice(config.cuda_device % count)


@contextmanager
def use(module: Any) -> Iterator[Any]:
    """In this block `module` stands in CuPy's place, in all threads: for tests. Tensors made in it end with it."""
    before = (_found.module, _found.why, _found.count, _found.memory, list(array_types), lone.array)
    try:
        _found.module, _found.why, _found.count, lone.array = None, None, 0, None
        _take(module)
        yield module
    finally:
        _found.module, _found.why, _found.count, _found.memory, array_types[:], lone.array = before


def why_not() -> str:
    """Why no CUDA device can be used; empty if one can."""
    return _look().why or ""


def device_count() -> int:
    """How many CUDA devices can be used."""
    return _look().count


def is_loaded() -> bool:
    """Whether CuPy has been loaded: nothing is on a device otherwise."""
    return _found.count > 0


def module(name: str = "cuda") -> Any:
    """CuPy. Raises DeviceError, which says that device `name` is not there, and what is missing."""
    found = _found if _found.why == "" else _look()
    if found.why:
        raise NoCudaError(f"there is no device {name!r} here", got=found.why, expected="cpu, or meta", remedy=REMEDY)
    return found.module


def check_number(number: int | None) -> int:
    """The number of a device, the current one if None. Raises DeviceError for one that is not there."""
    module("cuda" if number is None else f"cuda:{number}")
    if number is None:
        return current()
    if not 0 <= number < _found.count:
        devices = "cuda:0" if _found.count == 1 else f"cuda:0 to cuda:{_found.count - 1}"
        raise DeviceError(f"CUDA error: invalid device ordinal: cuda:{number}", expected=devices)
    return number


def current() -> int:
    """The number of the current device of this thread."""
    return int(module().cuda.runtime.getDevice())


def on(number: int) -> AbstractContextManager[Any]:
    """A block in which this is the current device; costs nothing if it is already."""
    return nullcontext() if current() == number else module().cuda.Device(number)


def is_array(value: object) -> bool:
    """Whether this is an array on a CUDA device."""
    kind = type(value)
    if kind is np.ndarray or kind is lone.array:
        return kind is not np.ndarray
    return bool(array_types) and isinstance(value, array_types[0])


def number_of(value: Any) -> int | None:
    """The CUDA device of an array, or of a Tensor's; None of all else."""
    if not array_types:
        return None
    if is_array(value):
        return int(value.data.device_id)
    return value.device.index if getattr(value, "is_cuda", False) else None


def is_alone() -> bool:
    """Whether there is one CUDA device: all arrays of CUDA are on it, and it is the current one."""
    return _found.count == 1


def are_here(a: Any, b: Any) -> bool:
    """Whether both are arrays on the current device. CuPy does not ask: it computes on any that it can reach."""
    return is_array(a) and is_array(b) and (is_alone() or a.data.device_id == b.data.device_id == current())


def is_on(value: Any, number: int) -> bool:
    """Whether this is an array on that CUDA device."""
    return is_array(value) and value.data.device_id == number


# ---- copies


def put(array: Array, number: int, *, non_blocking: bool = False, dense: bool = False) -> Array:
    """A host array's (or another device's) copy on device `number`. What repeats (strides 0) crosses once.

    dense: it is spread out there, as memory that kernels are given; otherwise it repeats there too.

    The host waits for a copy out of pinned memory, if not told otherwise: somebody may write there (other memory is
    staged).
    """
    if is_on(array, number):
        return array
    cupy = module()
    with on(number), allocating(number):
        if not isinstance(array, np.ndarray):
            return _across(cupy, array)
        if (array.size == 1 or not any(array.strides)) and array.size and array.dtype.itemsize <= _WORD:
            return _number(cupy, array, dense)
        repeated = tuple(stride == 0 and n > 1 for stride, n in zip(array.strides, array.shape))
        if any(repeated) and array.size:
            core = array[tuple(slice(1) if again else slice(None) for again in repeated)]
            once = cupy.asarray(np.ascontiguousarray(core).reshape(core.shape))
            return _spread(cupy, once, array.shape) if dense else cupy.broadcast_to(once, array.shape)
        return cupy.asarray(array, order="C", blocking=not non_blocking and is_pinned(array))


_WORD = 8  # bytes of the longest number that a kernel is handed


def _number(cupy: Any, array: Array, dense: bool) -> Array:
    """One number, in all places of `array`: a kernel is handed its bits. A copy would wait for the stream's work."""
    bits = array[(slice(1),) * array.ndim].reshape(1).view(f"u{array.dtype.itemsize}")[0]
    shape = array.shape if dense or array.size == 1 else (1,) * array.ndim
    made = cupy.empty(shape, array.dtype)
    made.view(bits.dtype).fill(bits)  # of memory of its own, that may be written through views
    return made if made.shape == array.shape else cupy.broadcast_to(made, array.shape)


def _spread(cupy: Any, once: Array, shape: tuple[int, ...]) -> Array:
    out = cupy.empty(shape, once.dtype)
    out[...] = once
    return out


def pinned(array: Array) -> Array:
    """A C-contiguous copy of a host array in page-locked memory of CuPy's pool. Raises DeviceError without a device."""
    made: Array = np.ndarray(array.shape, array.dtype, buffer=module().cuda.alloc_pinned_memory(max(array.nbytes, 1)))
    made[...] = array
    return made


def is_pinned(array: Any) -> bool:
    """Whether this is a host array in page-locked memory, or a view of one."""
    base = array.base if type(array) is np.ndarray and array_types else None
    while isinstance(base, np.ndarray):
        base = base.base
    base = getattr(base, "obj", base)  # of a memoryview
    return base is not None and isinstance(base, module().cuda.PinnedMemoryPointer)


def _across(cupy: Any, array: Array) -> Array:
    """An array of another device, or a NumPy scalar, here. The streams wait for each other; the host does not."""
    if not is_array(array):
        return cupy.asarray(array)
    source, here = cupy.cuda.Device(array.data.device_id), cupy.cuda.get_current_stream()
    with source:
        dense = cupy.ascontiguousarray(array)
        there = cupy.cuda.get_current_stream()
        written = there.record(cupy.cuda.Event(disable_timing=True))
    here.wait_event(written)
    out = cupy.empty(dense.shape, dense.dtype)
    if dense.size:
        out.data.copy_from_device_async(dense.data, dense.nbytes, here)
    read = here.record(cupy.cuda.Event(disable_timing=True))
    with source:
        there.wait_event(read)  # before it uses the memory again
    return out


def fetch(array: Array) -> Array:
    """A device array's copy on the host."""
    with on(array.data.device_id):
        made = array.get()
    waited()
    return made


after_waits: list[Callable[[], None]] = []  # asked once the host has waited for a device (runtime/cuda/checks.py)


def waited() -> None:
    """The host has waited for a device: raise what it is to be told."""
    for ask in after_waits:
        ask()


def stream_of(number: int) -> Any:
    """The current stream of a device."""
    with on(number):
        return module().cuda.get_current_stream()


def raising_linalg() -> AbstractContextManager[Any]:
    """A block in which CuPy's linear algebra raises LinAlgError where NumPy's does; by itself it gives NaN."""
    if sys.modules.get("cupy") is not module():
        return nullcontext()  # a stand-in
    return importlib.import_module("cupyx").errstate(linalg="raise")  # type: ignore[no-any-return]


def special(name: str) -> Any:
    """CuPy's kernel of a special function; None where a stand-in has none."""
    if sys.modules.get("cupy") is not module():
        return None
    return getattr(importlib.import_module("cupyx.scipy.special"), name)


def kernel(name: str, inputs: str, outputs: str, text: str, before: str = "") -> Any:
    """CuPy's pointwise kernel of that C text, compiled once; None where a stand-in has none.

    before: functions that it calls. A product and a sum are rounded one after the other.
    """
    if sys.modules.get("cupy") is not module():
        return None
    made = _kernels.get(name)
    if made is None:
        options = ("--fmad=false",)
        made = module().ElementwiseKernel(inputs, outputs, text, name, preamble=before, options=options)
        _kernels[name] = made
    return made


_kernels: dict[str, Any] = {}


# ---- memory


class _Memory:
    """CuPy's pool, and one apart for blocks of gigabytes; the most that was in use of both, of each device. Bytes.

    A pool adds up all blocks in use whenever it is asked, a thousand of a model's, and a step allocates hundreds of
    times. So it is asked only when there may be a new maximum: `bound` is what was in use when it was asked last, and
    all that was given out since (threads that allocate at the very same moment may lose one's bytes: a statistic).
    """

    def __init__(self, module: Any) -> None:
        self.pool, self.apart = module.get_default_memory_pool(), module.cuda.MemoryPool()
        self._device = module.cuda.runtime.getDevice
        self.most: dict[int, int] = {}
        self.most_held: dict[int, int] = {}
        self.bound: dict[int, int] = {}  # of what is in use, from above: what was freed is not taken off
        self.failures = 0  # how often there was not enough
        self.used_by: list[tuple[Any, list[Any]]] = []  # memory that other streams use (record_stream), and these
        self._pending: list[tuple[Any, list[Any]]] = []  # such memory that nobody refers to, and their events

    def record(self, block: Any, stream: Any) -> None:
        """`stream` uses the memory `block`."""
        for known, streams in self.used_by:
            if known is block:
                if stream not in streams:
                    streams.append(stream)
                return
        self.used_by.append((block, [stream]))

    def sweep(self) -> None:
        """Give back the memory that streams have done with: an event is recorded in each once nobody refers to it."""
        kept = []
        for entry in self.used_by:
            if sys.getrefcount(entry[0]) > _OURS:
                kept.append(entry)
            else:
                self._pending.append((entry[0], [stream.record() for stream in entry[1]]))
        self.used_by = kept
        self._pending = [entry for entry in self._pending if not all(event.done for event in entry[1])]

    def allocate(self, nbytes: int) -> Any:
        """CuPy's allocator."""
        if self.used_by or self._pending:
            self.sweep()
        made = self._malloc(nbytes)
        self._add(-(-nbytes // _UNIT) * _UNIT)
        return made

    def _malloc(self, nbytes: int) -> Any:
        try:
            return self.pool.malloc(nbytes)
        except MemoryError:
            if not self.apart.total_bytes():
                raise
            self.apart.free_all_blocks()
            return self.pool.malloc(nbytes)

    def allocate_apart(self, nbytes: int) -> Any:
        """A block of gigabytes that comes again at each step: from a pool that no others break pieces off."""
        if self.pool.get_limit():
            return self.allocate(nbytes)  # the limit is one pool's
        try:
            made = self.apart.malloc(nbytes)
        except MemoryError:
            self.pool.free_all_blocks()
            made = self.apart.malloc(nbytes)
        self._add(-(-nbytes // _UNIT) * _UNIT)
        return made

    def in_use(self) -> int:
        """Bytes on the current device."""
        return int(self.pool.used_bytes() + self.apart.used_bytes())

    def held(self) -> int:
        """Bytes on the current device, those that nobody uses included."""
        return int(self.pool.total_bytes() + self.apart.total_bytes())

    def free(self) -> None:
        """Give back what nobody uses."""
        self.pool.free_all_blocks()
        self.apart.free_all_blocks()

    def allocate_all(self, sizes: Sequence[int]) -> list[Any]:
        """Memory of each of these sizes: for a program's outputs, of which there are hundreds."""
        if self.used_by or self._pending:
            self.sweep()
        malloc = self._malloc
        made = [malloc(nbytes) for nbytes in sizes]
        self._add(sum([-(-nbytes // _UNIT) * _UNIT for nbytes in sizes]))
        return made

    def _add(self, nbytes: int) -> None:
        """Blocks of so many bytes were given out on the current device."""
        number = self._device()
        bound = self.bound.get(number, 0) + nbytes
        self.bound[number] = bound if bound <= self.most.get(number, 0) else self.ask(number)

    def ask(self, number: int) -> int:
        """What is in use on the current device, whose number is `number`; notes whether it is the most."""
        used = self.in_use()
        if used > self.most.get(number, 0):
            self.most[number] = used
            self.most_held[number] = max(self.held(), self.most_held.get(number, 0))
        return used


_UNIT = 512  # bytes, of which the pool's blocks are multiples
_OURS = 2  # references to memory that nobody else refers to: the entry's, getrefcount's


def allocate_all(sizes: Sequence[int]) -> list[Any]:
    """Memory of each of these sizes on the current device, by the allocator that CuPy has at the moment."""
    allocator = module().cuda.get_allocator()
    if allocator == _found.memory.allocate:
        made: list[Any] = _found.memory.allocate_all(sizes)
        return made
    return [allocator(size) for size in sizes]


def allocate_apart(nbytes: int) -> Any:
    """Memory on the current device of a block of gigabytes that comes again at each step."""
    if module().cuda.get_allocator() == _found.memory.allocate:
        return _found.memory.allocate_apart(nbytes)
    return module().cuda.get_allocator()(nbytes)


def free_unused() -> None:
    """Give back what the pools of the current device hold and nobody uses."""
    _found.memory.free()


def record_stream(array: Array, stream: Any) -> None:
    """`stream`, CuPy's, uses the memory of `array`, which another stream's work has made."""
    with on(array.data.device_id):
        _found.memory.record(array.data.mem, stream)


def memory_of(number: int) -> tuple[int, int, int, int]:
    """Bytes on a device: in use, most in use, held by the pool, most held."""
    memory = _look().memory
    with on(number):
        used, held = memory.in_use(), memory.held()
    return used, max(used, memory.most.get(number, 0)), held, max(held, memory.most_held.get(number, 0))


def times_out_of_memory() -> int:
    """How often there was not enough memory."""
    return _look().memory.failures  # type: ignore[no-any-return]


def reset_peak(number: int) -> None:
    """The most in use on a device is what is in use now."""
    memory = _look().memory
    with on(number):
        memory.most[number], memory.most_held[number] = memory.in_use(), memory.held()


@contextmanager
def allocating(number: int) -> Iterator[None]:
    """In this block CuPy's out-of-memory error becomes CudaMemoryError, which says what is held and by whom."""
    try:
        yield
    except MemoryError as error:
        raise_out_of_memory(error, number)


LARGEST: Late[Callable[[int], list[str]]] = Late("memory: largest tensors")  # lines on those of a device


def raise_out_of_memory(error: MemoryError, number: int) -> NoReturn:
    """Raise CudaMemoryError of device `number`: how much is in use, and the largest tensors that gc finds."""
    _found.memory.failures += 1
    with on(number):
        used, total = _found.memory.in_use(), _found.memory.held()
        free, there = module().cuda.runtime.memGetInfo()
    held = "\n    ".join(LARGEST.get()(number))
    raise CudaMemoryError(
        f"CUDA out of memory on cuda:{number}: {error}",
        got=f"{mib(used)} in tensors, {mib(total)} held by the pool, {mib(free)} of {mib(there)} free"
        + (f"; the largest tensors:\n    {held}" if held else ""),
        remedy="smaller batches, gradient checkpointing, del of what is not needed, cuda.empty_cache()",
    ) from error


def mib(nbytes: int) -> str:
    """In MiB, for people."""
    return f"{nbytes / 2**20:.1f} MiB"
