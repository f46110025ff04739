"""Large draws of random floats outside of a trace: `rand` and `randn` computed block by block, by several threads.

In: key u64[3], the draw's number and shape, as of the functions of random/composite.py, which come here from `LARGE`
elements on. Out: f32 or f64 arrays, with the very bits of the composition: the same steps in the same order, on blocks
that stay in a core's cache. They are native code (of a later stage: the slot `NATIVE` loads it at the first
such draw), or NumPy's where there is no compiler. Which thread computes a block changes nothing in it. NumPy
and native code let go of the GIL meanwhile.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

import numpy as np

from compiler_core.config import config
from compiler_core.dtype import DType, float32, float64
from compiler_core.late import Late
from compiler_core.ops.quiet import quietly
from compiler_core.ops.random import box_muller
from compiler_core.ops.random.op import BLOCK, first_words
from compiler_core.ops.registry import Array, Value, current_trace

LARGE = 1 << 12  # elements from which on native code pays
_BLOCK = 1 << 16  # elements: two blocks of f32 stay in a core's second cache
_THREADS = 16  # at most: each takes the GIL some times a block
_NOTHING = -0.0  # added to any number, it is that number


class Steps(Protocol):
    """What native code does of a draw."""

    def uniform(self, seed: int, stream: int, first: int, out: Array, scale: float, shift: float) -> None:
        """out[i] = the unit number of element first + i, of 24 bits in [0, 1), times scale, plus shift; f32[n]."""

    def normal(self, seed: int, stream: int, first: int, second: int, out: Array, scale: float, shift: float) -> None:
        """out[i] = the normal number of elements first + i, second + i, times scale, plus shift; f32[n] or f64[n]."""


class NumpySteps:
    """See Steps."""

    def uniform(self, seed: int, stream: int, first: int, out: Array, scale: float, shift: float) -> None:
        for start in range(0, len(out), BLOCK):
            part = out[start : start + BLOCK]
            words = first_words(np, seed, stream, first + start, len(part)) >> np.uint64(8)
            np.multiply(words, 2.0**-24, out=part, casting="unsafe")
        _scale(out, scale, shift)

    def normal(self, seed: int, stream: int, first: int, second: int, out: Array, scale: float, shift: float) -> None:
        precision = box_muller.F32 if out.dtype == np.float32 else box_muller.F64
        for start in range(0, len(out), BLOCK):
            part = out[start : start + BLOCK]
            words = (first_words(np, seed, stream, at + start, len(part)).astype(np.uint32) for at in (first, second))
            part[:] = box_muller.normal(precision, np, *words)
        _scale(out, scale, shift)


NUMPY = NumpySteps()
NATIVE: Late[Callable[[], Steps | None]] = Late("draws: native steps")  # None where they cannot be had


def is_large(key: Value, shape: tuple[int, ...], dtype: DType) -> bool:
    """Whether `uniform` and `normal` are to make this draw, whose steps are computed in `dtype`."""
    is_eager = isinstance(key, np.ndarray) and current_trace() is None
    return is_eager and dtype in (float32, float64) and math.prod(shape) >= LARGE


@cache
def _steps() -> Steps:
    return NATIVE.get()() or NUMPY


def _in_blocks(n: int, compute: Callable[[int, int], None]) -> None:
    """compute(start, end) for blocks of 0..n. The threads end with the draw: none is missed in a forked child."""
    starts = range(0, n, _BLOCK)
    threads = min(config.num_threads, _THREADS, len(starts) // 2)
    numbers = itertools.count()  # of the next block: taken under the GIL

    def serve(_: int) -> None:
        while (number := next(numbers)) < len(starts):
            compute(starts[number], min(starts[number] + _BLOCK, n))

    quiet = quietly(serve)
    if threads < 2:
        return quiet(0)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(threads, thread_name_prefix="draws") as pool:
        for _ in pool.map(quiet, range(threads)):
            pass


Put = Callable[[int, Array, float, float], None]  # (first element of the draw, out, scale, shift)


def _source(key: Array, elements: int, stream: int, dtype: np.dtype[Any]) -> Put:
    """The draw's elements as uniform numbers of `dtype`."""
    seed, offset, shard = (int(k) for k in key)
    number, begin, steps = (offset + stream) % 2**64, shard * elements, _steps()

    def put(first: int, out: Array, scale: float = 1.0, shift: float = _NOTHING) -> None:
        if dtype == np.float32:
            return steps.uniform(seed, number, (begin + first) % 2**64, out, scale, shift)
        words = np.empty(len(out), np.float32)
        steps.uniform(seed, number, (begin + first) % 2**64, words, 1.0, _NOTHING)
        out[:] = words
        _scale(out, scale, shift)

    return put


def uniform(
    key: Array, shape: tuple[int, ...], stream: int, dtype: DType, scale: float | None = None, shift: float = 0.0
) -> Array:
    """Uniform in [0, 1), f64 of 48 bits; times scale plus shift unless scale is None."""
    n, factor, added = math.prod(shape), *_applied(scale, shift)
    out = np.empty(n, dtype.numpy)
    pair = dtype is float64
    put = _source(key, n * (1 + pair), stream, out.dtype)

    def compute(start: int, end: int) -> None:
        block = out[start:end]
        if not pair:
            return put(start, block, factor, added)
        fine = np.empty_like(block)
        put(start, block, 1.0, _NOTHING)
        put(n + start, fine, 2.0**-24, _NOTHING)
        np.add(block, fine, block)
        _scale(block, factor, added)

    _in_blocks(n, compute)
    return out.reshape(shape)


def normal(
    key: Array, shape: tuple[int, ...], stream: int, dtype: DType, scale: float | None = None, shift: float = 0.0
) -> Array:
    """Standard normal (box_muller.py); times scale plus shift unless scale is None."""
    n, factor, added = math.prod(shape), *_applied(scale, shift)
    out = np.empty(n, dtype.numpy)
    seed, offset, shard = (int(k) for k in key)
    number, begin, steps = (offset + stream) % 2**64, shard * n * 2, _steps()

    def compute(start: int, end: int) -> None:
        first, second = ((begin + at + start) % 2**64 for at in (0, n))
        steps.normal(seed, number, first, second, out[start:end], factor, added)

    _in_blocks(n, compute)
    return out.reshape(shape)


def _applied(scale: float | None, shift: float) -> tuple[float, float]:
    """Scale and shift of a draw; where none is wanted, such as leave every bit."""
    return (1.0, _NOTHING) if scale is None else (scale, shift)


def _scale(block: Array, scale: float, shift: float) -> None:
    np.multiply(block, scale, block)
    np.add(block, shift, block)
