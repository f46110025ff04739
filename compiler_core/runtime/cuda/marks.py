"""How long the steps of a program took on the device: events in its stream; and how fast its memory copies.

In: a number of steps; then, from the host function, the end of each. Out: `Marks.seconds()`; `copy_rate(device)`.
"""

from __future__ import annotations

import ctypes
from functools import cache

from compiler_core.runtime.cuda import context, driver, measure

_NBYTES = 256 << 20  # of the array that is copied: several times a cache


class Marks:
    """The events of one call: its beginning, in the current stream at this moment, and the end of each step.

    record: the address of the driver's cuEventRecord. address: of the table of events that it is called with.
    """

    def __init__(self, steps: int) -> None:
        event = context.cupy().cuda.Event
        self.begin, self.ends = event(), [event() for _ in range(steps)]
        self.record = driver.address_of("cuEventRecord")
        self._table = (ctypes.c_void_p * max(steps, 1))(*(end.ptr for end in self.ends))
        self.address = ctypes.addressof(self._table)
        self.begin.record()

    def seconds(self) -> list[float]:
        """Of each step. Waits for the last."""
        if not self.ends:
            return []
        self.ends[-1].synchronize()
        elapsed = context.cupy().cuda.get_elapsed_time
        return [elapsed(*pair) * 1e-3 for pair in zip((self.begin, *self.ends), self.ends, strict=False)]


@cache
def copy_rate(device: int) -> float:
    """Bytes a second, read and written, of a copy on the current device, number `device`; 0: no memory is left."""
    xp = context.cupy()
    try:
        source, target = xp.zeros(_NBYTES, "u1"), xp.empty(_NBYTES, "u1")
    except MemoryError:
        return 0.0
    return 2 * _NBYTES / (measure.shortest_us(lambda: target.__setitem__(..., source)) * 1e-6)
