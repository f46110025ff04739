"""Functions whose result is as long as the data says, or drawn by it: nonzero, where, unique, bincount, multinomial.

In: a Tensor whose data is known. Out: values and places. They read data, so a traced tensor is a graph break; but
multinomial, whose result has a shape that does not depend on data, is part of the graph.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.dtype import float32, float64
from compiler_core.errors import DomainError, DTypeError, NoKernelError, ShapeError
from compiler_core.ops import composite_logic, composite_statistics
from compiler_core.ops import functional as F
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import Array, current_trace
from compiler_core.tensor.creation import arange, leaf
from compiler_core.tensor.placement import beside, check_generator
from compiler_core.tensor.random import Generator, place_of_draws
from compiler_core.tensor.random_creation import rand
from compiler_core.tensor.tensor import Tensor
from compiler_core.tensor.torch_names import public

chosen, searchsorted = public(composite_logic.where), public(composite_statistics.searchsorted)


def _on_device(input: Tensor, what: str) -> Any:
    """The CuPy array that `input` holds; None of the CPU, or under a trace, where reading it breaks the graph."""
    if not input.is_cuda or current_trace() is not None:
        return None
    return input._own_array(what)


def _there(array: Any) -> Tensor:
    """A Tensor of places or counts on a device."""
    return Tensor._wrap(array.astype(np.int64, copy=False))


@beside
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Tensor | tuple[Tensor, ...]:
    """The places of the elements that are not zero: i64[K, ndim], or one i64[K] a dim."""
    there = _on_device(input, "nonzero")
    if there is not None and there.ndim:
        with cuda.on(there.data.device_id):
            columns = cuda.module().nonzero(there != 0)
            return tuple(map(_there, columns)) if as_tuple else _there(cuda.module().stack(columns, 1))
    array = input._array("nonzero")
    if array.ndim == 0:
        found = np.zeros((int(array != 0), 0 if not as_tuple else 1), np.int64)
        return tuple(leaf(column) for column in found.T.copy()) if as_tuple else leaf(found)
    places = np.nonzero(array)
    if as_tuple:
        return tuple(leaf(column) for column in places)
    return leaf(np.stack(places, axis=1))


def where(condition: Tensor, input: Any = None, other: Any = None, *, out: Tensor | None = None) -> Any:
    """input where condition holds, else other; given the condition alone, its places: `nonzero(as_tuple=True)`."""
    if input is None and other is None:
        return nonzero(condition, as_tuple=True)
    if input is None or other is None:
        raise DTypeError("where takes a condition alone, or a condition and two values")
    return chosen(condition, input, other, out=out)


@beside
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The distinct elements (or slices along dim), ascending; if asked, where each element went, and counts."""
    need_kind("unique", "biuf", input)
    there = _on_device(input, "unique")
    if there is not None and dim is None and there.size and there.dtype.kind in "iuf" and there.dtype.isbuiltin:
        return _unique_there(there, return_inverse, return_counts)
    array = input._array("unique")
    values, inverse, counts = np.unique(array, return_inverse=True, return_counts=True, axis=dim, equal_nan=False)
    inverse = inverse.reshape(array.shape if dim is None else -1)
    chosen = [values, *([inverse] if return_inverse else []), *([counts] if return_counts else [])]
    results = [leaf(a) for a in chosen]
    return results[0] if len(results) == 1 else tuple(results)


def _unique_there(array: Any, return_inverse: bool, return_counts: bool) -> Any:
    """`unique` of the elements, on their device."""
    with cuda.on(array.data.device_id):
        made = cuda.module().unique(array, return_inverse=return_inverse, return_counts=return_counts, equal_nan=False)
    if not (return_inverse or return_counts):
        return Tensor._wrap(made)
    values, *others = made
    if return_inverse:
        others[0] = others[0].reshape(array.shape)
    return (Tensor._wrap(values), *map(_there, others))


@beside
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each of 0, 1, 2, ... occurs in a vector of whole numbers, or the sum of their weights."""
    there = _on_device(input, "bincount")
    if there is not None and weights is None and there.ndim == 1 and there.dtype.kind in "iu" and there.size:
        with cuda.on(there.data.device_id):
            return _there(cuda.module().bincount(there.astype(np.int64, copy=False), minlength=minlength))
    array = input._array("bincount")
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise NoKernelError("bincount takes a vector of integers", got=f"{input.dtype} of shape {array.shape}")
    if array.size and array.min() < 0:
        raise DomainError("bincount only supports 1-d non-negative integral inputs", got=str(array.min()))
    if weights is not None and weights.shape != input.shape:
        raise ShapeError("weights should be 1-d and have the same length as input", got=str(tuple(weights.shape)))
    counts = np.bincount(array, None if weights is None else weights._array("bincount"), minlength)
    wanted = np.float32 if weights is not None and weights.dtype is float32 else counts.dtype
    return leaf(counts.astype(wanted, copy=False))


@beside
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None
) -> Tensor:
    """i64[..., num_samples]: categories drawn with probability proportional to input f[C] or f[N, C].

    With replacement by inversion; without by the largest log(u)/w (Efraimidis, Spirakis 2006).
    Raises ShapeError for weights that are not finite, negative, or too few; in a compiled graph, which cannot, it is an
    index out of range.
    """
    check_generator(generator, input.device)
    if not 1 <= input.ndim <= 2:
        raise ShapeError("prob_dist must be 1 or 2 dim", got=str(tuple(input.shape)))
    if not input.dtype.is_floating_point:
        raise DTypeError("multinomial only supports floating-point dtypes for input", got=input.dtype.name)
    if num_samples <= 0:
        raise ShapeError("cannot sample n_sample <= 0 samples", got=str(num_samples))
    if current_trace() is not None:
        return _traced_multinomial(input, num_samples, replacement, generator)
    if input.is_cuda:
        _check_weights(input.detach(), num_samples, replacement)
        return _traced_multinomial(input, num_samples, replacement, generator)
    weights = input._array("multinomial").astype(np.float64)
    rows = weights.reshape(-1, weights.shape[-1])
    if not np.isfinite(rows).all() or (rows < 0).any() or (rows.sum(1) <= 0).any():
        raise ShapeError(_WEIGHTS)
    if not replacement and num_samples > (rows > 0).sum(1).min():
        raise ShapeError(_TOO_MANY)
    if replacement or num_samples == 1:
        picks = _inverted(rows, num_samples, generator)
    else:
        uniform = (
            rand(*rows.shape, generator=generator, device=place_of_draws(generator)).cpu().numpy().astype(np.float64)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            keys = np.where(rows > 0, np.log(np.maximum(uniform, 1e-300)) / rows, -np.inf)
        picks = np.argsort(-keys, axis=1, kind="stable")[:, :num_samples]
    return leaf(picks.astype(np.int64).reshape(*weights.shape[:-1], num_samples))


_WEIGHTS = "multinomial needs finite weights, at least 0, with a positive sum"
_TOO_MANY = "multinomial without replacement: more samples than categories of positive weight"


def _check_weights(weights: Tensor, count: int, replacement: bool) -> None:
    """Raise ShapeError for weights on a device that cannot be drawn from; the host waits once."""
    rows = weights.reshape(-1, weights.shape[-1])
    good = (rows >= 0).all() & rows.isfinite().all() & (rows.sum(1) > 0).all()
    enough = (rows > 0).sum(1).amin() >= (0 if replacement else count)
    fine, many = (bool(n) for n in F.stack([good, enough]).tolist())
    if not fine:
        raise ShapeError(_WEIGHTS)
    if not many:
        raise ShapeError(_TOO_MANY)


def _inverted(rows: Array, count: int, generator: Generator | None) -> Array:
    cumulative = np.cumsum(rows, axis=1)
    uniform = (
        rand(len(rows), count, generator=generator, device=place_of_draws(generator)).cpu().numpy() * cumulative[:, -1:]
    )
    pairs = zip(cumulative, uniform, strict=True)
    picks = np.stack([np.searchsorted(row, draws, side="right") for row, draws in pairs])
    last = rows.shape[1] - 1 - np.argmax(rows[:, ::-1] > 0, axis=1)  # rounding must not reach a weight of zero
    kept: Array = np.minimum(picks, last[:, None])
    return kept


def _traced_multinomial(input: Tensor, count: int, replacement: bool, generator: Generator | None) -> Tensor:
    """The same draws, by tensor ops."""
    categories = input.shape[-1]
    if not replacement and count > categories:
        raise ShapeError("multinomial without replacement: more samples than categories of positive weight")
    rows = _usable(input.detach().to(float64).reshape(-1, categories), 1 if replacement else count)
    if replacement or count == 1:
        cumulative = rows.cumsum(1)
        uniform = rand(len(rows), count, generator=generator, device=input.device).to(float64) * cumulative[:, -1:]
        picks = searchsorted(cumulative, uniform, right=True)
        last = (arange(categories, device=input.device) * (rows > 0)).amax(1)
        picks = picks.minimum(last[:, None])
    else:
        uniform = rand(*rows.shape, generator=generator, device=input.device).to(float64)
        keys = chosen(rows > 0, uniform.clamp(min=1e-300).log() / rows, -float("inf"))
        picks = (-keys).argsort(dim=1, stable=True)[:, :count]
    return picks.reshape(*input.shape[:-1], count)  # type: ignore[no-any-return]


def _usable(rows: Tensor, count: int) -> Tensor:
    """`rows`, read by indices that are out of range for one that cannot be drawn from `count` times."""
    good = ((rows >= 0) & rows.isfinite()).all(1) & ((rows > 0).sum(1) >= count)
    return rows.index_select(0, chosen(good, arange(len(rows), device=rows.device), len(rows)))
