"""Operations as JAX traces them: an op's own definition, over jax.numpy, or a rule below.

In: a call, and JAX values for its operands. Out: a JAX value; tests of it that XLA cannot raise for, kept in `Tests`.
Definitions take the array module as an argument, so most of them are traced as they stand. RULES has those that write
into arrays, need values, or have an operation of XLA's of their own. Nothing of 64 bits is narrowed: whoever traces
does so within `jax.enable_x64`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from compiler_core.dtype import DType, of
from compiler_core.errors import check_message
from compiler_core.meta import Shape
from compiler_core.ops.pooling.geometry import places_in_windows, to_back, to_front, window_counts
from compiler_core.ops.primitives.convert import CAST
from compiler_core.ops.primitives.movement import python_slices
from compiler_core.ops.primitives.strided import strided_places
from compiler_core.ops.random.op import M0, M1, W0, W1
from compiler_core.ops.registry import Op

Dims = tuple[int, ...]
X = Any  # a JAX value
_SPEC: Any = jax.ShapeDtypeStruct


class Numpy:
    """jax.numpy, with NumPy's spelling where JAX has another."""

    ascontiguousarray = staticmethod(jnp.asarray)

    def __getattr__(self, name: str) -> Any:
        return getattr(jnp, name)

    @staticmethod
    def argsort(x: X, axis: int = -1, kind: str = "") -> X:
        return jnp.argsort(x, axis=axis, stable=kind == "stable")


class Tests:
    """What must hold of values, as conditions in the program, and the error where one does not."""

    def __init__(self) -> None:
        self.holds: list[X] = []
        self.messages: list[str] = []

    def require(self, holds: X, message: str) -> None:
        self.holds.append(jnp.all(holds))
        self.messages.append(message)

    def in_range(self, op: str, idx: X, size: int) -> None:
        if idx.size:
            self.require((idx >= 0) & (idx < size), f"{op}: index out of range [0, {size})")

    def along(self, op: str, idx: X, size: int, dim: int) -> tuple[X, ...]:
        """Index arrays that address element idx[i] along `dim` and i elsewhere."""
        self.in_range(op, idx, size)
        grid = [lax.broadcasted_iota(idx.dtype, idx.shape, d) for d in range(idx.ndim)]
        grid[dim] = idx
        return tuple(grid)


NUMPY = Numpy()


def computed(op: Op, operands: Sequence[X], attrs: dict[str, Any], tests: Tests) -> X:
    """One call."""
    rule = RULES.get(op.name)
    return rule(tests, *operands, **attrs) if rule is not None else op.eager(NUMPY, *operands, **attrs)


# ---- elements


def _bitcast(tests: Tests, x: X, source: DType, dtype: DType) -> X:
    before, after = source.numpy.itemsize, dtype.numpy.itemsize
    if after > before:  # several of the last dim make one
        x = x.reshape((*x.shape[:-1], x.shape[-1] * before // after, after // before))
    made = lax.bitcast_convert_type(x, dtype.numpy)
    return made.reshape((*x.shape[:-1], x.shape[-1] * before // after)) if after < before else made


def _cast(tests: Tests, x: X, dtype: DType) -> X:
    """What was a truth value as a choice: XLA takes what is times a cast of one for a choice, and loses 0 * NaN."""
    if x.dtype == np.bool_ and dtype.is_floating_point:
        return jnp.where(x, jnp.ones((), dtype.numpy), jnp.zeros((), dtype.numpy))
    return CAST.eager(NUMPY, x, dtype=dtype)


def _erf(function: Callable[[X], X]) -> Callable[..., X]:
    return lambda tests, x: function(x.astype(of(x.dtype).compute.numpy)).astype(x.dtype)


def _philox(tests: Tests, key: X, shape: Shape, stream: int) -> X:
    """Philox4x32-10, see ops/random/op.py."""
    first = key[2] * np.uint64(math.prod(shape))
    elements = first + lax.iota(np.uint64, math.prod(shape))
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    draw = key[1] + np.uint64(stream)
    c = [elements & low, elements >> shift, jnp.broadcast_to(draw & low, elements.shape),
         jnp.broadcast_to(draw >> shift, elements.shape)]  # fmt: skip
    k0, k1 = key[0] & low, key[0] >> shift
    for _ in range(10):
        a, b = c[0] * M0, c[2] * M1
        c = [(b >> shift) ^ c[1] ^ k0, b & low, (a >> shift) ^ c[3] ^ k1, a & low]
        k0, k1 = (k0 + np.uint64(W0)) & low, (k1 + np.uint64(W1)) & low
    return c[0].astype(np.uint32).reshape(shape)


# ---- elements at places that data says


def _take(tests: Tests, x: X, idx: X) -> X:
    tests.in_range("take", idx, x.shape[0])
    return x[idx] if x.size else jnp.zeros((*idx.shape, *x.shape[1:]), x.dtype)


def _gather(tests: Tests, x: X, idx: X, dim: int) -> X:
    return x[tests.along("gather", idx, x.shape[dim], dim)]


def _added(base: X, places: Any, src: X) -> X:
    wide = of(base.dtype).compute.numpy
    return base.astype(wide).at[places].add(src.astype(wide)).astype(base.dtype)


def _index_add(tests: Tests, base: X, idx: X, src: X) -> X:
    tests.in_range("index_add", idx, base.shape[0])
    return _added(base, idx, src)


def _index_copy(tests: Tests, base: X, idx: X, src: X) -> X:
    tests.in_range("index_copy", idx, base.shape[0])
    return base.at[idx].set(src)


def _scatter_add(tests: Tests, base: X, idx: X, src: X, dim: int) -> X:
    return _added(base, tests.along("scatter_add", idx, base.shape[dim], dim), src)


def _scatter(tests: Tests, base: X, idx: X, src: X, dim: int) -> X:
    return base.at[tests.along("scatter", idx, base.shape[dim], dim)].set(src)


def _check_index(tests: Tests, idx: X, size: int) -> X:
    tests.in_range("check_index", idx, size)
    return idx


def _require(tests: Tests, x: X, fails: X, error: str, message: str) -> X:
    tests.require(~fails, check_message(error, message))
    return x


# ---- elements at places that attributes say


def _pad(tests: Tests, x: X, low: Dims, high: Dims, value: float) -> X:
    return lax.pad(x, jnp.asarray(value, x.dtype), [(a, b, 0) for a, b in zip(low, high)])


def _slice_scatter(tests: Tests, base: X, src: X, starts: Dims, stops: Dims, steps: Dims) -> X:
    return base.at[python_slices(starts, stops, steps)].set(src) if src.size else base


def _strided(tests: Tests, x: X, size: Shape, stride: Shape, offset: int) -> X:
    return x[strided_places(size, stride, offset)] if math.prod(size) else jnp.zeros(size, x.dtype)


def _as_complex(tests: Tests, x: X) -> X:
    return lax.complex(x[..., 0], x[..., 1])


# ---- sliding windows, place by place of the kernel


def _counts(x: X, kernel: Dims, stride: Dims, dilation: Dims) -> Shape:
    return window_counts("windows", x.shape[x.ndim - len(kernel) :], kernel, stride, dilation)


def _windows(tests: Tests, x: X, kernel: Dims, stride: Dims, dilation: Dims) -> X:
    counts = _counts(x, kernel, stride, dilation)
    each = [x[where] for _, where in places_in_windows(kernel, stride, dilation, counts)]
    return jnp.stack(each, -1).reshape((*each[0].shape, *kernel))


def _window_max(tests: Tests, x: X, kernel: Dims, stride: Dims, dilation: Dims, low: Dims = ()) -> X:
    counts = _counts(x, kernel, stride, dilation)
    best = None
    for _, where in places_in_windows(kernel, stride, dilation, counts):
        best = x[where] if best is None else jnp.maximum(best, x[where])
    return best


def _window_argmax(tests: Tests, x: X, kernel: Dims, stride: Dims, dilation: Dims) -> X:
    counts = _counts(x, kernel, stride, dilation)
    best, found = None, jnp.zeros((*x.shape[: x.ndim - len(kernel)], *counts), np.int64)
    for number, (_, where) in enumerate(places_in_windows(kernel, stride, dilation, counts)):
        values = x[where]
        if best is not None:
            better = (values > best) | (values != values)
            values, found = jnp.where(better, values, best), jnp.where(better, number, found)
        best = values
    return found


def _spread(
    parts: Iterator[tuple[Dims, X]], like: X, size: Shape, stride: Dims, dilation: Dims, trailing: int
) -> X:  # fmt: skip
    """Sum of `parts`, each put where windows have their element of that place, in `like`'s dtype."""
    wide = of(like.dtype).compute.numpy
    total: Any = None
    for place, part in parts:
        lead = part.ndim - len(size)
        edges = [(0, 0, 0)] * lead
        for k, d, s, o, n in zip(place, dilation, stride, part.shape[lead:], size):
            edges.append((k * d, n - k * d - ((o - 1) * s + 1), s - 1))
        part = lax.pad(part.astype(wide), jnp.zeros((), wide), edges)
        total = part if total is None else total + part
    return jnp.transpose(total.astype(like.dtype), to_back(total.ndim, trailing))


def _in_front(x: X, trailing: int) -> X:
    return jnp.transpose(x, to_front(x.ndim, trailing))


def _windows_add(
    tests: Tests, g: X, size: Shape, kernel: Dims, stride: Dims, dilation: Dims, trailing: int = 0
) -> X:  # fmt: skip
    moved = _in_front(g, trailing)
    parts = ((place, moved[(..., *place)]) for place in itertools.product(*map(range, kernel)))
    return _spread(parts, g, size, stride, dilation, trailing)


def _windows_put(
    tests: Tests, g: X, place: X, size: Shape, kernel: Dims, stride: Dims, dilation: Dims, trailing: int = 0
) -> X:  # fmt: skip
    g_, place_ = _in_front(g, trailing), _in_front(place, trailing)
    each = enumerate(itertools.product(*map(range, kernel)))
    parts = ((at, jnp.where(place_ == number, g_, jnp.zeros((), g.dtype))) for number, at in each)
    return _spread(parts, g, size, stride, dilation, trailing)


# ---- convolutions


def _convolved(x: X, weight: X, stride: Dims, low: Dims, high: Dims, dilation: Dims, groups: int) -> X:
    wide = of(x.dtype).compute.numpy
    padding = list(zip(low, high))
    result = lax.conv_general_dilated(
        x, weight, stride, padding, rhs_dilation=dilation, feature_group_count=groups, preferred_element_type=wide
    )
    return result.astype(x.dtype)


def _convolution(tests: Tests, x: X, weight: X, **attrs: Any) -> X:
    return _convolved(x, weight, **attrs)


def _wide(*values: X) -> list[X]:
    return [value.astype(of(value.dtype).compute.numpy) for value in values]


def _convolution_input(tests: Tests, g: X, weight: X, size: Shape, groups: int, **attrs: Any) -> X:
    g_, weight_ = _wide(g, weight)
    x = _SPEC((g.shape[0], weight.shape[1] * groups, *size), g_.dtype)
    (made,) = jax.linear_transpose(lambda x: _convolved(x, weight_, groups=groups, **attrs), x)(g_)
    return made.astype(g.dtype)


def _convolution_weight(tests: Tests, x: X, g: X, kernel: Dims, groups: int, **attrs: Any) -> X:
    x_, g_ = _wide(x, g)
    weight = _SPEC((g.shape[1], x.shape[1] // groups, *kernel), g_.dtype)
    (made,) = jax.linear_transpose(lambda w: _convolved(x_, w, groups=groups, **attrs), weight)(g_)
    return made.astype(x.dtype)


# ---- recurrences


def _linear_scan(tests: Tests, a: X, b: X, dim: int, reverse: bool) -> X:
    a_, b_ = (jnp.moveaxis(value, dim, 0) for value in _wide(a, b))
    if a_.shape[0]:
        a_ = a_.at[-1 if reverse else 0].set(0)  # before it is nothing, which not even an infinite factor counts
    none = jnp.full(b_.shape[1:], -0.0 if jnp.issubdtype(b_.dtype, jnp.floating) else 0, b_.dtype)

    def step(before: X, both: tuple[X, X]) -> tuple[X, X]:
        now = both[0] * before + both[1]
        return now, now

    _, found = lax.scan(step, none, (a_, b_), reverse=reverse)
    return jnp.moveaxis(found, 0, dim).astype(b.dtype)


RULES: dict[str, Callable[..., X]] = {
    "bitcast": _bitcast,
    "cast": _cast,
    "check_index": _check_index,
    "complex": lambda tests, re, im: lax.complex(*jnp.broadcast_arrays(re, im)),
    "convolution": _convolution,
    "convolution_input": _convolution_input,
    "convolution_weight": _convolution_weight,
    "erf": _erf(lax.erf),
    "erfc": _erf(lax.erfc),
    "gather": _gather,
    "index_add": _index_add,
    "index_copy": _index_copy,
    "linear_scan": _linear_scan,
    "pad": _pad,
    "philox": _philox,
    "require": _require,
    "scatter": _scatter,
    "scatter_add": _scatter_add,
    "slice_scatter": _slice_scatter,
    "strided": _strided,
    "take": _take,
    "view_as_complex": _as_complex,
    "window_argmax": _window_argmax,
    "window_max": _window_max,
    "windows": _windows,
    "windows_add": _windows_add,
    "windows_put": _windows_put,
}
