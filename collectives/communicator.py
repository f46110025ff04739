"""`Communicator`: what a group of ranks can do together. Every transport implements this, and nothing more is used.

In: NumPy arrays, C-contiguous, of the same dtype and size on every rank. Out: the same arrays, changed in place; or a
`Work` for the `*_async` forms, whose arrays must be left alone until `wait()` returns.
Invariants: calls match by order, as in MPI; each call is announced as a `Call`, compared across ranks before data
moves, so a mismatch is a named error and no hang. A reduction gives bitwise the same result on every rank.
Object exchange goes over a channel of its own: it may be called while bucket collectives are in flight.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args

import numpy as np

from collectives.errors import CollectiveArgumentError
from collectives.work import DEFAULT_TIMEOUT_S, Work

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
ReduceOp: TypeAlias = Literal["sum", "avg", "max", "min", "prod"]
Kind: TypeAlias = Literal[
    "all_reduce",
    "broadcast",
    "all_gather",
    "reduce_scatter",
    "barrier",
    "all_gather_object",
    "broadcast_object",
    "close",
]
T = TypeVar("T")

ALIGNMENT_NBYTES = 64  # a cache line
REDUCE_OPS: tuple[str, ...] = get_args(ReduceOp)
KINDS: tuple[str, ...] = get_args(Kind)
DTYPES: tuple[str, ...] = (
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8",
    "uint64", "uint32", "uint16", "uint8", "bool",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """What all ranks must ask for alike. count: elements of the smaller buffer."""

    kind: Kind
    op: ReduceOp = "sum"
    dtype: str = "uint8"
    count: int = 0
    root: int = 0

    def __str__(self) -> str:
        if self.kind in ("all_reduce", "reduce_scatter"):
            return f"{self.kind}({self.dtype}[{self.count}], {self.op})"
        if self.kind == "broadcast":
            return f"broadcast({self.dtype}[{self.count}], root={self.root})"
        if self.kind == "all_gather":
            return f"all_gather({self.dtype}[{self.count}])"
        return f"{self.kind}()"

    def encode(self) -> tuple[int, int, int, int, int]:
        """As integers, for the wire."""
        return KINDS.index(self.kind), REDUCE_OPS.index(self.op), DTYPES.index(self.dtype), self.count, self.root

    @staticmethod
    def decode(code: tuple[int, int, int, int, int]) -> Call:
        """The inverse of `encode`."""
        kind, op, dtype, count, root = code
        return Call(cast(Kind, KINDS[kind]), cast(ReduceOp, REDUCE_OPS[op]), DTYPES[dtype], count, root)


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A call with this rank's flat buffers: `source` is read, `target` written; they may be one array."""

    call: Call
    source: Array
    target: Array
    label: str = ""

    def __str__(self) -> str:
        return f"{self.label}: {self.call}" if self.label else str(self.call)


class Communicator(ABC):
    """A group of ranks. `timeout_s`: the limit of every wait that gives none of its own, in seconds."""

    rank: int
    world_size: int
    transport: str
    timeout_s: float = DEFAULT_TIMEOUT_S

    # -- what a transport provides

    @abstractmethod
    def launch(self, task: Task) -> Work:
        """Start `task`; tasks run strictly in launch order. Must not block on other ranks."""

    @abstractmethod
    def all_gather_object(self, value: T, *, timeout_s: float | None = None) -> list[T]:
        """Every rank's `value`, by rank. Values are pickled."""

    @abstractmethod
    def broadcast_object(self, value: T | None, *, root: int = 0, timeout_s: float | None = None) -> T:
        """Rank `root`'s value, on all ranks."""

    @abstractmethod
    def close(self) -> None:
        """Wait until all ranks close, then free what the transport holds. Later calls raise ClosedError."""

    @abstractmethod
    def abort(self, exit_code: int = 1) -> None:
        """End the whole job, all ranks, now."""

    def allocate(self, numel: int, dtype: np.dtype[Any]) -> Array:
        """A flat array of zeros, 64-byte aligned, that collectives of this communicator handle best. Not collective."""
        raw = np.zeros(numel * dtype.itemsize + ALIGNMENT_NBYTES, np.uint8)
        start = -raw.__array_interface__["data"][0] % ALIGNMENT_NBYTES
        return raw[start : start + numel * dtype.itemsize].view(dtype)

    # -- collectives on arrays

    def all_reduce_async(self, array: Array, op: ReduceOp = "sum", *, label: str = "") -> Work:
        """Replace `array` by the reduction of all ranks' arrays, in the background."""
        flat = self._flat(array, writes=True)
        self._check_reduction(op, flat)
        return self.launch(Task(Call("all_reduce", op, flat.dtype.name, flat.size), flat, flat, label))

    def all_reduce(
        self, array: Array, op: ReduceOp = "sum", *, label: str = "", timeout_s: float | None = None
    ) -> None:
        """Replace `array` by the reduction of all ranks' arrays."""
        self.all_reduce_async(array, op, label=label).wait(timeout_s)

    def broadcast_async(self, array: Array, *, root: int = 0, label: str = "") -> Work:
        """Replace `array` by rank `root`'s, in the background."""
        flat = self._flat(array, writes=True)
        self._check_root(root)
        return self.launch(
            Task(Call("broadcast", dtype=flat.dtype.name, count=flat.size, root=root), flat, flat, label)
        )

    def broadcast(self, array: Array, *, root: int = 0, label: str = "", timeout_s: float | None = None) -> None:
        """Replace `array` by rank `root`'s."""
        self.broadcast_async(array, root=root, label=label).wait(timeout_s)

    def all_gather_async(self, target: Array, source: Array, *, label: str = "") -> Work:
        """Put rank r's `source` (any shape, n elements) into row r of `target` (world_size * n elements)."""
        task = self._uneven("all_gather", "sum", larger=target, smaller=source, target_is_larger=True, label=label)
        return self.launch(task)

    def all_gather(self, target: Array, source: Array, *, label: str = "", timeout_s: float | None = None) -> None:
        """Put rank r's `source` into row r of `target`."""
        self.all_gather_async(target, source, label=label).wait(timeout_s)

    def reduce_scatter_async(self, target: Array, source: Array, op: ReduceOp = "sum", *, label: str = "") -> Work:
        """Reduce all ranks' `source` (world_size * n elements) and keep part `rank` of it in `target` (n elements)."""
        task = self._uneven("reduce_scatter", op, larger=source, smaller=target, target_is_larger=False, label=label)
        self._check_reduction(op, task.source)
        return self.launch(task)

    def reduce_scatter(
        self, target: Array, source: Array, op: ReduceOp = "sum", *, label: str = "", timeout_s: float | None = None
    ) -> None:
        """Reduce all ranks' `source` and keep part `rank` of it in `target`."""
        self.reduce_scatter_async(target, source, op, label=label).wait(timeout_s)

    def barrier_async(self, *, label: str = "") -> Work:
        """Done when all ranks launched it."""
        empty = np.empty(0, np.uint8)
        return self.launch(Task(Call("barrier"), empty, empty, label))

    def barrier(self, *, label: str = "", timeout_s: float | None = None) -> None:
        """Return when all ranks are here."""
        self.barrier_async(label=label).wait(timeout_s)

    # -- checks, before anything is sent

    def _where(self) -> str:
        return f"rank {self.rank} of {self.world_size}"

    def _flat(self, array: Array, *, writes: bool) -> Array:
        if not array.flags.c_contiguous or (writes and not array.flags.writeable):
            raise CollectiveArgumentError(
                "a collective's buffer must be C-contiguous" + (" and writable" if writes else ""),
                where=self._where(),
                got=f"{array.dtype.name}{list(array.shape)}, strides {array.strides}, writable {array.flags.writeable}",
                remedy="pass np.ascontiguousarray(array), or a writable copy",
            )
        if array.dtype.name not in DTYPES:
            raise CollectiveArgumentError(
                f"arrays of dtype {array.dtype} cannot be sent", where=self._where(), expected=", ".join(DTYPES)
            )
        return array.reshape(-1)

    def _check_reduction(self, op: str, flat: Array) -> None:
        if op not in REDUCE_OPS:
            raise CollectiveArgumentError(
                f"unknown reduction {op!r}", where=self._where(), expected=", ".join(REDUCE_OPS)
            )
        if op == "avg" and flat.dtype.kind in "iub":
            raise CollectiveArgumentError(
                f"the average of {flat.dtype.name} is not an integer",
                where=self._where(),
                remedy="use op='sum', or a floating dtype",
            )
        if flat.dtype.kind == "b" and op == "sum":
            raise CollectiveArgumentError(
                "bool arrays have no sum",
                where=self._where(),
                remedy="use op='max' (any) or 'min' (all), or an integer dtype",
            )

    def _check_root(self, root: int) -> None:
        if not 0 <= root < self.world_size:
            raise CollectiveArgumentError(f"no rank {root}", where=self._where(), expected=f"0..{self.world_size - 1}")

    def _uneven(
        self, kind: Kind, op: ReduceOp, *, larger: Array, smaller: Array, target_is_larger: bool, label: str
    ) -> Task:
        big = self._flat(larger, writes=target_is_larger)
        small = self._flat(smaller, writes=not target_is_larger)
        if big.size != small.size * self.world_size or big.dtype != small.dtype:
            raise CollectiveArgumentError(
                f"{kind}: one array must be world_size times the other, of one dtype",
                where=self._where(),
                expected=f"{small.dtype.name}[{small.size * self.world_size}]",
                got=f"{big.dtype.name}[{big.size}]",
            )
        source, target = (small, big) if target_is_larger else (big, small)
        return Task(Call(kind, op, small.dtype.name, small.size), source, target, label)
