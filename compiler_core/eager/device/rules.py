"""Eager definitions of composites on a CUDA device: eager/rules.py's, with the kernels of kernels.cu.

In: CuPy's arrays of one device, of f32, f64, f16 or bf16, all operands alike. Out: see ops/whole.py. Each declines
(None) anything else, empty arrays, and operands that the composition refuses, which then says why. 16-bit floats are
computed in f32 and rounded at the end, as the composition has it. Products are CuPy's, so cuBLAS's.
The kernels are always used, from the first call on, so that the same call gives the same bits throughout a run. Before
that each composite and dtype has to give the composition's numbers, of the CPU, once (proof.py); where it does
not, a warning says so, and the composition it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.eager.device.attention import attended_in_blocks, blocks_backward
from compiler_core.eager.device.averages import define_average
from compiler_core.eager.device.batch_norm import define_batch_norm
from compiler_core.eager.device.checks import ask
from compiler_core.eager.device.convolution import define_convolutions
from compiler_core.eager.device.define import Grads, alike, define_there
from compiler_core.eager.device.kernels import F64, I32, I64, MOST_ROWS, U32, DeviceKernels, dense, kernels
from compiler_core.eager.device.moves import define_moves
from compiler_core.eager.device.narrow import joined_with
from compiler_core.eager.device.norms import define_norms
from compiler_core.eager.device.orders import row_major
from compiler_core.eager.device.pointwise import define_pointwise_there
from compiler_core.eager.device.pooling import define_pooling
from compiler_core.eager.device.products import define_products
from compiler_core.eager.device.rolling import define_roll
from compiler_core.eager.device.rows import define_rows_there, row_kernels
from compiler_core.eager.device.scaled import define_scaled
from compiler_core.eager.operands import gathered, spreads
from compiler_core.ops import functional  # noqa: F401  declares the composites
from compiler_core.ops.attention import sizes
from compiler_core.ops.convolution import composite as composite_convolution  # noqa: F401  declares the composites
from compiler_core.ops.indexing.adding import add_at
from compiler_core.ops.random.op import least_kept
from compiler_core.ops.registry import OPS, Array
from compiler_core.ops.whole import DEFINITIONS_THERE, Composite, Made
from compiler_core.runtime.cuda.replay import Known, Number, empty, replayed, replays, replays_backward

_BOOL, _INT64 = np.dtype(np.bool_), np.dtype(np.int64)


# ---- dropout


def _dropout(k: DeviceKernels, x: Array, key: Array | None, *, p: float, stream: int) -> Made:
    if key is None or type(key) is not np.ndarray or not x.size:
        return None
    seed, offset, shard = map(int, key)
    numbers = [Number(n % 2**64) for n in (seed, offset + stream, shard * x.size)]
    found: Made = replayed(_drawn, (k, p), (x, *numbers), partial(_dropped, k, p))
    return found


_drawn: Known = {}


def _dropped(k: DeviceKernels, p: float, x: Array, seed: Number, place: Number, first: Number) -> Made:
    out, kept = empty(x.shape, x.dtype), empty(x.shape, np.uint8)
    k.all("dropout", x.size, row_major(x), out, kept, I64(x.size), _factor(k, p), U32(least_kept(p)), seed, place,
          first)  # fmt: skip
    return out, (kept,)


@replays_backward
def _dropout_backward(k: DeviceKernels, needs: Sequence[bool], g: Array, _: Any, kept: Any, x: Array, key: Any, *, p: float, **__: Any) -> Grads:  # fmt: skip  # noqa: E501
    dx = empty(g.shape, g.dtype)
    k.all("dropout_backward", g.size, g, kept[0], dx, I64(g.size), _factor(k, p))
    return dx, None


def _factor(k: DeviceKernels, p: float) -> Any:
    """What is kept is multiplied by this: a number of the operand's dtype."""
    return F64(np.float64(1.0 / (1.0 - p)).astype(k.dtype))


@replays
def _with_number(k: DeviceKernels, x: Array, *, op: str, number: float) -> Made:
    joins = kernels(x.dtype, "narrow.cu") if x.dtype.itemsize == 2 and x.size else None
    return None if joins is None else (joined_with(joins, op, x, number), ())


@replays_backward
def _with_number_backward(k: DeviceKernels, needs: Any, g: Array, _: Any, kept: Any, x: Array, **how: Any) -> Any:
    made = _with_number(k, g, **how)
    return None if made is None else (made[0],)


# ---- attention


def _attention(
    k: DeviceKernels, q: Array, key: Array, value: Array, mask: Array | None, *, causal: bool, scale: float
) -> Made:
    lead = q.shape[:-2]
    if not alike(k, key, value) or q.ndim < 2 or not (q.size and key.size and value.size):
        return None
    if key.shape[:-2] != lead or value.shape[:-1] != key.shape[:-1] or q.shape[-1] != key.shape[-1]:
        return None
    scores = (*lead, q.shape[-2], key.shape[-2])
    if mask is not None and (mask.dtype not in (_BOOL, k.dtype) or not spreads(mask.shape, scores)):
        return None
    if math.prod(scores) >= sizes.MANY:  # of fewer all weights are kept for the backward
        return attended_in_blocks(q, key, value, mask, causal, scale)
    of = row_kernels("causal_weights" if causal and mask is None else "weights", k.wide)
    if of is None:
        return None
    q, key, value = (x.astype(k.wide, copy=False) for x in (q, key, value))
    weights = dense(cuda.module().matmul(q, key.swapaxes(-1, -2)))
    factor = scale
    if mask is not None:
        weights *= k.wide.type(scale)
        factor = 1.0
        if mask.dtype == _BOOL:
            weights = cuda.module().where(mask, weights, k.wide.type(-math.inf))
        else:
            weights += mask.astype(k.wide, copy=False)
    n, length = scores[-1], scores[-2]
    of.lines("forward", weights.size // n, n, weights, weights, I64(n), I64(length), F64(factor))
    out = dense(cuda.module().matmul(weights, value)).astype(k.dtype, copy=False)
    return out, (weights,)


def _attention_backward(
    k: DeviceKernels, needs: Sequence[bool], g: Array, _: Any, kept: Any, q: Array, key: Array, value: Array,
    mask: Array | None, *, causal: bool, scale: float,
) -> Grads | None:  # fmt: skip
    if kept[0].ndim == 1:
        return blocks_backward(needs, g, kept[0], q, key, value, mask, causal, scale)
    matmul, of, (weights,) = cuda.module().matmul, row_kernels("weights", k.wide), kept
    if of is None:
        return None
    g, q, key, value = (x.astype(k.wide, copy=False) for x in (g, q, key, value))
    dv = matmul(weights.swapaxes(-1, -2), g) if needs[2] else None
    dq = dk = dm = None
    if needs[0] or needs[1] or needs[3]:
        slopes, n = dense(matmul(g, value.swapaxes(-1, -2))), weights.shape[-1]
        factor = 1.0 if needs[3] else scale
        of.lines("backward", weights.size // n, n, slopes, weights, slopes, I64(n), I64(1), F64(factor))
        if needs[3] and mask is not None:
            dm = gathered(slopes, mask.shape)
            slopes = slopes * k.wide.type(scale)
        dq = matmul(slopes, key) if needs[0] else None
        dk = matmul(slopes.swapaxes(-1, -2), q) if needs[1] else None
    return [None if d is None else dense(d).astype(k.dtype, copy=False) for d in (dq, dk, dv, dm)]


# ---- classes


def _cross_entropy(k: DeviceKernels, x: Array, target: Array, *, ignore_index: int, reduction: str, smoothing: float) -> Any:  # fmt: skip  # noqa: E501
    if not x.size or x.ndim not in (1, 2) or target.dtype != _INT64 or target.shape != x.shape[:-1]:
        return None
    if reduction not in ("none", "mean", "sum") or target.size >= MOST_ROWS:
        return None
    rows, n = target.size, x.shape[-1]
    given, chosen = row_major(x), dense(target)
    if not ask("cross_entropy", chosen, n, ignore_index):
        checked = OPS["where"].eager(cuda.module(), chosen != ignore_index, chosen, np.int64(0))
        OPS["check_index"].eager(cuda.module(), checked, n)
    losses, logs = empty(target.shape, k.wide), empty((2, *target.shape), k.wide)
    k.rows("cross_entropy", rows, n, given, chosen, losses, logs, I64(n), I64(ignore_index), F64(smoothing))
    if reduction == "none":
        return losses.astype(x.dtype), (logs, None, given)
    total, count, is_mean = empty((), x.dtype), empty((), k.wide), reduction == "mean"
    k.block("cross_entropy_total", losses, chosen, total, count, I64(rows), I64(n), I64(ignore_index), I32(is_mean))
    return total, (logs, count if is_mean else None, given)


def _cross_entropy_backward(k: DeviceKernels, needs: Sequence[bool], g: Array, _: Any, kept: Any, x: Array, target: Array, *, ignore_index: int, reduction: str, smoothing: float) -> Grads:  # fmt: skip  # noqa: E501
    logs, count, given = kept  # the logits as they were: torch keeps probabilities, and lets users write into them
    dx, n = empty(x.shape, x.dtype), x.shape[-1]
    each = I32(reduction == "none")
    k.rows("cross_entropy_backward", target.size, n, given, dense(target), logs, g, count, dx, I64(n),
           I64(ignore_index), each, F64(smoothing))  # fmt: skip
    return dx, None


def _embedding(k: DeviceKernels, weight: Array, index: Array, *, padding_idx: int | None) -> Made:
    if weight.ndim != 2 or index.dtype != _INT64 or not (index.size and weight.size):
        return None
    if not ask("embedding", index, weight.shape[0]):
        OPS["check_index"].eager(cuda.module(), index, weight.shape[0])
    return cuda.module().take(weight, index, axis=0), ()


def _embedding_backward(k: DeviceKernels, needs: Sequence[bool], g: Array, _: Any, kept: Any, weight: Array, index: Array, *, padding_idx: int | None) -> Grads:  # fmt: skip  # noqa: E501
    cupy = cuda.module()
    dw = add_at(cupy, cupy.zeros(weight.shape, k.wide), index, g.astype(k.wide, copy=False))
    if padding_idx is not None:
        dw[padding_idx] = 0
    return dw.astype(k.dtype, copy=False), None


def _define_all() -> None:
    define_average()
    define_batch_norm()
    define_convolutions()
    define_norms()
    define_moves()
    define_pooling()
    define_roll()
    define_scaled()
    define_there("dropout", _dropout, _dropout_backward, reads=())
    define_there("with_number", _with_number, _with_number_backward, reads=(), arrange=None)
    define_products()
    define_there("attention", _attention, _attention_backward, arrange=None)
    define_there("embedding", _embedding, _embedding_backward, reads=(1,))
    define_there("cross_entropy", _cross_entropy, _cross_entropy_backward, reads=(1,))


def _derive(composite: Composite) -> None:
    (define_rows_there if composite.rows else define_pointwise_there)(composite)


_define_all()
DEFINITIONS_THERE.fill(_derive)
