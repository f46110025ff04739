"""Eager definitions of composites: products, attention, losses; and their gradients.

In: arrays as `Tensor.__whole__` hands them over. Out: see ops/whole.py. Each takes f32 or f64, all operands alike, and
declines (None) anything else, empty rows, and operands that the composition refuses, which then says why. Products are
NumPy's, so the BLAS's; what runs along rows is a native kernel, by hand (kernels.h) or made by the compiler (rows.py,
pointwise.py): without a compiler there is only `linear`. Gradients are those of the textbook, from what the forward
kept: the weights of attention, or logarithms of sums.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler_core.eager.channels import define_channels
from compiler_core.eager.convolution import define_convolution
from compiler_core.eager.native import LARGE, SIGNATURE, RowKernels, kernels
from compiler_core.eager.operands import Grads, alike, define_quietly, dense, for_blas, gathered, product, spreads
from compiler_core.eager.pointwise import define_pointwise
from compiler_core.eager.pooling import define_pooling
from compiler_core.eager.recurrent import define_recurrent
from compiler_core.eager.resampling import define_resampling
from compiler_core.eager.rows import RowFunctions, define_rows, row_functions
from compiler_core.ops import functional  # noqa: F401  declares the composites
from compiler_core.ops.composites import interpolate as composite_interpolate  # noqa: F401  declares the composites
from compiler_core.ops.convolution import composite as composite_convolution  # noqa: F401  declares the composites
from compiler_core.ops.pooling import composite as composite_pooling  # noqa: F401  declares the composites
from compiler_core.ops.quiet import quietly
from compiler_core.ops.registry import Array
from compiler_core.ops.special import elementary as composite_special  # noqa: F401  declares the composites
from compiler_core.ops.whole import COMPOSITES, DEFINITIONS, Composite, Forward, Made, Prepare

_I64 = np.dtype(np.int64)


# ---- linear


def _rows(x: Array) -> Array:
    """All of its rows, (n, its last size), of which either may be 0."""
    return x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _linear(x: Array, weight: Array, bias: Array | None) -> Made:
    if not alike(x, weight, bias) or (bias is not None and bias.shape != weight.shape[:1]):
        return None
    out = np.matmul(for_blas(_rows(x)), weight.T)
    if bias is not None:
        np.add(out, bias, out)
    return (out if x.ndim == 2 else out.reshape(*x.shape[:-1], weight.shape[0])), ()


def _linear_backward(needs: Sequence[bool], g: Array, _: None, kept: tuple[()], x: Array, weight: Array, bias: Array | None) -> Grads:  # fmt: skip  # noqa: E501
    rows = for_blas(_rows(g))
    dx = np.matmul(rows, for_blas(weight)) if needs[0] else None
    if dx is not None and g.ndim != 2:
        dx = dx.reshape(x.shape)
    dw = np.matmul(rows.T, for_blas(_rows(x))) if needs[1] else None
    return dx, dw, np.add.reduce(rows, 0) if needs[2] else None


# ---- stack


def _stack(*arrays: Array, dim: int) -> Made:
    first = arrays[0]
    if any(a.shape != first.shape or a.dtype != first.dtype for a in arrays):
        return None
    if dim or not first.ndim:
        return np.stack(arrays, dim), ()
    return np.concatenate(arrays).reshape(len(arrays), *first.shape), ()


def _stack_backward(needs: Sequence[bool], g: Array, _: None, kept: tuple[()], *arrays: Array, dim: int) -> Grads:
    before: tuple[Any, ...] = (slice(None),) * dim
    return tuple([np.array(g[(*before, k)]) if wanted else None for k, wanted in enumerate(needs)])


# ---- 16-bit floats and a number

_JOINS = {"mul": np.multiply, "div": np.divide}
_F32 = np.dtype(np.float32)


def _with_number(x: Array, *, op: str, number: float) -> Made:
    """x op number, in f32."""
    wide = x.astype(_F32)
    return np.asarray(_JOINS[op](wide, _F32.type(number)).astype(x.dtype)), ()


def _with_number_backward(needs: Sequence[bool], g: Array, _: None, kept: Any, x: Array, **how: Any) -> Any:
    made = _with_number(g, **how)
    return None if made is None else (made[0],)


# ---- attention

_MAX_SCORES = 1 << 24  # elements of all weights, which are kept for the backward


def _along_rows(causal: bool) -> RowFunctions | None:
    """What makes weights of scores, and scores' cotangents of weights', where they stand."""
    return row_functions(COMPOSITES["causal_weights" if causal else "weights"], ())


def _takes(q: Array, key: Array, value: Array, mask: Array | None) -> bool:
    """Whether these operands of attention are computed whole."""
    lead = q.shape[:-2]
    if not alike(q, key, value) or q.ndim < 2 or not (q.size and key.size and value.size):
        return False
    if key.shape[:-2] != lead or value.shape[:-1] != key.shape[:-1] or q.shape[-1] != key.shape[-1]:
        return False
    if mask is not None and mask.dtype is not q.dtype and mask.dtype != np.bool_:
        return False
    if mask is not None and not spreads(mask.shape, (*lead, q.shape[-2], key.shape[-2])):
        return False
    scores: int = math.prod(lead) * q.shape[-2] * key.shape[-2]
    return scores <= _MAX_SCORES  # the op `attention` takes more in blocks


def _attention(q: Array, key: Array, value: Array, mask: Array | None, *, causal: bool, scale: float) -> Made:
    of = _along_rows(causal and mask is None)
    if of is None or not _takes(q, key, value, mask):
        return None
    weights = product(for_blas(q), for_blas(key).swapaxes(-1, -2))
    if mask is not None:
        np.multiply(weights, scale, weights)
        if mask.dtype == np.bool_:
            np.copyto(weights, -math.inf, where=np.logical_not(mask))
        else:
            np.add(weights, mask, weights)
    of.forward((weights, weights), 1, scale if mask is None else 1.0)
    return product(weights, for_blas(value)), (weights,)


def _prepare_attention(
    q: Array, key: Array, value: Array, mask: Array | None, *, causal: bool, scale: float
) -> Callable[..., Made] | None:
    of = _along_rows(causal and mask is None)
    if of is None or mask is not None or not _takes(q, key, value, mask):
        return None
    shape, large, dtype = (*q.shape[:-1], key.shape[-2]), (*q.shape[:-1], value.shape[-1]), q.dtype
    form, empty, matmul = of.forms[math.prod(shape) > LARGE], np.empty, np.matmul

    def run(q: Array, key: Array, value: Array, mask: None) -> Made:
        weights, out = empty(shape, dtype), empty(large, dtype)
        matmul(for_blas(q), for_blas(key).swapaxes(-1, -2), weights)
        form((weights, weights), 1, scale)
        matmul(weights, for_blas(value), out)
        return out, (weights,)

    return quietly(run)


def _attention_backward(needs: Sequence[bool], g: Array, _: None, kept: Any, q: Array, key: Array, value: Array, mask: Array | None, *, causal: bool, scale: float) -> Grads:  # fmt: skip  # noqa: E501
    (weights,), g, of = kept, for_blas(g), _along_rows(causal and mask is None)
    dv = product(weights.swapaxes(-1, -2), g) if needs[2] else None
    if of is None or not (needs[0] or needs[1] or needs[3]):
        return None, None, dv, None
    slopes = product(g, for_blas(value).swapaxes(-1, -2))
    of.backward((slopes, weights, slopes), 1, 1.0 if needs[3] else scale)
    dm = None
    if needs[3] and mask is not None:
        dm = gathered(slopes, mask.shape)
        slopes = slopes * slopes.dtype.type(scale)
    dq = product(slopes, for_blas(key)) if needs[0] else None
    dk = product(slopes.swapaxes(-1, -2), for_blas(q)) if needs[1] else None
    return dq, dk, dv, dm


# ---- classes


def _are_rows(x: Array, target: Array) -> bool:
    """Whether there is a class for each row of x."""
    return bool(alike(x) and x.size and x.ndim <= 2 and target.dtype == _I64 and target.shape == x.shape[:-1])


def _prepare_cross_entropy(k: RowKernels, made: Forward) -> Prepare:
    forms = k.forms("cross_entropy", *SIGNATURE, ctypes.c_int64, ctypes.c_int64, ctypes.c_double)

    def prepare(x: Array, target: Array, *, ignore_index: int, reduction: str, smoothing: float) -> Callable[..., Made]:
        shape, dtype, mean, empty = target.shape, x.dtype, reduction == "mean", np.empty
        if not _are_rows(x, target):
            return lambda x, target: None
        form = forms[x.size > LARGE]

        def run(x: Array, target: Array) -> Made:
            loss, logs, count = empty(shape, dtype), empty((2, *shape), dtype), empty((), dtype)
            total = None if reduction == "none" else empty((), dtype)
            if form((x, target, loss, logs, count, total), ignore_index, mean, smoothing):
                return made(x, target, ignore_index=ignore_index, reduction=reduction, smoothing=smoothing)
            return loss if total is None else total, (logs, count, x)

        return run

    return prepare


def _embedding(weight: Array, index: Array, *, padding_idx: int | None) -> Made:
    if not alike(weight) or weight.ndim != 2 or index.dtype != _I64 or not index.size:
        return None
    if np.maximum.reduce(index.view(np.uint64), None) >= weight.shape[0]:  # negative ones too
        return None
    return weight.take(index, 0), ()


def _prepare_embedding(weight: Array, index: Array, *, padding_idx: int | None) -> Callable[..., Made]:
    if not alike(weight) or weight.ndim != 2 or index.dtype != _I64 or not index.size:
        return lambda weight, index: None
    rows, largest, kind = weight.shape[0], np.maximum.reduce, np.uint64

    def run(weight: Array, index: Array) -> Made:
        return None if largest(index.view(kind), None) >= rows else (weight.take(index, 0), ())

    return run


def _classes(k: RowKernels) -> None:
    """Define losses of class indices, and embedding."""
    forward, backward, add_rows = k.named("cross_entropy"), k.named("cross_entropy_backward"), k.named("add_rows")

    def cross_entropy(x: Array, target: Array, *, ignore_index: int, reduction: str, smoothing: float) -> Made:
        if not _are_rows(x, target):
            return None
        loss, logs = np.empty(target.shape, x.dtype), np.empty((2, *target.shape), x.dtype)
        count = np.empty((), x.dtype)
        total = None if reduction == "none" else np.empty((), x.dtype)
        if forward((dense(x), dense(target), loss, logs, count, total), ignore_index, reduction == "mean", smoothing):
            return None  # a target outside of the classes
        return loss if total is None else total, (logs, count, x)

    def cross_entropy_backward(needs: Sequence[bool], g: Array, _: None, kept: Any, x: Array, target: Array, *, ignore_index: int, reduction: str, smoothing: float) -> Grads:  # fmt: skip  # noqa: E501
        logs, count, x = kept  # the logits as they were: torch keeps probabilities, and lets users write into them
        dx = np.empty(x.shape, x.dtype)
        factor = np.asarray(g / count) if reduction == "mean" else dense(g)
        backward((dense(x), dense(target), logs, factor, dx), ignore_index, smoothing)
        return dx, None

    _nll_loss(k)

    def embedding_backward(needs: Sequence[bool], g: Array, _: None, kept: Any, weight: Array, index: Array, *, padding_idx: int | None) -> Grads:  # fmt: skip  # noqa: E501
        dw = np.zeros(weight.shape, weight.dtype)
        add_rows((dense(g), dense(index), dw))
        if padding_idx is not None:
            dw[padding_idx] = 0
        return dw, None

    define_quietly(
        "cross_entropy",
        cross_entropy,
        cross_entropy_backward,
        reads=(1,),
        prepare=_prepare_cross_entropy(k, cross_entropy),
    )
    define_quietly("embedding", _embedding, embedding_backward, reads=(1,), prepare=_prepare_embedding)


def _nll_loss(k: RowKernels) -> None:
    forward, backward = k.named("nll_loss"), k.named("nll_loss_backward")

    def nll_loss(x: Array, target: Array, *, ignore_index: int, reduction: str) -> Made:
        if not _are_rows(x, target):
            return None
        loss, count = np.empty(target.shape, x.dtype), np.empty((), x.dtype)
        total = None if reduction == "none" else np.empty((), x.dtype)
        if forward((dense(x), dense(target), loss, count, total), ignore_index, reduction == "mean"):
            return None  # a target outside of the classes
        return loss if total is None else total, (count,)

    def nll_loss_backward(needs: Sequence[bool], g: Array, _: None, kept: Any, x: Array, target: Array, *, ignore_index: int, reduction: str) -> Grads:  # fmt: skip  # noqa: E501
        dx = np.zeros(x.shape, x.dtype)
        factor = np.asarray(g / kept[0]) if reduction == "mean" else dense(g)
        backward((factor, dense(target), dx), ignore_index)
        return dx, None

    define_quietly("nll_loss", nll_loss, nll_loss_backward, reads=(1,))


def _define_all() -> None:
    define_quietly("linear", _linear, _linear_backward, reads=(0, 1))
    define_quietly("stack", _stack, _stack_backward, reads=())
    define_quietly("with_number", _with_number, _with_number_backward, reads=())
    found = kernels()
    if found is None:
        return
    define_quietly("attention", _attention, _attention_backward, prepare=_prepare_attention)
    _classes(found)
    define_channels(found)
    define_convolution(found)
    define_pooling(found)
    define_recurrent()
    define_resampling(found)


def _derive(composite: Composite) -> None:
    (define_rows if composite.rows else define_pointwise)(composite)


_define_all()
DEFINITIONS.fill(_derive)
