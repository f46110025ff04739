"""default_collate: a list of samples into one batch.

In: samples of equal structure. Out: the same structure with tensors stacked along a new first dimension.
Tensors and NumPy arrays are stacked, numbers become tensors (Python floats float64, ints int64, as in torch), strings
stay as they are; mappings, named tuples, tuples and lists are collated member by member.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from compiler_core.tensor.making.creation import leaf
from compiler_core.tensor.memory.borrowing import from_numpy
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import BatchTypeError, DataLoaderError


def default_collate(batch: Sequence[Any]) -> Any:
    """Samples into one batch. Raises DataLoaderError for samples of unequal shape, length or of an unknown type."""
    first = batch[0]
    if isinstance(first, (Tensor, np.ndarray)):
        return _stack(batch)
    if isinstance(first, (bool, int, float, np.generic)):
        return leaf(np.asarray(batch))
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        return _like(first, {key: default_collate([sample[key] for sample in batch]) for key in first})
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise DataLoaderError("each element in list of batch should be of equal size")
        members = [default_collate(members) for members in zip(*batch, strict=True)]
        return type(first)(*members) if hasattr(first, "_fields") else members
    raise BatchTypeError(
        f"default_collate cannot batch samples of type {type(first).__name__}",
        expected="tensors, arrays, numbers, strings, mappings or sequences of these",
        remedy="give the loader a collate_fn",
    )


def _stack(batch: Sequence[Any]) -> Tensor:
    arrays = [sample.cpu()._array("a batch") if isinstance(sample, Tensor) else sample for sample in batch]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise DataLoaderError(
            "samples of one batch have different shapes",
            got=", ".join(map(str, sorted(shapes))),
            remedy="pad them in the data set, or give the loader a collate_fn",
        )
    stacked = leaf(np.stack(arrays))
    return stacked.to(batch[0].device) if isinstance(batch[0], Tensor) else stacked


def _like(first: Mapping[Any, Any], collated: dict[Any, Any]) -> Any:
    return collated if type(first) is dict else type(first)(collated)  # type: ignore[call-arg]


def default_convert(data: Any) -> Any:
    """What a loader without batches does to a sample: arrays and NumPy numbers become tensors."""
    if isinstance(data, (np.ndarray, np.generic)):
        return from_numpy(np.asarray(data))
    if isinstance(data, Mapping):
        return _like(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*map(default_convert, data))
    if isinstance(data, (list, tuple)):
        return [default_convert(value) for value in data]
    return data
