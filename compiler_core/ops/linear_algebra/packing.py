"""Several results of one routine side by side in one array: T[*batch, total], each flattened after its batch dims.

In: results of one dtype, or the packed value and the shapes after the batch dims. Out: the packed array, or them.
A primitive has one output; this is how a factorisation, which has several, is one primitive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from compiler_core.meta import Shape
from compiler_core.ops import prims
from compiler_core.ops.registry import Array, Value


def packed_shape(batch: Shape, shapes: Sequence[Shape]) -> Shape:
    """The shape of results of these shapes, packed."""
    return (*batch, sum(map(math.prod, shapes)))


def pack(xp: Any, batch: Shape, arrays: Sequence[Array]) -> Array:
    """Arrays T[*batch, ...] side by side."""
    return xp.concatenate([a.reshape(*batch, math.prod(a.shape[len(batch) :])) for a in arrays], -1)  # type: ignore[no-any-return]


def unpack(packed: Value, shapes: Sequence[Shape]) -> tuple[Value, ...]:
    """The results, each T[*batch, *shape]."""
    *batch, total = packed.shape
    zeros, ones, results, start = (0,) * len(batch), (1,) * (len(batch) + 1), [], 0
    for shape in shapes:
        stop = start + math.prod(shape)
        part = prims.slice(packed, (*zeros, start), (*batch, stop), ones)
        results.append(prims.reshape(part, (*batch, *shape)))
        start = stop
    assert start == total, f"{shapes} do not fill {total} elements"
    return tuple(results)
