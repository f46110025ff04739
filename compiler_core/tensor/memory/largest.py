"""The largest tensors on a CUDA device, and where they are referred to: for errors, and for people.

In: a device's number. Out: lines. Memory that several tensors share counts once. What is told is what gc finds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from compiler_core import alive, cuda
from compiler_core.tensor.tensor import Tensor


def largest_tensors(number: int, count: int = 8) -> list[str]:
    """Lines on the largest tensors on device `number`: bytes, shape, dtype, and where they are referred to."""
    found: dict[int, Any] = {}
    for thing in alive.objects(Tensor):
        raw: Any = thing._cell.raw
        if cuda.is_array(raw) and raw.data.device_id == number:
            found.setdefault(raw.data.ptr, thing)
    ranked = sorted(found.values(), key=lambda tensor: -tensor._cell.raw.nbytes)[:count]
    return [f"{cuda.mib(t._cell.raw.nbytes)}  {t.dtype!r}{list(t.shape)}  {_holder(t)}" for t in ranked]


def _holder(tensor: Any) -> str:
    """The name under which something refers to a tensor, as far as gc and the frames that are running tell."""
    kind = type(tensor).__name__
    for names in (*alive.referrers([tensor], dict), *_locals()):
        name = next((key for key, value in names.items() if value is tensor), None)
        if isinstance(name, str) and not name.startswith("__"):
            return f"{kind} {name!r}"
    return kind


def _locals() -> Iterator[Mapping[str, Any]]:
    """The local variables of the user's functions that are running, in all threads."""
    for innermost in sys._current_frames().values():
        frame: Any = innermost
        while frame is not None:
            if frame.f_globals.get("__name__", "").partition(".")[0] not in ("compiler_core", "distcompile"):
                yield frame.f_locals
            frame = frame.f_back


cuda.LARGEST.fill(largest_tensors)
