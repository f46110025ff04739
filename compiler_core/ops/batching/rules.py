"""The rules of ops that do not simply take the batch in front (`Front`, ops/rules.py): they fold it into another dim.

In: an op, the size of the batch, which operands have it (in front), the operands, and the attributes for one example.
Out: the value for all examples, the batch in front. Rows of one product, images of one convolution, or its groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from compiler_core.ops import prims
from compiler_core.ops.batching.running import spread
from compiler_core.ops.broadcasting import dtype_of
from compiler_core.ops.registry import Attrs, Op, Value, bind

Flags: TypeAlias = Sequence[bool]
Operands: TypeAlias = Sequence[Value]


def all_batched(size: int, are_batched: Flags, operands: Operands) -> list[Value]:
    """The operands, those that are one for all examples repeated."""
    return [v if yes else spread(v, size) for v, yes in zip(operands, are_batched)]


def expanded(op: Op, size: int, are_batched: Flags, operands: Operands, attrs: Attrs) -> Value:
    """expand: dims that are new in front go behind the batch."""
    (x,), shape = operands, attrs["shape"]
    given = tuple(x.shape)[1:]
    aligned = prims.reshape(x, (size, *(1,) * (len(shape) - len(given)), *given)) if len(shape) > len(given) else x
    return prims.expand(aligned, (size, *shape))


def strode(op: Op, size: int, are_batched: Flags, operands: Operands, attrs: Attrs) -> Value:
    """strided: the vectors behind each other in one."""
    (x,) = operands
    length = int(x.shape[1])
    flat = prims.reshape(x, (size * length,))
    return prims.strided(flat, (size, *attrs["size"]), (length, *attrs["stride"]), attrs["offset"])


def multiplied(op: Op, size: int, are_batched: Flags, operands: Operands, attrs: Attrs) -> Value:
    """matmul: with one matrix for all examples, their rows (or columns) are those of one product."""
    (a, b), (a_has, b_has) = operands, are_batched
    if a_has and not b_has and len(b.shape) == 2:
        rows = prims.reshape(a, (size * a.shape[1], a.shape[2]))
        return prims.reshape(prims.matmul(rows, b), (size, a.shape[1], b.shape[1]))
    if b_has and not a_has and len(a.shape) == 2:
        inner, columns = tuple(b.shape)[1:]
        beside = prims.reshape(prims.permute(b, (1, 0, 2)), (inner, size * columns))
        product = prims.reshape(prims.matmul(a, beside), (a.shape[0], size, columns))
        return prims.permute(product, (1, 0, 2))
    if a_has and b_has and len(a.shape) == 3 and a.shape[2] == 1:  # outer products
        return prims.mul(*(prims.expand(x, (size, a.shape[1], b.shape[2])) for x in (a, b)))
    return prims.matmul(*all_batched(size, are_batched, operands))


def rows_of_all(op: Op, size: int, are_batched: Flags, operands: Operands, attrs: Attrs) -> Value:
    """take, index_add, index_copy: the rows of all examples behind each other, the places moved accordingly."""
    if op.name == "take" and not are_batched[0]:
        return bind(op, *operands)
    x, idx, *src = all_batched(size, are_batched, operands)
    rows, rest = int(x.shape[1]), tuple(x.shape)[2:]
    first = prims.mul(prims.iota(tuple(idx.shape), 0, dtype_of(idx)), prims.full_like(idx, rows))
    places = prims.add(prims.check_index(idx, rows), first)
    flat = bind(op, prims.reshape(x, (size * rows, *rest)), places, *src)
    return flat if op.name == "take" else prims.reshape(flat, tuple(x.shape))


def folded(x: Value) -> Value:
    """x: T[B, N, ...] as T[B * N, ...]."""
    return prims.reshape(x, (x.shape[0] * x.shape[1], *tuple(x.shape)[2:]))


def _beside(x: Value) -> Value:
    """x: T[B, N, C, ...] as T[N, B * C, ...]."""
    b, n, c, *rest = x.shape
    swapped = prims.permute(x, (1, 0, *range(2, len(x.shape))))
    return prims.reshape(swapped, (n, b * c, *rest))


def convolved(op: Op, size: int, are_batched: Flags, operands: Operands, attrs: Attrs) -> Value:
    """convolution, convolution_input: with one weight for all, more images; with a weight for each, more groups."""
    (x, weight), (x_has, weight_has) = operands, are_batched
    if not weight_has:
        out = bind(op, folded(x), weight, **attrs)
        return prims.reshape(out, (size, x.shape[1], *tuple(out.shape)[1:]))
    x = x if x_has else spread(x, size)
    out = bind(op, _beside(x), folded(weight), **{**attrs, "groups": attrs["groups"] * size})
    n, channels, *rest = out.shape
    apart = prims.reshape(out, (n, size, channels // size, *rest))
    return prims.permute(apart, (1, 0, *range(2, len(apart.shape))))


def convolved_weight(op: Op, size: int, are_batched: Flags, operands: Operands, attrs: Attrs) -> Value:
    """convolution_weight: the examples are groups."""
    x, g = map(_beside, all_batched(size, are_batched, operands))
    out = bind(op, x, g, **{**attrs, "groups": attrs["groups"] * size})
    return prims.reshape(out, (size, out.shape[0] // size, *tuple(out.shape)[1:]))
