"""Random numbers of a key, and every kind of draw: what it is of a key's words, and what of torch's generator.

In: `key: u64[3]` and `stream` (op.py), shapes, dtypes, parameters; or a `Mersenne`. Out: of a key one value of
whoever records now: a graph node under a trace, otherwise an array; of a Mersenne an array.
Random floats of a key are made of whole numbers of bits by steps that are rounded alike: the same bits eager and
compiled, on every device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from compiler_core import dtype as dt
from compiler_core.dtype import DType
from compiler_core.errors import ShapeError
from compiler_core.meta import Shape
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import cast
from compiler_core.ops.composites.arithmetic import add, div, mul, remainder, sub
from compiler_core.ops.composites.movement import narrow, reshape
from compiler_core.ops.composites.unary import exp, floor, log1p, neg, tan
from compiler_core.ops.random import draws
from compiler_core.ops.random.mersenne import Mersenne
from compiler_core.ops.random.on_device import drawing, normal_there, uniform_there
from compiler_core.ops.registry import Array, Value


def _unit(bits: Value, dtype: DType) -> Value:
    """u32 bits as floats in [0, 1): their upper 24 bits, exact in f32."""
    upper = prims.floor_divide(bits, prims.full_like(bits, 256))
    return mul(prims.cast(upper, dtype), 2.0**-24)


def _unit_pair(key: Value, shape: tuple[int, ...], stream: int, dtype: DType) -> tuple[Value, Value]:
    """Two independent uniform values per element, from one draw."""
    first, second = _word_pair(key, shape, stream)
    return _unit(first, dtype), _unit(second, dtype)


def _word_pair(key: Value, shape: tuple[int, ...], stream: int) -> tuple[Value, Value]:
    both = prims.philox(key, (2, *shape), stream)
    first, second = (reshape(narrow(both, 0, k, 1), shape) for k in (0, 1))
    return first, second


def rand(
    key: Value, size: Sequence[int], *, stream: int = 0, low: float = 0.0, high: float = 1.0, dtype: DType | None = None
) -> Value:
    """Uniform in [low, high). f64 uses 48 random bits, narrower dtypes 24."""
    target = dtype or dt.get_default_dtype()
    shape = tuple(size)
    if target.is_complex:  # both parts in the same range
        return prims.view_as_complex(rand(key, (*shape, 2), stream=stream, low=low, high=high, dtype=target.real))
    if drawing.number is None and draws.is_large(key, shape, target):
        return draws.uniform(key, shape, stream, target, *_scale(high - low, low))
    if drawing.number is not None and type(key) is np.ndarray and target is not dt.float64:
        unit: Value = uniform_there(key, shape, stream, drawing.number)
    elif target is dt.float64:
        coarse, fine = _unit_pair(key, shape, stream, target)
        unit = add(coarse, mul(fine, 2.0**-24))
    else:
        unit = _unit(prims.philox(key, shape, stream), dt.float32)
    scaled = unit if (low, high) == (0.0, 1.0) else add(mul(unit, high - low), low)
    return cast(scaled, target)


def _scale(scale: float, shift: float) -> tuple[float | None, float]:
    """What a large draw is multiplied with, if anything, and what is added then."""
    return (None if (scale, shift) == (1.0, 0.0) else scale), shift


def randn(
    key: Value, size: Sequence[int], *, stream: int = 0, mean: float = 0.0, std: float = 1.0, dtype: DType | None = None
) -> Value:
    """Normal, of two random words an element (box_muller.py): the same bits on every device."""
    target = dtype or dt.get_default_dtype()
    if target.is_complex:  # each part has half of the variance, as in torch
        share = std / math.sqrt(2.0)
        return prims.view_as_complex(randn(key, (*size, 2), stream=stream, mean=mean, std=share, dtype=target.real))
    shape, wide = tuple(size), target.compute
    if drawing.number is not None and type(key) is np.ndarray:
        unit: Value = normal_there(key, shape, stream, drawing.number, wide)
    elif draws.is_large(key, shape, wide):
        return cast(draws.normal(key, shape, stream, wide, *_scale(std, mean)), target)
    else:
        unit = (prims.normal64 if wide is dt.float64 else prims.normal32)(*_word_pair(key, shape, stream))
    scaled = unit if (mean, std) == (0.0, 1.0) else add(mul(unit, std), mean)
    return cast(scaled, target)


def randint(
    key: Value, low: int, high: int, size: Sequence[int], *, stream: int = 0, dtype: DType | None = None
) -> Value:
    """Whole numbers in [low, high), by remainder: of 32 bits, from ranges of more than 2**32 on of 63 or 64."""
    if not 0 < high - low <= 2**64:
        raise ShapeError("randint: empty or too wide a range", expected="0 < high - low <= 2**64", got=f"{low}..{high}")
    if high - low <= 2**32:
        bits = prims.cast(prims.philox(key, tuple(size), stream), dt.int64)
    else:
        first, second = (prims.cast(word, dt.int64) for word in _word_pair(key, tuple(size), stream))
        first = sub(first, 2**31) if high - low == 2**64 else remainder(first, 2**31)
        bits = add(mul(first, 2**32), second)
    below = bits if high - low == 2**64 else prims.remainder(bits, prims.full_like(bits, high - low))
    return cast(below if high - low == 2**64 else add(below, low), dtype or dt.int64)


def bernoulli(key: Value, p: float, size: Sequence[int], *, stream: int = 0, dtype: DType | None = None) -> Value:
    """1 with probability p, else 0."""
    bits = prims.cast(prims.philox(key, tuple(size), stream), dt.int64)
    return prims.cast(prims.lt(bits, prims.full_like(bits, round(p * 2**32))), dtype or dt.get_default_dtype())


def _permutation(key: Value, shape: Shape, stream: int, dtype: DType) -> Value:
    """0 ... n-1 in a random order: that of n 64-bit draws."""
    high, low = (prims.cast(word, dt.int64) for word in _word_pair(key, shape, stream))
    return cast(prims.argsort(add(mul(sub(high, 2**31), 2**32), low), 0, False), dtype)


def _exponential(key: Value, shape: Shape, stream: int, dtype: DType, rate: float) -> Value:
    """-log(1 - u) / rate."""
    return cast(div(neg(log1p(neg(rand(key, shape, stream=stream, dtype=dtype.compute)))), rate), dtype)


def _cauchy(key: Value, shape: Shape, stream: int, dtype: DType, median: float, sigma: float) -> Value:
    """median + sigma * tan(pi * (u - 1/2))."""
    unit = rand(key, shape, stream=stream, dtype=dtype.compute)
    return cast(add(mul(tan(mul(sub(unit, 0.5), math.pi)), sigma), median), dtype)


def _log_normal(key: Value, shape: Shape, stream: int, dtype: DType, mean: float, std: float) -> Value:
    """exp of a normal number."""
    return cast(exp(randn(key, shape, stream=stream, mean=mean, std=std, dtype=dtype.compute)), dtype)


def _geometric(key: Value, shape: Shape, stream: int, dtype: DType, p: float) -> Value:
    """The number of trials until one of probability p succeeds: 1, 2, ..."""
    trials = floor(div(log1p(neg(rand(key, shape, stream=stream, dtype=dt.float32))), math.log1p(-p)))
    return cast(add(trials, 1.0), dtype)


# ---- draws as data


class Draw(NamedTuple):
    """One draw: its kind, and what it is to give. order: the dims of the memory that it fills, the slowest first.

    dense: whether that memory is contiguous: torch draws normal numbers another way where it is not.
    """

    kind: str
    shape: tuple[int, ...]
    dtype: DType
    numbers: tuple[Any, ...] = ()
    order: tuple[int, ...] | None = None
    dense: bool = True

    def of_key(self, key: Value, stream: int) -> Value:
        """By the philox op."""
        return _OF_KEY[self.kind](key, self.shape, stream, self.dtype, *self.numbers)

    def of_torch(self, state: Mersenne) -> Array:
        """Torch's, which fills memory in its order."""
        numbers = (*self.numbers, self.dense) if self.kind == "normal" else self.numbers
        draw = getattr(state, self.kind)
        if self.order is None:
            return draw(self.shape, self.dtype, *numbers)  # type: ignore[no-any-return]
        drawn: Array = draw(tuple(self.shape[d] for d in self.order), self.dtype, *numbers)
        return drawn.transpose(np.argsort(self.order))


_OF_KEY: dict[str, Callable[..., Value]] = {
    "uniform": lambda key, shape, stream, dtype, low, high: rand(
        key, shape, stream=stream, low=low, high=high, dtype=dtype
    ),
    "normal": lambda key, shape, stream, dtype, mean, std: randn(
        key, shape, stream=stream, mean=mean, std=std, dtype=dtype
    ),
    "integers": lambda key, shape, stream, dtype, low, high, _: randint(
        key, low, high, shape, stream=stream, dtype=dtype
    ),
    "bernoulli": lambda key, shape, stream, dtype, p: bernoulli(key, p, shape, stream=stream, dtype=dtype),
    "permutation": _permutation,
    "exponential": _exponential,
    "cauchy": _cauchy,
    "log_normal": _log_normal,
    "geometric": _geometric,
}
