"""What torch.cuda says of CUDA's own libraries: the runtime, cuBLAS's handle, NVML's meters, the allocator's kind.

In: devices. Out: numbers, handles. NVML is asked through `pynvml` (nvidia-ml-py), as in torch, which says so if it is
not installed. What torch offers and CuPy's memory pool does not have raises NoGPUError by name.
"""

from __future__ import annotations

import importlib
from typing import Any, NoReturn

from compiler_core import cuda as core
from distcompile.cuda.devices import get_device_properties, no_gpu, number
from distcompile.errors import ArgumentError, NoGPUError

has_half, has_magma = True, False


def cudart() -> Any:
    """CuPy's module of the CUDA runtime's functions. Raises NoGPUError."""
    number(None, "cudart")
    return core.module().cuda.runtime


def current_blas_handle() -> int:
    """cuBLAS's handle of the current device. Raises NoGPUError."""
    number(None, "current_blas_handle")
    return int(core.module().cuda.device.get_cublas_handle())


def current_solver_handle() -> int:
    """cuSOLVER's handle of the current device. Raises NoGPUError."""
    number(None, "current_solver_handle")
    return int(core.module().cuda.device.get_cusolver_handle())


class CudaError(RuntimeError):
    """An error of the CUDA runtime, by its number."""

    def __init__(self, code: int) -> None:
        super().__init__(f"{core.module().cuda.runtime.getErrorString(code)} ({code})")


def check_error(res: int) -> None:
    """Raise CudaError for a result of the runtime's that is not success."""
    if res:
        raise CudaError(res)


def is_tf32_supported() -> bool:
    """Whether the current device multiplies in tf32: from compute capability 8 on."""
    return core.device_count() > 0 and get_device_properties().major >= 8


def get_gencode_flags() -> str:
    """The compiler's options for the devices here."""
    places = (get_device_properties(k) for k in range(core.device_count()))
    names = sorted({f"{place.major}{place.minor}" for place in places})
    return " ".join(f"-gencode compute=compute_{name},code=sm_{name}" for name in names)


def get_allocator_backend() -> str:
    """The kind of allocator: a caching pool (CuPy's)."""
    return "native"


# ---- the host's waits


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """0 or "default": waits are not told of. Raises NoGPUError for "warn" and "error", which are not offered."""
    modes = {"default": 0, "warn": 1, "error": 2}
    mode = modes.get(debug_mode, debug_mode) if isinstance(debug_mode, str) else debug_mode
    if mode not in (0, 1, 2):
        raise ArgumentError("invalid value of debug_mode, expected one of `default`, `warn`, `error`")
    if mode:
        raise NoGPUError("cuda.set_sync_debug_mode: only 'default' is offered", got=str(debug_mode),
                         remedy="a profiler shows where the host waits")  # fmt: skip


def get_sync_debug_mode() -> int:
    """0: waits are not told of."""
    return 0


# ---- meters


def _meter(device: Any, name: str) -> tuple[Any, Any]:
    """pynvml, and its handle of the device. Raises ModuleNotFoundError where it is not installed."""
    place = number(device, name)
    try:
        meters: Any = importlib.import_module("pynvml")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("nvidia-ml-py does not seem to be installed or it can't be imported.") from error
    meters.nvmlInit()
    facts = core.module().cuda.runtime.getDeviceProperties(place)
    bus = "{:08x}:{:02x}:{:02x}.0".format(*(facts[f"pci{key}"] for key in ("DomainID", "BusID", "DeviceID")))
    return meters, meters.nvmlDeviceGetHandleByPciBusId(bus.encode())


def utilization(device: Any = None) -> int:
    """Percent of the last second in which a kernel ran."""
    meters, handle = _meter(device, "utilization")
    return int(meters.nvmlDeviceGetUtilizationRates(handle).gpu)


def memory_usage(device: Any = None) -> int:
    """Percent of the last second in which memory was read or written."""
    meters, handle = _meter(device, "memory_usage")
    return int(meters.nvmlDeviceGetUtilizationRates(handle).memory)


def device_memory_used(device: Any = None) -> int:
    """Bytes in use on the device, by all processes."""
    meters, handle = _meter(device, "device_memory_used")
    return int(meters.nvmlDeviceGetMemoryInfo(handle).used)


def temperature(device: Any = None) -> int:
    """Degrees Celsius."""
    meters, handle = _meter(device, "temperature")
    return int(meters.nvmlDeviceGetTemperature(handle, 0))


def power_draw(device: Any = None) -> int:
    """Milliwatts."""
    meters, handle = _meter(device, "power_draw")
    return int(meters.nvmlDeviceGetPowerUsage(handle))


def clock_rate(device: Any = None) -> int:
    """The multiprocessors' clock, MHz."""
    meters, handle = _meter(device, "clock_rate")
    return int(meters.nvmlDeviceGetClockInfo(handle, 1))


def list_gpu_processes(device: Any = None) -> str:
    """The processes that hold memory on the device, as text."""
    meters, handle = _meter(device, "list_gpu_processes")
    lines = [f"GPU:{number(device, 'list_gpu_processes')}"]
    for process in meters.nvmlDeviceGetComputeRunningProcesses(handle):
        lines.append(f"process {process.pid:>10d} uses {(process.usedGpuMemory or 0) / 2**20:>12.3f} MB GPU memory")
    return "\n".join(lines if len(lines) > 1 else [*lines, "no processes are running"])


# ---- what is not there

WHY = {
    "graph": "values are written to new memory, so a recorded write would not be seen; "
    "use compile(model, mode='reduce-overhead')",
    "memory_snapshot": "ask memory_summary(), which names the largest tensors",
    "graph_pool_handle": "compile(model, mode='reduce-overhead') keeps its own memory",
    "use_mem_pool": "memory comes from CuPy's pool",
    "change_current_allocator": "memory comes from CuPy's pool",
    "caching_allocator_alloc": "make a tensor: torch.empty(nbytes, dtype=torch.uint8, device='cuda')",
    "caching_allocator_delete": "make a tensor, and let it go",
    "caching_allocator_enable": "memory comes from CuPy's pool; CUPY's own documentation says how to do without",
}


def not_offered(name: str) -> Exception:
    """The error of a name that torch.cuda has and this has not."""
    if core.why_not():
        return no_gpu(name)
    return NoGPUError(f"cuda.{name} is not offered", remedy=WHY.get(name, "run without it: compile() makes one call"))


def refusing(name: str) -> Any:
    """The function `name`, which raises."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise not_offered(name)

    refuse.__name__, refuse.__doc__ = name, "Raises NoGPUError."
    return refuse
