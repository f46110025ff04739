"""Who owns the gradients of a compiled backward: how it is cut, where each gradient is written, what happens to it.

In: the backward `Graph` (output i is the gradient of one differentiable input) and which outputs belong to which
parameter. Out: a `GradientPlan`: segments that run one after the other, and a session for every backward pass.
`LocalGradients` (the default) runs it whole and hands every gradient to the autograd tape. DDP cuts it at its bucket
boundaries, gives bucket slots as destinations and starts an all-reduce in `segment_done`.
Who: the module whose forward begins in the graph, or, of a graph that is one part of a forward among others, whoever
owns its leaves (`LeafOwner`). A strategy may put off cutting a part until the backward, when all parts are known.

Protocol of one training step, in order:
    ticket  = strategy.on_forward()                     before every compiled forward, with or without gradients
    strategy.forward_ran()                              when it has run, with all that followed its graph breaks
    session = plan.begin(ticket, missing)               when the tape reaches the compiled call
    session.scale(); session.destination(i) ...         before each segment k, for its gradient outputs
    session.segment_done(k, {i: gradient, ...})         right after segment k, or from inside it (see Segment)
    session.lose({i, ...})                              before a segment: a hook has stopped these
    session.finish() -> {i: Array | HANDLED | None}     after the last; replaces what the tape receives for output i
Invariant: every output of the backward graph is an output of exactly one segment. Behind the gradients there may be
outputs that Python functions read in the course of the backward (`stops.py`); a strategy need not know: its segments
are cut further there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from enum import Enum
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from compiler_core.graph.ir import Graph
from compiler_core.ops.registry import Array
from compiler_core.records import dataclass

if TYPE_CHECKING:
    from compiler_core.ops.registry import Value
    from compiler_core.tensor.tensor import Tensor


class Handled(Enum):
    """The type of `HANDLED` and `DELIVERED`."""

    HANDLED = "handled"
    DELIVERED = "delivered"


HANDLED = Handled.HANDLED  # "the gradient is already in .grad: the tape must not accumulate it again"
DELIVERED = Handled.DELIVERED  # "the tape has it already"
Gradient: TypeAlias = Array | Handled | None


@dataclass(frozen=True, slots=True)
class ParameterInfo:
    """One parameter of the compiled module. `output_index`: its gradient's place among the backward's outputs.

    None: this graph gives it no gradient (unused, or frozen).
    """

    name: str  # as in named_parameters(); a tied parameter has its first name
    tensor: Tensor
    output_index: int | None
    placeholder: str = ""  # the name of the forward's input that holds it


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the backward that runs in one native call.

    graph: its placeholders are named after the values they take: a placeholder of the backward graph, or an output node
        of an earlier segment (both keep their name), or, with role "scale", the number `session.scale()` as f32[] or
        f64[].
    outputs: for each output of `graph`, the backward output that it is, or None for a value that later segments read.
        A backward output that a later segment reads too needs no second entry.

    A segment whose graph has signals is as many parts as signals: the session is told of each part, by its number among
    all parts, from inside the native call, in the thread that made it. What it raises then comes out of the backward.
    Gradients that no signal announces are handed over at the end.
    """

    graph: Graph
    outputs: tuple[int | None, ...]


class BackwardSession(Protocol):
    """One backward pass under way."""

    def destination(self, output_index: int) -> Array | None:
        """The array that gradient `output_index` shall be written to (its exact shape and dtype); None: a fresh one."""

    def scale(self) -> float:
        """The number fed to placeholders of role "scale", e.g. 1/world_size."""

    def segment_done(self, segment: int, gradients: Mapping[int, Array]) -> None:
        """Segment (or part) `segment` has run and made these gradients (output index -> array).

        Where the backward stops inside a segment, it is said of each piece of it, with that piece's gradients.
        """

    def lose(self, missing: Set[int]) -> None:
        """These outputs are no gradients in this pass either: a hook handed none on. They have not been made yet."""

    def is_for_tape(self, output_index: int) -> bool:
        """Whether the tape shall receive this gradient, as it was computed."""

    def finish(self) -> Mapping[int, Gradient]:
        """After the last segment: what the tape receives instead, for the outputs named. The others go as computed."""


class GradientPlan(Protocol):
    """What a strategy made of one backward graph. A compiled function has one per compiled entry."""

    @property
    def segments(self) -> Sequence[Segment]:
        """Empty if the strategy puts the cut off: the plan is stale, then, when the tape reaches the compiled call."""

    @property
    def is_stale(self) -> bool:
        """Whether the strategy would cut this backward otherwise by now: it is then planned and compiled again."""

    def begin(self, ticket: object, missing: Set[int]) -> BackwardSession:
        """Start a backward pass. `ticket` is what `on_forward` returned in that call's forward.

        missing: the outputs that are no gradients in this pass, as nothing that came depends on them: the tape receives
        None for them, whatever the segments compute.
        """


@runtime_checkable
class ComparedPlan(Protocol):
    """A plan of which ranks compare the graphs: as they are without hooks, which may be on some ranks only."""

    def stand_for(self, forward: Graph, backward: Graph) -> None:
        """These are to be compared in place of those that were planned, which stop at hooks."""


class GradientStrategy(Protocol):
    """Who decides about the gradients of one graph.

    parameters_may_wait: whether a forward may be started before its parameters are up to date
    (`tensor/memory/fence.py`); it is then compiled to wait for each where it is first used.
    """

    @property
    def parameters_may_wait(self) -> bool: ...

    def plan(
        self, forward: Graph, backward: Graph, parameters: Sequence[ParameterInfo], announces: bool
    ) -> GradientPlan:
        """Decide the cuts, once, at compile time. `parameters` are in registration order, one entry a tensor.

        announces: whether a segment's signals come while it runs; if not, they come after it.
        """

    def segments_of(self, backward: Graph, parameters: Sequence[ParameterInfo], announces: bool) -> tuple[Segment, ...]:
        """Those that `plan` would make now of a graph that is only looked at. Nothing changes."""

    def on_forward(self) -> object:
        """Called before every compiled forward; what it returns comes back in `begin` (e.g. whether to synchronise)."""


class ReducesInGraph(Protocol):
    """What a strategy that has one (`in_graph`) does where a whole step is captured.

    refusal: why it must see the backward itself; empty: it need not. reduced: the gradients of all leaves, as nodes,
    those of its parameters reduced; raises GraphBreak. begin, end: around each call of such a graph.
    """

    def refusal(self) -> str: ...
    def reduced(self, leaves: Sequence[Tensor], gradients: Sequence[Value]) -> list[Value]: ...
    def begin(self, graph: Graph) -> None: ...
    def end(self) -> None: ...


class OwnerStrategy(GradientStrategy, Protocol):
    """Announced by a module through `__gradient_strategy__()`."""

    def forward_ran(self) -> None:
        """Called when the module's forward has run, and is on the tape, if the module says where it ends."""

    def of_part(self) -> GradientStrategy:
        """The strategy of a graph in which the module's forward begins, but that is not the whole call."""


class LeafOwner(Protocol):
    """Who reduces a leaf's gradient over ranks: told when the tape has completed it."""

    def __call__(self, leaf: Tensor) -> None: ...
    def strategies(self) -> Sequence[GradientStrategy]:
        """The strategies, of those that a graph may have that is part of a forward and uses the leaf."""


class LocalGradients:
    """The strategy of a module without one: the backward whole, every gradient to the tape."""

    parameters_may_wait = False

    def plan(
        self, forward: Graph, backward: Graph, parameters: Sequence[ParameterInfo], announces: bool
    ) -> GradientPlan:
        return LocalPlan(self.segments_of(backward, parameters, announces))

    def segments_of(self, backward: Graph, parameters: Sequence[ParameterInfo], announces: bool) -> tuple[Segment, ...]:
        return (Segment(backward, tuple(range(len(backward.outputs)))),)

    def on_forward(self) -> object:
        return None


class OnlyLooked(LocalGradients):
    """`strategy` for a graph that is only looked at: cut as it cuts now, of which it hears nothing."""

    def __init__(self, strategy: GradientStrategy) -> None:
        self.strategy, self.parameters_may_wait = strategy, strategy.parameters_may_wait

    def segments_of(self, backward: Graph, parameters: Sequence[ParameterInfo], announces: bool) -> tuple[Segment, ...]:
        return self.strategy.segments_of(backward, parameters, announces)


class SeveralOwners(LocalGradients):
    """The strategy of a graph in which the forwards of several owners begin, or may be: all get gradients by the tape.

    The ticket is all of theirs, so that the tape keeps them.
    """

    def __init__(self, owners: Sequence[GradientStrategy]) -> None:
        self.owners = owners
        self.parameters_may_wait = any(owner.parameters_may_wait for owner in owners)

    def on_forward(self) -> object:
        return [owner.on_forward() for owner in self.owners]


@dataclass(frozen=True, slots=True)
class LocalPlan:
    """One segment; the session has nothing to do, so the plan is its own."""

    segments: tuple[Segment, ...]
    is_stale: bool = False

    def begin(self, ticket: object, missing: Set[int]) -> BackwardSession:
        return self

    def destination(self, output_index: int) -> Array | None:
        return None

    def scale(self) -> float:
        return 1.0

    def segment_done(self, segment: int, gradients: Mapping[int, Array]) -> None:
        return None

    def lose(self, missing: Set[int]) -> None:
        return None

    def is_for_tape(self, output_index: int) -> bool:
        return True

    def finish(self) -> Mapping[int, Gradient]:
        return {}
