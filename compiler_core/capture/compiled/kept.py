"""What a compiled entry keeps of the tensors from outside: how each call finds them, and what is the same in all.

In: what the trace knew of them (`Known`, `Lifted`, `Written`), the handles of its call among it. Out: their likes that
keep no handle alive: those that come anew with every call are told by their place, the others are referred to weakly.
An entry keeps the cells of the latter, which are the memory that its graph reads: it is dropped when a handle dies
(`guards/deaths.py`), or has been bound to other memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from weakref import ReferenceType

from compiler_core.capture.outside_memory import Known, Lifted, Written
from compiler_core.graph.ir import Node, Placeholder
from compiler_core.ops.registry import Array
from compiler_core.records import dataclass
from compiler_core.tensor.memory.cell import Cell
from compiler_core.tensor.tensor import Tensor


@dataclass(frozen=True, slots=True)
class KeptTensor:
    """A tensor from outside. argument: its number among the argument tensors; -1 if `refers` tells it."""

    role: str
    source: str
    argument: int
    refers: ReferenceType[Tensor] | None

    @property
    def changes(self) -> bool:
        """Whether it comes anew with every call."""
        return self.argument >= 0

    @property
    def handle(self) -> Tensor:
        """The tensor, of one that is the same in every call."""
        handle = None if self.refers is None else self.refers()
        assert handle is not None
        return handle

    def now(self, arguments: Sequence[Tensor]) -> Tensor:
        """The tensor in a call with these argument tensors."""
        return arguments[self.argument] if self.argument >= 0 else self.refers()  # type: ignore[misc, return-value]


@dataclass(frozen=True, slots=True)
class KeptCell:
    """A cell from outside. cell: the very one, if it is the same in every call; else it is that of `known`, or the root
    of that."""

    known: KeptTensor | None
    cell: Cell | None
    at_root: bool

    @property
    def changes(self) -> bool:
        """Whether it comes anew with every call."""
        return self.cell is None

    def now(self, arguments: Sequence[Tensor]) -> Cell:
        """The cell in a call with these argument tensors."""
        if self.cell is not None:
            return self.cell
        assert self.known is not None
        found = self.known.now(arguments)._cell
        return found.root if self.at_root else found


@dataclass(frozen=True, slots=True)
class KeptInput(KeptCell):
    """What a placeholder reads. takes_gradient: whether it has a history. rewritten: whether the call writes it."""

    placeholder: Placeholder
    takes_gradient: bool
    rewritten: bool

    def on(self, placeholder: Node) -> KeptInput:
        """The same, read by what stands for the placeholder in another graph."""
        assert isinstance(placeholder, Placeholder)
        return replace(self, placeholder=placeholder)


@dataclass(frozen=True, slots=True)
class KeptWrite(KeptCell):
    """A cell that a call writes. count: how often the traced code does."""

    count: int

    def put(self, value: Array, arguments: Sequence[Tensor]) -> None:
        """Write the last of the values; the version rises as if all had been written."""
        cell = self.now(arguments)
        cell.write(value)
        cell.counter.version += self.count - 1


class Keeper:
    """Makes the likes, one for each. refer: a weak reference to a handle."""

    def __init__(self, refer: Callable[[Tensor], ReferenceType[Tensor]]) -> None:
        self._refer = refer
        self._made: dict[int, tuple[Known, KeptTensor]] = {}

    def tensor(self, known: Known) -> KeptTensor:
        if id(known) not in self._made:
            refers = None if known.argument >= 0 else self._refer(known.handle)
            self._made[id(known)] = known, KeptTensor(known.role, known.source, known.argument, refers)
        return self._made[id(known)][1]

    def inputs(self, lifts: Sequence[Lifted | None], written: Sequence[Written]) -> tuple[KeptInput | None, ...]:
        """What is lifted; None stays. written: what the call writes."""
        roots = {found.cell.root for found in written}
        return tuple(None if lift is None else self._input(lift, lift.cell.root in roots) for lift in lifts)

    def _input(self, lift: Lifted, rewritten: bool) -> KeptInput:
        return KeptInput(*self._cell(lift), lift.placeholder, lift.edge is not None, rewritten)

    def write(self, written: Written) -> KeptWrite:
        return KeptWrite(*self._cell(written), written.count)

    def _cell(self, found: Lifted | Written) -> tuple[KeptTensor | None, Cell | None, bool]:
        known = None if found.known is None else self.tensor(found.known)
        return known, None if known is not None and known.changes else found.cell, found.at_root
