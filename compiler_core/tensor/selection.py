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
from compiler_core.ops import functional as F
from compiler_core.ops.composites import logic as composite_logic
from compiler_core.ops.composites import statistics as composite_statistics
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import current_trace
from compiler_core.tensor.by_example import by_example, refused_under_vmap
from compiler_core.tensor.making.creation import arange, leaf
from compiler_core.tensor.making.filling import exponential_like
from compiler_core.tensor.making.placement import beside, check_generator
from compiler_core.tensor.making.random import Generator
from compiler_core.tensor.making.random_creation import rand
from compiler_core.tensor.memory.layout import relaid
from compiler_core.tensor.tensor import Tensor
from compiler_core.tensor.torch_names import public, write_out

chosen, searchsorted = public(composite_logic.where), public(composite_statistics.searchsorted)


def _on_device(input: Tensor, what: str) -> Any:
    """The CuPy array that `input` holds; None of the CPU, or under a trace, where reading it breaks the graph."""
    if not input.is_cuda or current_trace() is not None:
        return None
    return input._own_array(what)


def _there(array: Any) -> Tensor:
    """A Tensor of places or counts on a device."""
    return Tensor._wrap(array.astype(np.int64, copy=False))


@refused_under_vmap
@beside
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Tensor | tuple[Tensor, ...]:
    """The places of the elements that are not zero: i64[K, ndim], or one i64[K] a dim."""
    there = _on_device(input, "nonzero")
    if there is not None and there.ndim:
        with cuda.on(there.data.device_id):
            columns = cuda.module().nonzero(there != 0)
            return tuple(map(_there, columns)) if as_tuple else relaid(_there(cuda.module().stack(columns, 1)), (1, 0))
    array = input._array("nonzero")
    if array.ndim == 0:
        found = np.zeros((int(array != 0), 0 if not as_tuple else 1), np.int64)
        return tuple(leaf(column) for column in found.T.copy()) if as_tuple else leaf(found)
    places = np.nonzero(array)
    if as_tuple:
        return tuple(leaf(column) for column in places)
    return relaid(leaf(np.stack(places, axis=1)), (1, 0))  # as torch's: each dim's places side by side


def where(condition: Tensor, input: Any = None, other: Any = None, *, out: Tensor | None = None) -> Any:
    """input where condition holds, else other; given the condition alone, its places: `nonzero(as_tuple=True)`."""
    if input is None and other is None:
        return nonzero(condition, as_tuple=True)
    if input is None or other is None:
        raise DTypeError("where takes a condition alone, or a condition and two values")
    return chosen(condition, input, other, out=out)


@refused_under_vmap
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


@by_example
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


@by_example
@beside
def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """i64[..., num_samples]: categories drawn with probability proportional to input f[C] or f[N, C].

    As torch draws them: several with replacement where uniform numbers fall among the sums of the probabilities; others
    by the largest of p / q, q exponential. Raises DomainError for weights that are not finite, negative, or all zero,
    and for too many samples; in a compiled graph, which cannot, unusable weights are an index out of range.
    """
    check_generator(generator, input.device)
    _check_counts(input, num_samples, replacement)
    weights = input.detach()
    if current_trace() is None:
        _check_weights(weights)
    else:
        weights = _usable(weights.reshape(-1, weights.shape[-1])).reshape(weights.shape)
    if replacement and num_samples > 1:
        picks = _by_sums(weights, num_samples, generator)
    else:
        keys = weights / exponential_like(weights, generator)
        picks = keys.argmax(-1, keepdim=True) if num_samples == 1 else keys.topk(num_samples, -1).indices
    return picks if out is None else write_out(out, picks)


def _by_sums(weights: Tensor, count: int, generator: Generator | None) -> Tensor:
    """The first category whose share, added to those before it, reaches a uniform number."""
    wide = weights if weights.dtype is float64 else weights.to(float32)
    if current_trace() is None and not weights.is_cuda:  # torch adds one to the other in this dtype; cumsum does not
        sums = leaf(np.add.accumulate(wide._array("multinomial"), -1))
    else:
        sums = wide.cumsum(-1)
    shares = (sums / sums[..., -1:]).to(float64)
    shares = F.cat([shares[..., :-1], F.ones_like(shares[..., -1:])], -1)
    shape = (*weights.shape[:-1], count)
    uniform = rand(shape, generator=generator, device=weights.device, dtype=float64)
    return searchsorted(shares, uniform)  # type: ignore[no-any-return]


def _check_counts(input: Tensor, count: int, replacement: bool) -> None:
    """Raises DomainError, DTypeError."""
    if not 0 < input.ndim <= 2:
        raise DomainError("prob_dist must be 1 or 2 dim", got=str(tuple(input.shape)))
    if not input.dtype.is_floating_point:
        raise DTypeError("multinomial only supports floating-point dtypes for input", got=input.dtype.name)
    if count <= 0:
        raise DomainError("cannot sample n_sample <= 0 samples", got=str(count))
    if not replacement and count > input.shape[-1]:
        raise DomainError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")


def _check_weights(weights: Tensor) -> None:
    """Raise DomainError for weights that cannot be drawn from; of a device, the host waits once."""
    good = (weights >= 0).all() & weights.isfinite().all()
    some = (weights.sum(-1) > 0).all()
    are_good, are_some = (bool(n) for n in F.stack([good, some]).tolist())
    if not are_good:
        raise DomainError("probability tensor contains either `inf`, `nan` or element < 0")
    if not are_some:
        raise DomainError("invalid multinomial distribution (sum of probabilities <= 0)")


def _usable(rows: Tensor) -> Tensor:
    """`rows`, read by indices that are out of range for one that cannot be drawn from."""
    good = ((rows >= 0) & rows.isfinite()).all(1) & (rows.sum(1) > 0)
    return rows.index_select(0, chosen(good, arange(rows.shape[0], device=rows.device), rows.shape[0]))
