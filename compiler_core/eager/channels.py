"""Eager definitions of batch norm, group norm and dropout.

In: arrays, of f32 or all of f64; channels are dim 1. Out: see ops/whole.py. Batch norm keeps mean and 1/std of each
channel (of given statistics it makes them), dropout the mask, a byte an element; group norm is layer norm's of groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from compiler_core.dtype import float32, float64
from compiler_core.eager.native import Kernel, RowKernels, kernels
from compiler_core.eager.operands import Grads, alike, define_quietly, dense, dense_or_none
from compiler_core.eager.rows import row_functions
from compiler_core.ops.composites.activation import scale_of_kept
from compiler_core.ops.registry import Array
from compiler_core.ops.whole import COMPOSITES, Made


def define_channels(k: RowKernels) -> None:
    """Define them all."""
    _batch_norm(k)
    define_quietly("group_norm", _group_norm, _group_norm_backward, reads=(0, 1))
    _dropout(k)
    _masked(k)


def _three(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(samples, channels, elements of each)."""
    return shape[0], shape[1], math.prod(shape[2:])


def _fits(shape: tuple[int, ...], *per_channel: Array | None) -> bool:
    return all(p is None or p.shape == shape[1:2] for p in per_channel)


def _batch_norm(k: RowKernels) -> None:
    kernel, kernel_backward = k.named("batch_norm"), k.named("batch_norm_backward")

    def forward(
        x: Array, mean: Array | None, variance: Array | None, weight: Array | None, bias: Array | None, *, eps: float
    ) -> Made:
        shape, dtype = x.shape, x.dtype
        if not alike(x, mean, variance, weight, bias) or not x.size or not _fits(shape, mean, variance, weight, bias):
            return None
        if mean is None or variance is None:
            means, scales, given = np.empty(shape[1], dtype), np.empty(shape[1], dtype), 0
        else:
            means, scales, given = dense(mean), 1 / np.sqrt(variance + dtype.type(eps)), 1
        out = np.empty(_three(shape), dtype)
        flat = dense(x).reshape(_three(shape))
        kernel((flat, dense_or_none(weight), dense_or_none(bias), out, means, scales), eps, given)
        return out.reshape(shape), (means, scales)

    def backward(
        needs: Sequence[bool], g: Array, _: None, kept: Any, x: Array, mean: Array | None, variance: Array | None,
        weight: Array | None, bias: Array | None, **__: Any,
    ) -> Grads | None:  # fmt: skip
        if needs[1] or needs[2]:
            return None  # gradients of running statistics: the composition's
        shape = _three(x.shape)
        dx = np.empty(shape, x.dtype) if needs[0] else None
        dw, db = (np.empty(shape[1], x.dtype) if need else None for need in needs[3:])
        given = 0 if mean is None else 1
        flat, grads = dense(x).reshape(shape), dense(g).reshape(shape)
        kernel_backward((grads, flat, dense_or_none(weight), *kept, dx, dw, db), given)
        return None if dx is None else dx.reshape(x.shape), None, None, dw, db

    define_quietly("batch_norm", forward, backward, reads=(0, 3))


def moved_statistics(x: Array, mean: Array, variance: Array, momentum: float) -> tuple[Array, Array] | None:
    """The running mean and variance [C] of batch norm, moved towards those of x [N, C, ...] by `momentum`."""
    move = _mover()
    if move is None or any(type(a) is not np.ndarray for a in (x, mean, variance)) or not alike(x, mean, variance):
        return None
    if not x.size or x.ndim < 2 or not _fits(x.shape, mean, variance):
        return None
    moved = np.empty_like(mean), np.empty_like(variance)
    flat = dense(x).reshape(_three(x.shape))
    move((flat, dense(mean), dense(variance), *moved), momentum)
    return moved


@cache
def _mover() -> Kernel | None:
    found = kernels()
    return None if found is None else found.named("moved_statistics")


def _standardized(x: Array, groups: int, eps: float) -> tuple[Array, tuple[Array, ...]] | None:
    """Layer norm of the groups as rows, and what its backward reads."""
    of, rows = row_functions(COMPOSITES["layer_norm"], (False, False)), dense(x).reshape(x.shape[0] * groups, -1)
    if of is None:
        return None
    out, kept = np.empty(_three(x.shape), x.dtype), tuple([np.empty(len(rows), x.dtype) for _ in of.kept])
    return (out, kept) if of.forward((rows, None, None, out, *kept), 1, eps) else None


def _group_norm(x: Array, weight: Array | None, bias: Array | None, *, groups: int, eps: float) -> Made:
    if not alike(x, weight, bias) or not x.size or not _fits(x.shape, weight, bias):
        return None
    made = _standardized(x, groups, eps)
    if made is None:
        return None
    out, kept = made
    if weight is not None:
        np.multiply(out, weight[:, None], out)
    if bias is not None:
        np.add(out, bias[:, None], out)
    return out.reshape(x.shape), kept


def _group_norm_backward(needs: Sequence[bool], g: Array, _: None, kept: Any, x: Array, weight: Array | None, bias: Array | None, *, groups: int, eps: float) -> Grads | None:  # fmt: skip  # noqa: E501
    of, rows = row_functions(COMPOSITES["layer_norm"], (False, False)), (x.shape[0] * groups, -1)
    grads, dx, dw = dense(g).reshape(_three(x.shape)), None, None
    if needs[0]:
        inner, dx = grads if weight is None else grads * weight[:, None], np.empty(x.shape, x.dtype)
        arrays = (inner.reshape(rows), dense(x).reshape(rows), None, None, *kept, dx, None, None)
        if of is None or not of.backward(arrays, 1, eps):
            return None
    if needs[1]:
        made = _standardized(x, groups, eps)
        if made is None:
            return None
        dw = np.einsum("ncl,ncl->c", grads, made[0])
    return dx, dw, np.add.reduce(grads, (0, 2)) if needs[2] else None


def _dropout(k: RowKernels) -> None:
    kernel, kernel_backward = k.named("dropout"), k.named("dropout_backward")

    def forward(x: Array, key: Array | None, *, p: float, stream: int) -> Made:
        if not alike(x) or key is None:
            return None
        out, kept = np.empty(x.shape, x.dtype), np.empty(x.shape, np.uint8)
        kernel((dense(x), dense(key), out, kept), 1.0 / (1.0 - p), stream, min(round(p * 2**32), 2**32 - 1))
        return out, (kept,)

    def backward(needs: Sequence[bool], g: Array, _: None, kept: Any, x: Array, key: Array, *, p: float, stream: int) -> Grads:  # fmt: skip  # noqa: E501
        dx = np.empty(g.shape, g.dtype)
        kernel_backward((dense(g), kept[0], dx), 1.0 / (1.0 - p))
        return dx, None

    define_quietly("dropout", forward, backward, reads=())


def _masked(k: RowKernels) -> None:
    kernel = k.named("dropout_backward")

    def forward(x: Array, kept: Array, *, p: float) -> Made:
        if not alike(x) or kept.shape != x.shape or not x.flags.c_contiguous:
            return None
        out = np.empty(x.shape, x.dtype)
        kernel((x, dense(kept), out), scale_of_kept(float64 if x.itemsize == 8 else float32, p))
        return out, ()

    def backward(needs: Sequence[bool], g: Array, _: None, __: Any, x: Array, kept: Array, *, p: float) -> Grads:
        dx = np.empty(g.shape, g.dtype)
        kernel((dense(g), dense(kept), dx), scale_of_kept(float64 if g.itemsize == 8 else float32, p))
        return dx, None

    define_quietly("masked", forward, backward, reads=(1,))
