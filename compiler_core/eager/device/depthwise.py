"""Depthwise convolutions of eager code on a CUDA device: 16-bit floats, one channel a group, and their gradients.

In: CuPy's arrays of two spatial dims, attributes as ops/convolution/op.py has them. Out: arrays that lie with channels
last, rounded once, a bias added before; None where cuDNN is to compute it: an odd number of channels, kernels of more
than WIDEST elements a row. Added in f32, always in the same order.
Kernels: depthwise.cu, compiled for each width, stride and dilation along a row, in about a second, kept on disk.
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from compiler_core.eager.device.kernels import I32, I64, MOST, MOST_ROWS, DeviceKernels, compiled, dense
from compiler_core.eager.device.kernels import source as text_of
from compiler_core.eager.device.orders import as_it_lies, as_seen, laid, last
from compiler_core.eager.device.sums import wide_sum
from compiler_core.ops.pooling.geometry import window_counts
from compiler_core.ops.registry import Array
from compiler_core.runtime.cuda.replay import empty

Dims = tuple[int, ...]
WIDEST = 32  # elements of a row of a kernel, and places that a thread reads of a row
_LAST = last(4)
_WORD = 4  # bytes
_RUNS = (7, 4)  # results that a thread has side by side
_LANES = 32  # pairs of channels of a block, for the weight's gradient
_BLOCKS, _TURNS = 1 << 11, 8  # that keep a device busy; of a thread, at least


class Depthwise(NamedTuple):
    """One convolution. sizes: of x, out: of the result, kernel: heights and widths. run: results of a thread."""

    channels: int
    sizes: Dims
    out: Dims
    kernel: Dims
    stride: Dims
    low: Dims
    dilation: Dims
    run: int

    @property
    def turned(self) -> Depthwise:
        """That of cotangents which gives the input's gradient, with the weight flipped, where strides are 1."""
        low = tuple((k - 1) * d - a for k, d, a in zip(self.kernel, self.dilation, self.low))
        return self._replace(sizes=self.out, out=self.sizes, low=low, run=_run(self.sizes[1]))

    @property
    def numbers(self) -> list[Any]:
        """What all kernels are told."""
        vertical = (self.kernel[0], self.stride[0], self.dilation[0], *self.low)
        return [I32(n) for n in (self.channels // 2, *self.sizes, *self.out, *vertical)]

    @property
    def runs(self) -> int:
        """Of a row of results."""
        return -(-self.out[1] // self.run)


@lru_cache(maxsize=1024)
def depthwise_of(
    x: Dims, weight: Dims, stride: Dims, low: Dims, high: Dims, dilation: Dims, groups: int
) -> Depthwise | None:
    """The convolution of these sizes; None if it is none of these. Raises ShapeError where its window does not fit."""
    if len(x) != 4 or len(weight) != 4 or weight[1] != 1 or not x[1] == weight[0] == groups or groups % 2:
        return None
    span = (_RUNS[0] - 1) * stride[1] + (weight[3] - 1) * dilation[1] + 1
    if not all((*x, *weight)) or weight[3] > WIDEST or span > 2 * WIDEST:
        return None
    sizes = tuple(a + n + b for a, n, b in zip(low, x[2:], high))
    out = window_counts("convolution", sizes, weight[2:], stride, dilation)
    made = Depthwise(groups, x[2:], tuple(out), weight[2:], stride, low, dilation, _run(out[1]))
    is_small = max(math.prod(x), x[0] * groups * math.prod(out)) // 2 < MOST_ROWS
    return made if math.prod(out) and is_small else None


def _run(width: int) -> int:
    """Results beside each other that waste least of a row."""
    return min(_RUNS, key=lambda n: -(-width // n) * n)


def _kernels(of: Depthwise, dtype: Any) -> DeviceKernels | None:
    defined = {"KW": of.kernel[1], "SW": of.stride[1], "DW": of.dilation[1], "RUN": of.run}
    name = "depthwise " + " ".join(f"{key}={n}" for key, n in defined.items())

    def text() -> str:
        lines = "".join(f"#define {key} {n}\n" for key, n in defined.items())
        return lines + text_of(dtype, Path(__file__).with_suffix(".cu").name)

    return compiled(dtype, name, text, probe="depthwise")


def _taps(weight: Array) -> Array:
    """The weight as f32[taps, channels]."""
    rows = weight.reshape(1, weight.shape[0], -1)  # one image, of whose channels the taps are places
    made: Array = laid(rows, last(3), "f4")
    return made


def _on_words(x: Array) -> Array:
    """x, dense, on four bytes, of which the kernels read two elements at once: a copy, if it does not lie so."""
    made: Array = dense(x)
    return made.copy() if made.data.ptr % _WORD else made  # type: ignore[attr-defined]


def convolved(of: Depthwise, x: Array, weight: Array, bias: Array | None, flip: bool = False) -> Array | None:
    """The convolution; of cotangents with `of.turned` and flip the input's gradient."""
    k = _kernels(of, x.dtype)
    if k is None:
        return None
    rows, batch = _on_words(as_it_lies(x, _LAST)), len(x)
    own = None if bias is None else _on_words(bias)
    out = empty((batch, *of.out, of.channels), x.dtype)
    count = batch * of.out[0] * of.runs * (of.channels // 2)
    k.block("depthwise", rows, _taps(weight), own, out, I64(count), *of.numbers, I32(of.runs), I32(flip),
            grid=(-(-count // MOST),))  # fmt: skip
    return as_seen(out, _LAST)


def slope_of_input(of: Depthwise, g: Array, weight: Array) -> Array | None:
    """The gradient of x."""
    if of.stride == (1, 1):
        return convolved(of.turned, g, weight, None, flip=True)
    k = _kernels(of, g.dtype)
    if k is None:
        return None
    dx = empty((len(g), *of.sizes, of.channels), g.dtype)
    count = dx.size // 2
    k.block("depthwise_input", _on_words(as_it_lies(g, _LAST)), _taps(weight), dx, I64(count), *of.numbers,
            grid=(-(-count // MOST),))  # fmt: skip
    return as_seen(dx, _LAST)


def slope_of_weight(of: Depthwise, x: Array, g: Array, dtype: Any) -> Array | None:
    """The gradient of the weight, T[channels, 1, *kernel]."""
    k = _kernels(of, x.dtype)
    if k is None:
        return None
    pairs, runs = of.channels // 2, len(x) * of.out[0] * of.runs
    lanes = min(_LANES, 1 << (pairs - 1).bit_length())
    columns, least = -(-pairs // lanes) * of.kernel[0], MOST // lanes * _TURNS
    splits = max(1, min(_BLOCKS // columns, runs // least))
    share = -(-runs // splits)
    splits = -(-runs // share)
    parts = empty((splits, math.prod(of.kernel) * of.channels), k.wide)
    both = [_on_words(as_it_lies(array, _LAST)) for array in (x, g)]
    k.block("depthwise_weight", *both, parts, I64(runs), I64(share), I32(lanes), *of.numbers, I32(of.runs),
            grid=(columns, splits))  # fmt: skip
    made = wide_sum(parts, (0,)) if splits > 1 else parts
    if made is None:
        made = parts.sum(axis=0)
    taps = made.reshape(1, math.prod(of.kernel), of.channels)
    return laid(taps, last(3), dtype).reshape(of.channels, 1, *of.kernel)
