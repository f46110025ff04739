"""torch.cuda's questions, answered: there is no GPU here yet. Scripts that ask first run on the CPU.

In: nothing. Out: "no", 0, nothing; NoGPUError from what torch refuses without a GPU too.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any, NoReturn

from distcompile.errors import NoGPUError


def is_available() -> bool:
    """Whether a GPU can be used: not yet."""
    return False


def device_count() -> int:
    """The number of GPUs that can be used."""
    return 0


def manual_seed(seed: int) -> None:
    """Seed the GPUs' generators: there are none."""


def manual_seed_all(seed: int) -> None:
    """Seed the GPUs' generators: there are none."""


def empty_cache() -> None:
    """Give back what a GPU's allocator keeps: nothing."""


def is_initialized() -> bool:
    """Whether a GPU is in use."""
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether GPUs compute in bfloat16: there are none."""
    return False


def memory_allocated(device: object = None) -> int:
    """Bytes in use on a GPU: 0."""
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_cached = max_memory_cached = memory_allocated


def memory_stats(device: object = None) -> dict[str, Any]:
    """What a GPU's allocator counts: nothing."""
    return {}


def get_arch_list() -> list[str]:
    """The architectures that GPU code was compiled for: none."""
    return []


def get_rng_state_all() -> list[Any]:
    """The states of all GPUs' generators: none."""
    return []


def set_rng_state_all(new_states: Iterable[Any]) -> None:
    """Set the states of all GPUs' generators. Raises NoGPUError for a state of one."""
    for _ in new_states:
        raise _no_gpu("set_rng_state_all")


def seed() -> None:
    """Seed the GPUs' generators: there are none."""


seed_all = seed


class _OfGPU:
    """Something of a GPU: a class for annotations and isinstance. Making one raises NoGPUError."""

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise _no_gpu(cls.__name__)


Stream, ExternalStream, Event, CUDAGraph, MemPool = (
    type(name, (_OfGPU,), {"__doc__": _OfGPU.__doc__, "__module__": __name__})
    for name in ("Stream", "ExternalStream", "Event", "CUDAGraph", "MemPool")
)


class StreamContext:
    """A block whose work goes to a stream: there is none, so None is the only one."""

    def __init__(self, stream: None = None) -> None:
        if stream is not None:
            raise _no_gpu("StreamContext")

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        return None


def stream(stream: None) -> StreamContext:
    """A block whose work goes to `stream`. Raises NoGPUError for one of a GPU."""
    return StreamContext(stream)


def _no_gpu(name: str) -> NoGPUError:
    return NoGPUError(f"cuda.{name} needs a GPU, and there is none here", remedy="ask cuda.is_available()")


_NEED_A_GPU = """
synchronize current_device set_device get_device_name get_device_capability get_device_properties current_stream
default_stream set_stream get_rng_state set_rng_state ipc_collect mem_get_info init initial_seed
can_device_access_peer reset_peak_memory_stats reset_max_memory_allocated memory_summary memory_snapshot
set_per_process_memory_fraction is_current_stream_capturing graph make_graphed_callables
"""


def _refusing(name: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise _no_gpu(name)

    refuse.__name__, refuse.__doc__ = name, "Raises NoGPUError."
    return refuse


def __getattr__(name: str) -> Any:
    if name == "amp":
        return importlib.import_module("distcompile.cuda.amp")
    if name in _NEED_A_GPU.split():
        return _refusing(name)
    from compiler_core.tensor.legacy_types import TYPES, gpu_type

    if name in TYPES:
        globals()[name] = made = gpu_type(name)
        return made
    raise AttributeError(f"module 'distcompile.cuda' has no attribute {name!r}")
