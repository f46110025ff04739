"""0 or 1 by chance in eager code on a CUDA device, by one kernel: of the bits that `bernoulli` of ops/random draws.

In: an array that says shape and dtype, a probability; then the words of a key, which differ from call to call. Out: a
new array, row-major; None where the dtype has no kernels, or they do not give what the host gives (proof.py). Calls
that come again are made by native code. Kernel: chance, kernels.cu.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.dtype import of
from compiler_core.eager.device.kernels import I64, U64, DeviceKernels, is_known, kernels
from compiler_core.eager.device.proof import is_right_once
from compiler_core.meta import Shape
from compiler_core.ops.on_device import CHANCE
from compiler_core.ops.random.composite import bernoulli
from compiler_core.ops.registry import Array
from compiler_core.runtime.cuda.replay import Known, Number, empty, replayed

_known: Known = {}


def chance(x: Any, p: float) -> Callable[[int, int, int], Array | None] | None:
    """What draws an array like x, of (seed, offset, shard)."""
    k = kernels(x.dtype) if is_known(x.dtype) and x.size else None
    if k is None or not is_right_once("bernoulli", k, partial(_difference, k)):
        return None
    return partial(_drawn, k, x.shape, round(p * 2**32))


def _drawn(k: DeviceKernels, shape: Shape, limit: int, seed: int, offset: int, shard: int) -> Array | None:
    size = int(np.prod(shape, dtype=np.int64))
    numbers = [Number(n % 2**64) for n in (seed, offset, shard * size)]
    found: Array | None = replayed(_known, (k, shape, limit), numbers, partial(_launched, k, shape, limit))
    return found


def _launched(k: DeviceKernels, shape: Shape, limit: int, seed: Number, place: Number, first: Number) -> Array:
    out: Array = empty(shape, k.dtype)
    k.all("chance", out.size, out, I64(out.size), U64(limit), seed, place, first)
    return out


def _difference(k: DeviceKernels) -> str:
    """What is wrong; empty if nothing is."""
    key = np.array((2**64 - 3, 2**40 + 3, 2**33), np.uint64)
    numbers = [Number(int(n)) for n in (*key[:2], int(key[2]) * 99)]
    for p in (0.0, 0.3, 1.0):
        made = cuda.fetch(_launched(k, (99,), round(p * 2**32), *numbers))
        if made.tobytes() != np.asarray(bernoulli(key, p, (99,), dtype=of(k.dtype))).tobytes():
            return "other numbers than the CPU"
    return ""


CHANCE.fill(chance)
