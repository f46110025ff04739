"""Convolutions over any Value, with torch's names and arguments: conv1d/2d/3d, conv_transpose1d/2d/3d, fold, unfold.

In: T[N, C, *n] or T[C, *n] (no batch), weight T[O, C/groups, *k] (transposed: T[C, O/groups, *k]), bias T[O]; sizes as
one int or one a spatial dim. Out: as many dims as the input. padding: ints, "valid", or "same" (stride 1 alone; the
odd zero goes to the high side). Source: torch.nn.functional.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from compiler_core.dtype import DType, float64, int64
from compiler_core.errors import ArgumentTypeError, DTypeError, ShapeError
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import as_value, cast, dtype_of, shape_of
from compiler_core.ops.casting import WEIGHTS, acting, casting, in_lower, lowered, lowers_weights
from compiler_core.ops.composites.arithmetic import add
from compiler_core.ops.composites.movement import reshape
from compiler_core.ops.composites.padding import pad
from compiler_core.ops.lying import as_told, lies
from compiler_core.ops.pooling.geometry import window_counts
from compiler_core.ops.ranks import at_rank, check_fit
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import Value
from compiler_core.ops.remembered import remembered
from compiler_core.ops.whole import whole

Ints = int | Sequence[int]
Margins = tuple[int, ...]


def spread(name: str, value: Ints, rank: int) -> tuple[int, ...]:
    """`value` once a spatial dim. Raises ShapeError for a sequence of another length, ArgumentTypeError for no ints."""
    if isinstance(value, int):
        return (value,) * rank
    try:
        found = tuple(int(n) for n in value)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"{name} must be one int or {rank}", got=repr(value)) from None
    found = found * rank if len(found) == 1 else found
    if len(found) != rank:
        raise ShapeError(f"{name} needs one int or {rank}", expected=f"{rank} ints", got=str(found))
    return found


def batched(name: str, input: Value, rank: int) -> tuple[Value, bool]:
    """input with a batch dim, and whether it had one. Raises ShapeError unless it has rank + 1 or rank + 2 dims."""
    x = as_value(input)
    if len(x.shape) not in (rank + 1, rank + 2):
        raise ShapeError(
            f"Expected {rank + 1}D (unbatched) or {rank + 2}D (batched) input to {name}, "
            f"but got input of size: {list(x.shape)}"
        )
    had = len(x.shape) == rank + 2
    return (x if had else prims.reshape(x, (1, *x.shape))), had


def unbatched(x: Value, had_batch: bool) -> Value:
    """Undo `batched`."""
    return x if had_batch else prims.reshape(x, tuple(x.shape[1:]))


def _check_dtypes(name: str, x: Value, weight: Value, bias: Value | None) -> None:
    for role, other in (("weight", weight), ("bias", bias)):
        if other is not None and dtype_of(other) is not dtype_of(x):
            raise DTypeError(
                f"{name}: input type ({dtype_of(x).name}) and {role} type ({dtype_of(other).name}) should be the same"
            )


def _with_bias(name: str, out: Value, bias: Value | None) -> Value:
    if bias is None:
        return out
    if tuple(bias.shape) != (out.shape[1],):
        raise ShapeError(f"{name}: bias has the wrong shape", expected=f"({out.shape[1]},)", got=str(shape_of(bias)))
    return add(out, reshape(bias, (out.shape[1],) + (1,) * (len(out.shape) - 2)))


def _exact(x: Value, is_integer: bool) -> Value:
    """Integers as float64, in which they are convolved as they are multiplied by matmul: exact below 2^53."""
    return cast(x, float64) if is_integer else x


def _narrowed(x: Value, dtype: DType) -> Value:
    """Back, wrapping around as integers do."""
    return x if dtype_of(x) is dtype else cast(cast(x, int64), dtype)


def _margins(
    name: str, padding: str | Ints, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(low, high) zeros a spatial dim."""
    rank = len(kernel)
    if not isinstance(padding, str):
        low = spread("padding", padding, rank)
        if min(low) < 0:
            raise ShapeError("negative padding is not supported", got=str(low))
        return low, low
    if padding == "valid":
        return (0,) * rank, (0,) * rank
    if padding != "same":
        raise ShapeError(f"{name}: unknown padding {padding!r}", expected="'valid', 'same' or ints")
    if any(s != 1 for s in stride):
        raise ShapeError("padding='same' is not supported for strided convolutions", got=f"stride {tuple(stride)}")
    total = [d * (k - 1) for k, d in zip(kernel, dilation)]
    return tuple(n // 2 for n in total), tuple(n - n // 2 for n in total)


Taps = tuple[tuple[int, int], ...]  # the first and the last, a spatial dim


def _cropped(
    sizes: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    low: Margins,
    high: Margins,
) -> tuple[Taps, Margins, Margins]:
    """The taps of a kernel that ever lie on the input, and the margins for these alone: of a 3x3 kernel over a padded
    image of one pixel, its centre. All of them where sizes are symbols."""
    taps = tuple((0, k - 1) for k in kernel)
    if not all(type(n) is int for n in (*sizes, *kernel)):
        return taps, low, high
    found, before, after = [], [], []
    for n, k, s, d, a, b in zip(sizes, kernel, stride, dilation, low, high):
        last_start = (n + a + b - d * (k - 1) - 1) // s * s - a  # of the last output, on the input
        on = [t for t in range(k) if t * d - a < n and last_start + t * d >= 0]
        if not on or min(s, d) < 1 or last_start < -a:
            return taps, low, high  # which is refused
        first, last = on[0], on[-1]
        found.append((first, last))
        before.append(a - first * d)
        after.append(b - (k - 1 - last) * d)
    if min(*before, *after, 0) < 0:
        return taps, low, high
    return tuple(found), tuple(before), tuple(after)


def _kept(weight: Value, taps: Taps) -> Value:
    """The weight's taps."""
    stops = [*weight.shape[:2], *(last + 1 for _, last in taps)]
    if all(first == 0 for first, _ in taps) and all(a == b for a, b in zip(stops, weight.shape)):
        return weight
    return prims.slice(weight, (0, 0, *(first for first, _ in taps)), tuple(stops), (1,) * len(stops))


def conv_nd(
    rank: int,
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Ints = 1,
    padding: str | Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Value:
    """The cross-correlation of input T[N, C, {n}] with weight T[O, C/groups, {k}], plus bias T[O]: T[N, O, {o}].

    Args: stride, padding ("same", "valid" or added on both sides), dilation, a number or one a dimension; groups.
    Each output size is (n + 2*padding - dilation*(k - 1) - 1) // stride + 1. N may be left out.

    Example, in two dimensions:
        >>> F.conv2d(torch.ones(1, 1, 3, 3), torch.ones(1, 1, 2, 2))
        tensor([[[[4., 4.],
                  [4., 4.]]]])
    """
    _check_dtypes(f"conv{rank}d", as_value(input), as_value(weight), bias)
    return _of_rank(rank, input, weight, bias, stride, padding, dilation, groups)


def _of_rank(
    rank: int, input: Value, weight: Value, bias: Value | None, stride: Ints, padding: str | Ints, dilation: Ints,
    groups: int,
) -> Value:  # fmt: skip
    """`conv_nd`, of one dtype, or of 16-bit floats with weights in f32."""
    name = f"conv{rank}d"
    x, had_batch = batched(name, input, rank)
    w = as_value(weight)
    if len(w.shape) != rank + 2:
        raise ShapeError(f"{name}: the weight needs {rank + 2} dims", got=str(shape_of(w)))
    kernel, steps, gaps = w.shape[2:], spread("stride", stride, rank), spread("dilation", dilation, rank)
    low, high = _margins(name, padding, kernel, steps, gaps)
    taps, low, high = _cropped(x.shape[2:], kernel, steps, gaps, low, high)
    whole_w, w = w, _kept(w, taps)
    places = {"stride": steps, "low": low, "high": high, "dilation": gaps, "groups": groups}
    if dtype_of(x) is not dtype_of(w):
        out = _lowered_convolution(x, w, bias, **places)
    elif dtype_of(x).is_inexact:
        out = _convolution(x, w, bias, **places)
    else:
        wide = _exact(x, dtype_of(x).kind in "iu")
        out = prims.convolution(wide, cast(w, dtype_of(wide)), steps, low, high, gaps, groups)
        out = _with_bias(name, _narrowed(out, dtype_of(x)), bias)
    return unbatched(as_told(_LIES[rank], out, (x, whole_w)), had_batch)


def _casting_weights(function: Callable[..., Value]) -> Callable[..., Value]:
    """`conv2d`, whose weights' casts, where autocast makes any on a CUDA device, are part of the one node."""

    def in_lower_weights(
        input: Value,
        weight: Value,
        bias: Value | None = None,
        stride: Ints = 1,
        padding: str | Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
    ) -> Value:
        if not lowers_weights(input, weight, bias):
            return function(input, weight, bias, stride, padding, dilation, groups)
        (x,) = lowered(input)
        with acting(None):
            return _of_rank(2, x, weight, bias, stride, padding, dilation, groups)

    @functools.wraps(function)
    def conv(*args: Any, **kwargs: Any) -> Value:
        if casting.acting is None:
            return function(*args, **kwargs)
        try:
            return in_lower_weights(*args, **kwargs)
        except TypeError:
            check_fit(function.__name__, function, args, kwargs)
            raise

    conv.__casts__ = WEIGHTS  # type: ignore[attr-defined]
    return conv


conv1d, conv2d, conv3d = (in_lower(at_rank(rank, conv_nd)) for rank in (1, 2, 3))
conv1d, conv2d, conv3d = (remembered(conv) for conv in (conv1d, _casting_weights(conv2d), conv3d))


_LIES = {1: "convolved signals", 2: "convolved", 3: "convolved"}


@whole
def _convolution(x: Value, weight: Value, bias: Value | None, **places: Any) -> Value:
    """places: stride, low, high, dilation, one a spatial dim; groups."""
    return _with_bias(f"conv{len(x.shape) - 2}d", prims.convolution(x, weight, **places), bias)


@whole
def _lowered_convolution(x: Value, weight: Value, bias: Value | None, **places: Any) -> Value:
    """`_convolution` of 16-bit floats, with weights in f32."""
    dtype = dtype_of(x)
    return _convolution(x, cast(weight, dtype), None if bias is None else cast(bias, dtype), **places)


# ---- transposed


def conv_transpose_nd(
    rank: int,
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Value:
    """The transposed convolution of input T[N, C, {n}] with weight T[C, O/groups, {k}], plus bias: T[N, O, {o}].

    The adjoint of a convolution: each input element adds weight, times itself, around its place in the output.
    Output size: (n - 1)*stride - 2*padding + dilation*(k - 1) + output_padding + 1.

    Example, in one dimension:
        >>> F.conv_transpose1d(torch.tensor([[[1.0, 2.0]]]), torch.ones(1, 1, 3), stride=2)
        tensor([[[1., 1., 3., 2., 2.]]])
    """
    name = f"conv_transpose{rank}d"
    x, had_batch = batched(name, input, rank)
    w = as_value(weight)
    if len(w.shape) != rank + 2 or w.shape[0] != x.shape[1]:
        raise ShapeError(
            f"{name}: the weight does not fit the input", expected=f"({x.shape[1]}, O/groups, *k)", got=str(shape_of(w))
        )
    _check_dtypes(name, x, w, bias)
    kernel = tuple(w.shape[2:])
    steps, gaps = spread("stride", stride, rank), spread("dilation", dilation, rank)
    margin, extra = spread("padding", padding, rank), spread("output_padding", output_padding, rank)
    if any(not 0 <= e < max(s, d) for e, s, d in zip(extra, steps, gaps)):
        raise ShapeError("output padding must be smaller than either stride or dilation", got=f"{extra}")
    if groups < 1 or x.shape[1] % groups:
        raise ShapeError(f"{name}: channels do not divide by groups", expected=f"a multiple of {groups}", got=str(x))
    full = tuple((n - 1) * s + d * (k - 1) + 1 for n, s, k, d in zip(x.shape[2:], steps, kernel, gaps))
    none = (0,) * rank
    wide = _exact(x, dtype_of(x) is int64)  # torch has no other integers here
    out = prims.convolution_input(wide, cast(w, dtype_of(wide)), full, steps, none, none, gaps, groups)
    out = _narrowed(out, dtype_of(x))
    margins = [n for p, e in zip(reversed(margin), reversed(extra)) for n in (-p, e - p)]
    out = _with_bias(name, pad(out, margins) if any(margins) else out, bias)
    return unbatched(as_told(_LIES[rank] if rank < 3 else "rows", out, (x, w)), had_batch)


conv_transpose1d, conv_transpose2d, conv_transpose3d = (in_lower(at_rank(k, conv_transpose_nd)) for k in (1, 2, 3))


# ---- unfold and fold


@lies("new")
def unfold(input: Value, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1) -> Value:
    """The windows of T[N, C, H, W] as columns, T[N, C*kH*kW, oH*oW] (or without N).

    Example:
        >>> F.unfold(torch.ones(1, 3, 4, 4), kernel_size=2, stride=2).shape
        (1, 12, 4)
    """
    need_kind("im2col", "bfc", input)
    x, had_batch = batched("unfold", input, 2)
    kernel, gaps = spread("kernel_size", kernel_size, 2), spread("dilation", dilation, 2)
    margin, steps = spread("padding", padding, 2), spread("stride", stride, 2)
    if any(margin):
        x = prims.pad(x, (0, 0, *margin), (0, 0, *margin), 0)
    view = prims.permute(prims.windows(x, kernel, steps, gaps), (0, 1, 4, 5, 2, 3))
    n, c, *_, height, width = view.shape
    return unbatched(prims.reshape(view, (n, c * math.prod(kernel), height * width)), had_batch)


def fold(
    input: Value, output_size: Ints, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1
) -> Value:
    """Columns T[N, C*kH*kW, L] summed where they overlap, T[N, C, H, W] (or without N).

    Example:
        >>> F.fold(torch.ones(1, 4, 2), output_size=(2, 3), kernel_size=2)
        tensor([[[[1., 2., 1.],
                  [1., 2., 1.]]]])
    """
    x, had_batch = batched("fold", input, 1)
    size, kernel = spread("output_size", output_size, 2), spread("kernel_size", kernel_size, 2)
    gaps, margin, steps = spread("dilation", dilation, 2), spread("padding", padding, 2), spread("stride", stride, 2)
    padded = tuple(n + 2 * p for n, p in zip(size, margin))
    counts = window_counts("fold", padded, kernel, steps, gaps)
    n, rows, columns = x.shape
    if rows % math.prod(kernel) or columns != math.prod(counts):
        raise ShapeError(
            "fold: the input does not hold the windows of the output",
            expected=f"(N, C*{math.prod(kernel)}, {math.prod(counts)})",
            got=str(shape_of(x)),
        )
    channels = rows // math.prod(kernel)
    view = prims.permute(prims.reshape(x, (n, channels, *kernel, *counts)), (0, 1, 4, 5, 2, 3))
    out = prims.windows_add(view, padded, kernel, steps, gaps)
    if any(margin):
        stops = (n, channels, *(p + m for p, m in zip(margin, size)))
        out = prims.slice(out, (0, 0, *margin), stops, (1,) * 4)
    return unbatched(out, had_batch)
