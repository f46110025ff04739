"""Checks of one rank's arguments, before anything is sent: buffers, reductions, roots, sizes that must fit together.

In: arrays and names as the caller gave them. Out: flat arrays and Tasks; or CollectiveArgumentError, which says what
was got, what was expected, and what to do. What only a comparison of ranks can tell is the roll call's part.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from collectives.call import BITWISE_OPS, DTYPES, GATE_WORDS, REDUCE_OPS, Array, CollectiveCall, Kind, ReduceOp, Task
from collectives.errors import CollectiveArgumentError

EMPTY = np.empty(0, np.uint8)
PARTS = {"complex64": np.float32, "complex128": np.float64}  # what complex arrays travel as: two reals an element


@cache
def dtype_name(dtype: np.dtype[Any]) -> str:
    """`dtype.name`, which NumPy composes anew each time (5 us)."""
    return dtype.name


def flat(array: Array, where: str, *, writes: bool, op: str = "") -> Array:
    """`array` as one dimension; it must be C-contiguous, of a dtype that can be sent, and writable if `writes`.

    Of a complex one its real and imaginary parts, in turn, which `op`, the reduction if there is one, must allow.
    """
    flags = array.flags
    if not flags.c_contiguous or (writes and not getattr(flags, "writeable", True)):  # CuPy's are
        raise CollectiveArgumentError(
            "a collective's buffer must be C-contiguous" + (" and writable" if writes else ""),
            where=where,
            got=f"{array.dtype.name}{list(array.shape)}, strides {array.strides}, "
            f"writable {getattr(flags, 'writeable', True)}",
            remedy="pass np.ascontiguousarray(array), or a writable copy",
        )
    if dtype_name(array.dtype) not in DTYPES:
        if array.dtype.kind != "c":
            raise CollectiveArgumentError(
                f"arrays of dtype {array.dtype} cannot be sent", where=where, expected=", ".join([*DTYPES, *PARTS])
            )
        if op not in ("", "sum", "avg"):
            raise CollectiveArgumentError(
                f"{op} is not defined on {array.dtype.name}", where=where, expected="sum or avg"
            )
        return array.reshape(-1).view(PARTS[array.dtype.name])
    return array if array.ndim == 1 else array.reshape(-1)


def check_tag(tag: int, where: str) -> None:
    """Raise CollectiveArgumentError for a negative tag."""
    if tag < 0:
        raise CollectiveArgumentError(f"no message can have the tag {tag}", where=where, expected="0 or more")


def check_reduction(op: str, array: Array, where: str) -> None:
    """Whether `op` is defined on the array's dtype."""
    kind = "f" if dtype_name(array.dtype) == "bfloat16" else array.dtype.kind
    if op not in REDUCE_OPS:
        raise CollectiveArgumentError(f"unknown reduction {op!r}", where=where, expected=", ".join(REDUCE_OPS))
    if op == "avg" and kind in "iub":
        raise CollectiveArgumentError(
            f"the average of {array.dtype.name} is not an integer",
            where=where,
            remedy="use op='sum', or a floating dtype",
        )
    if op in BITWISE_OPS and kind not in "iub":
        raise CollectiveArgumentError(
            f"{op} is not defined on {array.dtype.name}", where=where, expected="an integer dtype or bool"
        )


def check_wire(wire: str, array: Array, where: str) -> None:
    """A narrower wire dtype is for wider floats."""
    if wire not in ("", "bfloat16", "float16") or (wire and array.dtype.name not in ("float32", "float64")):
        raise CollectiveArgumentError(
            f"{array.dtype.name} arrays cannot travel as {wire!r}",
            where=where,
            expected="bfloat16 or float16, for float32 and float64",
        )


def check_rank(rank: int, world_size: int, where: str) -> None:
    """Whether there is such a rank."""
    if not 0 <= rank < world_size:
        raise CollectiveArgumentError(f"no rank {rank}", where=where, expected=f"0..{world_size - 1}")


def check_members(ranks: Sequence[int], world_size: int, where: str) -> None:
    """Whether these ranks can be a subgroup: at least one, each there, none twice."""
    for rank in ranks:
        check_rank(rank, world_size, where)
    if not ranks or len(set(ranks)) != len(ranks):
        raise CollectiveArgumentError(
            "a subgroup has at least one rank, and no rank twice", where=where, got=str(list(ranks))
        )


def check_times(kind: str, larger: Array, smaller: Array, factor: int, where: str) -> None:
    """Whether `larger` holds `factor` times the elements of `smaller`, of one dtype."""
    if larger.size != smaller.size * factor or larger.dtype != smaller.dtype:
        raise CollectiveArgumentError(
            f"{kind}: one array must be world_size times the other, of one dtype",
            where=where,
            expected=f"{smaller.dtype.name}[{smaller.size * factor}]",
            got=f"{larger.dtype.name}[{larger.size}]",
        )


def uneven_task(
    kind: Kind, op: ReduceOp, *, larger: Array, smaller: Array, target_is_larger: bool, world_size: int, where: str
) -> Task:
    """The Task of an all-gather or reduce-scatter."""
    big = flat(larger, where, writes=target_is_larger, op=op)
    small = flat(smaller, where, writes=not target_is_larger, op=op)
    check_times(kind, big, small, world_size, where)
    source, target = (small, big) if target_is_larger else (big, small)
    return Task(CollectiveCall(kind, op, small.dtype.name, small.size), source, target)


def all_to_all_task(target: Array, source: Array, world_size: int, where: str) -> Task:
    """The Task of an all-to-all with equal parts."""
    read, written = flat(source, where, writes=False), flat(target, where, writes=True)
    check_times("all_to_all", written, read, 1, where)
    if read.size % world_size:
        raise CollectiveArgumentError(
            "all_to_all: the array does not divide into equal parts",
            where=where,
            expected=f"a multiple of {world_size} elements",
            got=f"{read.size}",
            remedy="give the number of elements for each rank (splits)",
        )
    return Task(CollectiveCall("all_to_all", dtype=read.dtype.name, count=read.size // world_size), read, written)


def uneven_all_to_all_task(
    target: Array, source: Array, sent: Sequence[int], received: Sequence[int], world_size: int, where: str
) -> Task:
    """The Task of an all-to-all with parts of any size: `sent[r]` elements go to rank r, `received[r]` come from it."""
    read, written = flat(source, where, writes=False), flat(target, where, writes=True)
    check_times("all_to_all", written[:0], read[:0], 1, where)
    if source.dtype.kind == "c":
        sent, received = [2 * size for size in sent], [2 * size for size in received]
    for name, splits, array in (("sent", sent, read), ("received", received, written)):
        if len(splits) != world_size or sum(splits) != array.size or min(splits) < 0:
            raise CollectiveArgumentError(
                f"all_to_all: the numbers of elements {name} do not fit the array",
                where=where,
                expected=f"{world_size} numbers that add up to {array.size}",
                got=str(list(splits)),
            )
    call = CollectiveCall("all_to_all_uneven", dtype=read.dtype.name)
    return Task(call, read, written, splits=(tuple(sent), tuple(received)))


def check_gate(words: Sequence[int], agree: int, where: str) -> None:
    """A gate's words must be few, fit 64 bits, and the first `agree` of them must exist."""
    if not (len(words) <= GATE_WORDS and 0 <= agree <= len(words)):
        raise CollectiveArgumentError(
            f"a gate carries up to {GATE_WORDS} words, of which the first `agree` are compared",
            where=where,
            got=f"{len(words)} words, agree={agree}",
        )
    if any(not -(1 << 63) <= word < 1 << 63 for word in words):
        raise CollectiveArgumentError(
            "a gate's words are integers of 64 bits, with a sign", where=where, got=str(list(words))
        )
