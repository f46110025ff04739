"""The compiled side: DDP's `GradientStrategy`. Segments write into buckets; a bucket leaves when it is complete.

In: the backward graph (at compile time, and again when ranks adopt another plan), then one session for every backward
pass. Out: segments, and gradients in place (`HANDLED`). Ranks do not talk at compile time: the first backward's gate
compares plan and graphs (`reconcile.py`), so a rank that runs eager meanwhile is no mismatch.
Invariants: a gradient is written straight to its slot, averaged, unless there is something to add to it; bucket k is
launched when its last gradient is in memory and those before it have left, while the rest runs: code of one artefact
signals that, of a backward that is cut each segment's return does. The pass waits at the end of the backward.
Graphs that are parts of a forward (`PartStrategy`) write into the same buckets, by one plan over all of them, made at
the first backward (`pieces.py`); theirs are not compared between ranks, as what comes after a break depends on data.
A gradient goes to the tape instead, unscaled, where the compiled call does not have the last word on it: the leaf has
hooks or several owners, or more contributions are to come in this pass (another call of the module, a penalty on the
weights). Under backward(inputs=...) and grad() all do.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace

from compiler_core import log
from compiler_core.aot.strategy import (
    HANDLED,
    BackwardSession,
    Gradient,
    GradientPlan,
    GradientStrategy,
    LocalGradients,
    LocalPlan,
    ParameterInfo,
    Segment,
)
from compiler_core.config import config
from compiler_core.device import device_of
from compiler_core.graph.ir import Graph
from compiler_core.ops.registry import Array
from compiler_core.tensor.autograd.engine import Backward, running_backwards
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.agreement import sizes_of, skeleton
from distcompile.ddp.books import Books, DDPSettings, PlanFingerprint
from distcompile.ddp.eager import owners_of
from distcompile.ddp.in_graph import InGraph
from distcompile.ddp.overlap.recorder import Time
from distcompile.ddp.passes import BackwardPass, pass_now, show_gradient
from distcompile.ddp.plan.bucket_plan import BucketPlan, ReadyParameter
from distcompile.ddp.plan.layout import Layout, word_of
from distcompile.ddp.plan.order import first_use, launch_order, ready_shares
from distcompile.ddp.plan.pieces import BackwardOrder, FlatPiece, PutOff
from distcompile.ddp.plan.splitter import assign_segments, gradient_ready_order, plan_backward, split, whole


class Ticket:
    """One forward: whether its backward is to synchronise.

    It is kept by the tape, and keeps the instance: gradients are reduced also if the program has dropped the module.
    """

    __slots__ = ("_kept", "synchronise")

    def __init__(self, strategy: BucketStrategy, *, synchronise: bool) -> None:
        self._kept, self.synchronise = strategy, synchronise


class BucketStrategy:
    """What DistributedDataParallel announces to the compiler.

    before_forward: what DDP does before every forward. refresh: has the books look at what is trained now.
    ready_parameters, backward_graph: of the backward planned last, for the tuner; None if a step has several graphs.
    """

    @property
    def parameters_may_wait(self) -> bool:
        """Whether a forward may start before its parameters are up to date."""
        return self.books.settings.overlap == "step" and self.books.communicator.world_size > 1

    def __init__(self, books: Books, before_forward: Callable[[], None], refresh: Callable[[], None]) -> None:
        self.books, self.before_forward, self.refresh = books, before_forward, refresh
        self.cut_made: tuple[Layout, BucketPlan] | None = None
        self.boundary_wanted: str | None = None  # instead of the knob's: tuning measures both
        self.boundary = ""  # how the last compiled backward tells that a bucket is complete: "notification" or "cut"
        self.ready_parameters: list[ReadyParameter] | None = None
        self.backward_graph: Graph | None = None
        self.first_use: dict[str, int] = {}
        self.parts = PartStrategy(self, begins=False)
        self.in_graph = InGraph(books)
        books.strategy = weakref.ref(self)

    def of_part(self) -> GradientStrategy:
        return PartStrategy(self, begins=True)

    def on_forward(self) -> Ticket:
        self.before_forward()
        self.books.begin_forward()
        return Ticket(self, synchronise=self.books.is_synchronising)

    def forward_ran(self) -> None:
        self.books.end_forward()

    def plan(
        self, forward: Graph, backward: Graph, parameters: Sequence[ParameterInfo], announces: bool
    ) -> GradientPlan:
        return self.plan_graph(forward, backward, parameters, announces, is_part=False)

    def plan_graph(
        self, forward: Graph, backward: Graph, parameters: Sequence[ParameterInfo], announces: bool, *, is_part: bool
    ) -> GradientPlan:
        """is_part: whether there may be other graphs in the step; the cut is put off, then, until all are known."""
        if not running_backwards():  # a backward is of what was trained when its forward ran
            self.refresh()
        books = self.books
        books.has_pieces = True
        names = self._names(parameters)
        outputs = self._outputs(parameters, names)
        piece = self._piece(
            forward, backward, outputs, {p.placeholder: names[p.name] for p in parameters if p.name in names}
        )
        if is_part and not books.is_settled and books.communicator.world_size > 1 and not running_backwards():
            return PutOff(books, piece)
        if not is_part:
            self._know(piece)
        if books.wants_ready_plan:
            others = {name: p for name, p in books.parameters.items() if name not in outputs}
            plan = plan_backward(backward, outputs, books.settings.caps, others, piece.ready)
            if books.settings.overlap == "step":
                shares = ready_shares(backward, piece.ready)
                plan = replace(plan, launch=launch_order(plan, shares, self.first_use))
            books.offer(plan)
        layout, (cut, made, is_scaled) = books.layout, self._cut(backward, outputs, announces)
        self.cut_made = layout, cut
        may_differ = is_part or books.settings.find_unused_parameters  # then ranks may go other ways than each other
        fingerprint = None if may_differ else fingerprint_of(forward, backward, books.settings)
        self.boundary = self._boundary(announces)
        log.emit("ddp", f"{backward.name}: {len(layout.plan.buckets)} bucket(s), boundaries by {self.boundary}\n{cut}")
        return BucketGradientPlan(books, layout, cut, made, outputs, piece, fingerprint, is_scaled=is_scaled)

    def segments_of(self, backward: Graph, parameters: Sequence[ParameterInfo], announces: bool) -> tuple[Segment, ...]:
        return self._cut(backward, self._outputs(parameters, self._names(parameters)), announces)[1]

    def _boundary(self, announces: bool) -> str:
        wanted = self.boundary_wanted or config.boundary
        return "notification" if announces and wanted == "notification" else "cut"

    def _cut(
        self, backward: Graph, outputs: Mapping[str, int], announces: bool
    ) -> tuple[BucketPlan, tuple[Segment, ...], bool]:
        """The buckets' segments by the layout of now, and whether they multiply gradients by the session's scale."""
        layout, is_alone = self.books.layout, self.books.communicator.world_size == 1
        segments = [0] * len(layout.plan.buckets) if is_alone else assign_segments(backward, layout.plan, outputs)
        cut = layout.plan.with_segments(segments)
        divide = whole if self._boundary(announces) == "notification" and not is_alone else split
        is_scaled = not (is_alone or layout.averages)
        return cut, tuple(divide(backward, cut, outputs, with_scale=is_scaled)), is_scaled

    @staticmethod
    def _outputs(parameters: Sequence[ParameterInfo], names: Mapping[str, str]) -> dict[str, int]:
        """Our name of a parameter -> which output of the backward its gradient is."""
        return {names[p.name]: p.output_index for p in parameters if p.output_index is not None and p.name in names}

    @staticmethod
    def _piece(forward: Graph, backward: Graph, outputs: Mapping[str, int], inputs: Mapping[str, str]) -> FlatPiece:
        """inputs: placeholder of the forward -> the parameter that it holds."""
        ready = tuple(gradient_ready_order(backward, outputs))
        return FlatPiece(
            forward.name.removesuffix("_forward"), backward, ready, first_use(forward, inputs), len(forward.nodes)
        )

    def learn(self, step: BackwardOrder) -> None:
        """All graphs of a step are known."""
        if len(set(map(id, step.pieces))) == 1:
            self._know(step.pieces[0])
        else:
            self.first_use = step.first_use
            self.ready_parameters = self.backward_graph = None

    def _know(self, piece: FlatPiece) -> None:
        """This is the one graph of a step, as far as is known."""
        self.first_use = dict(piece.first_use)
        self.ready_parameters, self.backward_graph = list(piece.ready), piece.backward

    def _names(self, parameters: Sequence[ParameterInfo]) -> dict[str, str]:
        """The compiled function's name of each of our parameters -> our name of it."""
        ours = {id(tensor): name for name, tensor in self.books.parameters.items()}
        return {p.name: ours[id(p.tensor)] for p in parameters if id(p.tensor) in ours}


class PartStrategy:
    """The strategy of a graph that is a part of a forward, among others. begins: whether the forward begins in it.

    It does not keep the instance alive: what is compiled inside a module lives as long as the module.
    """

    def __init__(self, strategy: BucketStrategy, *, begins: bool) -> None:
        self._owner, self.begins = weakref.ref(strategy), begins

    @property
    def parameters_may_wait(self) -> bool:
        owner = self._owner()
        return owner is not None and owner.parameters_may_wait

    def plan(
        self, forward: Graph, backward: Graph, parameters: Sequence[ParameterInfo], announces: bool
    ) -> GradientPlan:
        owner = self._owner()
        if owner is None:
            return LocalGradients().plan(forward, backward, parameters, announces)
        return owner.plan_graph(forward, backward, parameters, announces, is_part=True)

    def segments_of(self, backward: Graph, parameters: Sequence[ParameterInfo], announces: bool) -> tuple[Segment, ...]:
        return (self._owner() or LocalGradients()).segments_of(backward, parameters, announces)

    def on_forward(self) -> object:
        owner = self._owner()
        if owner is None:
            return None
        if self.begins:
            return owner.on_forward()
        return Ticket(owner, synchronise=owner.books.forward_synchronises)


def fingerprint_of(forward: Graph, backward: Graph, settings: DDPSettings) -> PlanFingerprint:
    """What other ranks are told of a compiled call."""
    subjects = (skeleton(forward), skeleton(backward))
    text = "\n".join(line for subject in subjects for line in subject.lines)
    sizes = sizes_of(forward, by_name=settings.allows_unused)
    return PlanFingerprint(word_of(sizes), word_of(text), subjects)


class Leaf:
    """A parameter whose gradient is output `index`, with what is asked of it in every pass."""

    __slots__ = ("hooks", "index", "owners", "tensor")

    def __init__(self, index: int, tensor: Tensor) -> None:
        self.index, self.tensor, self.hooks = index, tensor, tensor._leaf_hooks()
        self.owners = owners_of(tensor)

    def is_simple(self) -> bool:
        """Whether one instance reduces its gradient, and no hook wants to see it."""
        return not (self.hooks.grad or self.hooks.accumulated) and self.owners.is_one()


class Route:
    """Where the gradients of one compiled backward go in one layout.

    slots: output index -> (bucket, slot). arrivals: gradients -> the buckets that get something, and which names.
    """

    def __init__(self, layout: Layout, names: Mapping[int, str]) -> None:
        self.layout, self.names = layout, names
        self.slots = {index: layout.places[name] for index, name in names.items() if name in layout.places}
        self.handled: dict[int, Gradient] = dict.fromkeys(self.slots, HANDLED)
        self._arrivals: dict[tuple[int, ...], tuple[tuple[int, tuple[str, ...]], ...]] = {}

    def arrivals(self, gradients: Mapping[int, Array]) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """(bucket, names that come to it) when a segment, or a piece of it, has made `gradients`."""
        key = tuple(gradients)
        found = self._arrivals.get(key)
        if found is None:
            by_bucket: dict[int, list[str]] = {}
            for index in gradients:
                if index in self.slots:
                    by_bucket.setdefault(self.slots[index][0], []).append(self.names[index])
            found = tuple((bucket, tuple(names)) for bucket, names in sorted(by_bucket.items()))
            self._arrivals[key] = found
        return found


class BucketGradientPlan:
    """The segments of one compiled backward, cut by `cut`, and whose gradient each of its outputs is.

    is_scaled: whether they multiply gradients by the session's scale.
    """

    def __init__(
        self,
        books: Books,
        layout: Layout,
        cut: BucketPlan,
        segments: tuple[Segment, ...],
        outputs: Mapping[str, int],
        piece: FlatPiece,
        fingerprint: PlanFingerprint | None,
        *,
        is_scaled: bool,
    ) -> None:
        self.is_scaled = is_scaled
        self._books, self.groups, self.cut, self._segments = weakref.ref(books), layout.groups, cut, segments
        self._kept = None if fingerprint is None else books
        self.piece, self.fingerprint, self.produces = piece, fingerprint, frozenset(outputs)
        self.n_segments = sum(max(1, len(segment.graph.signals)) for segment in segments)
        self.names = {index: name for name, index in outputs.items()}
        self.leaves = [Leaf(index, books.parameters[name]) for index, name in self.names.items()]
        self.route = Route(layout, self.names)
        self.local = LocalPlan(segments)

    @property
    def segments(self) -> Sequence[Segment]:
        return self._segments

    @property
    def books(self) -> Books | None:
        """None once the instance is gone, which parts of its forward do not keep alive."""
        return self._books()

    @property
    def is_stale(self) -> bool:
        """Whether the ranks use another plan by now, so that other cuts would let buckets leave earlier."""
        books = self.books
        if books is None or books.communicator.world_size == 1:
            return False
        for run in running_backwards()[-1:]:
            books.settle(run)
        return books.layout.groups != self.groups

    def stand_for(self, forward: Graph, backward: Graph) -> None:
        """Ranks compare these graphs, which do not stop at hooks."""
        if self.fingerprint is not None and self.books is not None:
            self.fingerprint = fingerprint_of(forward, backward, self.books.settings)

    def begin(self, ticket: object, missing: Set[int]) -> BackwardSession:
        books, run = self.books, running_backwards()[-1]
        if run.wanted is not None or books is None:
            return self.local
        if self.fingerprint is None and not all(leaf.owners.is_one() for leaf in self.leaves):
            return self.local  # a part does not know whose forward it was in: the tape finds out
        assert isinstance(ticket, Ticket)
        if self.fingerprint is not None:
            books.used.append(self.fingerprint)
        here = pass_now(books, ticket.synchronise)
        if here.flight is None:
            books.used.clear()
        if self.route.layout is not here.layout:
            self.route = Route(here.layout, self.names)
        return BucketSession(self, books, here, run, missing)


class BucketSession:
    """One backward pass through one compiled call.

    to_tape: outputs that the tape accumulates. before: output -> what it is to be added to, by the number of arrays.
    """

    def __init__(
        self, plan: BucketGradientPlan, books: Books, here: BackwardPass, run: Backward, missing: Set[int]
    ) -> None:
        self.books, self.here, self.route, self.leaves = books, here, plan.route, plan.leaves
        self.first = here.take_part(plan.piece.name, plan.cut, plan.produces, plan.n_segments)
        self.missing, buffers = missing, here.buffers
        self.views = {index: buffers[bucket].views[slot] for index, (bucket, slot) in plan.route.slots.items()}
        self.to_tape: set[int] = set()
        self.before: dict[int, list[Array]] = {}
        self._look_at_leaves(run)
        self.factor = here.scale if plan.is_scaled and not self.to_tape else 1.0
        self.is_plain = not (self.to_tape or self.before or missing) and self.factor == here.scale
        self.began = self.segment_began = self._now()

    def _look_at_leaves(self, run: Backward) -> None:
        """Which leaves the tape must see to, and what came before for the others."""
        pending, grads, turn = run.pending, run.grads, self.here.turn
        for leaf in self.leaves:
            index, tensor = leaf.index, leaf.tensor
            is_last_word = pending.get(tensor) == 1 and leaf.is_simple() and index in self.views
            if not is_last_word or (turn is not None and not turn.is_single(self.route.names[index])):
                self.to_tape.add(index)
            elif (tensor._grad is not None or tensor in grads) and index not in self.missing:
                found = [grads.pop(tensor)] if tensor in grads else []
                if tensor._grad is not None:
                    found.append(tensor._grad._cell.current())
                self.before[index] = found

    def destination(self, output_index: int) -> Array | None:
        view = self.views.get(output_index)
        if self.is_plain:
            return view
        if output_index in self.to_tape or any(array is view for array in self.before.get(output_index, ())):
            return None
        return view

    def scale(self) -> float:
        return self.factor

    def segment_done(self, segment: int, gradients: Mapping[int, Array]) -> None:
        here, now = self.here, self._now()
        self.books.recorder.span("segment", self.first + segment, self.segment_began, now)
        if self.is_plain:
            for index, gradient in gradients.items():
                view = self.views.get(index)
                if view is not None and gradient is not view:
                    with device_of(view).working():
                        view[...] = gradient
            for bucket, names in self.route.arrivals(gradients):
                here.arrived(bucket, names)
        else:
            for index, gradient in gradients.items():
                if index in self.views and index not in self.to_tape and index not in self.missing:
                    with device_of(gradient).working():
                        self._add(index, gradient)
                    here.arrived(self.route.slots[index][0], (self.route.names[index],))
        self.segment_began = now if here.flight is None else self._now()

    def _now(self) -> Time:
        """Of a GPU's synchronised backward the buckets' own events tell when segments ended."""
        return self.books.now() if self.here.flight is None else time.perf_counter()

    def lose(self, missing: Set[int]) -> None:
        self.missing = {*self.missing, *missing}
        self.is_plain = False

    def is_for_tape(self, output_index: int) -> bool:
        return output_index in self.to_tape or output_index not in self.views

    def _add(self, index: int, gradient: Array) -> None:
        """Have the gradient in its slot, averaged, with what came before added to it."""
        view, scale = self.views[index], self.here.scale
        rest = 1.0 if self.factor == scale else scale  # what the segment did not multiply by
        before = self.before.get(index, ())
        if any(array is view for array in before):
            total = gradient * gradient.dtype.type(rest)
            for array in before:
                total += array * array.dtype.type(scale)
            view[...] = total
            return
        if gradient is not view:
            view[...] = gradient
        if rest != 1.0:
            view *= view.dtype.type(rest)
        for array in before:
            view += array if scale == 1.0 else array * array.dtype.type(scale)

    def finish(self) -> Mapping[int, Gradient]:
        here = self.here
        if here.flight is None:
            self.books.recorder.span("backward", 0, self.began, self._now())
        if self.is_plain:
            for leaf in self.leaves:
                show_gradient(leaf.tensor, self.views[leaf.index])
            return self.route.handled
        left_out = self.to_tape | set(self.missing)
        for leaf in self.leaves:
            if leaf.index not in left_out:
                show_gradient(leaf.tensor, self.views[leaf.index])
        return {index: HANDLED for index in self.views if index not in left_out}
