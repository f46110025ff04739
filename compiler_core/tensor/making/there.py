"""Zeros of the lone CUDA device, made at once.

In: what a maker of tensors was given. Out: the array of the tensor that the general way (placement.py) would give; or
None, and nothing has happened: for other devices and arguments, under a trace, while somebody looks at ops, and where
the device is full: the general way then says why.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from compiler_core import cuda
from compiler_core.cuda import lone
from compiler_core.device import Device
from compiler_core.dtype import Default, DType
from compiler_core.forward import level
from compiler_core.ops import registry
from compiler_core.ops.batching.value import levels
from compiler_core.ops.registry import Array, Telling, current_trace
from compiler_core.tensor.autograd.grad_mode import Inference, thread_mode

_RUN = registry.RUN
_NAMES = frozenset(("cuda", "cuda:0"))
_OPTIONS = frozenset(("device", "dtype"))
_INTS = frozenset((int,))


def is_plain() -> bool:
    """Whether what is made now is an array of the lone device, if of one there, and nobody is to be told."""
    if lone.array is None or current_trace() is not None or registry.run_eager is not _RUN or level.on:
        return False
    is_inferring = Inference.entered and thread_mode.inference
    return not (Telling.count or is_inferring or levels())


def zeros_of(size: tuple[Any, ...], options: dict[str, Any]) -> Array | None:
    """The array of `zeros(*size, **options)`, where the options name the lone device."""
    if not _OPTIONS.issuperset(options) or not is_plain():
        return None
    place, dtype = options.get("device"), options.get("dtype", Default.floating)
    is_there = type(place) is str and place in _NAMES
    if not is_there and not (type(place) is Device and place.is_gpu and not place.index):
        return None
    if len(size) == 1 and isinstance(size[0], (tuple, list)):
        size = tuple(size[0])
    if type(dtype) is not DType or not _INTS.issuperset(map(type, size)) or min(size, default=0) < 0:
        return None
    with suppress(MemoryError):
        return cuda.module().zeros(size, dtype.numpy)  # type: ignore[no-any-return]
    return None
