"""Where sliding windows lie: how many, which elements, with which strides, and the order of dims beside them. See
windows.py."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from compiler_core.errors import ShapeError
from compiler_core.meta import Shape
from compiler_core.ops.aliasing import Strides

Dims = tuple[int, ...]
Index = tuple[Any, ...]


def window_counts(op: str, sizes: Shape, kernel: Dims, stride: Dims, dilation: Dims) -> Shape:
    """How many windows fit into each of `sizes`. Raises ShapeError where none does, or a number is not positive."""
    if (
        not len(sizes) == len(kernel) == len(stride) == len(dilation)
        or min((*kernel, *stride, *dilation), default=1) < 1
    ):
        raise ShapeError(
            f"{op}: kernel, stride and dilation are positive, one for each of the last dims",
            expected=f"{len(sizes)} each",
            got=f"kernel {kernel}, stride {stride}, dilation {dilation}",
        )
    spans = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation))
    if any(n < span for n, span in zip(sizes, spans)):
        raise ShapeError(f"{op}: the window is larger than the (padded) input", expected=f"<= {sizes}", got=str(spans))
    return tuple((n - span) // s + 1 for n, span, s in zip(sizes, spans, stride))


def places_in_windows(
    kernel: Dims, stride: Dims, dilation: Dims, counts: Shape
) -> Iterator[tuple[Dims, tuple[Any, ...]]]:
    """For each place within a window: the place, and the slices of x that hold that element of every window."""
    for place in itertools.product(*map(range, kernel)):
        starts = [k * d for k, d in zip(place, dilation)]
        slices = (slice(a, a + (o - 1) * s + 1, s) for a, o, s in zip(starts, counts, stride))
        yield place, (..., *slices)


def strides_of_windows(in_shape: Shape, in_strides: Strides, kernel: Dims, stride: Dims, dilation: Dims) -> Strides:
    """Of windows as a view of an array of these strides."""
    lead = len(in_shape) - len(kernel)
    outer = tuple(s * step for s, step in zip(in_strides[lead:], stride))
    return (*in_strides[:lead], *outer, *(s * step for s, step in zip(in_strides[lead:], dilation)))


def to_front(rank: int, trailing: int) -> Dims:
    """The order of `rank` dims in which the last `trailing` come first."""
    return (*range(rank - trailing, rank), *range(rank - trailing))


def to_back(rank: int, trailing: int) -> Dims:
    """The order that undoes `to_front`."""
    return (*range(trailing, rank), *range(trailing))
