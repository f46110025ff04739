"""How much memory a step takes, measured: the peak of what is resident while it runs.

In: a function that runs a step. Out: bytes. Method: what is kept for the next call is given back, then the kernel's
high-water mark of resident memory (VmHWM) is reset, and read after some steps; fresh memory counts when it is touched.
Limits: Linux, whose /proc/self is read and written; other threads of the process count, too; memory of the CPU.
Raises: DeviceError elsewhere.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path

from compiler_core.errors import DeviceError
from compiler_core.runtime.lasting_memory import release_unused

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_memory(step: Callable[[], object], drop: Callable[[], object] = lambda: None, *, steps: int = 2) -> int:
    """Bytes that `steps` runs of `step` add at most to what the process holds. It is run once before.

    drop: lets go of what a step leaves, such as gradients, so that it counts. Raises DeviceError where it cannot be
    measured: not on Linux.
    """
    step()
    drop()
    release_unused()
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
        before = _resident("VmRSS")
        _RESET.write_text("5")
    except (OSError, AttributeError) as error:
        raise DeviceError("peak memory cannot be measured here", got=str(error), expected="Linux, and /proc") from error
    for _ in range(steps):
        step()
    return _resident("VmHWM") - before


def _resident(field: str) -> int:
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024
