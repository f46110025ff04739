"""Which CUDA devices there are, which is the current one, and what they can.

In: devices as torch takes them ("cuda:1", 1, a device, None: the current one). Out: numbers, names, properties. Asked
of the driver through CuPy (compiler_core/cuda.py); without a device, NoGPUError.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from compiler_core import cuda as core
from compiler_core.device import Device
from compiler_core.tensor.memory.fence import anything_waits, settle_all
from distcompile.errors import ArgumentError, NoGPUError


def no_gpu(name: str) -> NoGPUError:
    """The error of what needs a device, where there is none."""
    return NoGPUError(
        f"cuda.{name} needs a GPU, and there is none here",
        got=core.why_not() or "no CUDA device",
        remedy=f"ask cuda.is_available(); {core.REMEDY}",
    )


def number(device: Any, name: str) -> int:
    """The number of `device`, the current one if None. Raises NoGPUError, or DeviceError for one that is not there."""
    if core.why_not():
        raise no_gpu(name)
    if device is None:
        return core.current()
    place = Device(device)
    if not place.is_gpu:
        raise ArgumentError(f"Expected a cuda device, but got: {place}")
    return core.check_number(place.index)


def is_available() -> bool:
    """Whether a GPU can be used."""
    return core.device_count() > 0


def device_count() -> int:
    """The number of GPUs that can be used."""
    return core.device_count()


def is_initialized() -> bool:
    """Whether CUDA has been looked for and found."""
    return core.is_loaded()


def init() -> None:
    """Look for CUDA now. Raises NoGPUError where there is none."""
    number(None, "init")


def current_device() -> int:
    """The number of this thread's current device."""
    return number(None, "current_device")


def set_device(device: Any) -> None:
    """Make it this thread's current device; a negative number: none is made."""
    if isinstance(device, int) and device < 0:
        return
    core.module().cuda.Device(number(device, "set_device")).use()


class device:
    """A block in which a device is the current one; of None or a negative number, nothing."""

    def __init__(self, device: Any) -> None:
        away = device is None or (isinstance(device, int) and device < 0)
        self.idx = -1 if away else number(device, "device")
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            self.prev_idx = core.current()
            set_device(self.idx)

    def __exit__(self, *error: object) -> None:
        if self.idx >= 0:
            set_device(self.prev_idx)


class device_of(device):
    """A block in which a tensor's device is the current one; of a CPU tensor, nothing."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device if obj.is_cuda else None)


@dataclass(frozen=True)
class DeviceProperties:
    """What torch.cuda.get_device_properties tells. Memory in bytes."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int
    max_threads_per_multi_processor: int
    regs_per_multiprocessor: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    L2_cache_size: int
    is_integrated: bool
    is_multi_gpu_board: bool
    max_threads_per_block: int
    pci_bus_id: int
    pci_device_id: int
    pci_domain_id: int
    clock_rate: int  # kHz; 0 where CUDA does not tell
    memory_clock_rate: int  # kHz; 0 where CUDA does not tell
    memory_bus_width: int  # bits
    uuid: str


def get_device_properties(device: Any = None) -> DeviceProperties:
    """What the device is and has."""
    place = number(device, "get_device_properties")
    facts = core.module().cuda.runtime.getDeviceProperties(place)
    name = facts["name"]
    return DeviceProperties(
        name.decode() if isinstance(name, bytes) else name,
        facts["major"],
        facts["minor"],
        facts["totalGlobalMem"],
        facts["multiProcessorCount"],
        facts["warpSize"],
        facts["maxThreadsPerMultiProcessor"],
        facts["regsPerMultiprocessor"],
        facts["sharedMemPerBlock"],
        facts["sharedMemPerBlockOptin"],
        facts["sharedMemPerMultiprocessor"],
        facts["l2CacheSize"],
        bool(facts["integrated"]),
        bool(facts["isMultiGpuBoard"]),
        facts.get("maxThreadsPerBlock", 1024),
        facts["pciBusID"],
        facts["pciDeviceID"],
        facts["pciDomainID"],
        facts.get("clockRate", 0),
        facts.get("memoryClockRate", 0),
        facts.get("memoryBusWidth", 0),
        _uuid(facts.get("uuid", b"")),
    )


def _uuid(raw: bytes) -> str:
    """16 bytes as NVIDIA's tools write them."""
    return str(uuid.UUID(bytes=bytes(raw[:16]))) if len(raw) >= 16 else ""


def get_device_name(device: Any = None) -> str:
    """Its name."""
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """(major, minor) compute capability."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether one device can read another's memory."""
    name = "can_device_access_peer"
    first, second = number(device, name), number(peer_device, name)
    return bool(core.module().cuda.runtime.deviceCanAccessPeer(first, second))


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the current device computes in bfloat16."""
    return is_available() and (including_emulation or get_device_capability()[0] >= 8)


def get_arch_list() -> list[str]:
    """The architectures that GPU code is compiled for: those of the devices here."""
    return sorted({"sm_{}{}".format(*get_device_capability(k)) for k in range(device_count())})


def synchronize(device: Any = None) -> None:
    """Wait until all work on the device is done."""
    if anything_waits():
        settle_all()
    with core.on(number(device, "synchronize")):
        core.module().cuda.Device().synchronize()
    core.waited()
