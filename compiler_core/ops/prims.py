"""The primitives as functions: `prims.add(a, b)` applies op "add" to values of any kind through `bind`.

In: values (arrays, graph nodes, Tensors) whose shapes and dtypes already fit, and the op's attributes. Out: one value.
Each registered op is a function here, by its name. Those below put attributes into the op's form, or have defaults; any
other op needs none: `__getattr__` makes its function, of its operands in order and its attributes by name. Type
checkers read these in prim_names.pyi, which tests/test_stubs.py writes.
The vjp rules and everything above them are written with these. Nothing here broadcasts or promotes.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler_core.dtype import DType, of
from compiler_core.ops.meta_value import MetaValue
from compiler_core.ops.random.on_device import drawing, philox_there
from compiler_core.ops.registry import OPS, Value, applied, bind, current_trace
from compiler_core.symbolic.size import Sym

if TYPE_CHECKING:
    from compiler_core.ops.prim_names import *  # noqa: F403

Ints = Sequence[int]
Number = builtins.complex | Sym  # and so float, int, bool


# ---- pointwise


def bitcast(x: Value, dtype: DType) -> Value:
    return bind(OPS["bitcast"], x, source=of(x.dtype), dtype=dtype)


def cast(x: Value, dtype: DType) -> Value:
    return bind(OPS["cast"], x, dtype=dtype)


def custom_gradient(x: Value, *others: Value, rule: str, slot: int = 0, sources: int = 1) -> Value:
    return bind(OPS["custom_gradient"], x, *others, rule=rule, slot=slot, sources=sources)


def where(cond: Value, a: Value, b: Value) -> Value:
    return bind(OPS["where"], cond, a, b)


# ---- reductions: `dims` ascending, dropped from the result


def sum(x: Value, dims: Ints) -> Value:
    return bind(OPS["sum"], x, dims=tuple(dims))


def prod(x: Value, dims: Ints) -> Value:
    return bind(OPS["prod"], x, dims=tuple(dims))


def max(x: Value, dims: Ints, shared: bool = False) -> Value:
    return bind(OPS["max"], x, dims=tuple(dims), **({"shared": True} if shared else {}))


def min(x: Value, dims: Ints, shared: bool = False) -> Value:
    return bind(OPS["min"], x, dims=tuple(dims), **({"shared": True} if shared else {}))


def argmax(x: Value, dims: Ints) -> Value:
    return bind(OPS["argmax"], x, dims=tuple(dims))


def argmin(x: Value, dims: Ints) -> Value:
    return bind(OPS["argmin"], x, dims=tuple(dims))


# ---- recurrent layers: see recurrent.py for what is packed; layer: mode, runs, reverse


def recurrent(x: Value, w: Value, b: Value, first: Sequence[Value], **layer: Any) -> Value:
    return bind(OPS["recurrent"], x, w, b, *first, **layer)


def recurrent_backward(grads: Sequence[Value], out: Value, w: Value, first: Sequence[Value], **layer: Any) -> Value:
    return bind(OPS["recurrent_backward"], *grads, out, w, *first, **layer)


# ---- scans


def cumsum(x: Value, dim: int, reverse: bool = False) -> Value:
    return bind(OPS["cumsum"], x, dim=dim, reverse=reverse)


def linear_scan(a: Value, b: Value, dim: int, reverse: bool = False) -> Value:
    return bind(OPS["linear_scan"], a, b, dim=dim, reverse=reverse)


def cummax_places(x: Value, dim: int) -> Value:
    return bind(OPS["cummax_places"], x, dim=dim)


def cummin_places(x: Value, dim: int) -> Value:
    return bind(OPS["cummin_places"], x, dim=dim)


# ---- attention: see attention.py for what is packed


def attention(q: Value, k: Value, v: Value, *rest: Value, **how: Any) -> Value:
    return bind(OPS["attention"], q, k, v, *rest, **how)


def attention_backward(*operands: Value, scale: float, causal: bool, summed: bool = False, **drawn: Any) -> Value:
    return bind(OPS["attention_backward"], *operands, scale=float(scale), causal=causal, summed=summed, **drawn)


# ---- order


def argsort(x: Value, dim: int, descending: bool) -> Value:
    return bind(OPS["argsort"], x, dim=dim, descending=descending)


def topk_places(x: Value, k: int, dim: int, largest: bool) -> Value:
    return bind(OPS["topk_places"], x, k=k, dim=dim, largest=largest)


def rank_place(x: Value, rank: int, dim: int) -> Value:
    return bind(OPS["rank_place"], x, rank=rank, dim=dim)


# ---- convolutions: stride, low, high, dilation one a spatial dim


def convolution(x: Value, weight: Value, stride: Ints, low: Ints, high: Ints, dilation: Ints, groups: int = 1) -> Value:
    return bind(OPS["convolution"], x, weight, **_spatial(stride, low, high, dilation, groups))


def convolution_input(
    g: Value, weight: Value, size: Ints, stride: Ints, low: Ints, high: Ints, dilation: Ints, groups: int = 1
) -> Value:
    return bind(OPS["convolution_input"], g, weight, size=tuple(size), **_spatial(stride, low, high, dilation, groups))


def convolution_weight(
    x: Value, g: Value, kernel: Ints, stride: Ints, low: Ints, high: Ints, dilation: Ints, groups: int = 1
) -> Value:
    return bind(OPS["convolution_weight"], x, g, kernel=tuple(kernel), **_spatial(stride, low, high, dilation, groups))


def _spatial(stride: Ints, low: Ints, high: Ints, dilation: Ints, groups: int) -> dict[str, object]:
    places = {"stride": stride, "low": low, "high": high, "dilation": dilation}
    return {**{name: tuple(values) for name, values in places.items()}, "groups": groups}


# ---- movement


def diagonal(x: Value, offset: int) -> Value:
    return bind(OPS["diagonal"], x, offset=offset)


def reshape(x: Value, shape: Ints) -> Value:
    return bind(OPS["reshape"], x, shape=tuple(shape))


def permute(x: Value, dims: Ints) -> Value:
    return bind(OPS["permute"], x, dims=tuple(dims))


def expand(x: Value, shape: Ints) -> Value:
    return bind(OPS["expand"], x, shape=tuple(shape))


def slice(x: Value, starts: Ints, stops: Ints, steps: Ints) -> Value:
    return bind(OPS["slice"], x, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))


def strided(x: Value, size: Ints, stride: Ints, offset: int) -> Value:
    return bind(OPS["strided"], x, size=tuple(size), stride=tuple(stride), offset=offset)


def windows(x: Value, kernel: Ints, stride: Ints, dilation: Ints) -> Value:
    return bind(OPS["windows"], x, kernel=tuple(kernel), stride=tuple(stride), dilation=tuple(dilation))


def windows_add(g: Value, size: Ints, kernel: Ints, stride: Ints, dilation: Ints) -> Value:
    attrs = {"kernel": tuple(kernel), "stride": tuple(stride), "dilation": tuple(dilation)}
    return bind(OPS["windows_add"], g, size=tuple(size), **attrs)


def window_sum(x: Value, kernel: Ints, stride: Ints, dilation: Ints) -> Value:
    return bind(OPS["window_sum"], x, kernel=tuple(kernel), stride=tuple(stride), dilation=tuple(dilation))


def window_argmax(x: Value, kernel: Ints, stride: Ints, dilation: Ints) -> Value:
    return bind(OPS["window_argmax"], x, kernel=tuple(kernel), stride=tuple(stride), dilation=tuple(dilation))


def flip(x: Value, dims: Ints) -> Value:
    return bind(OPS["flip"], x, dims=tuple(dims))


def pad(x: Value, low: Ints, high: Ints, value: float = 0.0) -> Value:
    return bind(OPS["pad"], x, low=tuple(low), high=tuple(high), value=value)


def cat(xs: Sequence[Value], dim: int) -> Value:
    return bind(OPS["cat"], *xs, dim=dim)


def slice_scatter(base: Value, src: Value, starts: Ints, stops: Ints, steps: Ints) -> Value:
    return bind(OPS["slice_scatter"], base, src, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))


# ---- special functions, complex numbers, Fourier transforms without scaling


def logit(x: Value, eps: float = -1.0) -> Value:
    return bind(OPS["logit"], x, eps=float(eps))


def elu(x: Value, alpha: float = 1.0, scale: float = 1.0, inner: float = 1.0) -> Value:
    return bind(OPS["elu"], x, alpha=_float(alpha), scale=float(scale), inner=float(inner))


def leaky(x: Value, slope: float) -> Value:
    return bind(OPS["leaky"], x, slope=_float(slope))


def _float(number: Value) -> Value:
    """An attribute; an argument of a kernel that is made (codegen/pointwise.py) stays, until the op is expanded."""
    return number if hasattr(type(number), "__bind__") else float(number)


def conj(x: Value) -> Value:
    """The conjugate; a real value is its own, and no node is made."""
    return bind(OPS["conj"], x) if of(x.dtype).is_complex else x


def fft(x: Value, dims: Ints, inverse: bool) -> Value:
    return bind(OPS["fft"], x, dims=tuple(dims), inverse=inverse)


def rfft(x: Value, dim: int) -> Value:
    return bind(OPS["rfft"], x, dim=dim)


def irfft(x: Value, dim: int, size: int) -> Value:
    return bind(OPS["irfft"], x, dim=dim, size=size)


# ---- linear algebra: what is packed in a result, factor.py says


def svd(a: Value, full: bool) -> Value:
    return bind(OPS["svd"], a, full=full)


def qr(a: Value, full: bool) -> Value:
    return bind(OPS["qr"], a, full=full)


def lu(a: Value, pivot: bool) -> Value:
    return bind(OPS["lu"], a, pivot=pivot)


def solve_triangular(a: Value, b: Value, upper: bool, unitriangular: bool) -> Value:
    return bind(OPS["solve_triangular"], a, b, upper=upper, unitriangular=unitriangular)


# ---- indexing by data


def index_add(base: Value, idx: Value, src: Value) -> Value:
    return bind(OPS["index_add"], base, idx, src)


def index_copy(base: Value, idx: Value, src: Value) -> Value:
    return bind(OPS["index_copy"], base, idx, src)


def gather(x: Value, idx: Value, dim: int) -> Value:
    return bind(OPS["gather"], x, idx, dim=dim)


def scatter_add(base: Value, idx: Value, src: Value, dim: int) -> Value:
    return bind(OPS["scatter_add"], base, idx, src, dim=dim)


def scatter(base: Value, idx: Value, src: Value, dim: int) -> Value:
    return bind(OPS["scatter"], base, idx, src, dim=dim)


def check_index(idx: Value, size: int) -> Value:
    return bind(OPS["check_index"], idx, size=size)


def require(x: Value, fails: Value, error: str, message: str) -> Value:
    return bind(OPS["require"], x, fails, error=error, message=message)


# ---- creation


_PYTHON: dict[str, Callable[..., Number]] = {"f": float, "b": bool, "i": int, "u": int, "c": builtins.complex}


def full(shape: Ints, value: Number, dtype: DType) -> Value:
    number = value if type(value) is Sym else _PYTHON[dtype.kind](value)
    return bind(OPS["full"], shape=tuple(shape), value=number, dtype=dtype)


def iota(shape: Ints, dim: int, dtype: DType) -> Value:
    return bind(OPS["iota"], shape=tuple(shape), dim=dim, dtype=dtype)


def philox(key: Value, shape: Ints, stream: int = 0) -> Value:
    if drawing.number is not None and type(key) is np.ndarray and current_trace() is None:
        return philox_there(key, tuple(shape), stream, drawing.number)
    return bind(OPS["philox"], key, shape=tuple(shape), stream=stream)


def full_like(x: Value, value: Number) -> Value:
    """A constant of x's shape and dtype."""
    if isinstance(x, MetaValue):
        return x
    return full(tuple(x.shape), value, of(x.dtype))


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., Value]:
        if name not in OPS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}: no primitive is called so")
        made = globals()[name] = applied(OPS[name])
        return made
