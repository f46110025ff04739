"""The memory of CUDA devices: how much is in use, and how much was at most. Bytes.

In: devices. Out: numbers, of CuPy's pool, from which everything of ours comes; 0 where there is no GPU.
"""

from __future__ import annotations

from typing import Any

from compiler_core import cuda as core
from compiler_core.errors import CudaMemoryError
from compiler_core.tensor.memory.largest import largest_tensors
from distcompile.cuda.devices import number
from distcompile.errors import ArgumentError

OutOfMemoryError = CudaMemoryError


def _pool(device: Any) -> tuple[int, int, int, int]:
    """(in use, most in use, held, most held)."""
    return core.memory_of(number(device, "memory")) if core.is_loaded() else (0, 0, 0, 0)


def memory_allocated(device: Any = None) -> int:
    """Bytes in use."""
    return _pool(device)[0]


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes in use since the start, or `reset_peak_memory_stats`."""
    return _pool(device)[1]


def memory_reserved(device: Any = None) -> int:
    """Bytes that the pool holds, in use or not."""
    return _pool(device)[2]


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that the pool held."""
    return _pool(device)[3]


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def reset_peak_memory_stats(device: Any = None) -> None:
    """The most in use is what is in use now."""
    core.reset_peak(number(device, "reset_peak_memory_stats"))


reset_max_memory_allocated = reset_max_memory_cached = reset_accumulated_memory_stats = reset_peak_memory_stats


def empty_cache() -> None:
    """Give back what the pool holds and nobody uses, and pinned memory of the host's."""
    if core.is_loaded():
        from compiler_core.runtime.cuda import host_memory

        host_memory.release_unused()
        core.free_unused()
        core.module().get_default_pinned_memory_pool().free_all_blocks()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) of the device, as CUDA sees it."""
    with core.on(number(device, "mem_get_info")):
        free, total = core.module().cuda.runtime.memGetInfo()
    return int(free), int(total)


def memory_stats(device: Any = None) -> dict[str, Any]:
    """The numbers above under torch's keys."""
    if not core.is_loaded():
        return {}
    used, most, held, most_held = _pool(device)
    return {
        "allocated_bytes.all.current": used,
        "allocated_bytes.all.peak": most,
        "reserved_bytes.all.current": held,
        "reserved_bytes.all.peak": most_held,
        "active_bytes.all.current": used,
        "active_bytes.all.peak": most,
        "num_ooms": core.times_out_of_memory(),
    }


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """`memory_stats`, its keys taken apart at the dots."""
    tree: dict[str, Any] = {}
    for key, value in memory_stats(device).items():
        *stems, last = key.split(".")
        inner = tree
        for stem in stems:
            inner = inner.setdefault(stem, {})
        inner[last] = value
    return tree


def get_per_process_memory_fraction(device: Any = None) -> float:
    """The share of the device's memory that the pool may take: 1 unless it was limited."""
    place = number(device, "get_per_process_memory_fraction")
    limit = fractions.get(place)
    return 1.0 if limit is None else limit


fractions: dict[int, float] = {}  # what was set, by device


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The numbers above, and the largest tensors, for people."""
    place = number(device, "memory_summary")
    used, most, held, most_held = _pool(place)
    free, total = mem_get_info(place)
    rows = [("in tensors", used), ("in tensors, at most", most), ("held by the pool", held),
            ("held, at most", most_held), ("free on the device", free), ("of", total)]  # fmt: skip
    lines = [f"memory of cuda:{place}", *(f"  {name:<20}{nbytes / 2**20:>12.1f} MiB" for name, nbytes in rows)]
    largest = [] if abbreviated else largest_tensors(place)
    return "\n".join([*lines, *(["  the largest tensors:"] if largest else []), *(f"    {row}" for row in largest)])


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """The pool takes no more than this share of the device's memory."""
    if not 0 <= fraction <= 1:
        raise ArgumentError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    place = number(device, "set_per_process_memory_fraction")
    fractions[place] = float(fraction)
    with core.on(place):
        core.module().get_default_memory_pool().set_limit(size=int(fraction * mem_get_info(place)[1]))
