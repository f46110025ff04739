"""Buffers of all ranks: one rank's values for everyone, in one message, and only when somebody has written to one.

In: the module's buffers at a forward. Out: on all ranks the root's values. A gate tells whether any rank has written to
a buffer since the last time. The buffers that were ever written to (BatchNorm's statistics) travel together, packed by
dtype in one array of bytes; those that never were (masks, tables) stay at home. When one of these changes, ranks
exchange names first, and from then on it travels too. Memory that was lent (`numpy()`) others may write to, which no
stamp tells: such a buffer counts as written at every forward, at each of which torch sends all.
Invariants: the same names travel on every rank; values are immutable, so each message is unpacked into memory of its
own; a buffer that nobody wrote to keeps its version, as a backward under way may have saved it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from collectives import Communicator
from compiler_core.ops.registry import Array
from compiler_core.tensor.memory.cell import Cell
from compiler_core.tensor.tensor import Tensor

Stamp: TypeAlias = tuple[Cell, int] | None  # a storage, and how often it was written; None: nobody can tell
TRAVELLING, AT_HOME = 1, 2  # a rank's word: which kind of buffers it has written to


class BufferSync:
    """The buffers of one instance. are_equal: whether all ranks have the same values of `buffers` now."""

    def __init__(self, communicator: Communicator, buffers: Mapping[str, Tensor], *, are_equal: bool) -> None:
        self.communicator = communicator
        self.names = tuple(buffers)
        self.seen: list[Stamp] = list(_stamps(buffers)) if are_equal else [None] * len(buffers)
        self.travelling: frozenset[str] = frozenset()
        self.messages: dict[type, Message] = {}  # by where the arrays are: the type of array

    def run(self, buffers: Mapping[str, Tensor], *, root: int = 0) -> None:
        """Collective. Must be given the same names on every rank."""
        word = 0
        stamps = _stamps(buffers)
        if len(buffers) != len(self.names) or stamps != self.seen or None in stamps:
            written = self._written(buffers, stamps)
            word = TRAVELLING * bool(written) | AT_HOME * (not written <= self.travelling)
        gate = self.communicator.open_gate((word,), 0, label="changed buffers")
        drafts = self._drafts(buffers, root) if word == TRAVELLING else None  # while the gate is on its way
        rows = gate.wait()
        said = 0
        for (theirs,) in rows:
            said |= theirs
        if not said:
            return
        if said & AT_HOME:
            everyones = self.communicator.all_gather_object(self._written(buffers, stamps))
            self.travelling, drafts = self.travelling.union(*everyones), None
        for draft in self._drafts(buffers, root) if drafts is None else drafts:
            self._send(draft, root)
        self.names, self.seen = tuple(buffers), list(_stamps(buffers))

    def _written(self, buffers: Mapping[str, Tensor], stamps: Sequence[Stamp]) -> frozenset[str]:
        """The buffers that are not as they were when all ranks had the same."""
        before = dict(zip(self.names, self.seen))
        return frozenset(name for name, stamp in zip(buffers, stamps) if stamp is None or before.get(name) != stamp)

    def _drafts(self, buffers: Mapping[str, Tensor], root: int) -> list[Draft]:
        """The message: on the root as it is to be sent, elsewhere where it is to arrive. A second one for a GPU's."""
        found: dict[type, list[tuple[Cell, Array]]] = {}
        for name, tensor in buffers.items():
            if name in self.travelling:
                array = tensor._cell.current()
                found.setdefault(type(array), []).append((tensor._cell, array))
        return [self._draft(kind, found[kind], root) for kind in sorted(found, key=lambda kind: kind is not np.ndarray)]

    def _draft(self, kind: type, members: Sequence[tuple[Cell, Array]], root: int) -> Draft:
        arrays = [array for _, array in members]
        message = self.messages.get(kind)
        if message is None or not message.fits(arrays):
            message = self.messages[kind] = Message(arrays)
        packed = np.empty_like(arrays[0], shape=(message.nbytes,), dtype=np.uint8)
        if self.communicator.rank == root:
            message.pack(packed, arrays)
            return Draft(packed, [], [])
        return Draft(packed, [cell for cell, _ in members], message.places(packed))

    def _send(self, draft: Draft, root: int) -> None:
        self.communicator.broadcast(draft.packed, root=root, label="buffers")
        for cell, place in zip(draft.cells, draft.places):
            cell.write(place)


class Draft(NamedTuple):
    """A message under way: cells[i] takes what arrives at places[i]."""

    packed: Array
    cells: list[Cell]
    places: list[Array]


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

    def pack(self, packed: Array, arrays: Sequence[Array]) -> None:
        """Write `arrays` into `packed`."""
        for dtype, start, stop, members in self.parts:
            flat = packed[start:stop].view(dtype)
            np.concatenate([arrays[number].reshape(-1) for number, _, _ in members], out=flat)

    def places(self, packed: Array) -> list[Array]:
        """Each array's view of `packed`."""
        places: list[Array] = [packed] * len(self.kinds)
        for dtype, start, stop, members in self.parts:
            flat = packed[start:stop].view(dtype)
            for number, offset, shape in members:
                part = flat[offset : offset + math.prod(shape)]
                places[number] = part if len(shape) == 1 else part.reshape(shape)
        return places


def _stamps(buffers: Mapping[str, Tensor]) -> list[Stamp]:
    cells = [tensor._cell.root for tensor in buffers.values()]
    return [None if cell.is_lent else (cell, cell.stamp) for cell in cells]
