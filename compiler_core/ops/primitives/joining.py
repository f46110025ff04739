"""Arrays put together: pad (with a constant), cat, slice_scatter (one array into a slice of another).

In: arrays. Out: a new array. pad and cat are told element by element which operand (or constant) they read, and
read only that one (`e.where` is lazy); slice_scatter starts as its base and is written over.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler_core.dtype import bool_
from compiler_core.errors import ShapeError
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.checks import EVERY, check_dim, check_dtype, check_shape
from compiler_core.ops.primitives import decomposed
from compiler_core.ops.primitives.movement import SLICE, Dims, Index, python_slices
from compiler_core.ops.registry import Array, Op, Sample, Value, register
from compiler_core.ops.rules import CORE, OVER_DIM, Decomposed, Front, Indexed, Scatter

Metas = tuple[TensorMeta, ...]


# ---- pad


def _infer_pad(x: TensorMeta, low: Dims, high: Dims, value: float) -> TensorMeta:
    if not len(low) == len(high) == x.ndim or any(n < 0 for n in (*low, *high)):
        raise ShapeError(
            "pad: one low and one high per dim, not negative", expected=f"{x.ndim} each", got=f"{low} {high}"
        )
    return x.with_shape(tuple(a + n + b for a, n, b in zip(low, x.shape, high)))


def _eager_pad(xp: Any, x: Array, low: Dims, high: Dims, value: float) -> Array:
    shape = [a + n + b for a, n, b in zip(low, x.shape, high)]
    is_zero = not any(np.asarray(value, x.dtype).tobytes())  # -0.0 is not
    # CuPy's `full` of 16-bit floats writes at an eighth of an H200's speed: memory is cleared instead
    out: Array = xp.zeros(shape, x.dtype) if is_zero else xp.full(shape, value, x.dtype)
    out[python_slices(low, tuple(a + n for a, n in zip(low, x.shape)), (1,) * len(low))] = x
    return out


def _vjp_pad(g: Value, out: Value, x: Value, low: Dims, high: Dims, value: float) -> tuple[Value]:
    return (prims.slice(g, low, tuple(a + n for a, n in zip(low, x.shape)), (1,) * len(low)),)


def _emit_pad(e: Any, index: Index, read: Any, metas: Metas, low: Dims, high: Dims, value: float) -> Any:
    x = metas[0]
    constant = e.const(bool(value) if x.dtype is bool_ else value, x.dtype)
    result = read[0](tuple(i - a for i, a in zip(index, low)))
    for i, n, a, b in zip(index, x.shape, low, high):
        if b:
            result = e.where(e.compare("lt", i, a + n), result, constant)
        if a:
            result = e.where(e.compare("ge", i, a), result, constant)
    return result


PAD = register(
    Op(
        "pad",
        infer=_infer_pad,
        eager=_eager_pad,
        vjp=_vjp_pad,
        vmap=Front(zeros=("low", "high")),
        lower=Indexed(_emit_pad),
        samples=(
            Sample(((2, 3),), {"low": (1, 0), "high": (0, 2), "value": 0.0}),
            Sample(((3,),), {"low": (2,), "high": (1,), "value": 1.0}),
            Sample(((0, 2),), {"low": (1, 1), "high": (1, 0), "value": 0.0}),
        ),
        dtypes=EVERY,
        engines=CORE,
    )
)


# ---- cat


def _infer_cat(*xs: TensorMeta, dim: int) -> TensorMeta:
    if not xs:
        raise ShapeError("cat of nothing", expected="at least one operand")
    first = xs[0]
    check_dim("cat", dim, first.ndim)
    for x in xs[1:]:
        check_dtype("cat", x, (first.dtype,))
        check_shape("cat", (*first.shape[:dim], *x.shape[dim : dim + 1], *first.shape[dim + 1 :]), x, "an operand")
    return first.with_shape((*first.shape[:dim], sum(x.shape[dim] for x in xs), *first.shape[dim + 1 :]))


def _vjp_cat(g: Value, out: Value, *xs: Value, dim: int) -> tuple[Value, ...]:
    shape = tuple(out.shape)
    zeros, steps, start = (0,) * len(shape), (1,) * len(shape), 0
    pieces = []
    for x in xs:
        stop = start + x.shape[dim]
        starts = (*zeros[:dim], start, *zeros[dim + 1 :])
        pieces.append(prims.slice(g, starts, (*shape[:dim], stop, *shape[dim + 1 :]), steps))
        start = stop
    return tuple(pieces)


def _emit_cat(e: Any, index: Index, read: Any, metas: Metas, dim: int) -> Any:
    """A chain of tests from the last operand to the first; empty operands take no part."""
    ends, pieces = 0, []
    for k, meta in enumerate(metas):
        if meta.shape[dim]:
            pieces.append((ends + meta.shape[dim], read[k]((*index[:dim], index[dim] - ends, *index[dim + 1 :]))))
            ends += meta.shape[dim]
    if not pieces:
        return read[0](index)  # an empty result: never evaluated
    result = pieces[-1][1]
    for end, piece in reversed(pieces[:-1]):
        result = e.where(e.compare("lt", index[dim], end), piece, result)
    return result


CAT = register(
    Op(
        "cat",
        infer=_infer_cat,
        eager=lambda xp, *xs, dim: xp.concatenate(xs, axis=dim),
        vjp=_vjp_cat,
        vmap=OVER_DIM,
        lower=Indexed(_emit_cat),
        samples=(
            Sample(((2, 3), (2, 3)), {"dim": 0}),
            Sample(((2, 3), (2, 1), (2, 2)), {"dim": 1}),
            Sample(((2, 0), (2, 2)), {"dim": 1}),
            Sample(((4,),), {"dim": 0}),
        ),
        dtypes=EVERY,
        engines=CORE,
    )
)


# ---- slice_scatter


def _infer_slice_scatter(base: TensorMeta, src: TensorMeta, starts: Dims, stops: Dims, steps: Dims) -> TensorMeta:
    check_dtype("slice_scatter", src, (base.dtype,), "the source")
    check_shape("slice_scatter", SLICE.infer(base, starts=starts, stops=stops, steps=steps).shape, src, "the source")
    return base


def _eager_slice_scatter(xp: Any, base: Array, src: Array, starts: Dims, stops: Dims, steps: Dims) -> Array:
    out: Array = xp.array(base)
    out[python_slices(starts, stops, steps)] = src
    return out


def _vjp_slice_scatter(
    g: Value, out: Value, base: Value, src: Value, starts: Dims, stops: Dims, steps: Dims
) -> tuple[Value, Value]:
    inner = prims.slice(g, starts, stops, steps)
    return prims.slice_scatter(g, prims.full_like(inner, 0.0), starts, stops, steps), inner


def _target_slice_scatter(
    e: Any, index: Index, read: Any, metas: Metas, starts: Dims, stops: Dims, steps: Dims
) -> Index:
    return tuple(i * step + start for i, start, step in zip(index, starts, steps))


SLICE_SCATTER = register(
    Op(
        "slice_scatter",
        infer=_infer_slice_scatter,
        eager=_eager_slice_scatter,
        vjp=_vjp_slice_scatter,
        vmap=Front(zeros=("starts",), sizes=("stops",), ones=("steps",)),
        lower=Scatter(_target_slice_scatter, source=1, mode="set"),
        samples=(
            Sample(((4, 5), (2, 5)), {"starts": (1, 0), "stops": (3, 5), "steps": (1, 1)}),
            Sample(((4, 5), (2, 2)), {"starts": (3, 0), "stops": (-1, 5), "steps": (-2, 3)}),
            Sample(((4,), (0,)), {"starts": (2,), "stops": (2,), "steps": (1,)}),
        ),
        dtypes=EVERY,
        engines=Decomposed(decomposed.slice_scatter),
    )
)
