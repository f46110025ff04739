"""Layers under autocast on a CUDA device: their weights come in f32, and are cast once in a region.

In: the forward of a layer, (k, x, weight, bias or None, **attributes), of x's dtype; how a weight is cast. Out: that of
the layer with weights in f32, which keeps the cast weight for its backward. Where a region meets the weights for the
first time, their casts and the layer are one call that is made again (runtime/cuda/replay.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from compiler_core.eager.device.kernels import DeviceKernels
from compiler_core.ops.casting import casting, keep_lower, kept_lower
from compiler_core.ops.registry import Array
from compiler_core.ops.whole import Made
from compiler_core.runtime.cuda.replay import again, replays

_F32 = np.dtype(np.float32)


def with_lowered(layer: Callable[..., Made], cast: Callable[[Array, Any], Array], ndim: int) -> Callable[..., Made]:
    """The forward of `layer` with weights in f32, of so many dims."""

    @replays
    def at_once(k: DeviceKernels, x: Array, weight: Array | None, bias: Array | None, **attrs: Any) -> Any:
        """(what layer gives, the weights that were cast); those that come in 16 bits are used as they are."""
        low, low_bias = (p if p is None or p.dtype == k.dtype else cast(p, k.dtype) for p in (weight, bias))
        made = layer(k, x, low, low_bias, **attrs)
        return None if made is None else (made[0], low, low_bias)

    def forward(k: DeviceKernels, x: Array, weight: Array, bias: Array | None, **attrs: Any) -> Made:
        if (
            k.dtype.itemsize != 2
            or weight.ndim != ndim
            or any(p is not None and p.dtype != _F32 for p in (weight, bias))
        ):
            return None
        known, known_bias = (None if p is None else kept_lower(p, k.dtype) for p in (weight, bias))
        made = at_once(k, x, weight if known is None else known, bias if known_bias is None else known_bias, **attrs)
        if made is None:
            return None
        for p, was, low in ((weight, known, made[1]), (bias, known_bias, made[2])):
            if p is not None and was is None:
                keep_lower(p, low)
        return made[0], (made[1],)

    forward.prepare = partial(_prepared, at_once, ndim)  # type: ignore[attr-defined]
    return forward


def _prepared(
    at_once: Callable[..., Any], ndim: int, there: Callable[[Any], Callable[..., Any]], arrays: tuple[Any, ...]
) -> Callable[..., Made] | None:
    """The forward of arrays like these of the lone device, of which calls are made again; None: it takes none."""
    x, weight, bias = arrays
    dtype, compute = x.dtype, again(there(at_once))
    if dtype.itemsize != 2 or weight.ndim != ndim or any(p is not None and p.dtype != _F32 for p in (weight, bias)):
        return None

    def run(x: Array, weight: Array, bias: Array | None) -> Made:
        kept = casting.kept
        known, known_bias = kept.get(id(weight)), None if bias is None else kept.get(id(bias))
        low = weight if known is None or known[2].dtype != dtype else known[2]
        low_bias = bias if known_bias is None or known_bias[2].dtype != dtype else known_bias[2]
        made = compute(x, low, low_bias)
        if made is None:
            return None
        if low is weight:
            keep_lower(weight, made[1])
        if bias is not None and low_bias is bias:
            keep_lower(bias, made[2])
        return made[0], (made[1],)

    return run
