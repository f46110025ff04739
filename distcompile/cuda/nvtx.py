"""torch.cuda.nvtx: marks for NVIDIA's profilers, through CuPy; without a GPU, without effect.

In: names. Out: ranges in a profiler's timeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from compiler_core import cuda as core


def _nvtx() -> Any:
    return getattr(core.module().cuda, "nvtx", None) if core.is_loaded() else None


def range_push(msg: str) -> None:
    """Begin a range."""
    if (nvtx := _nvtx()) is not None:
        nvtx.RangePush(msg)


def range_pop() -> None:
    """End the range that was begun last."""
    if (nvtx := _nvtx()) is not None:
        nvtx.RangePop()


def mark(msg: str) -> None:
    """A point in time."""
    if (nvtx := _nvtx()) is not None:
        nvtx.Mark(msg)


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A block as a range."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
