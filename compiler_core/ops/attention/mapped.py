"""Attention under vmap: the batch of examples beside the batch that the op has itself.

In and out: as all rules of vmap (batching/rules.py). Packed parts are taken apart and put together for it. 16-bit
floats, dropout (each example draws as it would alone), and gradients that come with their sums, which only passes ask
for, go example by example.
"""

from __future__ import annotations

import math

from compiler_core.meta import Shape
from compiler_core.ops import prims
from compiler_core.ops.attention.sizes import NARROW, AttentionSizes
from compiler_core.ops.batching.rules import Flags, Operands, all_batched, folded
from compiler_core.ops.batching.running import one_by_one
from compiler_core.ops.broadcasting import dtype_of
from compiler_core.ops.linear_algebra.packing import unpack
from compiler_core.ops.registry import Attrs, Op, Value, bind, meta_of


def attended(op: Op, size: int, are_batched: Flags, operands: Operands, attrs: Attrs) -> Value:
    """attention and its backward: more in the batch that the op has itself. Packed parts are taken apart for it."""
    values = all_batched(size, are_batched, operands)
    backward = op.name == "attention_backward"
    if attrs.get("summed") or attrs.get("dropout") or dtype_of(values[0]) in NARROW:
        return one_by_one(op, size, are_batched, operands, attrs)
    flat = [folded(v) if len(v.shape) > 2 else v for v in values]
    metas = [meta_of(v) for v in (flat[3:] if backward else flat)]
    all_of = AttentionSizes.of(metas, attrs["causal"])
    shapes: tuple[Shape, ...] = all_of.packed(metas[0].dtype)
    if backward:
        one = [(s[0] // size, *s[1:]) for s in shapes]
        parts = unpack(values[2], one)  # (B, N, ...)
        flat[2] = prims.cat([prims.reshape(part, (math.prod(part.shape),)) for part in parts], 0)
        shapes = all_of.gradients
    out = bind(op, *flat, **attrs)
    parts = unpack(out, shapes)
    return prims.cat([prims.reshape(part, (size, math.prod(part.shape) // size)) for part in parts], 1)
