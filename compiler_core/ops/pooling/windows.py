"""Sliding windows over the last dims of an array: windows, windows_add (its adjoint), windows_put, window_sum, ...

In: x: T[*lead, *n] and, for each of the last len(kernel) dims, how many elements a window holds (`kernel`), how far
windows lie apart (`stride`) and how far a window's elements do (`dilation`). Out: T[*lead, *o, *kernel] with
o = (n - dilation*(kernel - 1) - 1) // stride + 1, and element (i, k) = x[i*stride + k*dilation]. A view in NumPy, an
index in loops. Convolution is a product with it, pooling a reduction over it (`window_sum`, `window_max`: over the
kernel dims; `window_argmax`: the place, within the flattened kernel, of its last NaN, else of its first maximum), its
adjoint `windows_add` is fold (col2im), `windows_put` puts one value a window at a place in it. With `trailing` the
windows of these two lie before that many last dims (channels last). Eager, all go place by place of the kernel, each
step whole strided arrays.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from compiler_core.dtype import DType, int64, of
from compiler_core.errors import ShapeError
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.aliasing import Alias
from compiler_core.ops.checks import EVERY, NUMERIC, ORDERED, ORDERED_NUMBERS, check_dtype, check_shape
from compiler_core.ops.pooling import decomposed
from compiler_core.ops.pooling.geometry import (
    Dims,
    places_in_windows,
    strides_of_windows,
    to_back,
    to_front,
    window_counts,
)
from compiler_core.ops.registry import Array, Attrs, NotDifferentiable, Op, Sample, Value, register
from compiler_core.ops.rules import ALIKE, Decomposed, IndexedReduction, Movement

Index = tuple[Any, ...]
Metas = tuple[TensorMeta, ...]


# ---- windows


def _infer_windows(x: TensorMeta, kernel: Dims, stride: Dims, dilation: Dims) -> TensorMeta:
    lead = x.ndim - len(kernel)
    if lead < 0:
        raise ShapeError("windows: more kernel dims than the operand has", expected=f"<= {x.ndim}", got=str(kernel))
    counts = window_counts("windows", x.shape[lead:], kernel, stride, dilation)
    return x.with_shape((*x.shape[:lead], *counts, *kernel))


def _eager_windows(xp: Any, x: Array, kernel: Dims, stride: Dims, dilation: Dims) -> Array:
    rank = len(kernel)
    spans = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation))
    view = xp.lib.stride_tricks.sliding_window_view(x, spans, tuple(range(x.ndim - rank, x.ndim)))
    slices = (slice(None, None, step) for step in (*stride, *dilation))
    return view[(..., *slices)]  # type: ignore[no-any-return]


def _vjp_windows(g: Value, out: Value, x: Value, kernel: Dims, stride: Dims, dilation: Dims) -> tuple[Value]:
    return (prims.windows_add(g, tuple(x.shape[len(x.shape) - len(kernel) :]), kernel, stride, dilation),)


def _source_windows(index: Index, in_shape: Shape, kernel: Dims, stride: Dims, dilation: Dims) -> Index:
    rank, lead = len(kernel), len(in_shape) - len(kernel)
    which, inner = index[lead : lead + rank], index[lead + rank :]
    return (*index[:lead], *(i * s + k * d for i, k, s, d in zip(which, inner, stride, dilation)))


def _scatter_windows(base: Value, new: Value, kernel: Dims, stride: Dims, dilation: Dims) -> Value:
    if any(d * (k - 1) >= s for k, s, d in zip(kernel, stride, dilation) if k > 1):
        raise ShapeError(
            "cannot write in place to windows that overlap: several of their elements are one memory location",
            expected="windows at least as far apart as they are long",
            got=f"size {kernel}, step {stride}",
            remedy="clone() it first",
        )
    size = tuple(base.shape[len(base.shape) - len(kernel) :])
    written = prims.windows_add(prims.full_like(new, 1), size, kernel, stride, dilation)
    values = prims.windows_add(new, size, kernel, stride, dilation)
    return prims.where(prims.ne(written, prims.full_like(base, 0)), values, base)


_CASES: tuple[tuple[Shape, Dims, Dims, Dims], ...] = (
    ((2, 5, 6), (3, 2), (1, 1), (1, 1)),
    ((2, 7, 6), (2, 2), (2, 3), (1, 2)),
    ((3, 4), (4,), (1,), (1,)),
    ((2, 3, 4, 5), (2, 1, 3), (1, 2, 2), (2, 1, 1)),
    ((7,), (1,), (3,), (1,)),
    ((0, 4), (2,), (2,), (1,)),
)

WINDOWS = register(
    Op(
        "windows",
        infer=_infer_windows,
        eager=_eager_windows,
        vjp=_vjp_windows,
        vmap=ALIKE,
        lower=Movement(_source_windows),
        samples=tuple(Sample((n,), {"kernel": k, "stride": s, "dilation": d}) for n, k, s, d in _CASES),
        dtypes=EVERY,
        alias=Alias(_scatter_windows, strides_of_windows, reorders=True),
        engines=Decomposed(decomposed.windows),
    )
)


# ---- windows_add


def _infer_windows_add(
    g: TensorMeta, size: Shape, kernel: Dims, stride: Dims, dilation: Dims, trailing: int = 0
) -> TensorMeta:
    check_dtype("windows_add", g, NUMERIC)
    counts = window_counts("windows_add", tuple(size), kernel, stride, dilation)
    lead, end = g.ndim - 2 * len(kernel) - trailing, g.ndim - trailing
    if lead < 0 or g.shape[lead:end] != (*counts, *kernel):
        expected = f"(*, {', '.join(map(str, (*counts, *kernel)))}{', *' if trailing else ''})"
        raise ShapeError(
            "windows_add: the operand does not hold the windows of the size", expected=expected, got=str(g)
        )
    return g.with_shape((*g.shape[:lead], *size, *g.shape[end:]))


def _eager_windows_add(
    xp: Any, g: Array, size: Shape, kernel: Dims, stride: Dims, dilation: Dims, trailing: int = 0
) -> Array:
    rank = len(kernel)
    g = xp.transpose(g, to_front(g.ndim, trailing))
    lead = g.ndim - 2 * rank
    out = xp.zeros((*g.shape[:lead], *size), of(g.dtype).compute.numpy)
    with np.errstate(all="ignore"):
        for place, where in places_in_windows(kernel, stride, dilation, g.shape[lead : lead + rank]):
            out[where] += g[(..., *place)]  # type: ignore[arg-type]
    out = out.astype(g.dtype, copy=False)
    return xp.ascontiguousarray(xp.transpose(out, to_back(out.ndim, trailing)))  # type: ignore[no-any-return]


def _vjp_windows_add(
    g: Value, out: Value, x: Value, size: Shape, kernel: Dims, stride: Dims, dilation: Dims, trailing: int = 0
) -> tuple[Value]:
    moved = prims.permute(g, to_front(len(g.shape), trailing))
    windows = prims.windows(moved, kernel, stride, dilation)
    return (prims.permute(windows, to_back(len(windows.shape), trailing)),)


def _emit_windows_add(
    e: Any,
    index: Index,
    read: Any,
    metas: Metas,
    size: Shape,
    kernel: Dims,
    stride: Dims,
    dilation: Dims,
    trailing: int = 0,
) -> Any:
    """The element of window (i - k*dilation) / stride that lies at i, where that is a window."""
    rank = len(kernel)
    lead = len(index) - 2 * rank - trailing
    counts = metas[0].shape[lead : lead + rank]
    at, last, inner = index[lead : lead + rank], index[lead + rank : len(index) - rank], index[len(index) - rank :]
    windows = [(i - k * d) // s for i, k, d, s in zip(at, inner, dilation, stride)]
    element = read[0]((*index[:lead], *windows, *inner, *last))
    return _where_windows(e, element, metas[0].dtype, at, inner, counts, stride, dilation)


def _where_windows(
    e: Any, element: Any, dtype: DType, at: Index, inner: Index, counts: Shape, stride: Dims, dilation: Dims
) -> Any:
    """`element` where (at - inner*dilation) / stride is the number of a window, else 0."""
    zero = e.const(0, dtype)
    for i, k, d, s, o in zip(at, inner, dilation, stride, counts):
        offset = i - k * d
        if s > 1:
            element = e.where(e.compare("eq", offset % s, 0), element, zero)
        element = e.where(e.compare("lt", offset, (o - 1) * s + 1), element, zero)
        element = e.where(e.compare("ge", offset, 0), element, zero)
    return element


def _folded(case: tuple[Shape, Dims, Dims, Dims], trailing: Shape = ()) -> Sample:
    shape, kernel, stride, dilation = case
    lead = len(shape) - len(kernel)
    counts = window_counts("sample", shape[lead:], kernel, stride, dilation)
    attrs: Attrs = {"size": shape[lead:], "kernel": kernel, "stride": stride, "dilation": dilation}
    attrs |= {"trailing": len(trailing)} if trailing else {}
    return Sample(((*shape[:lead], *counts, *kernel, *trailing),), attrs)


WINDOWS_ADD = register(
    Op(
        "windows_add",
        infer=_infer_windows_add,
        eager=_eager_windows_add,
        vjp=_vjp_windows_add,
        vmap=ALIKE,
        lower=IndexedReduction(
            "sum", lambda metas, kernel, **_: kernel, _emit_windows_add, lambda trailing=0, **_: trailing
        ),
        samples=(*map(_folded, _CASES), _folded(_CASES[0], (3,)), _folded(_CASES[1], (4,))),
        dtypes=NUMERIC,
        engines=Decomposed(decomposed.windows_add),
    )
)


# ---- windows_put


def _infer_windows_put(
    g: TensorMeta, place: TensorMeta, size: Shape, kernel: Dims, stride: Dims, dilation: Dims, trailing: int = 0
) -> TensorMeta:
    check_dtype("windows_put", g, ORDERED_NUMBERS)
    check_dtype("windows_put", place, (int64,), "the place")
    check_shape("windows_put", g.shape, place, "the place")
    counts = window_counts("windows_put", tuple(size), kernel, stride, dilation)
    end = g.ndim - trailing
    lead = end - len(kernel)
    if lead < 0 or g.shape[lead:end] != counts:
        raise ShapeError("windows_put: not one value a window", expected=f"(*, {counts})", got=str(g))
    return g.with_shape((*g.shape[:lead], *size, *g.shape[end:]))


def _eager_windows_put(
    xp: Any, g: Array, place: Array, size: Shape, kernel: Dims, stride: Dims, dilation: Dims, trailing: int = 0
) -> Array:
    g, place = (xp.transpose(a, to_front(a.ndim, trailing)) for a in (g, place))
    lead = g.ndim - len(kernel)
    out = xp.zeros((*g.shape[:lead], *size), of(g.dtype).compute.numpy)
    with np.errstate(all="ignore"):
        for number, (_, where) in enumerate(places_in_windows(kernel, stride, dilation, g.shape[lead:])):
            out[where] += xp.where(place == number, g, xp.zeros((), g.dtype))
    out = out.astype(g.dtype, copy=False)
    return xp.ascontiguousarray(xp.transpose(out, to_back(out.ndim, trailing)))  # type: ignore[no-any-return]


def _vjp_windows_put(
    h: Value,
    out: Value,
    g: Value,
    place: Value,
    size: Shape,
    kernel: Dims,
    stride: Dims,
    dilation: Dims,
    trailing: int = 0,
) -> tuple[Value, None]:
    """Of each window, the element at its place."""
    rank, numel = len(kernel), math.prod(kernel)
    moved = prims.permute(place, to_front(len(place.shape), trailing))
    windows = prims.windows(prims.permute(h, to_front(len(h.shape), trailing)), kernel, stride, dilation)
    each = (*moved.shape, numel)
    index = prims.iota(each, len(each) - 1, int64)
    hit = prims.eq(prims.expand(prims.reshape(moved, (*moved.shape, 1)), each), index)
    flat = prims.reshape(windows, (*windows.shape[: len(windows.shape) - rank], numel))
    found = prims.sum(prims.where(hit, flat, prims.full_like(flat, 0)), (len(each) - 1,))
    return prims.permute(found, to_back(len(found.shape), trailing)), None


def _emit_windows_put(
    e: Any,
    index: Index,
    read: Any,
    metas: Metas,
    size: Shape,
    kernel: Dims,
    stride: Dims,
    dilation: Dims,
    trailing: int = 0,
) -> Any:
    """The value of window (i - k*dilation) / stride, where that is a window and its place is k."""
    rank = len(kernel)
    lead = len(index) - 2 * rank - trailing
    at, last, inner = index[lead : lead + rank], index[lead + rank : len(index) - rank], index[len(index) - rank :]
    windows = [(i - k * d) // s for i, k, d, s in zip(at, inner, dilation, stride)]
    which, number = (*index[:lead], *windows, *last), 0
    for k, n in zip(inner, kernel):
        number = number * n + k
    hit = e.call("eq", read[1](which), e.index_value(number, int64))
    element = e.where(hit, read[0](which), e.const(0, metas[0].dtype))
    counts = metas[0].shape[lead : lead + rank]
    return _where_windows(e, element, metas[0].dtype, at, inner, counts, stride, dilation)


def _put(case: tuple[Shape, Dims, Dims, Dims], trailing: Shape = ()) -> Sample:
    folded = _folded(case, trailing)
    _, kernel, *_ = case
    (shape,) = folded.shapes
    end = len(shape) - len(trailing)
    counts = (*shape[: end - len(kernel)], *trailing)

    def make(rng: np.random.Generator, dtype: DType) -> list[Array]:
        g = rng.integers(-3, 4, counts) if dtype.kind == "i" else rng.integers(0, 4, counts)
        return [g.astype(dtype.numpy), rng.integers(0, math.prod(kernel), counts)]

    return Sample((counts, counts), folded.attrs, make=make)


WINDOWS_PUT = register(
    Op(
        "windows_put",
        infer=_infer_windows_put,
        eager=_eager_windows_put,
        vjp=_vjp_windows_put,
        vmap=ALIKE,
        lower=IndexedReduction(
            "sum", lambda metas, kernel, **_: kernel, _emit_windows_put, lambda trailing=0, **_: trailing
        ),
        samples=(*map(_put, _CASES), _put(_CASES[0], (3,)), _put(_CASES[1], (4,))),
        dtypes=ORDERED_NUMBERS,
        engines=Decomposed(decomposed.windows_put),
    )
)


# ---- window_sum, window_max, window_argmax


def _infer_window_sum(x: TensorMeta, kernel: Dims, stride: Dims, dilation: Dims) -> TensorMeta:
    check_dtype("window_sum", x, NUMERIC)
    return x.with_shape(_infer_windows(x, kernel, stride, dilation).shape[: x.ndim])


def _eager_window_sum(xp: Any, x: Array, kernel: Dims, stride: Dims, dilation: Dims) -> Array:
    lead = x.ndim - len(kernel)
    counts = window_counts("window_sum", x.shape[lead:], kernel, stride, dilation)
    total = xp.zeros((*x.shape[:lead], *counts), of(x.dtype).compute.numpy)
    with np.errstate(all="ignore"):
        for _, where in places_in_windows(kernel, stride, dilation, counts):
            total += x[where]
    return total.astype(x.dtype, copy=False)  # type: ignore[no-any-return]


def _vjp_window_sum(g: Value, out: Value, x: Value, kernel: Dims, stride: Dims, dilation: Dims) -> tuple[Value]:
    rank = len(kernel)
    spread = prims.expand(prims.reshape(g, (*g.shape, *(1,) * rank)), (*g.shape, *kernel))
    return (prims.windows_add(spread, tuple(x.shape[len(x.shape) - rank :]), kernel, stride, dilation),)


def _emit_window_sum(e: Any, index: Index, read: Any, metas: Metas, kernel: Dims, stride: Dims, dilation: Dims) -> Any:
    return read[0](_source_windows(index, metas[0].shape, kernel, stride, dilation))


WINDOW_SUM = register(
    Op(
        "window_sum",
        infer=_infer_window_sum,
        eager=_eager_window_sum,
        vjp=_vjp_window_sum,
        vmap=ALIKE,
        lower=IndexedReduction("sum", lambda metas, kernel, **_: kernel, _emit_window_sum),
        samples=tuple(Sample((n,), {"kernel": k, "stride": s, "dilation": d}) for n, k, s, d in _CASES),
        dtypes=NUMERIC,
        engines=Decomposed(decomposed.window_sum),
    )
)


def lowest(dtype: DType) -> float:
    """The number that no element is below."""
    if dtype.is_floating_point:
        return -math.inf
    return 0 if dtype.kind in "bu" else int(np.iinfo(dtype.numpy).min)  # type: ignore[type-var]


def _infer_window_max(x: TensorMeta, kernel: Dims, stride: Dims, dilation: Dims, low: Dims = ()) -> TensorMeta:
    check_dtype("window_max", x, ORDERED)
    return x.with_shape(_infer_windows(x, kernel, stride, dilation).shape[: x.ndim])


def _eager_window_max(xp: Any, x: Array, kernel: Dims, stride: Dims, dilation: Dims, low: Dims = ()) -> Array:
    counts = window_counts("window_max", x.shape[x.ndim - len(kernel) :], kernel, stride, dilation)
    best: Array | None = None
    with np.errstate(all="ignore"):
        for _, where in places_in_windows(kernel, stride, dilation, counts):
            best = xp.array(x[where]) if best is None else xp.maximum(best, x[where], out=best)
    return best  # type: ignore[return-value]


def _vjp_window_max(
    g: Value, out: Value, x: Value, kernel: Dims, stride: Dims, dilation: Dims, low: Dims = ()
) -> tuple[Value]:
    """The cotangent goes to the first maximum alone; to none of the first `low` elements, which are padding."""
    low = low or (0,) * len(kernel)
    return (prims.window_max_put(g, prims.detach(x), kernel=kernel, stride=stride, dilation=dilation, low=low),)


WINDOW_MAX = register(
    Op(
        "window_max",
        infer=_infer_window_max,
        eager=_eager_window_max,
        vjp=_vjp_window_max,
        vmap=ALIKE,
        lower=IndexedReduction(
            "max", lambda metas, kernel, **_: kernel, lambda *args, low=(), **attrs: _emit_window_sum(*args, **attrs)
        ),
        samples=(
            *(Sample((n,), {"kernel": k, "stride": s, "dilation": d}) for n, k, s, d in _CASES),
            Sample(((2, 7, 6),), {"kernel": (3, 3), "stride": (2, 2), "dilation": (1, 1), "low": (1, 0)}),
        ),
        dtypes=ORDERED,
        engines=Decomposed(decomposed.window_max),
    )
)


def _infer_window_argmax(x: TensorMeta, kernel: Dims, stride: Dims, dilation: Dims) -> TensorMeta:
    check_dtype("window_argmax", x, ORDERED)
    windows = _infer_windows(x, kernel, stride, dilation)
    return TensorMeta(windows.shape[: x.ndim], int64)


def _eager_window_argmax(xp: Any, x: Array, kernel: Dims, stride: Dims, dilation: Dims) -> Array:
    lead = x.ndim - len(kernel)
    counts = window_counts("window_argmax", x.shape[lead:], kernel, stride, dilation)
    best: Array | None = None
    may_be_nan = x.dtype.kind not in "biu" and (xp is not np or bool(xp.isnan(x).any()))  # a device is not asked
    found = xp.zeros((*x.shape[:lead], *counts), np.int16 if math.prod(kernel) < 1 << 15 else np.int64)
    for number, (_, where) in enumerate(places_in_windows(kernel, stride, dilation, counts)):
        values = x[where]
        if best is None:
            best = xp.array(values)
            continue
        better = values > best
        if may_be_nan:
            better |= xp.isnan(values)
        xp.copyto(best, values, where=better)
        found[better] = number
    return found.astype(np.int64)  # type: ignore[no-any-return]


def _emit_window_argmax(
    e: Any, index: Index, read: Any, metas: Metas, kernel: Dims, stride: Dims, dilation: Dims
) -> Any:
    *outer, flat = index
    lead = len(outer) - len(kernel)
    inner, rest = [], math.prod(kernel)
    for k in kernel:
        rest //= k
        inner.append(flat // rest % k if rest > 1 else flat % k)
    return read[0]((*outer[:lead], *(i * s + k * d for i, k, s, d in zip(outer[lead:], inner, stride, dilation))))


WINDOW_ARGMAX = register(
    Op(
        "window_argmax",
        infer=_infer_window_argmax,
        eager=_eager_window_argmax,
        vjp=NotDifferentiable("the result is an index"),
        vmap=ALIKE,
        lower=IndexedReduction("argmax_nan", lambda metas, kernel, **_: (math.prod(kernel),), _emit_window_argmax),
        samples=tuple(Sample((n,), {"kernel": k, "stride": s, "dilation": d}) for n, k, s, d in _CASES),
        dtypes=ORDERED,
        engines=Decomposed(decomposed.window_argmax),
    )
)
