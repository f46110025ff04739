"""Counts whose result's size or edges depend on data: unique_consecutive, histogram, histogramdd. NumPy does them.

In: Tensors whose data is known: a traced one is a graph break. Out: Tensors without a gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from compiler_core.errors import ShapeError
from compiler_core.names.spelling import result_text
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import Array
from compiler_core.tensor.by_example import by_example, refused_under_vmap
from compiler_core.tensor.making.creation import leaf
from compiler_core.tensor.making.placement import beside
from compiler_core.tensor.tensor import Tensor


@refused_under_vmap
@beside
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The elements (or slices along dim) that differ from the one before; if asked, where each went, run lengths."""
    need_kind("unique", "biuf", input)
    array = input._array("unique_consecutive")
    lines = array.reshape(-1) if dim is None else np.moveaxis(array, dim, 0)
    n = len(lines)
    flat = lines.reshape(n, -1) if lines.size or n else lines.reshape(n, 0)
    starts = np.ones(n, bool)
    starts[1:] = (flat[1:] != flat[:-1]).any(axis=1)
    values = lines[starts] if dim is None else np.moveaxis(lines[starts], 0, dim)
    results = [leaf(np.ascontiguousarray(values))]
    if return_inverse:
        inverse = np.cumsum(starts) - 1
        results.append(leaf(inverse.reshape(array.shape) if dim is None else inverse))
    if return_counts:
        results.append(leaf(np.diff(np.append(np.nonzero(starts)[0], n)).astype(np.int64)))
    return results[0] if len(results) == 1 else tuple(results)


class Histogram(NamedTuple):
    """Counts, and the edges of their bins."""

    hist: Tensor
    bin_edges: Any

    def __repr__(self) -> str:
        return result_text("histogram", self)


def _edges(column: Array, bins: Any, span: Sequence[float] | None) -> Array:
    if not isinstance(bins, int):
        edges = bins._array("histogram") if isinstance(bins, Tensor) else np.asarray(bins, column.dtype)
        if (np.diff(edges) < 0).any():
            raise ShapeError("histogram: edges must ascend", got=str(edges.tolist()))
        return edges
    low, high = span if span is not None else (column.min(), column.max()) if column.size else (0.0, 1.0)
    if span is None and low == high:
        low, high = low - 0.5, high + 0.5
    return np.linspace(low, high, bins + 1, dtype=column.dtype)


@by_example
@beside
def histogram(
    input: Tensor,
    bins: Any,
    *,
    range: tuple[float, float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Histogram:
    """Counts (or sums of weights) in `bins` equal parts of `range`, or between given edges; density: of integral 1."""
    need_kind("histogram", "f", input)
    flat = None if weight is None else weight._array("histogram").reshape(-1)
    column = input._array("histogram").reshape(-1)
    edges = _edges(column, bins, range)
    with np.errstate(invalid="ignore"):  # the density of nothing is NaN
        counts, _ = np.histogram(column, edges, weights=flat, density=density)
    return Histogram(leaf(counts.astype(column.dtype)), leaf(edges))


@by_example
@beside
def histogramdd(
    input: Tensor,
    bins: Any,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Histogram:
    """Counts of points T[..., D] in a grid: bins a number, one a dim, or edges of each dim; range: low, high a dim."""
    need_kind("histogramdd", "f", input)
    array = input._array("histogramdd")
    points = array.reshape(-1, array.shape[-1])
    dims = points.shape[1]
    each = [bins] * dims if isinstance(bins, int) else list(bins)
    if len(each) != dims:
        raise ShapeError("histogramdd: one entry of bins for each dim", expected=str(dims), got=str(len(each)))
    spans = [None if range is None else range[2 * d : 2 * d + 2] for d in np.arange(dims).tolist()]
    edges = [_edges(points[:, d], each[d], spans[d]) for d in np.arange(dims).tolist()]
    flat = None if weight is None else weight._array("histogramdd").reshape(-1)
    counts, _ = np.histogramdd(points, edges, weights=flat, density=density)
    return Histogram(leaf(counts.astype(points.dtype)), tuple(leaf(e) for e in edges))
