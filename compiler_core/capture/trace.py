"""The trace that captures: records ops as graph nodes, lifts tensors from outside to placeholders, notes writes.

In: ops, draws, hooks and cell accesses (outside_memory.py) while the user's code runs. Out: a graph under construction,
`lifted` (what each placeholder reads) and `written` (which cells an epilogue must write back).
Invariants: nothing outside is changed by the trace itself, once it is left (`leave`); between `mark` and `rollback`
nothing happened.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from compiler_core.aot import branch, loop, scan  # they register ops
from compiler_core.aot.boundary import Hook
from compiler_core.aot.strategy import ReducesInGraph
from compiler_core.aot.tensor_hooks import TensorHooks, with_boundaries
from compiler_core.capture.ambient import Ambient
from compiler_core.capture.guards.module_protocol import ModuleProtocol
from compiler_core.capture.outside_memory import Known, Lifted, OutsideMemory, Written
from compiler_core.capture.random_inputs import are_outside
from compiler_core.capture.recipes.holders import now
from compiler_core.dtype import uint64
from compiler_core.errors import GraphBreak
from compiler_core.graph.effects import effects_unread
from compiler_core.graph.ir import Call, Graph, Node, Placeholder
from compiler_core.graph.kept import Keep, number_of, region_of
from compiler_core.location import user_location
from compiler_core.meta import TensorMeta
from compiler_core.ops.random.composite import Draw
from compiler_core.ops.registry import Attrs, Op, Value
from compiler_core.records import dataclass
from compiler_core.tensor.making.random_state import current_shard
from compiler_core.tensor.tensor import Tensor

__all__ = ["RNG_KEY", "CaptureTrace", "Known", "Lifted", "Mark", "Written"]

assert branch
assert loop
assert scan
RNG_KEY = TensorMeta((3,), uint64)
# what a mark remembers of a trace by value
COUNTERS = (
    *("rng", "draws", "shard", "gradient_owners", "forwards_ended"),
    *("regions", "region", "device", "reads_cpu", "sweeps", "effects", "reducing"),
)


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a trace was, for `CaptureTrace.rollback`: how long its lists and tables were, and its counters."""

    lengths: tuple[int, ...]
    counters: tuple[object, ...]


class TraceEnded(GraphBreak):
    """Nothing more may be recorded: what was about to be is the beginning of the next trace."""


class CaptureTrace(OutsideMemory):
    """Implements `ops.registry.Trace`, `tensor.cell.CellTrace` and `aot.boundary.BoundaryTrace`. exports: it is of an
    export."""

    exports = False

    def __init__(self, name: str, known: Iterable[Known]) -> None:
        super().__init__(name, known)
        self.began, self.ambient = now(), Ambient.now()  # when, and in which modes of the thread
        self.operations: list[str] = []  # functions and operators that recorded something
        self.boundaries: dict[int, Hook] = {}
        self.hooked: dict[Node, int] = {}  # tensors with hooks of their own -> number of their boundary
        self.retaining: list[weakref.ref[Tensor]] = []  # handles that keep their gradient
        self.rng: Placeholder | None = None
        self.draws = 0
        self.draws_as_eager = False  # whether it is to, whatever `config.fallback_random` says
        self.found_outside: bool | None = None  # what `draws_outside` said; None: it was not asked
        self.outside_draws: list[tuple[Placeholder, Draw]] = []  # draws that eager code makes before each call
        self.shard = current_shard()  # of the draws: a module may set it (DDP does), and the call must draw alike
        self.gradient_owners: tuple[ModuleProtocol, ...] = ()  # whose forwards begin here
        self.forwards_ended: tuple[ModuleProtocol, ...] = ()  # owners whose last forward ends here
        self.begins_in: Ambient | None = None  # the modes of the thread in which the last of them does
        self.regions = 0  # checkpointed functions so far
        self.keeps: Callable[[Call], Keep] | None = None  # what of the one under way
        self.is_fullgraph = False  # whether all ranks run graphs, or raise
        self.reducing: tuple[ReducesInGraph, ...] = ()  # by whom gradients are reduced in the graph
        self.effects = 0  # calls that other ranks take part in
        self.sweeps = 0  # backwards in the graph so far
        self.spent: list[Call] = []  # whose saved values a backward in the graph has let go of
        self.noted: list[dict[Node, Tensor]] = []  # for each branch under way: what held the values that it read
        self.changes: Callable[[], tuple[int, int]] = lambda: (0, 0)  # how much else than tensors the code has changed
        self.ended = ""  # why nothing more may be recorded

    # -- taking back

    def mark(self) -> Mark:
        """This point of the trace, to which `rollback` returns. Cheap: nothing is copied."""
        return Mark(tuple(map(len, self._growing())), tuple(getattr(self, name) for name in COUNTERS))

    def rollback(self, mark: Mark) -> None:
        """Be again as at `mark`: values, versions, histories of cells and handles, draws, boundaries, nodes, inputs.

        Handles made since then must not be used any more; names of nodes are not given twice.
        """
        self.journal.rewind(mark.lengths[0])
        for growing, length in zip(self._growing()[1:], mark.lengths[1:], strict=True):
            if isinstance(growing, list):
                del growing[length:]
                continue
            while len(growing) > length:
                growing.popitem()
        for name, value in zip(COUNTERS, mark.counters, strict=True):
            setattr(self, name, value)

    def _growing(self) -> tuple[Any, ...]:
        """The journal, then the lists and tables to which a trace only adds."""
        hooks = (self.boundaries, self.hooked, self.retaining)
        return (
            self.journal,
            self.body,
            self.placeholders,
            self._constants,
            self.lifted,
            self.outside_draws,
            self.spent,
            self.leaves,
            *hooks,
        )

    # -- ops

    def bind(self, op: Op, values: tuple[Value, ...], attrs: Attrs) -> Value:
        if self.ended:
            raise TraceEnded(self.ended, where=user_location())
        args = [value if isinstance(value, Node) else self.constant(value) for value in values]
        node = self.call(op, args, attrs, location=user_location())
        if self.keeps is not None and (keep := self.keeps(node)):
            node = self.body[-1] = replace(node, region=region_of(number_of(node.region), keep))
        self.effects += op.effect
        self.place_call(node)
        return node

    @contextmanager
    def checkpointed(self, keeps: Callable[[Call], Keep] | None = None) -> Iterator[None]:
        """Within the block, calls belong to a region of their own: of nested ones to the outermost.

        keeps: what is to become of the value of a call; None: it is computed again, or what the outer one says.
        """
        outer, outer_keeps = self.region, self.keeps
        self.regions += 1
        self.region, self.keeps = outer or self.regions, self.keeps or keeps
        try:
            yield
        finally:
            self.region, self.keeps = outer, outer_keeps

    def build(self, outputs: Iterable[Node]) -> Graph:
        """The graph that returns `outputs`, and behind them the effects that nobody reads."""
        outputs = [*outputs]
        outputs += effects_unread(self.body, outputs)
        hooked = {node: key for node, key in self.hooked.items() if not self._hooks_of(key).is_idle}
        return with_boundaries(super().build(outputs), hooked, self.unique_name)

    # -- hooks on tensors

    def tensor_hooks(self, tensor: Tensor) -> TensorHooks | None:
        """The hooks of a tensor that is traced; None of one from outside, or a leaf."""
        if tensor._cell.is_external or tensor.is_leaf:
            return None
        node = tensor._read()
        assert isinstance(node, Node)
        if node not in self.hooked:
            self.hooked[node] = len(self.boundaries)
            self.boundaries[self.hooked[node]] = TensorHooks()
        return self._hooks_of(self.hooked[node])

    def owns(self, hooks: dict[int, Any]) -> bool:
        """Whether these are the hooks of a traced tensor."""
        return any(self._hooks_of(key).hooks is hooks for key in self.hooked.values())

    def settle_hooks(self) -> None:
        """Once all is traced: those that keep their gradient keep that of the value that they have by now."""
        for kept in self.retaining:
            handle = kept()
            hooks = None if handle is None else self.tensor_hooks(handle)
            if hooks is not None:
                hooks.kept.append(kept)
        self.retaining.clear()

    def _hooks_of(self, key: int) -> TensorHooks:
        hooks = self.boundaries[key]
        assert isinstance(hooks, TensorHooks)
        return hooks

    # -- draws and modules

    def next_rng(self) -> tuple[Node, int]:
        """The key placeholder, and the number of this draw."""
        if self.rng is None:
            self.rng = self.placeholder("rng", RNG_KEY, role="rng", source="default_generator")
            self.shard = current_shard()
        elif self.shard != current_shard():
            raise GraphBreak("draws for different shards in one graph cannot be traced", where=user_location())
        self.draws += 1
        return self.rng, self.draws - 1

    def draws_outside(self) -> bool:
        """Whether what the CPU's generator draws is to be what eager code draws."""
        self.found_outside = are_outside(self.draws_as_eager)
        return self.found_outside

    def outside_draw(self, draw: Draw) -> Node:
        """An input for what eager code draws."""
        meta = TensorMeta(draw.shape, draw.dtype)
        made = self.placeholder(draw.kind, meta, source=f"default_generator.{draw.kind}")
        self.outside_draws.append((made, draw))
        return made

    def announce_gradient_owner(self, module: ModuleProtocol) -> None:
        """A module with a `__gradient_strategy__` says that its forward begins in what is traced."""
        if all(owner is not module for owner in self.gradient_owners):
            self.gradient_owners = (*self.gradient_owners, module)
            self.begins_in = Ambient.now()
        self.forwards_ended = tuple(owner for owner in self.forwards_ended if owner is not module)

    def announce_forward_end(self, module: ModuleProtocol) -> None:
        """A module with a `__gradient_strategy__` says that its forward, begun here or before, ends here."""
        self.forwards_ended = (*self.forwards_ended, module)
