"""Eager definition of the mean of 16-bit floats over some dims on a CUDA device: elements are read and rounded once.

In: an array that lies in any way, dims. Out: the mean, of a sum in f32; a gradient that repeats, as a sum's does: a
number for each element of the mean, shown over the dims. Kernels: sums.cu, narrow.cu. See rules.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from compiler_core import cuda
from compiler_core.eager.device.define import Grads, define_there
from compiler_core.eager.device.kernels import DeviceKernels, kernels
from compiler_core.eager.device.narrow import joined_with
from compiler_core.eager.device.sums import average
from compiler_core.ops.registry import Array
from compiler_core.ops.whole import Made
from compiler_core.runtime.cuda.replay import replays, replays_backward


def _joins(k: DeviceKernels) -> DeviceKernels | None:
    return kernels(k.dtype, "narrow.cu")


@replays
def _average(k: DeviceKernels, x: Array, *, dims: tuple[int, ...], keepdim: bool) -> Made:
    made = average(x, dims) if x.size and k.dtype != k.wide and _joins(k) is not None else None
    if made is None:
        return None
    return (made.reshape(_kept(x.shape, dims)) if keepdim else made), ()


@replays_backward
def _average_backward(k: DeviceKernels, needs: Sequence[bool], g: Array, _: Any, kept: Any, x: Any, *, dims: tuple[int, ...], keepdim: bool) -> Grads | None:  # fmt: skip  # noqa: E501
    joins, shape = _joins(k), tuple(x.shape)
    if joins is None:
        return None
    each = joined_with(joins, "div", g, math.prod([shape[d] for d in dims]))
    return (cuda.module().broadcast_to(each.reshape(_kept(shape, dims)), shape),)


def _kept(shape: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([1 if d in dims else n for d, n in enumerate(shape)])


def define_average() -> None:
    """Define it."""

    def find(dtype: Any) -> DeviceKernels | None:
        return kernels(dtype, "sums.cu")

    define_there("average", _average, _average_backward, reads=(), find=find)
