"""Recurrent layers over a batch (vmap): the rows of all examples are rows of one layer.

In: as a vmap rule (ops/rules.py): operands with the examples in front. Out: the packed results, likewise. Row n of
example e becomes row n·E + e: so a step's sequences stay together, and those that end first stay last. With a weight
for each example each is a layer of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler_core.meta import Shape
from compiler_core.ops import prims
from compiler_core.ops.batching.rules import all_batched
from compiler_core.ops.batching.running import each_alone
from compiler_core.ops.linear_algebra.packing import unpack
from compiler_core.ops.recurrent.sizes import SAVED, RecurrentSizes
from compiler_core.ops.registry import Attrs, Op, Value, bind


def _rows(x: Value) -> Value:
    """x: f[E, N, K] as f[N·E, K]."""
    e, n, k = x.shape
    return prims.reshape(prims.permute(x, (1, 0, 2)), (n * e, k))


def _packed(parts: Sequence[Value]) -> Value:
    """f[*] of matrices."""
    return prims.cat([prims.reshape(part, (part.shape[0] * part.shape[1],)) for part in parts], 0)


def _apart(packed: Value, size: int, shapes: Sequence[Shape]) -> Value:
    """The packed result of one layer as f[E, *] of each example. shapes: of the parts of one example."""
    parts = unpack(packed, [(n * size, k) for n, k in shapes])
    found = []
    for part, (n, k) in zip(parts, shapes, strict=True):
        found.append(prims.reshape(prims.permute(prims.reshape(part, (n, size, k)), (1, 0, 2)), (size, n * k)))
    return prims.cat(found, 1)


def _more(attrs: Attrs, size: int) -> Attrs:
    return {**attrs, "runs": tuple((count * size, steps) for count, steps in attrs["runs"])}


def forward(op: Op, size: int, are_batched: Sequence[bool], operands: Sequence[Value], attrs: Attrs) -> Value:
    """The rule of `recurrent`."""
    x, w, b, *first = all_batched(size, are_batched, operands)
    if are_batched[1] or are_batched[2]:
        return each_alone(op, size, are_batched, operands, attrs)
    w, b = operands[1:3]
    sizes = RecurrentSizes(attrs["mode"], w.shape[1], attrs["runs"], attrs["reverse"])
    out = bind(op, _rows(x), w, b, *map(_rows, first), **_more(attrs, size))
    return _apart(out, size, sizes.result)


def backward(op: Op, size: int, are_batched: Sequence[bool], operands: Sequence[Value], attrs: Attrs) -> Value:
    """The rule of `recurrent_backward`."""
    count = (2 if attrs["mode"] == "lstm" else 1) + (SAVED[attrs["mode"]] > 0)  # of results, and their cotangents
    if are_batched[count + 1]:
        return each_alone(op, size, are_batched, operands, attrs)
    w = operands[count + 1]
    sizes = RecurrentSizes(attrs["mode"], w.shape[1], attrs["runs"], attrs["reverse"])
    every = all_batched(size, are_batched, operands)
    packed = _packed([_rows(part) for part in unpack(every[count], sizes.result)])
    given = [*map(_rows, every[:count]), packed, w, *map(_rows, every[count + 2 :])]
    return _apart(bind(op, *given, **_more(attrs, size)), size, sizes.gradients)
