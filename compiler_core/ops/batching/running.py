"""Ops on values that stand for batches: by the op's rule, or, where it has none, once for each example.

In: an op, values of which one is Batched at least, the attributes for one example. Out: a Batched value.
`enter` and `leave` make a dim of a value the batch, and the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler_core.log import warn_once
from compiler_core.ops import prims
from compiler_core.ops.batching.value import Batched, Level
from compiler_core.ops.registry import Attrs, Op, Trace, Value, bind
from compiler_core.ops.rules import Front


def enter(value: Value, level: Level, dim: int) -> Value:
    """The value of each example: those of `value` along `dim`."""
    if type(value) is Batched and value.level.number > level.number:
        return Batched(enter(value.value, level, dim + 1), value.level)
    if dim:
        value = prims.permute(value, (dim, *(d for d in range(len(value.shape)) if d != dim)))
    return Batched(value, level)


def leave(value: Value, level: Level, dim: int) -> Value:
    """The values of all examples along a new `dim`."""
    if type(value) is Batched and value.level.number > level.number:
        return Batched(leave(value.value, level, dim + 1), value.level)
    if type(value) is Batched and value.level is level:
        value = value.value
    else:
        value = spread(value, level.size)
    return prims.permute(value, (*range(1, dim + 1), 0, *range(dim + 1, len(value.shape)))) if dim else value


def spread(value: Value, size: int) -> Value:
    """`value` for each of `size` examples."""
    shape = tuple(value.shape)
    return prims.expand(prims.reshape(value, (1, *shape)), (size, *shape))


def run_batched(op: Op, values: Sequence[Value], attrs: Attrs) -> Batched:
    """`op` on values of which one is Batched at least: for all examples of the innermost level at once."""
    level = max((v.level for v in values if type(v) is Batched), key=lambda one: one.number)
    are_batched = [type(v) is Batched and v.level is level for v in values]
    inner = [v.value if yes else v for v, yes in zip(values, are_batched)]
    rule = op.vmap
    if isinstance(rule, Front):
        every = [v if yes else spread(v, level.size) for v, yes in zip(inner, are_batched)]
        return Batched(bind(op, *every, **rule.attributes(level.size, attrs)), level)
    run = one_by_one if rule is None else rule
    return Batched(run(op, level.size, are_batched, inner, attrs), level)


def recorded(trace: Trace, op: Op, values: Sequence[Value], attrs: Attrs) -> Value:
    """`op` in the graph of `trace`, for all examples at once where a value stands for them."""
    is_batched = any(type(v) is Batched for v in values)
    return run_batched(op, values, attrs) if is_batched else trace.bind(op, tuple(values), attrs)


def one_by_one(op: Op, size: int, are_batched: Sequence[bool], values: Sequence[Value], attrs: Attrs) -> Value:
    """The rule of an op that has none: each example by itself, which is said once."""
    warn_once(
        f"vmap.{op.name}",
        f"vmap: the operation {op.name!r} has no rule for batches, and runs once for each example (this is said once)",
    )
    return each_alone(op, size, are_batched, values, attrs)


def each_alone(op: Op, size: int, are_batched: Sequence[bool], values: Sequence[Value], attrs: Attrs) -> Value:
    """`op` once for each example."""
    found = []
    for k in range(size):
        rows = [_row(v, k) if yes else v for v, yes in zip(values, are_batched)]
        found.append(bind(op, *rows, **attrs))
    return prims.cat([prims.reshape(out, (1, *out.shape)) for out in found], 0)


def _row(value: Value, k: int) -> Value:
    shape = tuple(value.shape)
    row = prims.slice(value, (k, *(0 for _ in shape[1:])), (k + 1, *shape[1:]), (1,) * len(shape))
    return prims.reshape(row, shape[1:])
