"""Eager definition of resampling along a dim: sums of few elements of the input, at places that are known.

In: x T[..., n, ...] of f32 or f64, places i64[o, L], weights T[o, L]. Out: see ops/whole.py; the gradient reads no x.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler_core.eager.native import RowKernels
from compiler_core.eager.operands import Grads, alike, define_quietly, dense
from compiler_core.ops.registry import Array
from compiler_core.ops.whole import Made

_I64 = np.dtype(np.int64)


def define_resampling(k: RowKernels) -> None:
    """Define it."""
    run, run_back = k.named("resample"), k.named("resample_back")

    def forward(x: Array, places: Array, weights: Array, *, dim: int) -> Made:
        if not alike(x, weights) or not x.size or places.dtype != _I64 or places.shape != weights.shape:
            return None
        lead, rest = math.prod(x.shape[:dim]), math.prod(x.shape[dim + 1 :])
        out = np.empty((lead, len(places), rest), x.dtype)
        if run((dense(x).reshape(lead, x.shape[dim], rest), out, dense(places), dense(weights))):
            return None
        return out.reshape(*x.shape[:dim], len(places), *x.shape[dim + 1 :]), ()

    def backward(needs: Sequence[bool], g: Array, _: None, kept: Any, x: Array, *taps: Array, dim: int) -> Grads:
        places, weights = taps
        lead, rest = math.prod(x.shape[:dim]), math.prod(x.shape[dim + 1 :])
        dx = np.zeros((lead, x.shape[dim], rest), g.dtype)
        run_back((dx, dense(g).reshape(lead, len(places), rest), dense(places), dense(weights)))
        return dx.reshape(x.shape), None, None

    define_quietly("resample", forward, backward, reads=(1, 2))
