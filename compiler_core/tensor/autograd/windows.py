"""Gradients of parts of one value, put together once all have come: those of `unbind`, `chunk`, `split`, of slices.

In: the gradients of slices by steps of 1, arrays, as the engine meets them. Out: `Windows`, which stands for their sum
until somebody reads it; `joined`: the array. By the slices' own rule each part would be padded with zeros to the whole,
and the paddings added. Here parts that fill the whole along one dim are copied to their places, once; parts that lie
there already, since one kernel made them all, are the whole as they are. All else goes by the rule.
Nothing here is recorded: gradients that are to be differentiated again go by the rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.device import array_module, is_array
from compiler_core.meta import Shape
from compiler_core.ops import prims
from compiler_core.ops.on_device import JOIN
from compiler_core.ops.primitives.arithmetic import add_gradients
from compiler_core.ops.registry import OPS, Array, Value

SLICE = OPS["slice"]


class Windows:
    """The sum of gradients, each of which is zero outside of its part of a value of `shape`. parts: (start, gradient)
    by the places of their first elements."""

    __slots__ = ("parts", "shape")

    def __init__(self, shape: Shape, start: tuple[int, ...], grad: Array) -> None:
        self.shape, self.parts = shape, [(start, grad)]

    def joined(self) -> Value:
        """The sum."""
        dim = self._dim_filled()
        if dim is None:
            return self._by_rule()
        if len(self.parts) > 1 and self._lies(dim):
            return self._as_it_lies(dim)
        if type(self._first) is cuda.lone.array:
            made = JOIN.get()(dim, [grad for _, grad in self.parts])
            if made is not None:
                return made
        number = cuda.number_of(self._first)
        if number is None:
            return self._copied(dim)
        with cuda.on(number), cuda.allocating(number):
            return self._copied(dim)

    @property
    def _first(self) -> Array:
        return self.parts[0][1]

    def _dim_filled(self) -> int | None:
        """The dim along which the parts, in order, fill the whole; None where they do not."""
        shape = self._first.shape
        cut = [d for d, (n, whole) in enumerate(zip(shape, self.shape)) if n != whole]
        if len(cut) != 1:
            return None
        dim, end = cut[0], 0
        self.parts.sort(key=lambda part: part[0][dim])
        for start, grad in self.parts:
            others = (*grad.shape[:dim], *grad.shape[dim + 1 :])
            is_alike = type(grad) is type(self._first) and grad.dtype == self._first.dtype
            if start[dim] != end or others != (*self.shape[:dim], *self.shape[dim + 1 :]) or not is_alike:
                return None
            end += grad.shape[dim]
        return dim if end == self.shape[dim] else None

    def _by_rule(self) -> Value:
        total: Any = None
        for start, grad in self.parts:
            after = tuple(n - first - m for n, first, m in zip(self.shape, start, grad.shape))
            padded = prims.pad(grad, start, after)
            total = padded if total is None else add_gradients(total, padded)
        return total

    def _copied(self, dim: int) -> Array:
        out: Array = array_module(self._first).empty(self.shape, self._first.dtype)
        for start, grad in self.parts:
            out[(slice(None),) * dim + (slice(start[dim], start[dim] + grad.shape[dim]),)] = grad
        return out

    def _lies(self, dim: int) -> bool:
        """Whether the parts lie in one memory as the parts of the whole would."""
        step = self._step(dim)
        strides, at = _strides(self._first, dim), _address(self._first)
        return step > 0 and all(
            _memory(grad) is _memory(self._first)
            and _strides(grad, dim) == strides
            and _address(grad) == at + start[dim] * step
            and (grad.shape[dim] == 1 or grad.strides[dim] == step)
            for start, grad in self.parts
        )

    def _step(self, dim: int) -> int:
        """Bytes from one place along `dim` to the next, as the first two parts lie."""
        (_, first), (start, second) = self.parts[:2]
        return (_address(second) - _address(first)) // start[dim]

    def _as_it_lies(self, dim: int) -> Array:
        first = self._first
        strides = (*first.strides[:dim], self._step(dim), *first.strides[dim + 1 :])
        whole: Array = array_module(first).lib.stride_tricks.as_strided(first, self.shape, strides)
        return whole


def _strides(grad: Array, dim: int) -> list[int]:
    return [step for d, (step, n) in enumerate(zip(grad.strides, grad.shape)) if d != dim and n > 1]


def _address(grad: Any) -> int:
    return int(grad.data.ptr if cuda.is_array(grad) else grad.ctypes.data)


def _memory(grad: Any) -> Any:
    """What owns the memory."""
    if cuda.is_array(grad):
        return grad.data.mem
    while isinstance(grad.base, np.ndarray):
        grad = grad.base
    return grad


def window_of(node: Any, grad: Value) -> Windows | None:
    """The gradient of a slice's operand, to be joined with others; None: it goes by the rule."""
    steps = node.attrs["steps"]
    if not is_array(grad) or steps.count(1) != len(steps):
        return None
    operand = node.saved[0]
    shape = tuple(getattr(operand, "raw", operand).shape)
    return Windows(shape, tuple(node.attrs["starts"]), grad) if 0 not in grad.shape else None


def added(before: Any, grad: Any) -> Any:
    """The sum of two gradients, either of which may be of parts."""
    if type(before) is not Windows and type(grad) is not Windows:
        return add_gradients(before, grad)
    if type(before) is Windows and type(grad) is Windows:
        before.parts += grad.parts
        return before
    return add_gradients(*(one.joined() if type(one) is Windows else one for one in (before, grad)))
