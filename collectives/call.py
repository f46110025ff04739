"""`CollectiveCall`, `Stamp` and `Task`: one collective as data, before any transport sees it.

In: kind, reduction, dtype, count, root, wire dtype; and whose collective it is. Out: a line of text for messages, and a
tuple of integers for the roll call. Invariant: two ranks take part in one collective only if their Calls and Stamps are
equal; `Task` adds this rank's buffers and wishes.
`wire`: the 16-bit float that an all-reduce of wider floats travels as ("": its own dtype); the sum is taken in float32.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

import numpy as np

if TYPE_CHECKING:
    from collectives.work import Gate

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
    "connect",
    "gate",
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
GATE_WORDS = 12  # the most int64 words that a gate carries
DEVICE_WORDS = 11  # of the gate that is the roll call of a collective of device arrays (nccl/permit.py)


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """What all ranks must ask for alike. count: elements of the smaller buffer; in an all-to-all, for each pair.

    Of a gate, count is the number of its words, and root how many of them must agree. code: the same as integers, for
    the wire.
    """

    kind: Kind
    op: ReduceOp = "sum"
    dtype: str = "uint8"
    count: int = 0
    root: int = 0
    wire: Wire = ""
    code: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        op, dtype, wire = REDUCE_OPS.index(self.op), DTYPES.index(self.dtype), WIRES.index(self.wire)
        object.__setattr__(self, "code", (KINDS.index(self.kind), op, dtype, self.count, self.root, wire))

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
        if self.kind == "gate" and self.count == DEVICE_WORDS:
            return "a collective of device arrays"
        if self.kind == "gate":
            return f"{self.kind}({self.count} words)"
        return f"{self.kind}()"

    @staticmethod
    def decode(code: tuple[int, ...]) -> CollectiveCall:
        """The CollectiveCall of these integers."""
        kind, op, dtype, count, root, wire = code
        return CollectiveCall(
            cast(Kind, KINDS[kind]), cast(ReduceOp, REDUCE_OPS[op]), DTYPES[dtype], count, root, cast(Wire, WIRES[wire])
        )


CALL_LENGTH = len(CollectiveCall("barrier").code)


@dataclass(frozen=True, slots=True)
class Stamp:
    """Whose collective this is: plan hash, step and bucket, int64 each. All zero: it has no such place."""

    plan: int = 0
    step: int = 0
    bucket: int = 0

    def __bool__(self) -> bool:
        return (self.plan, self.step, self.bucket) != (0, 0, 0)

    def __str__(self) -> str:
        if not self:
            return "no step of a plan"
        return f"step {self.step}, bucket {self.bucket} of plan {self.plan % (1 << 64):016x}"

    def encode(self) -> tuple[int, int, int]:
        """As integers, for the wire."""
        return self.plan, self.step, self.bucket


NO_STAMP = Stamp()


@dataclass(slots=True, eq=False)  # frozen would make it four times as slow to build
class Task:
    """A call with this rank's flat buffers: `source` is read, `target` written; they may be one array.

    splits: of an uneven all-to-all, elements that go to, and come from, each rank.
    gate: the task is skipped, on all ranks, if that gate did not pass. held: it starts only after `Work.release`.
    needed (broadcast): data move only if some rank says so. words: what a gate tells the other ranks.
    """

    call: CollectiveCall
    source: Array
    target: Array
    label: str = ""
    splits: Splits | None = None
    stamp: Stamp = NO_STAMP
    gate: Gate | None = None
    held: bool = False
    needed: bool = True
    words: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.label}: {self.call}" if self.label else str(self.call)

    @property
    def nbytes(self) -> int:
        """Size of the larger buffer, in bytes."""
        nbytes = self.target.nbytes
        return nbytes if self.source is self.target else max(self.source.nbytes, nbytes)
