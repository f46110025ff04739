"""Eager definition of convolution on a CUDA device, of f32 and 16-bit floats: cuDNN's, with a bias added in place.

In: x T[N, C, H, W], weight T[O, C/groups, kH, kW], bias T[O] or None; under autocast weight and bias in f32, which are
cast here, once in a region. Out: a result that lies as cuDNN leaves it (runtime/cuda/eager_convolution.py), gradients
of the parameters' dtypes; a bias's is an f32 sum. What cuDNN does not take is the composition's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.dtype import of
from compiler_core.eager.device.define import Grads, alike, define_there
from compiler_core.eager.device.depthwise import (
    Depthwise,
    convolved,
    depthwise_of,
    slope_of_input,
    slope_of_weight,
)
from compiler_core.eager.device.kernels import DeviceKernels
from compiler_core.eager.device.lowered import with_lowered
from compiler_core.eager.device.narrow import add_to_rows, narrowed
from compiler_core.eager.device.orders import as_it_lies, as_seen, laid, last
from compiler_core.eager.device.sums import wide_sum
from compiler_core.ops.on_device import CONVOLUTION
from compiler_core.ops.registry import OPS, Array, run_eager
from compiler_core.ops.whole import Made
from compiler_core.runtime.cuda.eager_convolution import order_for
from compiler_core.runtime.cuda.replay import replays, replays_backward, spoil

_F32, _LAST = np.dtype(np.float32), last(4)
_PLAIN = (0, 1, 2, 3)


def _by_cudnn(name: str, operands: Sequence[Array], attrs: dict[str, Any]) -> Array | None:
    """An op of ops/convolution/op.py; None where cuDNN does not compute it."""
    found: Array | None = CONVOLUTION.get()(cuda.module(), OPS[name], operands, attrs)
    return found


@replays
def _convolution(k: DeviceKernels, x: Array, weight: Array, bias: Array | None, **places: Any) -> Made:
    if k.wide != _F32 or not alike(k, weight, bias) or x.ndim != 4 or weight.ndim != 4:
        return None
    if bias is not None and bias.shape != weight.shape[:1]:
        return None
    one = _depthwise(k, x, weight, places)
    out = _by_cudnn("convolution", (x, weight), places) if one is None else convolved(one, x, weight, bias)
    if out is None:
        return None
    if bias is None or one is not None:
        return out, ()
    if k.dtype == _F32:
        spoil()
        out += bias[:, None, None]
    else:
        add_to_rows(as_it_lies(out, _LAST), bias)
    return out, ()


def _depthwise(k: DeviceKernels, x: Array, weight: Array, places: dict[str, Any]) -> Depthwise | None:
    """What our kernels compute."""
    return depthwise_of(x.shape, weight.shape, **places) if k.dtype.itemsize == 2 else None


@replays_backward
def _convolution_backward(
    k: DeviceKernels, needs: Sequence[bool], g: Array, _: Any, kept: Any, x: Array, weight: Array, bias: Array | None,
    **places: Any,
) -> Grads | None:  # fmt: skip
    lower, order, dx, dw = (kept or (weight,))[0], order_for(of(k.dtype)), None, None
    slopes, one = as_seen(as_it_lies(g, order), order), _depthwise(k, x, weight, places)
    if one is not None:
        dx = slope_of_input(one, slopes, lower) if needs[0] else None
        dw = slope_of_weight(one, x, slopes, weight.dtype) if needs[1] else None
    else:
        if needs[0]:
            dx = _by_cudnn("convolution_input", (slopes, lower), {"size": tuple(x.shape[2:]), **places})
        if needs[1]:
            made = _by_cudnn("convolution_weight", (x, slopes), {"kernel": tuple(weight.shape[2:]), **places})
            dw = None if made is None else laid(made, _PLAIN, weight.dtype)
    if (needs[0] and dx is None) or (needs[1] and dw is None):
        return None
    return dx, dw, _sums(slopes, bias.dtype) if needs[2] and bias is not None else None


def _sums(slopes: Array, dtype: Any) -> Array:
    """Of each channel's, added in f32."""
    made = wide_sum(slopes, (0, 2, 3))
    found: Array = run_eager(OPS["sum"], [slopes], {"dims": (0, 2, 3)}) if made is None else made
    return found.astype(dtype, copy=False)


# ---- weights in f32


def _lower(weight: Array, dtype: Any) -> Array:
    """In 16 bits, as cuDNN reads it."""
    if weight.ndim != 4:
        made = narrowed(weight, dtype)
        return weight.astype(dtype) if made is None else made
    return as_seen(laid(weight, _LAST, dtype), _LAST)


def define_convolutions() -> None:
    """Define both."""
    define_there("convolution", _convolution, _convolution_backward, reads=(0, 1), arrange=None)
    lowered = with_lowered(_convolution, _lower, 4)
    define_there("lowered_convolution", lowered, _convolution_backward, reads=(0,), arrange=None)
