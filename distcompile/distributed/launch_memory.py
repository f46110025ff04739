"""The memory that collectives of graphs travel in: operands and results of each launch, and the tasks over them.

In: the launches of an executable; for each, who it is among. Out: `Memory` of each launch, for one call.
On the host the memory is kept from call to call, and given again once nobody refers to the results that the graph
returned. On a GPU each call is given new memory: the device's pool has it, in the order of its streams.
Invariant: on a GPU every part starts on a boundary that kernels take (`ALIGNED`), so no copy of it is made, which would
miss what arrives later.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from sys import getrefcount
from types import SimpleNamespace

import numpy as np

from collectives import Communicator, Gate, Work
from collectives.call import Stamp, Task
from compiler_core.device import Device
from compiler_core.meta import TensorMeta
from compiler_core.ops.collectives.runner import Collective, Launch
from compiler_core.ops.registry import Array

ALIGNED = 16  # bytes: runtime/cuda/executable.py


def task_of(ranks: Communicator, what: Collective, target: Array, source: Array, label: str) -> Task:
    """A collective on flat arrays, checked, not yet launched. In place, they are one."""
    rows = source.shape[0] if source.ndim else 1
    row = source.size // rows if rows else 0
    splits = tuple(tuple(n * row for n in counts) for counts in (what.sent, what.received)) if what.sent else None
    kind = _KINDS.get(what.kind, what.kind)
    return ranks.task(kind, target, source, op=what.reduction, root=what.root, splits=splits, label=label)  # type: ignore[arg-type]


_KINDS = {
    "broadcast_from": "broadcast", "reduce_to": "reduce", "gather_to": "gather", "scatter_from": "scatter",
    "all_to_all_uneven": "all_to_all",
}  # fmt: skip


@dataclass(eq=False)
class Kept:
    """What an executable's calls use again. stamps: of each launch, a hash of all in its group, and its number."""

    launches: Sequence[Launch]
    shown: Sequence[tuple[int, int]]
    free: list[list[Memory]] = field(default_factory=list)
    stamps: list[Stamp] = field(default_factory=list)

    def __post_init__(self) -> None:
        of: dict[str, list[str]] = {}
        numbers = []
        for launch in self.launches:
            texts = of.setdefault(launch.what.group, [])
            numbers.append(len(texts))
            texts.append(launch.said)
        plans = {group: _hash("\n".join(texts)) for group, texts in of.items()}
        self.stamps = [Stamp(plans[one.what.group], 0, k) for one, k in zip(self.launches, numbers)]

    def take(self, ranks: Sequence[Communicator]) -> list[Memory]:
        """Memory to whose results nobody refers any more; on a GPU, new memory."""
        for place, memory in enumerate(self.free):
            if not self.shown or self._is_idle(memory):
                return self.free.pop(place)
        if len(self.free) == MOST_KEPT:
            del self.free[0]  # who holds its results keeps it
        return [Memory(launch, one) for launch, one in zip(self.launches, ranks)]

    def give(self, memory: list[Memory]) -> None:
        """The call is over."""
        if not self.on_gpu:
            self.free.append(memory)

    @property
    def on_gpu(self) -> bool:
        return Device(self.launches[0].device).is_gpu

    def _is_idle(self, memory: Sequence[Memory]) -> bool:
        owners = [one for one in memory for _ in one.results]
        firsts = [k for one in memory for k in range(len(one.results))]
        return all(getrefcount(owners[k].results[firsts[k]]) == _IDLE for _, k in self.shown)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


class Memory:
    """Of one launch: its operands and results, and the task over them."""

    def __init__(self, launch: Launch, ranks: Communicator) -> None:
        self.launch = launch
        source, self.operands = _laid_out([part.operand for part in launch.parts], launch, ranks)
        target, self.results = source, self.operands
        if not launch.in_place:
            target, self.results = _laid_out([part.result for part in launch.parts], launch, ranks)
        label = f"collective of a graph ({launch.where})" if launch.where else "collective of a graph"
        whole = (source, target) if launch.in_place else (self.operands[0], self.results[0])
        self.task = task_of(ranks, launch.what, whole[1], whole[0], label)

    def started(self, ranks: Communicator, stamp: Stamp, gate: Gate | None) -> Work:
        """Its collective, launched and held."""
        task = self.task
        return ranks.launch(Task(task.call, task.source, task.target, task.label, task.splits, stamp, gate, held=True))


def _laid_out(metas: Sequence[TensorMeta], launch: Launch, ranks: Communicator) -> tuple[Array, list[Array]]:
    """Flat memory, and arrays that lie in it, one behind the other."""
    dtype, device = launch.dtype.numpy, Device(launch.device)
    if not device.is_gpu:
        flat = ranks.allocate(sum(meta.numel for meta in metas), dtype)
        return flat, _views(flat, metas)
    unit = max(1, ALIGNED // dtype.itemsize)  # elements
    sizes = [-(-meta.numel // unit) * unit if len(metas) > 1 else meta.numel for meta in metas]
    flat = device.empty((sum(sizes),), dtype)
    starts = accumulate(sizes, initial=0)
    return flat, [flat[k : k + meta.numel].reshape(meta.shape) for k, meta in zip(starts, metas)]


def _views(flat: Array, metas: Sequence[TensorMeta]) -> list[Array]:
    """Arrays that lie in `flat`, one behind the other. Each rests on a buffer, not on an array: so views of it refer
    to it, and it can be told whether there are any."""
    found, start = [], 0
    for meta in metas:
        nbytes = meta.numel * flat.itemsize
        if nbytes:
            memory = memoryview(flat.view(np.uint8))[start : start + nbytes]  # type: ignore[arg-type]
            found.append(np.ndarray(meta.shape, flat.dtype, buffer=memory))
        else:
            found.append(np.empty(meta.shape, flat.dtype))
        start += nbytes
    return found


def _idle_references() -> int:
    memory = SimpleNamespace(results=[np.zeros(1)])
    return getrefcount(memory.results[0])


_IDLE = _idle_references()
MOST_KEPT = 4  # memories of an executable that wait for their results to be let go of
