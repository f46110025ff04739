"""Eager definition of group norm on a CUDA device. See device_rules.py.

Groups are normalised as layer norm's rows. Kept: mean and 1/std of each, in the dtype that the kernels compute in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from compiler_core.eager.device_define import Grads, alike, define_there
from compiler_core.eager.device_kernels import DeviceKernels
from compiler_core.ops.registry import Array
from compiler_core.ops.whole import COMPOSITES, Composite, Made


def _three(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(samples, channels, elements of each)."""
    return shape[0], shape[1], math.prod(shape[2:])


def _group_norm(
    k: DeviceKernels, x: Array, weight: Array | None, bias: Array | None, *, groups: int, eps: float
) -> Made:  # fmt: skip
    fits = all(p is None or p.shape == x.shape[1:2] for p in (weight, bias))
    if not alike(k, weight, bias) or not x.size or not fits:
        return None
    if k.dtype.itemsize == 2:
        return None  # CuPy, which scales here, would round twice
    made = _rows().forward(x.reshape(x.shape[0] * groups, -1), None, None, dims=1, eps=eps)
    if made is None:
        return None
    out, kept = made[0].reshape(_three(x.shape)), made[1]
    if weight is not None:
        out *= weight[:, None]
    if bias is not None:
        out += bias[:, None]
    return out.reshape(x.shape), kept


def _group_norm_backward(k: DeviceKernels, needs: Sequence[bool], g: Array, _: Any, kept: Any, x: Array, weight: Array | None, bias: Array | None, *, groups: int, eps: float) -> Grads | None:  # fmt: skip  # noqa: E501
    given, grads, dx, dw = x.reshape(x.shape[0] * groups, -1), g.reshape(_three(x.shape)), None, None
    if needs[0]:
        inner = grads if weight is None else grads * weight[:, None]
        made = _rows().backward(
            [True, False, False], inner.reshape(given.shape), None, kept, given, None, None, dims=1, eps=eps
        )
        if made is None or made[0] is None:
            return None
        dx = made[0].reshape(x.shape)
    if needs[1]:
        again = _rows().forward(given, None, None, dims=1, eps=eps)
        if again is None:
            return None
        dw = (grads * again[0].reshape(grads.shape)).sum(axis=(0, 2))
    return dx, dw, grads.sum(axis=(0, 2)) if needs[2] else None


def _rows() -> Composite:
    """What normalises rows."""
    found = COMPOSITES["layer_norm"].on_device()
    assert found is not None
    return found


def define_norms() -> None:
    """Define it."""
    define_there("group_norm", _group_norm, _group_norm_backward, reads=(0, 1))
