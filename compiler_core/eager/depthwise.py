"""Gradients of depthwise convolutions, one channel a group, in one or two spatial dims: kernels of ours (planes.h).

In: g, x, weight of f32 or f64. Out: the gradient; None where columns have to give it (convolution.py).
Ours are those of the weight, and those of the input of windows that move by one. oneDNN's come first where they are as
fast: of narrow windows that are not dilated, and of the input of such; its others take 3 to 20 times as long. Dilated
windows that move by more than one are its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from compiler_core.eager.native import RowKernels
from compiler_core.eager.operands import dense
from compiler_core.ops.registry import Array

if TYPE_CHECKING:
    from compiler_core.eager.convolution import Dims

Theirs: TypeAlias = "Callable[[], Array | None]"
_LARGEST = 128  # elements of a window
_NARROW = 4  # columns of one of which oneDNN is fast
_BEYOND = 64  # elements that vectors may read behind a plane


def takes(weight: Dims, groups: int) -> bool:
    """Whether a convolution is one of these."""
    return groups == weight[0] and weight[1] == 1 and len(weight) <= 4 and math.prod(weight[2:]) <= _LARGEST


@lru_cache(1024)
def _of_weight(out: Dims, kernel: Dims, stride: Dims, low: Dims, dilation: Dims) -> tuple[Array, int, int]:
    """(numbers for the kernel, elements of the wider plane of x, of that of g)."""
    rows, pitch = ((o - 1) * s + (k - 1) * d + 1 for o, s, k, d in zip(out, stride, kernel, dilation))
    steps = stride if max(dilation) == 1 and max(stride) > 1 else dilation
    numbers = np.array([*steps, *low, rows, pitch, 0, 0], np.int64)
    return numbers, rows * pitch + _BEYOND, out[0] * pitch + _BEYOND


@lru_cache(1024)
def _of_input(size: Dims, kernel: Dims, low: Dims, dilation: Dims) -> tuple[Array, int, int]:
    """(numbers for the kernel, elements of the wider plane of g, of that of x)."""
    reach = [(k - 1) * d for k, d in zip(kernel, dilation)]
    rows, pitch = (n + r for n, r in zip(size, reach))
    numbers = np.array([*(r - a for r, a in zip(reach, low)), rows, pitch, *dilation], np.int64)
    return numbers, rows * pitch + _BEYOND, size[0] * pitch + _BEYOND


def _two(dims: tuple[int, ...], fill: int = 1) -> tuple[int, ...]:
    """Of one spatial dim two."""
    return dims if len(dims) == 2 else (fill, *dims)


def _planes(x: Array) -> Array:
    return dense(x).reshape(*x.shape[:2], *_two(x.shape[2:]))


class Depthwise:
    """The gradients, by kernels of the eager library."""

    def __init__(self, k: RowKernels) -> None:
        self._weight, self._input = k.named("depthwise_weight"), k.named("depthwise_input")
        self._dilated = k.named("depthwise_dilated_weight")

    def of_weight(
        self, theirs: Theirs, g: Array, x: Array, shape: Dims, groups: int, stride: Dims, dilation: Dims, **pads: Dims
    ) -> Array | None:
        """dw, of that shape. theirs: by oneDNN, if it has it."""
        is_dilated = max(dilation) > 1
        if not takes(shape, groups) or (is_dilated and max(stride) > 1):
            return theirs()
        if not is_dilated and shape[-1] <= _NARROW and (made := theirs()) is not None:
            return made
        kernel, dtype = _two(shape[2:]), x.dtype
        of = _of_weight(_two(g.shape[2:]), kernel, _two(stride), _two(pads["low"], 0), _two(dilation))
        dw, total, wide = np.empty((shape[0], *kernel), dtype), np.empty(kernel, np.float64), np.zeros(of[1], dtype)
        planes = (_planes(g), _planes(x), dw, wide)
        if max(stride) > 1 or (kernel[1] > _NARROW and not is_dilated):
            self._weight((*planes, total, of[0]))
        else:
            self._dilated((*planes, np.zeros(of[2], dtype), total, of[0]))
        return dw.reshape(shape)

    def of_input(
        self,
        theirs: Theirs,
        g: Array,
        weight: Array,
        shape: Dims,
        groups: int,
        stride: Dims,
        dilation: Dims,
        **pads: Dims,
    ) -> Array | None:
        """dx, of that shape. theirs: as above."""
        if not takes(weight.shape, groups) or max(stride) > 1:
            return theirs()
        if max(dilation) == 1 and (made := theirs()) is not None:
            return made
        kernel, size = _two(weight.shape[2:]), _two(shape[2:])
        numbers, numel, count = _of_input(size, kernel, _two(pads["low"], 0), _two(dilation))
        dx, wide = np.empty((*shape[:2], *size), g.dtype), np.zeros(numel, g.dtype)
        self._input((_planes(g), dense(weight).reshape(-1, *kernel), dx, wide, np.empty(count, g.dtype), numbers))
        return dx.reshape(shape)
