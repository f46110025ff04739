"""The trace that captures: records ops as graph nodes, lifts tensors from outside to placeholders, notes writes.

In: ops and cell accesses while the user's code runs (`bind`, and `CellTrace` of tensor/cell.py). Out: a graph under
construction, `lifted` (what each placeholder reads) and `written` (which cells an epilogue must write back).
Invariants: one placeholder for a cell and a history (a detached handle on a parameter's cell is another value to
differentiation); a view from outside is a value of its own, so none may be read beside a write to its root; nothing
outside is changed by the trace itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from compiler_core.aot.boundary import Boundary
from compiler_core.capture.module_protocol import ModuleProtocol
from compiler_core.dtype import uint64
from compiler_core.errors import GraphBreak
from compiler_core.graph.ir import GraphBuilder, Node, Placeholder
from compiler_core.location import user_location
from compiler_core.meta import TensorMeta
from compiler_core.ops.meta_value import MetaValue
from compiler_core.ops.registry import Attrs, Op, Value, meta_of
from compiler_core.tensor.cell import Cell, ViewCell
from compiler_core.tensor.random import current_shard
from compiler_core.tensor.tape import Edge
from compiler_core.tensor.tensor import Tensor

RNG_KEY = TensorMeta((3,), uint64)


@dataclass(frozen=True, slots=True)
class Known:
    """A tensor from outside. role, source: of its placeholder.

    code, argument: the variable of the check function that holds it, and its number among the argument tensors, if it
    comes anew with every call. Otherwise the handle itself is bound.
    """

    handle: Tensor
    role: str
    source: str
    code: str = ""
    argument: int = -1

    def now(self, arguments: Sequence[Tensor]) -> Tensor:
        """The tensor in a call with these argument tensors."""
        return self.handle if self.argument < 0 else arguments[self.argument]


@dataclass(frozen=True, slots=True)
class Lifted:
    """A placeholder, the cell it reads, and the tensor (if there is one) that the cell was reached through."""

    placeholder: Placeholder
    cell: Cell
    known: Known | None


class CaptureTrace(GraphBuilder):
    """Implements `ops.registry.Trace`, `tensor.cell.CellTrace` and `aot.boundary.BoundaryTrace`."""

    def __init__(self, name: str, known: Iterable[Known]) -> None:
        super().__init__(name)
        self.by_handle: dict[int, Known] = {}
        self.by_value: dict[tuple[Cell, Edge], Known] = {}
        for entry in known:
            self.by_handle.setdefault(id(entry.handle), entry)
            self.by_value.setdefault((entry.handle._cell, entry.handle._edge()), entry)
        self.lifted: dict[tuple[Cell, Edge], Lifted] = {}
        self.written: dict[Cell, Node] = {}
        self.boundaries: dict[int, Boundary] = {}
        self.rng: Placeholder | None = None
        self.draws = 0
        self.shard = current_shard()  # of the draws: a module may set it (DDP does), and the call must draw alike
        self.gradient_owner: ModuleProtocol | None = None
        self.regions = 0  # checkpointed functions so far

    # -- ops

    def bind(self, op: Op, values: tuple[Value, ...], attrs: Attrs) -> Value:
        args = [value if isinstance(value, Node) else self.constant(value) for value in values]
        return self.call(op, args, attrs, location=user_location())

    @contextmanager
    def checkpointed(self) -> Iterator[None]:
        """Within the block, calls belong to a region of their own: of nested ones to the outermost."""
        outer = self.region
        self.regions += 1
        self.region = outer or self.regions
        try:
            yield
        finally:
            self.region = outer

    # -- cells

    def read_cell(self, cell: Cell, handle: Tensor | None) -> Node:
        """The node that `cell`, made outside, holds at this point of the trace."""
        if cell in self.written:
            return self.written[cell]
        if cell.root in self.written:
            raise view_beside_write()
        key = (cell, None if handle is None else handle._edge())
        if key not in self.lifted:
            self.lifted[key] = self._lift(cell, self.known(handle, key))
        return self.lifted[key].placeholder

    def write_cell(self, cell: Cell, node: Value) -> None:
        """From here on `cell`, made outside, holds `node`. A write through a view from outside is a break."""
        if isinstance(cell, ViewCell):
            raise GraphBreak(
                "a tensor from outside the compiled function is written to through a view of it",
                where=user_location(),
                remedy="write to the tensor itself, or make the view inside the compiled function",
            )
        self.written[cell] = node if isinstance(node, Node) else self.constant(node)

    def next_rng(self) -> tuple[Node, int]:
        """The key placeholder, and the number of this draw."""
        if self.rng is None:
            self.rng = self.placeholder("rng", RNG_KEY, role="rng", source="default_generator")
            self.shard = current_shard()
        elif self.shard != current_shard():
            raise GraphBreak("draws for different shards in one graph cannot be traced", where=user_location())
        self.draws += 1
        return self.rng, self.draws - 1

    def announce_gradient_owner(self, module: ModuleProtocol) -> None:
        """A module with a `__gradient_strategy__` says, from its forward, that it is part of what is traced."""
        if self.gradient_owner not in (None, module):
            raise GraphBreak(
                "two modules that own their gradients in one compiled function",
                where=user_location(),
                remedy="compile each of them by itself",
            )
        self.gradient_owner = module

    def known(self, handle: Tensor | None, key: tuple[Cell, Edge]) -> Known | None:
        """What is known of a tensor from outside, by the handle itself or by the value it stands for."""
        if handle is not None and id(handle) in self.by_handle:
            return self.by_handle[id(handle)]
        if key in self.by_value or handle is None:
            return self.by_value.get(key)
        entry = Known(handle, "input", f"tensor {len(self.lifted)} from outside")
        self.by_handle[id(handle)] = self.by_value[key] = entry
        return entry

    def _lift(self, cell: Cell, known: Known | None) -> Lifted:
        if isinstance(cell.value, MetaValue):
            raise GraphBreak(
                "a tensor of device meta cannot be compiled", where=user_location(), remedy="give it data first"
            )
        meta = meta_of(cell.current())
        role, source = ("input", "") if known is None else (known.role, known.source)
        return Lifted(self.placeholder(_short(source), meta, role=role, source=source), cell, known)


def view_beside_write() -> GraphBreak:
    """Which elements such a view shows would have to be guarded."""
    return GraphBreak(
        "a tensor is written to, and a view of it made outside the compiled function is read",
        where=user_location(),
        remedy="make the view inside the compiled function",
    )


def _short(source: str) -> str:
    """A name for a placeholder: `self.l1.weight` -> `l1_weight`, `args[0]` -> `arg0`, `args[1]['x']` -> `arg1_x`."""
    tail = source.removeprefix("self.").removeprefix("kwargs").replace("args[", "arg")
    return "_".join("".join(c if c.isalnum() else " " for c in tail).split()) or "outer"
