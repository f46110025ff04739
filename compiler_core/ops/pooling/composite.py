"""Pooling over any Value, with torch's names and arguments: max, average, LP; and unpooling.

In: T[N, C, *n] or T[C, *n]; kernel_size, stride (None: the kernel's), padding, dilation: one int or one a spatial dim.
Out: T[..., *o]. ceil_mode keeps a last window that hangs over the end, if it starts within input or low padding.
The place of a maximum is an offset into the input's flattened spatial dims; of equals the first, of NaNs the last.
The gradient of a maximum goes to its place alone. Source: torch.nn.functional.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from compiler_core import dtype as dt
from compiler_core.errors import DTypeError, ShapeError
from compiler_core.meta import Shape
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import broadcast_to, cast, dtype_of, floating, shape_of, widened
from compiler_core.ops.casting import in_float32_on_cpu
from compiler_core.ops.composites.activation import relu
from compiler_core.ops.composites.arithmetic import add, clamp, div, mul, pow, remainder
from compiler_core.ops.composites.logic import lt
from compiler_core.ops.composites.unary import abs, neg, sign
from compiler_core.ops.convolution.composite import Ints, batched, spread, unbatched
from compiler_core.ops.lying import lies
from compiler_core.ops.pooling.windows import lowest
from compiler_core.ops.ranks import at_rank
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import Value
from compiler_core.ops.remembered import remembered
from compiler_core.ops.size_numbers import of_sizes
from compiler_core.ops.whole import whole
from compiler_core.symbolic.expression import is_symbol


class Windows(NamedTuple):
    """Where the windows of a pooling lie: kernel, stride, dilation, zeros in front, zeros behind, number; one a dim."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    counts: tuple[int, ...]

    def starts(self, d: int) -> Value:
        """i64[counts[d]]: the first place of each window along spatial dim d; negative within the padding."""
        return add(mul(prims.iota((self.counts[d],), 0, dt.int64), self.stride[d]), -self.low[d])

    @property
    def are_padded(self) -> bool:
        return any(is_symbol(n) or n for n in (*self.low, *self.high))


def pool_windows(
    sizes: Shape, kernel_size: Ints, stride: Ints | None, padding: Ints, dilation: Ints, ceil_mode: bool
) -> Windows:
    """The windows of a pooling over `sizes`. Raises ShapeError where there is none, or padding is over half of one."""
    rank = len(sizes)
    kernel = spread("kernel_size", kernel_size, rank)
    is_default = stride is None or (not isinstance(stride, int) and len(stride) == 0)
    steps = kernel if is_default else spread("stride", stride, rank)  # type: ignore[arg-type]
    low, gaps = spread("padding", padding, rank), spread("dilation", dilation, rank)
    if min((*kernel, *steps, *gaps)) < 1:
        raise ShapeError("kernel size, stride and dilation should be greater than zero", got=f"{kernel} {steps} {gaps}")
    spans = tuple(d * (k - 1) + 1 for k, d in zip(kernel, gaps))
    if any(p < 0 or p > span // 2 for p, span in zip(low, spans)):
        raise ShapeError("pad should be at least zero and at most half of effective kernel size", got=f"pad={low}")
    counts, high = [], []
    for n, span, step, p in zip(sizes, spans, steps, low):
        count = (n + 2 * p - span + (step - 1 if ceil_mode else 0)) // step + 1
        count -= ceil_mode and (count - 1) * step >= n + p  # the last window has to start within input or low padding
        if count < 1:
            raise ShapeError(
                "pooling: the output is too small", expected="at least one window", got=f"{sizes}, kernel {kernel}"
            )
        counts.append(count)
        rest = (count - 1) * step + span - n - p
        high.append(rest if (ceil_mode or p) and rest >= 0 else 0)
    return Windows(kernel, steps, gaps, low, tuple(high), tuple(counts))


def _padded(x: Value, windows: Windows, value: float) -> Value:
    return padded(x, windows.low, windows.high, value) if windows.are_padded else x


def padded(x: Value, low: Shape, high: Shape, value: float) -> Value:
    """x with so many elements of this value around its last dims."""
    lead = (0,) * (len(x.shape) - len(low))
    return prims.pad(x, (*lead, *low), (*lead, *high), value)


# ---- maximum


def take_flat(x: Value, places: Value) -> Value:
    """Elements of x: T[N, C, *n] at places: i64[N, C, *o], offsets into the flattened n."""
    lead = tuple(x.shape[:2])
    flat = prims.reshape(x, (*lead, math.prod(x.shape[2:])))
    index = prims.reshape(places, (*lead, math.prod(places.shape[2:])))
    return prims.reshape(prims.gather(flat, index, 2), tuple(places.shape))


def _in_dim(values: Value, d: int, rank: int) -> Value:
    """values: i64[n_d], as an array that varies along dim d of `rank` alone."""
    return prims.reshape(values, tuple(values.shape[0] if k == d else 1 for k in range(rank)))


def _starts_along(windows: Windows, d: int) -> tuple[Value, Value]:
    """Where windows start along d, and the first place of each that is inside; as arrays that vary along it alone."""
    starts, rank = windows.starts(d), len(windows.counts)
    inside = prims.where(lt(starts, 0), remainder(starts, windows.dilation[d]), starts)
    return _in_dim(starts, d, rank), _in_dim(inside, d, rank)


def _flat_places(local: Value, sizes: Shape, windows: Windows) -> Value:
    """Places within windows (flattened) -> offsets into the flattened input.

    In a window that is -inf throughout the first place wins even where it is padding: it is moved to the first inside.
    """
    shape, flat, rest = shape_of(local), None, math.prod(windows.kernel)
    digits = np.arange(rest)
    for d, (k, step) in enumerate(zip(windows.kernel, windows.dilation)):
        rest //= k
        within = prims.take(digits // rest % k * step, local)
        starts, inside = of_sizes(_starts_along, windows, d)
        place = prims.add(within, broadcast_to(starts, shape))
        if windows.low[d]:
            place = prims.maximum(place, broadcast_to(inside, shape))
        scale = math.prod(sizes[d + 1 :])
        place = place if scale == 1 else prims.mul(place, prims.full(shape, scale, dt.int64))
        flat = place if flat is None else prims.add(flat, place)
    return flat


def max_pool_nd(
    rank: int,
    input: Value,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Value:
    """The maximum of each window of T[N, C, {n}]; with return_indices, also its place in the flattened {n}.

    stride None: kernel_size. Padding counts as -inf. See `MaxPool2d` for the arguments and sizes.

    Example, in one dimension:
        >>> F.max_pool1d(torch.tensor([[1.0, 5.0, 2.0, 3.0]]), kernel_size=2)
        tensor([[5., 3.]])
    """
    x, had_batch = batched(f"max_pool{rank}d", input, rank)
    need_kind(f"max_pool{rank}d", "f" if rank == 1 else "iuf", x)
    sizes = shape_of(x)[2:]
    if 0 in shape_of(x)[1:]:
        what = f"max_pool{rank}d: Expected input's non-batch dimensions to have positive length"
        raise ShapeError(what, got=str(shape_of(input)))
    windows = pool_windows(sizes, kernel_size, stride, padding, dilation, ceil_mode)
    where = windows.kernel, windows.stride, windows.dilation
    attrs = dict(zip(("kernel", "stride", "dilation", "low", "high"), (*where, windows.low, windows.high)))
    values = unbatched(_maxima_of_windows(x, **attrs), had_batch)
    if not return_indices:
        return values
    padded = _padded(x, windows, lowest(dtype_of(x)))
    places = _flat_places(prims.window_argmax(prims.detach(padded), *where), sizes, windows)
    return values, unbatched(places, had_batch)


@whole
def _maxima_of_windows(
    x: Value, *, kernel: Shape, stride: Shape, dilation: Shape, low: Shape, high: Shape
) -> Value:  # fmt: skip
    """Of T[*lead, *n], before and behind which lie so many elements that are no maximum."""
    if any(is_symbol(n) or n for n in (*low, *high)):
        x = padded(x, low, high, lowest(dtype_of(x)))
    return prims.window_max(x, kernel=kernel, stride=stride, dilation=dilation, low=low)


max_pool1d = lies("signals")(at_rank(1, max_pool_nd))
max_pool2d = remembered(lies("images")(at_rank(2, max_pool_nd)))


@lies("images")
def max_pool3d(
    input: Value,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Value:
    """The maximum of each window of T[N, C, D, H, W]; with return_indices, also its place in D*H*W.

    Example:
        >>> F.max_pool3d(torch.arange(8.0).reshape(1, 2, 2, 2), kernel_size=2)
        tensor([[[[7.]]]])
    """
    pool = max_pool_nd if return_indices else in_float32_on_cpu(max_pool_nd)
    return pool(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_unpool(rank: int, input: Value, indices: Value, sizes: Sequence[int]) -> Value:
    """Zeros of spatial size `sizes` with input: T[N, C, *o] at `indices`, as max pooling returned them."""
    need_kind("max_unpool", "f", input)
    x, had_batch = batched(f"max_unpool{rank}d", input, rank)
    places, _ = batched(f"max_unpool{rank}d", indices, rank)
    if dtype_of(places) is not dt.int64:
        raise DTypeError(f"max_unpool{rank}d: elements in indices should be type int64", got=dtype_of(places).name)
    if tuple(places.shape) != tuple(x.shape):
        raise ShapeError(
            f"max_unpool{rank}d: input and indices differ in shape", expected=str(shape_of(x)), got=str(places.shape)
        )
    lead, numel = tuple(x.shape[:2]), math.prod(x.shape[2:])
    zeros = prims.full((*lead, math.prod(sizes)), 0, dtype_of(x))
    index = prims.reshape(places, (*lead, numel))
    out = prims.scatter(zeros, index, prims.reshape(x, (*lead, numel)), 2)
    return unbatched(prims.reshape(out, (*lead, *sizes)), had_batch)


# ---- average


def _divisors(sizes: Shape, windows: Windows, count_include_pad: bool) -> Value | int:
    """How many elements each window averages: one number, or i64[*o] where windows differ."""
    if not windows.are_padded:
        return math.prod(windows.kernel)
    total: Value = np.ones((1,) * len(sizes), np.int64)
    for d, (n, p, k) in enumerate(zip(sizes, windows.low, windows.kernel)):
        starts = windows.starts(d)
        ends = clamp(add(starts, k), max=n + p)
        first, last = (starts, ends) if count_include_pad else (clamp(starts, 0), clamp(ends, max=n))
        total = mul(total, _in_dim(add(last, first, alpha=-1), d, len(sizes)))
    same = isinstance(total, np.ndarray) and (total == total.flat[0]).all()
    return int(total.flat[0]) if same else total


def avg_pool_nd(
    rank: int,
    input: Value,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    """The mean of each window of T[N, C, {n}]; the sum over divisor_override, if given.

    stride None: kernel_size. See `AvgPool2d` for the arguments.

    Example, in two dimensions:
        >>> F.avg_pool2d(torch.arange(4.0).reshape(1, 2, 2), kernel_size=2)
        tensor([[[1.5000]]])
    """
    x, had_batch = batched(f"avg_pool{rank}d", input, rank)
    if dtype_of(x) is not dt.int64:
        need_kind(f"avg_pool{rank}d", "f", x)
    sizes = shape_of(x)[2:]
    windows = pool_windows(sizes, kernel_size, stride, padding, 1, ceil_mode)
    if divisor_override == 0:
        raise ShapeError("divisor must be not zero")
    where = {"kernel": windows.kernel, "stride": windows.stride, "low": windows.low, "high": windows.high}
    how = {"count_include_pad": count_include_pad, "divisor_override": divisor_override}
    return unbatched(_averages_of_windows(x, counts=windows.counts, **where, **how), had_batch)


@whole
def _averages_of_windows(
    x: Value, *, kernel: Shape, stride: Shape, low: Shape, high: Shape, counts: Shape, count_include_pad: bool,
    divisor_override: int | None,
) -> Value:  # fmt: skip
    """Of T[N, C, *n], around which lie so many zeros, which count if count_include_pad; counts: how many windows."""
    windows = Windows(kernel, stride, (1,) * len(kernel), low, high, counts)
    wide = widened(x) if dtype_of(x).is_floating_point else x
    total = prims.window_sum(_padded(wide, windows, 0), kernel, stride, windows.dilation)
    count = divisor_override or of_sizes(_divisors, shape_of(x)[2:], windows, count_include_pad)
    if not isinstance(count, int):
        count = cast(count, dtype_of(wide))
    out = div(total, count, rounding_mode=None if dtype_of(x).is_floating_point else "trunc")
    return cast(out, dtype_of(x))


avg_pool2d = remembered(lies("images")(at_rank(2, avg_pool_nd)))
avg_pool3d = lies("rows")(in_float32_on_cpu(at_rank(3, avg_pool_nd)))


@lies("signals")
def avg_pool1d(
    input: Value,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Value:
    """The mean of each window of T[N, C, L].

    Example:
        >>> F.avg_pool1d(torch.tensor([[1.0, 5.0, 2.0, 4.0]]), kernel_size=2)
        tensor([[3., 3.]])
    """
    return avg_pool_nd(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


# ---- power average


def lp_pool_nd(
    rank: int, input: Value, norm_type: float, kernel_size: Ints, stride: Ints | None = None, ceil_mode: bool = False
) -> Value:
    """The p-norm of each window of T[N, C, {n}]: (sum of x^p)^(1/p), as torch computes it, through the mean.

    norm_type inf: the largest |x|; -inf: the smallest.

    Example, in one dimension:
        >>> F.lp_pool1d(torch.tensor([[3.0, 4.0, 0.0, 5.0]]), norm_type=2, kernel_size=2)
        tensor([[5., 5.]])
    """
    x = floating(input)
    kernel = spread("kernel_size", kernel_size, rank)
    if norm_type == math.inf:
        return max_pool_nd(rank, abs(x), kernel, stride, ceil_mode=ceil_mode)
    if norm_type == -math.inf:
        return neg(max_pool_nd(rank, neg(abs(x)), kernel, stride, ceil_mode=ceil_mode))
    average = avg_pool_nd(rank, pow(x, norm_type), kernel, stride, 0, ceil_mode, True, None)
    return pow(mul(mul(sign(average), relu(abs(average))), math.prod(kernel)), 1.0 / norm_type)


lp_pool1d, lp_pool2d, lp_pool3d = (at_rank(rank, lp_pool_nd) for rank in (1, 2, 3))
