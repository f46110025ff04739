"""Products of 16-bit floats and f32 that is spread over them, on a CUDA device: `gamma * x` under autocast, one kernel.

In: x, of 16-bit floats, dense in any order of its dims; f32 that repeats over some dims (a number a channel, a row).
Out: f32, which lies as x does: what x as f32 times it is, bit for bit; gradients likewise, that of x rounded once.
Why: op by op x is written as f32 and kept so, which moves twice the bytes each way. Kernels: narrow.cu.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.eager.device.define import Grads, define_there
from compiler_core.eager.device.kernels import I32, I64, DeviceKernels, kernels
from compiler_core.eager.device.narrow import BLOCKS, VECTOR, VECTOR_NBYTES, repeats_of
from compiler_core.eager.device.orders import Order, as_it_lies, as_seen, order_of
from compiler_core.ops.registry import OPS, Array, run_eager
from compiler_core.ops.whole import Made
from compiler_core.runtime.cuda.replay import Address, empty, replays, replays_backward

_F32 = np.dtype(np.float32)
Repeats = tuple[int, int, int]  # run, period, near: see narrow.cu


def _spread(scale: Any, x: Array, order: Order) -> Repeats | None:
    """How the scale repeats over x, whose dims lie in that order; None: in a way of which the kernels know nothing."""
    spread = cuda.module().broadcast_to(scale, x.shape)
    return repeats_of(spread.transpose(order))


def _launch(k: DeviceKernels, name: str, a: Any, b: Any, repeats: Repeats, dtype: Any) -> Array:
    """a * b, as a lies, which is row-major."""
    run, period, near = repeats
    out: Any = empty(a.shape, dtype)
    fits = 0 if near % VECTOR else 1
    if near == 1 and (period == 1 or not run % VECTOR):
        fits = 2
    starts_well = not any(x.data.ptr % VECTOR_NBYTES for x in ((a, out) if fits == 2 else (a, b, out)))
    wide = fits if starts_well and not a.size % VECTOR else 0
    steps = a.size // VECTOR if wide else a.size
    k.all(name, steps, a, Address(b.data.ptr), out, I64(a.size), *map(I64, repeats), I32(wide), blocks=BLOCKS)
    made: Array = out
    return made


@replays
def _forward(_: DeviceKernels, x: Any, scale: Any) -> Made:
    k = kernels(x.dtype, "narrow.cu") if x.dtype.itemsize == 2 and scale.dtype == _F32 and x.size else None
    order = order_of(x)
    repeats = None if k is None or order is None else _spread(scale, x, order)
    if k is None or order is None or repeats is None:
        return None
    return as_seen(_launch(k, "scale_up", as_it_lies(x, order), scale, repeats, _F32), order), ()


@replays_backward
def _backward(_: DeviceKernels, needs: Sequence[bool], g: Array, out: Any, kept: Any, x: Any, scale: Any) -> Grads:
    k, order = kernels(x.dtype, "narrow.cu"), order_of(x)
    assert k is not None, "the forward had them"
    assert order is not None, "the forward had it"
    slopes, dx, ds = as_it_lies(g, order), None, None
    if needs[0]:
        repeats = _spread(scale, x, order)
        assert repeats is not None, "the forward had them"
        dx = as_seen(_launch(k, "scale_down", slopes, scale, repeats, x.dtype), order)
    if needs[1]:
        products = _launch(k, "scale_wide", slopes, as_it_lies(x, order), (x.size, 1, x.size), _F32)
        more = x.ndim - scale.ndim
        over = tuple(d for d in range(x.ndim) if d < more or (scale.shape[d - more] == 1 and x.shape[d] != 1))
        total = as_seen(products, order)
        ds = run_eager(OPS["sum"], [total], {"dims": over}) if over else total
        ds = ds.reshape(scale.shape)
    return dx, ds


def define_scaled() -> None:
    """Register the definition."""
    define_there("widened_product", _forward, _backward, reads=(0, 1), arrange=None)
