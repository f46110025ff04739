"""Counter-based random bits: the philox op.

In: key u64[3] = (seed, offset, shard), the shape, and `stream`, the number of this draw under the key.
Out: u32[shape], uniform. Element i of n is word 0 of Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
1, 2, 3", SC'11) with key = seed and counter = (shard*n + i, offset + stream), 64 bits each, low word first.
So the bits depend on nothing else: not on device, fusion, or the number of ranks that share the elements.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from compiler_core.dtype import DType, uint32, uint64
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops.checks import check_dtype, check_shape
from compiler_core.ops.primitives.creation import check_sizes
from compiler_core.ops.registry import Array, NotDifferentiable, Op, Sample, register
from compiler_core.ops.rules import Indexed, OwnCode

M0, M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
W0, W1 = 0x9E3779B9, 0xBB67AE85
BLOCK = 8192  # elements at a time: the words stay in the cache
_LOW, _SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)


def philox_words(xp: Any, seed: int, stream: int, elements: Array) -> tuple[Array, Array, Array, Array]:
    """The four output words of Philox4x32-10 for each of `elements`: u64[...], as u64 arrays below 2**32."""
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    c0, c1 = elements & _LOW, elements >> _SHIFT
    c2, c3 = xp.full_like(elements, stream & 0xFFFFFFFF), xp.full_like(elements, stream >> 32)
    for _ in range(10):
        c0, c1, c2, c3 = *_half_round(c2, c1, M1, k0), *_half_round(c0, c3, M0, k1)
        k0, k1 = (k0 + W0) & 0xFFFFFFFF, (k1 + W1) & 0xFFFFFFFF
    return c0, c1, c2, c3


def _half_round(factor: Array, mixed: Array, multiplier: np.uint64, key: int) -> tuple[Array, Array]:
    """(high word of factor * multiplier, xor mixed, xor key; low word). Overwrites both arrays."""
    factor *= multiplier
    mixed ^= factor >> _SHIFT
    mixed ^= np.uint64(key)
    factor &= _LOW
    return mixed, factor


def first_words(xp: Any, seed: int, stream: int, first: int, n: int) -> Array:
    """Word 0 for n elements from `first` on: u64[n]."""
    elements = xp.arange(n, dtype=np.uint64)
    elements += np.uint64(first % 2**64)
    return philox_words(xp, seed, stream, elements)[0]


def least_kept(p: float) -> int:
    """Dropout by p keeps what draws this number at least: decided in integers, so that it is the same everywhere."""
    return min(round(p * 2**32), 2**32 - 1)


def _infer_philox(key: TensorMeta, shape: Shape, stream: int) -> TensorMeta:
    check_dtype("philox", key, (uint64,), "the key")
    check_shape("philox", (3,), key, "the key")
    check_sizes("philox", shape)
    return TensorMeta(shape, uint32)


def philox(xp: Any, key: Array, shape: Shape, stream: int) -> Array:
    seed, offset, shard = (int(k) for k in key)
    n = math.prod(shape)
    out: Array = xp.empty(n, np.uint32)
    for start in range(0, n, BLOCK):
        part = out[start : start + BLOCK]
        part[:] = first_words(xp, seed, (offset + stream) % 2**64, shard * n + start, len(part))
    return out.reshape(shape)


def _emit_philox(e: Any, index: Any, read: Any, metas: tuple[TensorMeta, ...], shape: Shape, stream: int) -> Any:
    flat: Any = 0
    for i, n in zip(index, shape):
        flat = flat * n + i
    seed, offset, shard = (read[0]((k,)) for k in range(3))
    position = e.call("mul", shard, e.const(math.prod(shape), uint64))
    element = e.call("add", position, e.index_value(flat, uint64))
    return e.call("philox", seed, e.call("add", offset, e.const(stream, uint64)), element)


def _key(rng: np.random.Generator, dtype: DType) -> list[Array]:
    return [np.array([rng.integers(1 << 62), rng.integers(1 << 40), 1], np.uint64)]


PHILOX = register(
    Op(
        "philox",
        infer=_infer_philox,
        eager=philox,
        vjp=NotDifferentiable("random bits"),
        lower=Indexed(_emit_philox),
        samples=tuple(
            Sample(((3,),), {"shape": s, "stream": k}, make=_key) for s, k in (((4, 5), 0), ((7,), 3), ((), 1))
        ),
        dtypes=(uint64,),
        random=True,
        engines=OwnCode("its bits are those of 64-bit counters, the same on every device"),
    )
)
