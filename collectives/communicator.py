"""`Communicator`: what a group of ranks can do together. Every transport implements this, and nothing more is used.

In: NumPy arrays, C-contiguous, of the same dtype and size on every rank. Out: the same arrays, changed in place; or a
`Work` for the `*_async` forms, whose arrays must be left alone until `wait()` returns.
Invariants: calls match by order, as in MPI; each call is announced as a `CollectiveCall` with a `Stamp` (plan, step,
bucket), compared across ranks before data move, so a mismatch is a named error and no hang. A reduction gives bitwise
the same result on every rank.
Object exchange and messages between two ranks go over channels of their own: they may be called while bucket
collectives are in flight. `subgroup` makes a full communicator of some of the ranks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from collectives import checks
from collectives.call import NO_STAMP, Array, CollectiveCall, Kind, ReduceOp, Stamp, Task, Wire
from collectives.errors import CollectiveArgumentError, CollectiveError, CollectiveMismatchError
from collectives.work import DEFAULT_TIMEOUT_S, Gate, Mark, Work
from collectives.work_events import WorkEvents

T = TypeVar("T")

ALIGNMENT_NBYTES = 64  # a cache line

REMEMBERED = 4096
_REDUCTIONS: dict[
    tuple[ReduceOp, np.dtype[Any], int, Wire], CollectiveCall
] = {}  # all-reduces that were found to be right


class Communicator(ABC):
    """A group of ranks. `timeout_s`: the limit of every wait that gives none of its own, in seconds."""

    rank: int
    world_size: int
    transport: str
    _place = ""
    timeout_s: float = DEFAULT_TIMEOUT_S
    graph_key: str = ""  # its name in graphs, if who made it gave it one
    members: tuple[int, ...] = ()  # of a group that was named: its ranks in the group that it is of

    # -- what a transport provides

    @abstractmethod
    def launch(self, task: Task) -> Work:
        """Start `task`; tasks run strictly in launch order. Must not block on other ranks."""

    def run(self, task: Task, timeout_s: float | None) -> None:
        """Do `task` now, and return when it is done: like `launch` and `wait`."""
        self.launch(task).wait(timeout_s)

    @abstractmethod
    def all_gather_object(self, value: T, *, timeout_s: float | None = None) -> list[T]:
        """Every rank's `value`, by rank. Values are pickled."""

    @abstractmethod
    def broadcast_object(self, value: T | None, *, root: int = 0, timeout_s: float | None = None) -> T:
        """Rank `root`'s value, on all ranks."""

    @abstractmethod
    def launch_send(self, array: Array, peer: int, tag: int) -> Work:
        """Send a flat array to rank `peer`. Must not block. Tags below 0 are for letters of nccl/postman.py."""

    @abstractmethod
    def launch_receive(self, array: Array, peer: int | None, tag: int) -> Work:
        """Receive into a flat array from rank `peer`, or from any (None). Must not block."""

    @abstractmethod
    def subgroup(self, ranks: Sequence[int]) -> Communicator | None:
        """A communicator of `ranks`, numbered in the order given; None on a rank that is not one of them.

        Collective over all ranks of this communicator.
        """

    @abstractmethod
    def close(self) -> None:
        """Wait until all ranks close, then free what the transport holds. Later calls raise ClosedError."""

    @abstractmethod
    def abort(self, exit_code: int = 1) -> None:
        """End the whole job, all ranks, now."""

    @property
    def host_transport(self) -> str:
        """How arrays in host memory, objects and agreement travel."""
        return self.transport

    def takes_device_arrays(self) -> bool:
        """Whether arrays may be on a GPU, too."""
        return False

    def give_up(self, error: CollectiveError) -> None:
        """This rank cannot go on, because of `error`: have the ranks that need it learn so, if there is a way."""
        return None

    def mark(self, array: Array) -> Mark | None:
        """The point that the work of `array`'s GPU has been enqueued to; None for an array in host memory."""
        return None

    def allocate(self, numel: int, dtype: np.dtype[Any]) -> Array:
        """A flat array of zeros, 64-byte aligned, that collectives of this communicator handle best. Not collective."""
        raw = np.zeros(numel * dtype.itemsize + ALIGNMENT_NBYTES, np.uint8)
        start = -raw.__array_interface__["data"][0] % ALIGNMENT_NBYTES
        return raw[start : start + numel * dtype.itemsize].view(dtype)

    # -- collectives on arrays

    def all_reduce_async(
        self,
        array: Array,
        op: ReduceOp = "sum",
        *,
        label: str = "",
        wire: Wire = "",
        stamp: Stamp = NO_STAMP,
        gate: Gate | None = None,
        held: bool = False,
    ) -> Work:
        """Replace `array` by the reduction of all ranks' arrays, in the background.

        wire: the 16-bit float that a wider array travels as. Every source is rounded to it, reduced in float32 in rank
        order, and the result rounded to it once: the same bits on every rank.
        stamp: compared across ranks, and named if they differ. gate: skipped on all ranks if it does not pass.
        held: takes its place in the order, but starts only after `Work.release`.
        """
        call, flat = self._all_reduce_call(array, op, wire)
        return self.launch(Task(call, flat, flat, label, None, stamp, gate, held))

    def all_reduce(
        self, array: Array, op: ReduceOp = "sum", *, label: str = "", wire: Wire = "", timeout_s: float | None = None
    ) -> None:
        """Replace `array` by the reduction of all ranks' arrays."""
        call, flat = self._all_reduce_call(array, op, wire)
        self.run(Task(call, flat, flat, label), timeout_s)

    def _all_reduce_call(self, array: Array, op: ReduceOp, wire: Wire) -> tuple[CollectiveCall, Array]:
        flat = self._flat(array, writes=True, op=op)
        asked = op, flat.dtype, flat.size, wire
        call = _REDUCTIONS.get(asked)
        if call is None:
            checks.check_reduction(op, flat, self._where())
            checks.check_wire(wire, flat, self._where())
            call = CollectiveCall("all_reduce", op, checks.dtype_name(flat.dtype), flat.size, wire=wire)
            if len(_REDUCTIONS) < REMEMBERED:
                _REDUCTIONS[asked] = call
        return call, flat

    def reduce_async(self, array: Array, op: ReduceOp = "sum", *, root: int = 0, label: str = "") -> Work:
        """On rank `root`, replace `array` by the reduction of all ranks' arrays; the others' stay as they are."""
        flat = self._flat(array, writes=self.rank == root, op=op)
        checks.check_reduction(op, flat, self._where())
        self._check_root(root)
        return self.launch(Task(CollectiveCall("reduce", op, flat.dtype.name, flat.size, root), flat, flat, label))

    def broadcast_async(
        self,
        array: Array,
        *,
        root: int = 0,
        label: str = "",
        needed: bool = True,
        stamp: Stamp = NO_STAMP,
        gate: Gate | None = None,
    ) -> Work:
        """Replace `array` by rank `root`'s, in the background.

        needed: data move only if some rank says so; otherwise the Work ends as `skipped` on all ranks.
        """
        flat = self._flat(array, writes=True)
        self._check_root(root)
        call = CollectiveCall("broadcast", dtype=flat.dtype.name, count=flat.size, root=root)
        return self.launch(Task(call, flat, flat, label, None, stamp, gate, needed=needed))

    def broadcast(self, array: Array, *, root: int = 0, label: str = "", timeout_s: float | None = None) -> None:
        """Replace `array` by rank `root`'s."""
        self.broadcast_async(array, root=root, label=label).wait(timeout_s)

    def all_gather_async(self, target: Array, source: Array, *, label: str = "") -> Work:
        """Put rank r's `source` (any shape, n elements) into row r of `target` (world_size * n elements)."""
        return self.launch(replace(self._uneven("all_gather", "sum", target, source, True), label=label))

    def all_gather(self, target: Array, source: Array, *, label: str = "", timeout_s: float | None = None) -> None:
        """Put rank r's `source` into row r of `target`."""
        self.all_gather_async(target, source, label=label).wait(timeout_s)

    def gather_async(self, target: Array | None, source: Array, *, root: int = 0, label: str = "") -> Work:
        """On rank `root`, put rank r's `source` (n elements) into row r of `target`; elsewhere `target` is None."""
        return self._rooted("gather", target, source, root, label)

    def scatter_async(self, target: Array, source: Array | None, *, root: int = 0, label: str = "") -> Work:
        """Put row r of rank `root`'s `source` into rank r's `target` (n elements); elsewhere `source` is None."""
        return self._rooted("scatter", source, target, root, label)

    def reduce_scatter_async(self, target: Array, source: Array, op: ReduceOp = "sum", *, label: str = "") -> Work:
        """Reduce all ranks' `source` (world_size * n elements) and keep part `rank` of it in `target` (n elements)."""
        task = self._uneven("reduce_scatter", op, source, target, False)
        checks.check_reduction(op, task.source, self._where())
        return self.launch(replace(task, label=label))

    def reduce_scatter(
        self, target: Array, source: Array, op: ReduceOp = "sum", *, label: str = "", timeout_s: float | None = None
    ) -> None:
        """Reduce all ranks' `source` and keep part `rank` of it in `target`."""
        self.reduce_scatter_async(target, source, op, label=label).wait(timeout_s)

    def all_to_all_async(
        self,
        target: Array,
        source: Array,
        *,
        splits: tuple[Sequence[int], Sequence[int]] | None = None,
        label: str = "",
    ) -> Work:
        """Send part r of `source` to rank r, and put what rank r sends into part r of `target`.

        splits: elements sent to each rank, and received from each; None: equal parts.
        """
        self._check_memory(target, source)
        if splits is None:
            task = checks.all_to_all_task(target, source, self.world_size, self._where())
        else:
            task = checks.uneven_all_to_all_task(target, source, *splits, self.world_size, self._where())
        return self.launch(replace(task, label=label))

    def barrier_async(self, *, label: str = "") -> Work:
        """Done when all ranks launched it."""
        return self.launch(Task(CollectiveCall("barrier"), checks.EMPTY, checks.EMPTY, label))

    def barrier(self, *, label: str = "", timeout_s: float | None = None) -> None:
        """Return when all ranks are here."""
        self.run(Task(CollectiveCall("barrier"), checks.EMPTY, checks.EMPTY, label), timeout_s)

    def open_gate(self, words: Sequence[int], agree: int, label: str = "", *, stamp: Stamp = NO_STAMP) -> Gate:
        """Tell all ranks up to 12 int64 `words`, in the background. It passes if the first `agree` are equal on all.

        agree must be the same on all ranks, as must the number of words. See `Gate`.
        """
        checks.check_gate(words, agree, self._where())
        call = CollectiveCall("gate", count=len(words), root=agree)
        task = Task(call, checks.EMPTY, checks.EMPTY, label, None, stamp, words=tuple(words))
        return Gate(self.launch(task), agree)

    def events(self, groups: Sequence[Sequence[Work]]) -> WorkEvents:
        """Event k releases, and waits for, the Works of group k. They must have been launched here.

        On a native engine it has a `native_address` too: compiled code then needs no Python.
        """
        return WorkEvents(groups)

    def task(
        self,
        kind: Kind,
        target: Array,
        source: Array,
        *,
        op: ReduceOp = "sum",
        root: int = 0,
        splits: tuple[Sequence[int], Sequence[int]] | None = None,
        label: str = "",
    ) -> Task:
        """A collective of this kind over `source` and `target`, checked, to be launched (more than once, perhaps).

        An all-reduce, a reduce and a broadcast have both in one array. Of a gather or scatter both are there on all
        ranks; the larger counts on `root` alone. Raises CollectiveArgumentError.
        """
        self._check_root(root)
        if kind == "all_reduce":
            call, flat = self._all_reduce_call(target, op, "")
            return Task(call, flat, flat, label)
        if kind in ("reduce", "broadcast"):
            flat = self._flat(target, writes=True, op=op if kind == "reduce" else "")
            if kind == "reduce":
                checks.check_reduction(op, flat, self._where())
            call = CollectiveCall(kind, op, checks.dtype_name(flat.dtype), flat.size, root)
            return Task(call, flat, flat, label)
        if kind == "gather":
            return self._rooted_task(kind, target if self.rank == root else None, source, root, label)
        if kind == "scatter":
            return self._rooted_task(kind, source if self.rank == root else None, target, root, label)
        if kind == "all_to_all":
            self._check_memory(target, source)
            if splits is None:
                made = checks.all_to_all_task(target, source, self.world_size, self._where())
            else:
                made = checks.uneven_all_to_all_task(target, source, *splits, self.world_size, self._where())
        elif kind == "all_gather":
            made = self._uneven(kind, "sum", target, source, True)
        elif kind == "reduce_scatter":
            made = self._uneven(kind, op, source, target, False)
            checks.check_reduction(op, made.source, self._where())
        else:
            raise CollectiveArgumentError(f"no task is made of a {kind}", where=self._where())
        return replace(made, label=label)

    # -- messages between two ranks

    def send_async(self, array: Array, peer: int, *, tag: int = 0) -> Work:
        """Send `array` to rank `peer`. Messages of one tag to one rank arrive in the order in which they were sent."""
        self._check_root(peer)
        checks.check_tag(tag, self._where())
        return self.launch_send(self._flat(array, writes=False), peer, tag)

    def receive_async(self, array: Array, peer: int | None = None, *, tag: int = 0) -> Work:
        """Receive into `array` from rank `peer`, or from whichever rank sends first (None): then `work.peer` tells."""
        if peer is not None:
            self._check_root(peer)
        checks.check_tag(tag, self._where())
        return self.launch_receive(self._flat(array, writes=True), peer, tag)

    # -- checks, before anything is sent

    def _agreed_members(self, ranks: Sequence[int]) -> tuple[int, ...]:
        """`ranks`, once every rank asked for the same subgroup. Collective."""
        members = tuple(int(rank) for rank in ranks)
        checks.check_members(members, self.world_size, self._where())
        everyones = self.all_gather_object(members)
        if any(other != members for other in everyones):
            listed = "; ".join(f"rank {rank}: {list(other)}" for rank, other in enumerate(everyones))
            raise CollectiveMismatchError(
                "ranks asked for different subgroups",
                where=self._where(),
                expected="the same list on every rank, also on those that are not in it",
                got=listed,
            )
        return members

    def _where(self) -> str:
        text = self._place
        if not text:
            text = self._place = f"rank {self.rank} of {self.world_size}"
        return text

    def _check_memory(self, *arrays: Array) -> None:
        """Raise CollectiveArgumentError for arrays of a GPU, if this transport cannot reach them."""
        if not self.takes_device_arrays() and not all(isinstance(array, np.ndarray) for array in arrays):
            raise CollectiveArgumentError(
                "this group has no transport for arrays on a GPU",
                where=self._where(),
                expected="arrays in host memory",
                got=f"transport {self.transport!r}",
                remedy='init_process_group("nccl"), or tensor.cpu()',
            )

    def _flat(self, array: Array, *, writes: bool, op: str = "") -> Array:
        if type(array) is not np.ndarray:
            self._check_memory(array)
        return checks.flat(array, self._where(), writes=writes, op=op)

    def _check_root(self, root: int) -> None:
        checks.check_rank(root, self.world_size, self._where())

    def _uneven(self, kind: Kind, op: ReduceOp, larger: Array, smaller: Array, target_is_larger: bool) -> Task:
        self._check_memory(larger, smaller)
        return checks.uneven_task(
            kind,
            op,
            larger=larger,
            smaller=smaller,
            target_is_larger=target_is_larger,
            world_size=self.world_size,
            where=self._where(),
        )

    def _rooted(self, kind: Kind, whole: Array | None, part: Array, root: int, label: str) -> Work:
        self._check_root(root)
        return self.launch(self._rooted_task(kind, whole, part, root, label))

    def _rooted_task(self, kind: Kind, whole: Array | None, part: Array, root: int, label: str) -> Task:
        """A gather or scatter: `whole` (world_size times `part`) is there on the root only."""
        is_gather, is_root = kind == "gather", self.rank == root
        small = self._flat(part, writes=not is_gather)
        big = small[:0]
        if is_root:
            big = checks.EMPTY if whole is None else self._flat(whole, writes=is_gather)
            checks.check_times(kind, big, small, self.world_size, self._where())
        source, target = (small, big) if is_gather else (big, small)
        call = CollectiveCall(kind, dtype=small.dtype.name, count=small.size, root=root)
        return Task(call, source, target, label)
