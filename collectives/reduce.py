"""Reductions in rank order, and the local meaning of every collective.

In: all ranks' flat arrays. Out: what each rank must hold afterwards. This is the definition that every transport is
tested against, and what the threaded transport runs.
Invariant: the result is ((r0 op r1) op r2) op ..., element by element: independent of bucket sizes, of chunking and of
who arrives first. 16-bit floats are accumulated in float32 and rounded once; `avg` divides the accumulated sum.
Of bools, the sum is whether any is true and the product whether all are, as NumPy and torch have it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ml_dtypes  # noqa: F401 - makes np.dtype("bfloat16") known
import numpy as np

from collectives.call import Array, ReduceOp, Splits, Task
from collectives.errors import CollectiveMismatchError

UFUNCS: dict[ReduceOp, Callable[..., Array]] = {
    "sum": np.add, "avg": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply,
    "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor,
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


def reduce_on_wire(sources: Sequence[Array], op: ReduceOp, wire: str) -> Array:
    """The reduction of wider floats that travel as the 16-bit float `wire`: sources and result are rounded to it.

    wire: "" for none. Returns an array of the sources' dtype.
    """
    if not wire:
        return reduce_in_rank_order(sources, op)
    narrow = [source.astype(wire) for source in sources]
    return reduce_in_rank_order(narrow, op).astype(sources[0].dtype)


def check_splits(table: Sequence[Splits]) -> None:
    """Raise CollectiveMismatchError unless each pair of ranks agrees on what one sends and the other expects.

    table: by rank, the elements it sends to, and expects from, each rank.
    """
    for sender, (sent, _) in enumerate(table):
        for receiver, (_, expected) in enumerate(table):
            if sent[receiver] != expected[sender]:
                raise CollectiveMismatchError(
                    f"all_to_all: what rank {sender} sends is not what rank {receiver} expects",
                    expected=f"{expected[sender]} elements",
                    got=f"{sent[receiver]} elements",
                    remedy="input splits of one rank must be the output splits of the others",
                )


def perform(tasks: Sequence[Task]) -> None:
    """Do one collective for all ranks at once: read every rank's flat source, write every rank's flat target."""
    DEFINITIONS.get(tasks[0].call.kind, _nothing)(tasks)


def _nothing(tasks: Sequence[Task]) -> None:
    """A barrier moves no data."""


def _all_reduce(tasks: Sequence[Task]) -> None:
    call = tasks[0].call
    total = reduce_on_wire([task.source for task in tasks], call.op, call.wire)
    for task in tasks:
        task.target[...] = total


def _reduce(tasks: Sequence[Task]) -> None:
    call = tasks[0].call
    tasks[call.root].target[...] = reduce_in_rank_order([task.source for task in tasks], call.op)


def _broadcast(tasks: Sequence[Task]) -> None:
    root = tasks[0].call.root
    for rank, task in enumerate(tasks):
        if rank != root:
            task.target[...] = tasks[root].source


def _all_gather(tasks: Sequence[Task]) -> None:
    gathered = np.concatenate([task.source for task in tasks])
    for task in tasks:
        task.target[...] = gathered


def _gather(tasks: Sequence[Task]) -> None:
    tasks[tasks[0].call.root].target[...] = np.concatenate([task.source for task in tasks])


def _scatter(tasks: Sequence[Task]) -> None:
    call = tasks[0].call
    for task, row in zip(tasks, tasks[call.root].source.reshape(len(tasks), call.count).copy()):
        task.target[...] = row


def _reduce_scatter(tasks: Sequence[Task]) -> None:
    call = tasks[0].call
    total = reduce_in_rank_order([task.source for task in tasks], call.op)
    for rank, task in enumerate(tasks):
        task.target[...] = total[rank * call.count : (rank + 1) * call.count]


def _all_to_all(tasks: Sequence[Task]) -> None:
    rows = np.stack([task.source.reshape(len(tasks), -1) for task in tasks])
    for rank, task in enumerate(tasks):
        task.target[...] = rows[:, rank].reshape(-1)


def _all_to_all_uneven(tasks: Sequence[Task]) -> None:
    table = [task.splits for task in tasks if task.splits is not None]
    check_splits(table)
    parts = [np.split(task.source.copy(), np.cumsum(sent)[:-1]) for task, (sent, _) in zip(tasks, table)]
    for rank, task in enumerate(tasks):
        task.target[...] = np.concatenate([sent[rank] for sent in parts])


DEFINITIONS: dict[str, Callable[[Sequence[Task]], None]] = {
    "all_reduce": _all_reduce,
    "reduce": _reduce,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "gather": _gather,
    "scatter": _scatter,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
    "all_to_all_uneven": _all_to_all_uneven,
}
