"""Torch's random numbers of the CPU: mt19937, and what torch's kernels make of its words, in their order.

In: a seed, or a state as `torch.get_rng_state` gives it: u8[5056], torch's layout, which is how it lies here too. Out:
arrays. Whole numbers, masks and uniform numbers are torch's, bit for bit; so are the others where native code makes
them (of a later stage, which the slot `NATIVE` loads at the first draw) on the C library and kind of processor (x86-64
with fused products and sums) that torch runs on; elsewhere they are equal but for rounding.
Without a compiler NumPy makes them: `NumpySteps`, the definition. What is drawn by rejection (Gamma, Poisson, binomial)
is native alone.
Sources: Matsumoto and Nishimura 1998; Box and Muller 1958. Torch draws one number after the other, so all is serial.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol, Self

import numpy as np

from compiler_core.dtype import DType, bool_, float32, float64
from compiler_core.late import Late
from compiler_core.ops.registry import Array

STATE = np.dtype({
    "names": ["seed", "left", "seeded", "next", "words", "spare", "has_spare"],
    "formats": [np.uint64, np.int32, np.int32, np.uint64, (np.uint64, 624), np.float64, np.int32],
    "offsets": [0, 8, 12, 16, 24, 5024, 5040],
    "itemsize": 5056,
})  # fmt: skip
WIDE = 1 << 28  # a range of whole numbers from which on each takes two words


class Steps(Protocol):
    """Draws that fill `out`, dense, from `state`, u8[5056], and move that on."""

    def seed(self, state: Array, seed: int) -> None:
        """The state that torch.manual_seed leaves."""

    def word64(self, state: Array) -> int:
        """Two words, the first above."""

    def uniform(self, state: Array, out: Array, low: float, high: float) -> None:
        """In [low, high); f32 of 24 bits, f64 of 53, of which `out` is."""

    def normals(self, state: Array, out: Array, mean: float, std: float, is_narrow: bool) -> None:
        """At least 16 normal numbers, f32 or f64, in sixteens; is_narrow: of which 16-bit ones are made."""

    def normal(self, state: Array, out: Array, mean: float, std: float) -> None:
        """f64 normal numbers in pairs, of which the second may be kept in the state."""

    def log_normal(self, state: Array, out: Array, mean: float, std: float) -> None:
        """exp of the same."""

    def exponential(self, state: Array, out: Array, rate: float) -> None:
        """f64."""

    def cauchy(self, state: Array, out: Array, median: float, sigma: float) -> None:
        """f64."""

    def geometric(self, state: Array, out: Array, p: float) -> None:
        """f64."""

    def bernoulli(self, state: Array, out: Array, p: float) -> None:
        """bool."""

    def integers(self, state: Array, out: Array, base: int, range_: int, is_wide: bool) -> None:
        """i64 in base ... base + range - 1; range 0: all 64 bits."""

    def permutation(self, state: Array, out: Array) -> None:
        """i64: 0 ... n-1 in a random order."""


class Mersenne:
    """The state of a generator, and torch's draws from it."""

    __slots__ = ("state",)

    def __init__(self, seed: int = 0) -> None:
        self.state = np.empty(STATE.itemsize, np.uint8)
        self.reseed(seed)

    def reseed(self, seed: int) -> None:
        """Begin again at `seed`."""
        steps().seed(self.state, seed)

    @property
    def seed(self) -> int:
        """What it was seeded with."""
        return int(self.state[:8].view(np.uint64)[0])

    def copy(self) -> Self:
        """One that goes on from here by itself."""
        made = type(self).__new__(type(self))
        made.state = self.state.copy()
        return made

    def is_valid(self) -> bool:
        """Whether it is a state that can be."""
        fields = self.state.view(STATE)[0]
        return bool(fields["seeded"] == 1 and 0 < fields["left"] <= 624 and fields["next"] <= 624)

    def word64(self) -> int:
        """64 bits."""
        return steps().word64(self.state)

    # ---- arrays of `shape`, whose last dim is the fastest

    def uniform(self, shape: tuple[int, ...], dtype: DType, low: float, high: float) -> Array:
        """In [low, high)."""
        if dtype.is_complex:
            return self.uniform((*shape, 2), dtype.real, low, high).view(dtype.numpy)[..., 0]
        out = np.empty(shape, dtype.compute.numpy)
        steps().uniform(self.state, out, low, high)
        if dtype in (float32, float64):
            return out
        narrow: Array = out.astype(dtype.numpy)
        narrow[narrow == dtype.numpy.type(high)] = low  # what was rounded up
        return narrow

    def normal(self, shape: tuple[int, ...], dtype: DType, mean: float, std: float, dense: bool = True) -> Array:
        """Normal; dense: into memory without gaps, in its order, where torch goes another way from 16 numbers on."""
        if dtype.is_complex:
            parts = self.normal((*shape, 2), dtype.real, mean, std / math.sqrt(2), dense)
            return parts.view(dtype.numpy)[..., 0]
        if math.prod(shape) < 16 or not dense:
            out = np.empty(shape, np.float64)
            steps().normal(self.state, out, mean, std)
            return as_dtype(out, dtype)
        out = np.empty(shape, dtype.compute.numpy)
        steps().normals(self.state, out, mean, std, dtype not in (float32, float64))
        return as_dtype(out, dtype)

    def bernoulli(self, shape: tuple[int, ...], dtype: DType, p: float) -> Array:
        """1 with probability p, else 0."""
        out = np.empty(shape, np.bool_)
        steps().bernoulli(self.state, out, p)
        return out if dtype is bool_ else out.astype(dtype.numpy)

    def integers(self, shape: tuple[int, ...], dtype: DType, low: int, high: int, is_wide: bool | None = None) -> Array:
        """Whole numbers in [low, high); is_wide: of two words each, by default from ranges of 2^28 on."""
        out, range_ = np.empty(shape, np.int64), high - low
        base = 0 if range_ == 2**64 else low
        steps().integers(self.state, out, base, range_ % 2**64, range_ >= WIDE if is_wide is None else is_wide)
        return out.astype(dtype.numpy, copy=False)

    def permutation(self, shape: tuple[int, ...], dtype: DType) -> Array:
        """0 ... n-1 in a random order."""
        out = np.empty(shape, np.int64)
        steps().permutation(self.state, out)
        return out.astype(dtype.numpy, copy=False)

    def _double(self, name: str, shape: tuple[int, ...], dtype: DType, *numbers: float) -> Array:
        out = np.empty(shape, np.float64)
        getattr(steps(), name)(self.state, out, *numbers)
        return as_dtype(out, dtype)

    def exponential(self, shape: tuple[int, ...], dtype: DType, rate: float) -> Array:
        """-log(1 - u) / rate."""
        return self._double("exponential", shape, dtype, rate)

    def cauchy(self, shape: tuple[int, ...], dtype: DType, median: float, sigma: float) -> Array:
        """median + sigma * tan(pi * (u - 1/2))."""
        return self._double("cauchy", shape, dtype, median, sigma)

    def log_normal(self, shape: tuple[int, ...], dtype: DType, mean: float, std: float) -> Array:
        """exp of a normal number."""
        return self._double("log_normal", shape, dtype, mean, std)

    def geometric(self, shape: tuple[int, ...], dtype: DType, p: float) -> Array:
        """How many trials it takes: 1, 2, ..."""
        return self._double("geometric", shape, dtype, p)

    def rejected(self, name: str, *parameters: Array) -> Array | None:
        """f64: native `name` ("gamma", "poisson", "binomial") of parameters, dense; None without native code."""
        draw = getattr(steps(), name, None)
        if draw is None:
            return None
        out = np.empty(parameters[0].shape, np.float64)
        draw(self.state, out, *parameters)
        return out


def as_dtype(doubles: Array, dtype: DType) -> Array:
    """`doubles`, or floats, in `dtype`: 16-bit floats by way of f32, as torch's constructors round."""
    if dtype.is_floating_point and dtype not in (float32, float64):
        doubles = doubles.astype(np.float32, copy=False)
    return doubles.astype(dtype.numpy, copy=False)


NATIVE: Late[Callable[[], Steps | None]] = Late("mersenne: native steps")  # None where they cannot be had


@cache
def steps() -> Steps:
    """Native ones, or NumPy's where there is no compiler."""
    return NATIVE.get()() or NUMPY


# ---- with NumPy


class NumpySteps:
    """See Steps."""

    def seed(self, state: Array, seed: int) -> None:
        state[:] = 0
        fields = state.view(STATE)[0]
        fields["seed"], fields["seeded"], fields["left"] = seed, 1, 1
        fields["words"] = np.random.RandomState(seed & 0xFFFFFFFF).get_state(legacy=False)["state"]["key"]

    def word64(self, state: Array) -> int:
        return int(_words64(state, 1)[0])

    def uniform(self, state: Array, out: Array, low: float, high: float) -> None:
        real = out.dtype.type
        unit = _units(state, out.size) if real is np.float64 else _narrow_units(state, out.size)
        values = _fused(unit, real(high) - real(low), real(low))
        out.reshape(-1)[:] = np.where(values == real(high), real(low), values)

    def normals(self, state: Array, out: Array, mean: float, std: float, is_narrow: bool) -> None:
        flat, whole = out.reshape(-1), out.size & ~15
        draw = _units if out.dtype == np.float64 else _narrow_units
        flat[:whole] = _sixteens(draw(state, whole), mean, std)
        if whole < out.size:
            if not is_narrow:
                draw(state, out.size - whole)
            flat[-16:] = _sixteens(draw(state, 16), mean, std)

    def normal(self, state: Array, out: Array, mean: float, std: float) -> None:
        fields, flat = state.view(STATE)[0], out.reshape(-1)
        kept = [fields["spare"]] if fields["has_spare"] and out.size else []
        pairs = -(-(out.size - len(kept)) // 2)
        u, v = _units(state, 2 * pairs).reshape(pairs, 2).T
        radius, angle = np.sqrt(-2 * np.log1p(-v)), 2 * np.pi * u
        made = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(-1)
        drawn = np.concatenate([kept, made])
        flat[:] = drawn[: out.size] * std + mean
        if out.size:
            left = drawn[out.size :]
            fields["has_spare"], fields["spare"] = len(left), left[0] if len(left) else 0.0

    def log_normal(self, state: Array, out: Array, mean: float, std: float) -> None:
        self.normal(state, out, mean, std)
        np.exp(out, out)

    def exponential(self, state: Array, out: Array, rate: float) -> None:
        out.reshape(-1)[:] = -1.0 / rate * np.log1p(-_units(state, out.size))

    def cauchy(self, state: Array, out: Array, median: float, sigma: float) -> None:
        out.reshape(-1)[:] = median + sigma * np.tan(np.pi * (_units(state, out.size) - 0.5))

    def geometric(self, state: Array, out: Array, p: float) -> None:
        with np.errstate(divide="ignore"):
            out.reshape(-1)[:] = np.ceil(np.log(_units(state, out.size)) / math.log1p(-p))

    def bernoulli(self, state: Array, out: Array, p: float) -> None:
        out.reshape(-1)[:] = _units(state, out.size) < p

    def integers(self, state: Array, out: Array, base: int, range_: int, is_wide: bool) -> None:
        drawn = _words64(state, out.size) if is_wide else _words(state, out.size)
        if range_:
            drawn = drawn % np.uint64(range_)
        out.reshape(-1)[:] = drawn.view(np.int64) + np.int64(base)

    def permutation(self, state: Array, out: Array) -> None:
        n = out.size
        if n < 0xFFFFFFFF // 20:
            order = list(range(n))
            for k, word in enumerate(_words(state, max(n - 1, 0)).tolist()):
                other = k + word % (n - k)
                order[k], order[other] = order[other], order[k]
        else:
            order = []
            for k, word in enumerate(_words64(state, n).tolist()):
                order.append(k)
                other = word % (k + 1)
                order[k], order[other] = order[other], k
        out[:] = order


NUMPY = NumpySteps()


def _words(state: Array, n: int) -> Array:
    """u64[n]: the next words."""
    fields = state.view(STATE)[0]
    left = int(fields["left"])
    bits = np.random.MT19937()
    key = fields["words"].astype(np.uint32)
    bits.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": int(fields["next"]) if left > 1 else 624}}
    drawn: Array = np.asarray(bits.random_raw(n), np.uint64)
    after: Any = bits.state["state"]
    if n:
        fields["words"], fields["next"], fields["left"] = after["key"], after["pos"], 625 - after["pos"]
    return drawn


def _words64(state: Array, n: int) -> Array:
    pairs = _words(state, 2 * n).reshape(n, 2)
    return pairs[:, 0] << np.uint64(32) | pairs[:, 1]


def _units(state: Array, n: int) -> Array:
    """f64[n] in [0, 1)."""
    return (_words64(state, n) & np.uint64(2**53 - 1)) * 2.0**-53


def _narrow_units(state: Array, n: int) -> Array:
    """f32[n] in [0, 1)."""
    return (_words(state, n) & np.uint64(2**24 - 1)).astype(np.float32) * np.float32(2.0**-24)


def _fused(x: Array, factor: Any, added: Any) -> Array:
    """x * factor + added, rounded once: f32 by way of f64."""
    if x.dtype == np.float32:
        return (x * np.float64(factor) + np.float64(added)).astype(np.float32)
    return np.asarray(x * factor + added)


def _sixteens(units: Array, mean: float, std: float) -> Array:
    """Each sixteen uniform numbers as normal ones: eight cosines, then eight sines."""
    real = units.dtype.type
    u, v = units.reshape(-1, 2, 8).transpose(1, 0, 2)
    radius, angle = np.sqrt(real(-2) * np.log(real(1) - u)), real(2 * np.pi) * v
    both = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
    return _fused(both.reshape(-1), real(std), real(mean))
