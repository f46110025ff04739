"""Reductions in rank order, and the local meaning of every collective.

In: all ranks' flat arrays. Out: what each rank must hold afterwards. This is the definition that every transport is
tested against, and what the threaded transport runs.
Invariant: the result is ((r0 op r1) op r2) op ..., element by element: independent of bucket sizes, of chunking and of
who arrives first. 16-bit floats are accumulated in float32 and rounded once; `avg` divides the accumulated sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from collectives.communicator import Array, Call, ReduceOp

UFUNCS: dict[ReduceOp, Callable[..., Array]] = {
    "sum": np.add, "avg": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply,
}  # fmt: skip


def is_narrow(dtype: np.dtype[np.generic]) -> bool:
    """Whether `dtype` is a 16-bit float, accumulated in float32."""
    return dtype.name in ("float16", "bfloat16")


def reduce_in_rank_order(sources: Sequence[Array], op: ReduceOp) -> Array:
    """The reduction of equally shaped arrays, given by rank, as a new array."""
    dtype = sources[0].dtype
    total = sources[0].astype(np.float32 if is_narrow(dtype) else dtype)  # always a copy
    for source in sources[1:]:
        UFUNCS[op](total, source.astype(total.dtype, copy=False), out=total)
    if op == "avg":
        total /= total.dtype.type(len(sources))
    return total.astype(dtype, copy=False)


def perform(call: Call, sources: Sequence[Array], targets: Sequence[Array]) -> None:
    """Do `call` for all ranks at once: read every rank's flat source, write every rank's flat target."""
    if call.kind == "all_reduce":
        total = reduce_in_rank_order(sources, call.op)
        for target in targets:
            target[...] = total
    elif call.kind == "broadcast":
        for rank, target in enumerate(targets):
            if rank != call.root:
                target[...] = sources[call.root]
    elif call.kind == "all_gather":
        gathered = np.concatenate(sources)
        for target in targets:
            target[...] = gathered
    elif call.kind == "reduce_scatter":
        total = reduce_in_rank_order(sources, call.op)
        for rank, target in enumerate(targets):
            target[...] = total[rank * call.count : (rank + 1) * call.count]
