"""Eager definition of `roll` on a CUDA device: elements are read once from where they lie, in whatever way.

In: x of any dtype that there are kernels of, in up to six dims; how many places further on an element is taken from,
along each dim. Out: a result that lies as x does; a gradient rolled back. Kernel: turns.cu. See rules.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler_core.eager.device.boxes import boxed_with
from compiler_core.eager.device.define import Grads, define_there
from compiler_core.eager.device.kernels import I32, I64, DeviceKernels, kernels
from compiler_core.eager.device.orders import FILE, as_seen, order_of
from compiler_core.ops.registry import Array
from compiler_core.ops.whole import Made
from compiler_core.runtime.cuda.replay import Address, empty, replays, replays_backward

_BLOCKS, _NBYTES = 1 << 15, 16


def _rolled(k: DeviceKernels, x: Array, cuts: Sequence[int]) -> Array | None:
    order = order_of(x) or tuple(range(x.ndim))
    given = x.transpose(order)
    turned = tuple([cuts[d] for d in order])
    found = boxed_with(given.shape, given.strides, x.itemsize, not x.data.ptr % _NBYTES, turned)  # type: ignore[attr-defined]
    if found is None:
        return None
    out = empty(given.shape, x.dtype)
    k.all("roll", found.steps, Address(x.data.ptr), out, I64(found.steps), found.box, found.dims, I32(found.wide),  # type: ignore[attr-defined]
          blocks=_BLOCKS)  # fmt: skip
    return as_seen(out, order)


@replays
def _roll(k: DeviceKernels, x: Array, *, cuts: tuple[int, ...]) -> Made:
    out = _rolled(k, x, cuts) if x.size else None
    return None if out is None else (out, ())


@replays_backward
def _roll_backward(k: DeviceKernels, needs: Sequence[bool], g: Array, _: Any, kept: Any, x: Any, *, cuts: tuple[int, ...]) -> Grads | None:  # fmt: skip  # noqa: E501
    dx = _rolled(k, g, [(n - cut) % n for n, cut in zip(g.shape, cuts)])
    return None if dx is None else (dx,)


def define_roll() -> None:
    """Define it."""

    def find(dtype: Any) -> DeviceKernels | None:
        return kernels(dtype, FILE)

    define_there("roll", _roll, _roll_backward, reads=(), find=find, arrange=None)
