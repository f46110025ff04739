"""Eager definition of the maxima of windows, over one or two dims.

In: x: T[*lead, *n], of f32 or f64. Out: see ops/whole.py; places of maxima are kept, four bytes a window,
so that the backward adds each cotangent where it belongs, and reads nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from compiler_core.eager.native import RowKernels
from compiler_core.eager.operands import Grads, alike, define_quietly, dense
from compiler_core.ops.pooling.geometry import window_counts
from compiler_core.ops.registry import Array
from compiler_core.ops.whole import Made

Dims = tuple[int, ...]


@lru_cache(maxsize=1024)
def _numbers(kernel: Dims, stride: Dims, dilation: Dims, low: Dims) -> Array:
    """As the kernel reads them, for two dims."""
    lead = 2 - len(kernel)
    told = [*(1,) * lead, *kernel, *(1,) * lead, *stride, *(1,) * lead, *dilation, *(0,) * lead, *low]
    return np.array(told, np.int64)


def _inside(low: Dims, sizes: Dims) -> tuple[Any, ...]:
    """Where an array of these last sizes lies in the padded one."""
    return (..., *(slice(a, a + n) for a, n in zip(low, sizes)))


def _padded(x: Array, low: Dims, high: Dims) -> Array:
    if not any((*low, *high)):
        return x
    lead = x.ndim - len(low)
    sizes = tuple(a + n + b for a, n, b in zip(low, x.shape[lead:], high))
    made = np.full((*x.shape[:lead], *sizes), -math.inf, x.dtype)
    made[_inside(low, x.shape[lead:])] = x
    return made


def define_pooling(k: RowKernels) -> None:
    """Define it."""
    run, run_backward = k.named("window_max"), k.named("window_max_backward")

    def forward(x: Array, *, kernel: Dims, stride: Dims, dilation: Dims, low: Dims, high: Dims) -> Made:
        rank, lead = len(kernel), x.ndim - len(kernel)
        if not alike(x) or rank > 2 or not x.size or math.prod(x.shape[lead:]) >> 30:
            return None
        x = _padded(x, low, high)
        counts = window_counts("window_max", x.shape[lead:], kernel, stride, dilation)
        ones = (1,) * (2 - rank)
        windows = (math.prod(x.shape[:lead]), *ones, *counts)
        out, places = np.empty(windows, x.dtype), np.empty(windows, np.int32)
        planes = dense(x).reshape(windows[0], *ones, *x.shape[lead:])
        run((planes, out, places, _numbers(kernel, stride, dilation, low)))
        return out.reshape(*x.shape[:lead], *counts), (places,)

    def backward(
        needs: Sequence[bool], g: Array, _: None, kept: Any, x: Array, *, low: Dims, high: Dims, **__: Any
    ) -> Grads:
        lead = x.ndim - len(low)
        sizes = tuple(a + n + b for a, n, b in zip(low, x.shape[lead:], high))
        dx, planes = np.zeros((math.prod(x.shape[:lead]), math.prod(sizes)), x.dtype), len(kept[0])
        run_backward((dense(g).reshape(planes, -1), kept[0].reshape(planes, -1), dx))
        return (dense(dx.reshape(*x.shape[:lead], *sizes)[_inside(low, x.shape[lead:])]),)

    define_quietly("maxima_of_windows", forward, backward, reads=())
