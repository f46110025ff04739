"""torch.autograd.profiler's names, on distcompile.profiler: `profile(use_cuda=...)`, `record_function`, `emit_nvtx`.

In: blocks. Out: a profile that is asked itself: `table()`, `key_averages()`, iteration over its calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

from distcompile import profiler
from distcompile.cuda import nvtx
from distcompile.profiler import record_function

__all__ = ["emit_nvtx", "profile", "record_function"]


class profile:
    """A block whose calls are measured. use_cuda: on the device too. Other options: see `distcompile.profiler`."""

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        **options: Any,
    ) -> None:
        self.enabled = enabled
        self._profile = profiler.profile(
            activities=[profiler.ProfilerActivity.CPU],
            use_cuda=use_cuda or use_device == "cuda",
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
        )

    def __enter__(self) -> Self:
        if self.enabled:
            self._profile.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.enabled:
            self._profile.stop()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._profile.events())

    def __str__(self) -> str:
        return str(self._profile.events())

    @property
    def function_events(self) -> profiler.Events:
        """One record a call."""
        return self._profile.events()

    def table(self, *args: Any, **kwargs: Any) -> str:
        """The calls as text."""
        return self._profile.events().table(*args, **kwargs)

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> profiler.Events:
        """Sums by name."""
        return self._profile.key_averages(group_by_input_shape)

    def total_average(self) -> profiler.Averages:
        """The sum of all."""
        return self._profile.events().total_average()

    def export_chrome_trace(self, path: str) -> None:
        """A file for chrome://tracing and Perfetto."""
        self._profile.export_chrome_trace(path)

    @property
    def self_cpu_time_total(self) -> float:
        """Of all calls, microseconds."""
        return self._profile.events().self_cpu_time_total


class emit_nvtx:
    """A block as a range for NVIDIA's profilers; its calls are not marked each."""

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled = enabled

    def __enter__(self) -> Self:
        if self.enabled:
            nvtx.range_push("emit_nvtx")
        return self

    def __exit__(self, *error: object) -> None:
        if self.enabled:
            nvtx.range_pop()
