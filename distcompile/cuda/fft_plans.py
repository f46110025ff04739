"""torch.backends.cuda.cufft_plan_cache: the plans that cuFFT keeps, which are CuPy's, of each device.

In: a device's number. Out: `size`, `max_size` (may be set), `clear()`. Raises NoGPUError without a GPU.
"""

from __future__ import annotations

from typing import Any

from compiler_core import cuda as core
from distcompile.cuda.devices import number


class PlanCache:
    """The plans of one device, the current one if None."""

    def __init__(self, device: Any = None) -> None:
        self._device = device

    def _cache(self) -> Any:
        with core.on(number(self._device, "cufft_plan_cache")):
            return core.module().fft.config.get_plan_cache()

    def __getitem__(self, device: Any) -> PlanCache:
        return PlanCache(device)

    @property
    def size(self) -> int:
        """How many plans there are."""
        return int(self._cache().get_curr_size())

    @property
    def max_size(self) -> int:
        """How many are kept at most."""
        return int(self._cache().get_size())

    @max_size.setter
    def max_size(self, count: int) -> None:
        self._cache().set_size(int(count))

    def clear(self) -> None:
        """Forget all."""
        self._cache().clear()
