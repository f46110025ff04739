"""A batch in page-locked memory, whose copy to a GPU (`.to(device, non_blocking=True)`) the host need not wait for.

In: a batch. Out: the same structure with its tensors pinned, as torch's loader does it: a value with a method
`pin_memory` gives what that returns, a tuple without names becomes a list, and what holds no tensors stays as it is.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

from compiler_core.tensor.tensor import Tensor

__all__ = ["pinned"]


def pinned(data: Any) -> Any:
    """`data` with its tensors in page-locked memory. Raises DeviceError without a device."""
    if isinstance(data, Tensor):
        return data if data.is_cuda else data.pin_memory()
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, Mapping):
        return _filled(data, {key: pinned(value) for key, value in data.items()})
    if isinstance(data, tuple):
        members = [pinned(value) for value in data]
        return type(data)(*members) if hasattr(data, "_fields") else members
    if isinstance(data, Sequence):
        return _filled(data, [pinned(value) for value in data])
    return data


def _filled(like: Any, members: Any) -> Any:
    """`members` as a container of the class of `like`, with its other attributes."""
    if type(like) is type(members):
        return members
    if not isinstance(like, (MutableMapping, MutableSequence)):
        return type(like)(members)
    made: Any = copy.copy(like)
    if isinstance(like, MutableMapping):
        made.update(members)
    else:
        made[:] = members
    return made
