"""torch.cuda.profiler: tells NVIDIA's profilers when to look, through CuPy. Raises NoGPUError without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from compiler_core import cuda as core
from distcompile.cuda.devices import number


def _runtime(name: str) -> Any:
    number(None, f"profiler.{name}")
    return core.module().cuda.runtime


def start() -> None:
    """The profiler begins to look."""
    _runtime("start").profilerStart()


def stop() -> None:
    """The profiler looks no more."""
    _runtime("stop").profilerStop()


@contextmanager
def profile() -> Iterator[None]:
    """A block that the profiler looks at."""
    start()
    try:
        yield
    finally:
        stop()
