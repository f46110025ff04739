"""Buffers of all ranks: one rank's values for everyone, in one message, and only when somebody has written to one.

In: the module's buffers at a forward. Out: on all ranks the root's values. A gate tells whether any rank has written to
a buffer since the last time. The buffers that were ever written to (BatchNorm's statistics) travel together, packed by
dtype in one array of bytes; those that never were (masks, tables) stay at home. When one of these changes, ranks
exchange names first, and from then on it travels too.
Invariants: the same names travel on every rank; values are immutable, so each message is unpacked into memory of its
own; a buffer that nobody wrote to keeps its version, as a backward under way may have saved it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from collectives import Communicator
from compiler_core.ops.registry import Array
from compiler_core.tensor.tensor import Tensor

TRAVELLING, AT_HOME = 1, 2  # a rank's word: which kind of buffers it has written to


class BufferSync:
    """seen: name -> identity and version of each buffer when all ranks had the same values."""

    def __init__(self, communicator: Communicator, buffers: Mapping[str, Tensor], *, are_equal: bool) -> None:
        self.communicator = communicator
        self.seen = {name: _stamp(tensor) for name, tensor in buffers.items()} if are_equal else {}
        self.travelling: tuple[str, ...] = ()
        self.message: Message | None = None

    def run(self, buffers: Mapping[str, Tensor], *, root: int = 0) -> None:
        """Collective. Must be given the same names on every rank."""
        written = {name for name, tensor in buffers.items() if self.seen.get(name) != _stamp(tensor)}
        gone = [name for name in self.travelling if name not in buffers]
        at_home = bool(gone) or any(name not in self.travelling for name in written)
        word = TRAVELLING * bool(written) | AT_HOME * at_home
        rows = self.communicator.open_gate((word,), 0, label="changed buffers").wait()
        if any(row[0] & AT_HOME for row in rows):
            everyones = self.communicator.all_gather_object(sorted(written))
            names = set(self.travelling).union(*everyones)
            self.travelling = tuple(name for name in buffers if name in names)
        if any(row[0] for row in rows):
            self._send({name: buffers[name] for name in self.travelling}, root)
        for name in self.travelling if len(self.seen) == len(buffers) else buffers:
            self.seen[name] = _stamp(buffers[name])

    def _send(self, buffers: Mapping[str, Tensor], root: int) -> None:
        arrays = [tensor._cell.current() for tensor in buffers.values()]
        if self.message is None or not self.message.fits(arrays):
            self.message = Message(arrays)
        packed = np.empty(self.message.nbytes, np.uint8)
        places = self.message.places(packed)
        if self.communicator.rank == root:
            for place, array in zip(places, arrays):
                place[...] = array
        self.communicator.broadcast(packed, root=root, label="buffers")
        if self.communicator.rank != root:
            for tensor, place in zip(buffers.values(), places):
                tensor._cell.write(place)


class Message:
    """How arrays lie packed in one array of bytes: those of one dtype together, largest items first."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        self.kinds = [(array.dtype, array.shape) for array in arrays]
        dtypes = sorted({dtype for dtype, _ in self.kinds}, key=lambda dtype: (-dtype.itemsize, dtype.str))
        self.parts: list[tuple[np.dtype[np.generic], int, int, list[tuple[int, int, tuple[int, ...]]]]] = []
        start = 0
        for dtype in dtypes:
            members, count = [], 0
            for number, (kind, shape) in enumerate(self.kinds):
                if kind == dtype:
                    members.append((number, count, shape))
                    count += math.prod(shape)
            self.parts.append((dtype, start, start + count * dtype.itemsize, members))
            start += count * dtype.itemsize
        self.nbytes = start

    def fits(self, arrays: Sequence[Array]) -> bool:
        """Whether these arrays are of the kinds that are packed so."""
        return self.kinds == [(array.dtype, array.shape) for array in arrays]

    def places(self, packed: Array) -> list[Array]:
        """Each array's view of `packed`."""
        places: list[Array] = [packed] * len(self.kinds)
        for dtype, start, stop, members in self.parts:
            flat = packed[start:stop].view(dtype)
            for number, offset, shape in members:
                places[number] = flat[offset : offset + math.prod(shape)].reshape(shape)
        return places


def _stamp(tensor: Tensor) -> tuple[int, int]:
    return id(tensor._cell.root), tensor._version
