"""`Call` and `Task`: one collective as data: what all ranks must ask for alike, and this rank's buffers for it.

In: kind, reduction, dtype, count, root, wire dtype. Out: a line of text for messages, and a tuple of integers for the
roll call. Invariant: two ranks take part in one collective only if their Calls are equal.
`wire`: the 16-bit float that an all-reduce of wider floats travels as ("": its own dtype); the sum is taken in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, get_args

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
ReduceOp: TypeAlias = Literal["sum", "avg", "max", "min", "prod", "band", "bor", "bxor"]
Wire: TypeAlias = Literal["", "bfloat16", "float16"]
Kind: TypeAlias = Literal[
    "all_reduce",
    "broadcast",
    "all_gather",
    "reduce_scatter",
    "barrier",
    "all_gather_object",
    "broadcast_object",
    "close",
    "reduce",
    "gather",
    "scatter",
    "all_to_all",
    "all_to_all_uneven",
]
Splits: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]

REDUCE_OPS: tuple[str, ...] = get_args(ReduceOp)
BITWISE_OPS = ("band", "bor", "bxor")
WIRES: tuple[str, ...] = get_args(Wire)
KINDS: tuple[str, ...] = get_args(Kind)
ROOTED = ("broadcast", "reduce", "gather", "scatter")
DTYPES: tuple[str, ...] = (
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8",
    "uint64", "uint32", "uint16", "uint8", "bool",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """What all ranks must ask for alike. count: elements of the smaller buffer; in an all-to-all, for each pair."""

    kind: Kind
    op: ReduceOp = "sum"
    dtype: str = "uint8"
    count: int = 0
    root: int = 0
    wire: Wire = ""

    def __str__(self) -> str:
        array = f"{self.dtype}[{self.count}]"
        if self.kind in ("all_reduce", "reduce_scatter"):
            return f"{self.kind}({array}, {self.op}{', as ' + self.wire if self.wire else ''})"
        if self.kind == "reduce":
            return f"reduce({array}, {self.op}, root={self.root})"
        if self.kind in ROOTED:
            return f"{self.kind}({array}, root={self.root})"
        if self.kind in ("all_gather", "all_to_all"):
            return f"{self.kind}({array})"
        if self.kind == "all_to_all_uneven":
            return f"{self.kind}({self.dtype})"
        return f"{self.kind}()"

    def encode(self) -> tuple[int, ...]:
        """As integers, for the wire; `len(CALL_FIELDS)` of them."""
        op, dtype, wire = REDUCE_OPS.index(self.op), DTYPES.index(self.dtype), WIRES.index(self.wire)
        return KINDS.index(self.kind), op, dtype, self.count, self.root, wire

    @staticmethod
    def decode(code: tuple[int, ...]) -> Call:
        """The inverse of `encode`."""
        kind, op, dtype, count, root, wire = code
        return Call(
            cast(Kind, KINDS[kind]), cast(ReduceOp, REDUCE_OPS[op]), DTYPES[dtype], count, root, cast(Wire, WIRES[wire])
        )


CALL_LENGTH = len(Call("barrier").encode())


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A call with this rank's flat buffers: `source` is read, `target` written; they may be one array.

    splits: of an uneven all-to-all, elements that go to, and come from, each rank.
    """

    call: Call
    source: Array
    target: Array
    label: str = ""
    splits: Splits | None = None

    def __str__(self) -> str:
        return f"{self.label}: {self.call}" if self.label else str(self.call)
