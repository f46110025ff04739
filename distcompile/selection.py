"""Functions that order or draw by value: sort, argsort, topk, multinomial. They read data, so they cannot be traced.

In: f[...]. Out: values (differentiable: taken from the input at the places found) and places i64[...].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from compiler_core.ops import functional as C
from compiler_core.ops.registry import Array
from compiler_core.tensor.creation import from_numpy
from compiler_core.tensor.random import Generator
from compiler_core.tensor.random_creation import rand
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError


class Sorted(NamedTuple):
    """Values in order, and where in the input they stood."""

    values: Tensor
    indices: Tensor


def _order(input: Tensor, dim: int, descending: bool, what: str) -> Array:
    """Places in order of value, stable; NaN counts as the largest."""
    array = input._array(what)
    if not descending:
        return np.argsort(array, axis=dim, kind="stable")
    backwards = np.argsort(np.flip(array, dim), axis=dim, kind="stable")
    places: Array = array.shape[dim] - 1 - np.flip(backwards, dim)
    return places


def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Sorted:
    """Sorted along dim. Equal elements keep their order."""
    if input.dim() == 0:
        return Sorted(input.clone(), from_numpy(np.zeros((), np.int64)))
    places = from_numpy(_order(input, dim, descending, "sort").astype(np.int64))
    return Sorted(C.take_along_dim(input, places, dim), places)


def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The places that `sort` gives."""
    return sort(input.detach(), dim, descending, stable).indices


def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Sorted:
    """The k largest (or smallest) elements along dim, in order. Raises ArgumentError if there are fewer."""
    size = input.shape[dim] if input.dim() else 1
    if not 0 <= k <= size:
        raise ArgumentError("selected index k out of range", expected=f"0..{size}", got=str(k))
    values, places = sort(input, dim, descending=largest)
    return Sorted(C.narrow(values, dim, 0, k), C.narrow(places, dim, 0, k))


def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """i64[..., num_samples]: categories drawn with probability proportional to input f[C] or f[N, C].

    With replacement by inversion; without by the largest log(u)/w (Efraimidis, Spirakis 2006).
    """
    weights = input._array("multinomial").astype(np.float64)
    rows = weights.reshape(-1, weights.shape[-1])
    if not np.isfinite(rows).all() or (rows < 0).any() or (rows.sum(1) <= 0).any():
        raise ArgumentError("multinomial needs finite weights, at least 0, with a positive sum")
    if not replacement and num_samples > (rows > 0).sum(1).min():
        raise ArgumentError("multinomial without replacement: more samples than categories of positive weight")
    if replacement or num_samples == 1:
        picks = _inverted(rows, num_samples, generator)
    else:
        uniform = rand(*rows.shape, generator=generator).numpy().astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            keys = np.where(rows > 0, np.log(np.maximum(uniform, 1e-300)) / rows, -np.inf)
        picks = np.argsort(-keys, axis=1, kind="stable")[:, :num_samples]
    return from_numpy(picks.astype(np.int64).reshape(*weights.shape[:-1], num_samples))


def _inverted(rows: Array, count: int, generator: Generator | None) -> Array:
    cumulative = np.cumsum(rows, axis=1)
    uniform = rand(len(rows), count, generator=generator).numpy() * cumulative[:, -1:]
    pairs = zip(cumulative, uniform, strict=True)
    picks = np.stack([np.searchsorted(row, draws, side="right") for row, draws in pairs])
    last = rows.shape[1] - 1 - np.argmax(rows[:, ::-1] > 0, axis=1)  # rounding must not reach a weight of zero
    kept: Array = np.minimum(picks, last[:, None])
    return kept
