"""torch.cuda: devices, streams, events, memory, seeds. Where there is no GPU it says so, and scripts run on the CPU.

In: devices. Out: see devices.py, streams.py, memory.py. Without a GPU: "no", 0, nothing; NoGPUError from what torch
refuses too. Each device has a generator of its own, counter-based, which `torch.manual_seed` seeds too.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

from compiler_core import cuda as _core
from compiler_core.device import check_device as _placed
from compiler_core.tensor.making import random as _random
from distcompile.cuda.devices import (
    DeviceProperties,
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_arch_list,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_bf16_supported,
    is_initialized,
    no_gpu,
    set_device,
    synchronize,
)
from distcompile.cuda.libraries import (
    CudaError,
    check_error,
    clock_rate,
    cudart,
    current_blas_handle,
    current_solver_handle,
    device_memory_used,
    get_allocator_backend,
    get_gencode_flags,
    get_sync_debug_mode,
    has_half,
    has_magma,
    is_tf32_supported,
    list_gpu_processes,
    memory_usage,
    not_offered,
    power_draw,
    refusing,
    set_sync_debug_mode,
    temperature,
    utilization,
)
from distcompile.cuda.memory import (
    OutOfMemoryError,
    empty_cache,
    get_per_process_memory_fraction,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from distcompile.cuda.streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    get_stream_from_external,
    set_stream,
    stream,
)

__all__ = [
    "CudaError", "DeviceProperties", "Event", "ExternalStream", "OutOfMemoryError", "Stream", "StreamContext",
    "can_device_access_peer", "check_error", "clock_rate", "cudart", "current_blas_handle", "current_device",
    "current_solver_handle", "current_stream", "default_stream", "device", "device_count", "device_memory_used",
    "device_of", "empty_cache", "get_allocator_backend", "get_arch_list", "get_device_capability", "get_device_name",
    "get_device_properties", "get_gencode_flags", "get_per_process_memory_fraction", "get_stream_from_external",
    "get_sync_debug_mode", "has_half", "has_magma", "init", "is_available", "is_bf16_supported", "is_initialized",
    "is_tf32_supported", "list_gpu_processes", "make_graphed_callables", "max_memory_allocated", "max_memory_cached",
    "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_cached", "memory_reserved", "memory_stats",
    "memory_stats_as_nested_dict", "memory_summary", "memory_usage", "power_draw", "reset_accumulated_memory_stats",
    "reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_memory_stats", "set_device",
    "set_per_process_memory_fraction", "set_stream", "set_sync_debug_mode", "stream", "synchronize", "temperature",
    "utilization",
]  # fmt: skip


# ---- draws


def _generator(device: Any = "cuda") -> Any:
    """The default generator of a device."""
    return _random.generator_for(_placed(f"cuda:{device}" if isinstance(device, int) else device))


def _all_generators() -> list[Any]:
    return [_random.default_generator_of(k) for k in range(device_count())]


def manual_seed(seed: int) -> None:
    """Seed the current device's generator; nothing where there is no GPU."""
    if is_available():
        _generator().manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seed all devices' generators; nothing where there is no GPU."""
    for generator in _all_generators():
        generator.manual_seed(seed)


def seed() -> None:
    """Seed the current device's generator by chance; nothing where there is no GPU."""
    if is_available():
        _generator().seed()


def seed_all() -> None:
    """Seed all devices' generators by one chance; nothing where there is no GPU."""
    generators = _all_generators()
    chosen = generators[0].seed() if generators else 0
    for generator in generators:
        generator.manual_seed(chosen)


def initial_seed() -> int:
    """The seed of the current device's generator. Raises NoGPUError."""
    _need("initial_seed")
    return int(_generator().initial_seed())


def get_rng_state(device: Any = "cuda") -> Any:
    """The state of a device's generator: u8[16], seed and offset. Raises NoGPUError."""
    _need("get_rng_state")
    return _generator(device).get_state()


def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
    """Set the state of a device's generator. Raises NoGPUError."""
    _need("set_rng_state")
    _generator(device).set_state(new_state)


def get_rng_state_all() -> list[Any]:
    """The states of all devices' generators."""
    return [generator.get_state() for generator in _all_generators()]


def set_rng_state_all(new_states: Iterable[Any]) -> None:
    """Set the states of all devices' generators. Raises NoGPUError for a state of one that is not there."""
    for number, state in enumerate(new_states):
        _need("set_rng_state_all")
        _generator(number).set_state(state)


def make_graphed_callables(
    callables: Any, sample_args: Any, num_warmup_iters: int = 3, allow_unused_input: bool = False, pool: Any = None
) -> Any:
    """The callables compiled with mode="reduce-overhead": their launches are recorded and replayed as CUDA graphs.

    sample_args: of each, taken for a first call, under no_grad. Raises NoGPUError without a GPU.
    """
    from distcompile import compile, no_grad

    _need("make_graphed_callables")
    single = not isinstance(callables, tuple)
    made = []
    for function, sample in zip((callables,) if single else callables, (sample_args,) if single else sample_args):
        graphed = compile(function, mode="reduce-overhead")
        with no_grad():
            graphed(*sample)
        made.append(graphed)
    return made[0] if single else tuple(made)


def _need(name: str) -> None:
    if _core.why_not():
        raise no_gpu(name)


def ipc_collect() -> None:
    """Nothing: tensors are sent to other processes as copies. Raises NoGPUError."""
    _need("ipc_collect")


def is_current_stream_capturing() -> bool:
    """Whether the current stream records a CUDA graph. Raises NoGPUError."""
    _need("is_current_stream_capturing")
    return bool(current_stream()._stream.is_capturing())


# ---- what is not there


class _OfGPU:
    """Something of a GPU: a class for annotations and isinstance. Making one raises NoGPUError."""

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise not_offered(cls.__name__)


_CLASSES = ("CUDAGraph", "CUDAPluggableAllocator", "GreenContext", "MemPool")
CUDAGraph, CUDAPluggableAllocator, GreenContext, MemPool = (
    type(name, (_OfGPU,), {"__doc__": _OfGPU.__doc__, "__module__": __name__}) for name in _CLASSES
)


_NOT_YET = (
    "caching_allocator_alloc", "caching_allocator_delete", "caching_allocator_enable", "change_current_allocator",
    "graph", "graph_pool_handle", "memory_snapshot", "use_mem_pool",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in ("amp", "comm", "nvtx", "profiler"):
        return importlib.import_module(f"distcompile.cuda.{name}")
    if name in ("graphs", "random"):  # torch's files of functions that are here
        return sys.modules[__name__]
    if name == "default_generators":
        return tuple(_all_generators())
    if name in _NOT_YET:
        return refusing(name)
    from compiler_core.tensor.making.legacy_types import TYPES, gpu_type

    if name in TYPES:
        globals()[name] = made = gpu_type(name)
        return made
    raise AttributeError(f"module 'distcompile.cuda' has no attribute {name!r}")
