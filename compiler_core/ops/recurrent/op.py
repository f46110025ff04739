"""A recurrent layer in one direction as one op, and its backward as another: `recurrent`, `recurrent_backward`.

In: x f[N, G·H]: the input's product with its weight and bias, for all steps, N rows one step after the other (an
ordinary product before this op). w f[G·H, H], b f[G·H]: those of the state. first: f[B, H], for LSTM two.
attrs: mode, runs, reverse (recurrent/sizes.py). Out: one packed array f[*]: h of all steps f[N, H], for LSTM c
alike, and what the backward needs of the gates f[N, S·H] (not for plain RNNs). `states` gives h (and c).

`recurrent_backward` takes the parts' cotangents, the packed result, w, and (LSTM: the first c; GRU: the first h); it
goes through the steps once, and gives the cotangents of x, for GRU of W_n h + b_n, and of the first states, packed. The
gradients of w and b are then products and sums over all steps at once, outside.
Sources: Hochreiter, Schmidhuber 1997; Cho et al. 2014; the split into one large product and a loop is cuDNN's
(Appleyard et al. 2016, arXiv:1604.01946).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from compiler_core.dtype import DType, float32, float64
from compiler_core.errors import ShapeError
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.checks import check_dtype, check_shape
from compiler_core.ops.differentiate import vjp_of
from compiler_core.ops.linear_algebra.matmul import transpose_last
from compiler_core.ops.linear_algebra.packing import packed_shape, unpack
from compiler_core.ops.recurrent import batched
from compiler_core.ops.recurrent import by_numpy as recurrent_numpy
from compiler_core.ops.recurrent import native as recurrent_native
from compiler_core.ops.recurrent import unrolled as recurrent_unrolled
from compiler_core.ops.recurrent.sizes import GATES, NOTHING, RecurrentSizes, Runs, check_runs
from compiler_core.ops.registry import Array, Op, Sample, Value, register
from compiler_core.ops.routine import Native, Routine, register_routine
from compiler_core.ops.rules import OwnCode

DTYPES = (float32, float64)


def _flat(shapes: tuple[Shape, ...]) -> Shape:
    return packed_shape((), shapes)


def states(packed: Value, mode: str, hidden: int, runs: Runs, reverse: bool) -> tuple[Value, ...]:
    """Of what `recurrent` gives h, (c): what programs see."""
    sizes = RecurrentSizes(mode, hidden, runs, reverse)
    count = sizes.rows * hidden
    parts = [prims.slice(packed, (k * count,), ((k + 1) * count,), (1,)) for k in range(2 if sizes.has_cells else 1)]
    return tuple([prims.reshape(part, (sizes.rows, hidden)) for part in parts])


def _check(op: str, sizes: RecurrentSizes, operands: list[tuple[str, Shape, TensorMeta]]) -> None:
    check_runs(op, sizes.runs)
    for role, shape, meta in operands:
        check_dtype(op, meta, (operands[0][2].dtype,), role)
        check_shape(op, shape, meta, role)


def _sizes_of(op: str, w: TensorMeta, mode: str, runs: Runs, reverse: bool) -> RecurrentSizes:
    check_dtype(op, w, DTYPES, "the state's weight")
    if mode not in GATES or w.ndim != 2 or w.shape[1] == 0:
        raise ShapeError(f"{op}: no such layer", expected=f"{', '.join(GATES)}; a matrix", got=f"{mode}, {w}")
    return RecurrentSizes(mode, w.shape[1], runs, reverse)


# ---- recurrent


def _infer(x: TensorMeta, w: TensorMeta, b: TensorMeta, *first: TensorMeta, mode: str, runs: Runs, reverse: bool
           ) -> TensorMeta:  # fmt: skip
    sizes = _sizes_of("recurrent", w, mode, runs, reverse)
    width = sizes.gates * sizes.hidden
    state = [("a first state", (sizes.batch, sizes.hidden), meta) for meta in first]
    if len(first) != (2 if sizes.has_cells else 1):
        raise ShapeError("recurrent: a first state is missing, or there is one too many", got=str(len(first)))
    operands = [("the state's weight", (width, sizes.hidden), w), ("the input", (sizes.rows, width), x)]
    _check("recurrent", sizes, [*operands, ("the bias", (width,), b), *state])
    return w.with_shape(_flat(sizes.result))


def _eager(xp: Any, x: Array, w: Array, b: Array, *first: Array, mode: str, runs: Runs, reverse: bool) -> Array:
    return recurrent_numpy.forward(xp, RecurrentSizes(mode, w.shape[1], runs, reverse), x, w, b, *first)


def _vjp(g: Value, out: Value, x: Value, w: Value, b: Value, *first: Value, mode: str, runs: Runs, reverse: bool
         ) -> tuple[Value, ...]:  # fmt: skip
    sizes = RecurrentSizes(mode, w.shape[1], runs, reverse)
    kept = {"lstm": first[1:], "gru": first}.get(mode, ())
    grads = unpack(g, sizes.result)
    back = prims.recurrent_backward(grads, out, w, kept, mode=mode, runs=runs, reverse=reverse)
    dx, *rest = unpack(back, sizes.gradients)
    h = before_rows(sizes, unpack(out, sizes.result)[0], first[0])
    parts = [dx]
    if mode == "gru":
        parts, rest = [recurrent_unrolled.columns_of(dx, 0, 2 * sizes.hidden), rest[0]], rest[1:]
    dw = [prims.matmul(transpose_last(part), h) for part in parts]
    db = [prims.sum(part, (0,)) for part in parts]
    return (dx, *((whole[0] if len(whole) == 1 else prims.cat(whole, 0)) for whole in (dw, db)), *rest)


def before_rows(sizes: RecurrentSizes, h: Value, first: Value) -> Value:
    """The state from which each row was computed, f[N, H]."""
    if len(sizes.runs) == 1:
        inner = sizes.rows - sizes.batch
        kept = recurrent_unrolled.rows_of(h, *((sizes.batch, sizes.rows) if sizes.reverse else (0, inner)))
        return prims.cat([kept, first] if sizes.reverse else [first, kept], 0)
    steps, places = sizes.steps(), {}
    for step, before in zip(steps, [NOTHING, *steps]):  # row r of `first`, or sizes.batch + r of h
        rows = np.arange(step.size)
        places[step] = np.where(rows < before.size, sizes.batch + before.row + rows, rows)
    order = sorted(places, key=lambda step: step.row)
    return prims.take(prims.cat([first, h], 0), np.concatenate([places[step] for step in order]))


def _sequence(rng: np.random.Generator, dtype: DType, hidden: int, shapes: tuple[Shape, ...]) -> list[Array]:
    bound = 1 / hidden
    return [rng.uniform(-bound, bound, shape).astype(dtype.numpy) for shape in shapes]


def _sample(mode: str, hidden: int, runs: Runs, reverse: bool) -> Sample:
    sizes = RecurrentSizes(mode, hidden, runs, reverse)
    width = sizes.gates * hidden
    shapes = ((sizes.rows, width), (width, hidden), (width,), *[(sizes.batch, hidden)] * (2 if mode == "lstm" else 1))
    attrs = {"mode": mode, "runs": runs, "reverse": reverse}
    make = partial(_sequence, hidden=hidden, shapes=shapes)
    return Sample(shapes, attrs, dtypes=(float32,) if hidden > 3 else (), make=make)


_CASES: tuple[tuple[str, int, Runs, bool], ...] = (
    *((mode, 2, runs, reverse) for mode in GATES for runs, reverse in ((((2, 1), (1, 1)), False), (((1, 2),), True))),
    ("lstm", 2, ((2, 1), (1, 1)), True),
    ("gru", 2, ((2, 1), (1, 1)), True),
    ("relu", 3, ((2, 2), (1, 1)), True),
    ("lstm", 37, ((14, 2), (5, 1), (2, 2)), False),
    ("lstm", 37, ((14, 2), (5, 1), (2, 2)), True),
    ("gru", 40, ((13, 3),), True),
    ("gru", 17, ((5, 2), (1, 2)), False),
    ("tanh", 33, ((9, 3),), False),
    ("relu", 16, ((25, 2), (24, 2)), True),
    ("lstm", 3, ((0, 2),), False),
)


# ---- recurrent_backward


def _infer_backward(*metas: TensorMeta, mode: str, runs: Runs, reverse: bool) -> TensorMeta:
    count = _results(mode)
    if len(metas) != count + (2 if mode in ("tanh", "relu") else 3):
        raise ShapeError("recurrent_backward: an operand is missing, or there is one too many", got=str(len(metas)))
    w = metas[count + 1]
    sizes = _sizes_of("recurrent_backward", w, mode, runs, reverse)
    operands: list[tuple[str, Shape, TensorMeta]] = [
        ("the state's weight", (sizes.gates * sizes.hidden, sizes.hidden), w)
    ]
    operands += [("a cotangent", shape, meta) for shape, meta in zip(sizes.result, metas)]
    operands += [("the packed result", _flat(sizes.result), metas[count])]
    operands += [("a first state", (sizes.batch, sizes.hidden), meta) for meta in metas[count + 2 :]]
    _check("recurrent_backward", sizes, operands)
    return w.with_shape(_flat(sizes.gradients))


def _results(mode: str) -> int:
    """How many parts `recurrent` gives."""
    return {"lstm": 3, "gru": 2}.get(mode, 1)


def _backward_sizes(operands: tuple[Value, ...], mode: str, runs: Runs, reverse: bool) -> RecurrentSizes:
    return RecurrentSizes(mode, operands[_results(mode) + 1].shape[1], runs, reverse)


def _eager_backward(xp: Any, *operands: Array, **attrs: Any) -> Array:
    return recurrent_numpy.backward(xp, _backward_sizes(operands, **attrs), *operands)


def _vjp_backward(g: Value, out: Value, *operands: Value, **attrs: Any) -> tuple[Value, ...]:
    found = vjp_of(partial(recurrent_unrolled.backward, _backward_sizes(operands, **attrs)), g, *operands)
    return tuple(prims.full_like(x, 0) if part is None else part for x, part in zip(operands, found))


def _backward_sample(mode: str, hidden: int, runs: Runs, reverse: bool) -> Sample:
    sizes = RecurrentSizes(mode, hidden, runs, reverse)
    shapes = (*sizes.result, _flat(sizes.result), (sizes.gates * hidden, hidden))
    shapes = shapes if mode in ("tanh", "relu") else (*shapes, (sizes.batch, hidden))
    attrs = {"mode": mode, "runs": runs, "reverse": reverse}
    make = partial(_sequence, hidden=hidden, shapes=shapes)
    return Sample(shapes, attrs, dtypes=(float32,) if hidden > 3 else (), make=make)


# ---- registration


def _flops(*metas: TensorMeta, mode: str, runs: Runs, reverse: bool) -> int:
    w = metas[1 if metas[0].shape[-1] == metas[1].shape[0] else _results(mode) + 1]
    return 2 * sum(size * steps for size, steps in runs) * math.prod(w.shape)


def _routine(name: str, eager: Callable[..., Array], native: Native) -> Routine:
    def define(out: Array, *operands: Array, **attrs: Any) -> None:
        out[...] = eager(np, *operands, **attrs)

    return register_routine(Routine(name, define, native=native, accepts=recurrent_native.accepts, flops=_flops))


RECURRENT = register(
    Op(
        "recurrent",
        infer=_infer,
        eager=_eager,
        vjp=_vjp,
        lower=_routine("recurrent", _eager, recurrent_native.FORWARD),
        samples=tuple(_sample(*case) for case in _CASES),
        vmap=batched.forward,
        dtypes=DTYPES,
        engines=OwnCode("each step is computed from the one before"),
    )
)
RECURRENT_BACKWARD = register(
    Op(
        "recurrent_backward",
        infer=_infer_backward,
        eager=_eager_backward,
        vjp=_vjp_backward,
        lower=_routine("recurrent_backward", _eager_backward, recurrent_native.BACKWARD),
        samples=tuple(_backward_sample(*case) for case in _CASES),
        vmap=batched.backward,
        dtypes=DTYPES,
        engines=OwnCode("each step is computed from the one before"),
    )
)
