"""The compiled reducer: DDP's `GradientStrategy`. Segments write into buckets; a bucket leaves when its segment
returns.

In: the backward graph (once, at compile time), then one session for every backward pass. Out: segments, and gradients
in place (`HANDLED`). The plan is made from the first graph, agreed by all ranks, and kept: a recompile for other shapes
is cut by the same plan and needs no talk between ranks.
Invariants: a gradient is written straight to its bucket, averaged, unless `.grad` holds something to add to; bucket k
is launched when the segment that completes it returns, while segment k+1 runs; gradients are in `.grad`, reduced, when
`finish` returns. In no_sync() the scale is 1 and nothing is launched.
Limit: if the module is called twice before one backward, its passes accumulate and are reduced when the last one ends,
without overlap (said once).
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from compiler_core import log
from compiler_core.aot.strategy import (
    HANDLED,
    BackwardSession,
    Gradient,
    GradientPlan,
    ParameterInfo,
    Segment,
)
from compiler_core.config import config
from compiler_core.graph.ir import Graph
from compiler_core.ops.registry import Array
from compiler_core.tensor.engine import queue_callback
from distcompile.ddp.agreement import Subject, agree, skeleton
from distcompile.ddp.books import Books, add_held, held_gradient, run_hooks, show_gradient
from distcompile.ddp.bucket_plan import BucketPlan
from distcompile.ddp.buffers import BucketBuffer
from distcompile.ddp.flight import Flight
from distcompile.ddp.ledger import shorten, unused_error
from distcompile.ddp.splitter import assign_segments, gradient_ready_order, plan_backward, split, whole


class Ticket:
    """One forward: whether its backward is to synchronise. Alive as long as that backward may come."""

    __slots__ = ("__weakref__", "began_s", "synchronise")

    def __init__(self, synchronise: bool) -> None:
        self.synchronise = synchronise
        self.began_s = time.perf_counter()


class BucketStrategy:
    """What DistributedDataParallel announces to the compiler. before_forward: what DDP does before every forward."""

    parameters_may_wait = False

    def __init__(self, books: Books, before_forward: Callable[[], None]) -> None:
        self.books, self.before_forward = books, before_forward
        self.plan_made: BucketPlan | None = None
        self.boundary = ""  # how the last compiled backward tells that a bucket is complete: "notification" or "cut"
        self.open_tickets: weakref.WeakSet[Ticket] = weakref.WeakSet()

    def on_forward(self) -> Ticket:
        self.before_forward()
        ticket = Ticket(self.books.is_synchronising)
        self.open_tickets.add(ticket)
        return ticket

    def forward_ran(self, ticket: object) -> None:
        assert isinstance(ticket, Ticket)
        self.books.recorder.span("forward", 0, ticket.began_s, time.perf_counter())

    def plan(
        self, forward: Graph, backward: Graph, parameters: Sequence[ParameterInfo], announces: bool
    ) -> GradientPlan:
        names = self._names(parameters)
        outputs = {names[p.name]: p.output_index for p in parameters if p.output_index is not None and p.name in names}
        unused = [name for name in self.books.parameters if name not in outputs]
        plan = self._agreed_plan(forward, backward, outputs)
        is_alone = self.books.communicator.world_size == 1
        cut = plan.with_segments([0] * len(plan.buckets)) if is_alone else plan
        if not is_alone:
            cut = plan.with_segments(assign_segments(backward, plan, outputs))
        self.boundary = "notification" if announces and config.boundary == "notification" else "cut"
        divide = whole if self.boundary == "notification" and not is_alone else split
        segments = divide(backward, cut, outputs, with_scale=not is_alone)
        return BucketGradientPlan(self, cut, tuple(segments), outputs, unused)

    def _names(self, parameters: Sequence[ParameterInfo]) -> dict[str, str]:
        """The compiled function's name of each of our parameters -> our name of it."""
        ours = {id(tensor): name for name, tensor in self.books.parameters.items()}
        return {p.name: ours[id(p.tensor)] for p in parameters if id(p.tensor) in ours}

    def _agreed_plan(self, forward: Graph, backward: Graph, outputs: Mapping[str, int]) -> BucketPlan:
        made = self.plan_made
        if made is not None and made.fits(gradient_ready_order(backward, outputs)):
            return made
        plan = plan_backward(backward, outputs, self.books.settings.caps)
        log.emit("ddp", str(plan))
        subjects = [
            skeleton(forward),
            skeleton(backward),
            Subject("bucket plan", tuple(str(plan).splitlines())),
            Subject("settings of DistributedDataParallel", (str(self.books.settings),)),
        ]
        agree(self.books.communicator, subjects, label=f"the plan of {backward.name}")
        self.plan_made = plan
        return plan


@dataclass(frozen=True, slots=True)
class Place:
    """Where a gradient goes: bucket number, and number of the slot in it."""

    name: str
    bucket: int
    slot: int


class BucketGradientPlan:
    """The segments of one compiled backward, and where each of its gradients goes."""

    def __init__(
        self,
        strategy: BucketStrategy,
        plan: BucketPlan,
        segments: tuple[Segment, ...],
        outputs: Mapping[str, int],
        unused: list[str],
    ) -> None:
        self.strategy, self.plan, self._segments, self.unused = strategy, plan, segments, unused
        self.pools = strategy.books.pools(plan)
        self.places = {
            outputs[slot.name]: Place(slot.name, b, s)
            for b, bucket in enumerate(plan.buckets)
            for s, slot in enumerate(bucket.slots)
        }
        self.buckets_of_segment: dict[int, list[int]] = {}
        for b, bucket in enumerate(plan.buckets):
            self.buckets_of_segment.setdefault(bucket.segment, []).append(b)

    @property
    def segments(self) -> Sequence[Segment]:
        return self._segments

    is_stale = False

    def begin(self, ticket: object, missing: Set[int]) -> BackwardSession:
        strategy = self.strategy
        assert isinstance(ticket, Ticket)
        strategy.open_tickets.discard(ticket)
        if ticket.synchronise and self.unused and not strategy.books.settings.find_unused_parameters:
            raise unused_error(self.unused)
        is_last = not strategy.open_tickets
        return BucketSession(self, strategy.books, synchronise=ticket.synchronise, launches=is_last)


class BucketSession:
    """One backward pass through one compiled call."""

    def __init__(self, plan: BucketGradientPlan, books: Books, *, synchronise: bool, launches: bool) -> None:
        self.plan, self.books, self.synchronise = plan, books, synchronise
        self.buffers: list[BucketBuffer] = [pool.acquire() for pool in plan.pools]
        self.held = {i: held_gradient(books.parameters[place.name]) for i, place in plan.places.items()}
        self.flight = Flight(books.communicator, plan.plan, self.buffers) if synchronise and launches else None
        self.factor = books.scale if synchronise and launches else 1.0
        self.began_s = self.segment_began_s = time.perf_counter()
        if self.flight is not None:
            books.begin(plan.plan)

    def _view(self, output_index: int) -> Array:
        place = self.plan.places[output_index]
        return self.buffers[place.bucket].views[place.slot]

    def destination(self, output_index: int) -> Array | None:
        if output_index not in self.plan.places or self.held[output_index] is not None:
            return None
        return self._view(output_index)

    def scale(self) -> float:
        return self.factor

    def segment_done(self, segment: int, gradients: Mapping[int, Array]) -> None:
        self.books.recorder.span("segment", segment, self.segment_began_s, time.perf_counter())
        for index, gradient in gradients.items():
            place = self.plan.places.get(index)
            if place is not None:
                hooked = run_hooks(self.books.parameters[place.name], gradient, self.factor)
                self._deliver(index, hooked)
        if self.flight is not None:
            for bucket in self.plan.buckets_of_segment.get(segment, ()):
                self.books.ledger.mark_reduced(self.plan.plan.buckets[bucket].names)
                self.flight.ready(bucket)
        self.segment_began_s = time.perf_counter()

    def _deliver(self, index: int, gradient: Array) -> None:
        """Have the gradient in its slot, with what `.grad` held added to it."""
        view, held = self._view(index), self.held[index]
        if held is view:
            if self.factor != 1.0:
                view *= view.dtype.type(self.factor)
            view += gradient
            return
        if gradient is not view:
            view[...] = gradient
        add_held(view, held, self.factor)

    def finish(self) -> Mapping[int, Gradient]:
        books = self.books
        books.recorder.span("backward", int(self.flight is not None), self.began_s, time.perf_counter())
        if self.flight is not None:
            books.recorder.flight(self.flight.wait())
            books.ledger.end(self.plan.plan.names)
        for index, place in self.plan.places.items():
            show_gradient(books.parameters[place.name], self._view(index))
            books.handled.add(place.name)
            if self.flight is None:
                books.ledger.mark_local(place.name)
        if self.flight is None and self.synchronise:
            self._reduce_later()
        self.held = {}
        return dict.fromkeys(self.plan.places, HANDLED)

    def _reduce_later(self) -> None:
        """This pass accumulated because another call of the module awaits its backward: reduce when this one ends."""
        log.warn_once(
            "ddp: several calls in one backward",
            "DistributedDataParallel was called again before backward(): gradients are reduced after the backward, "
            f"without overlap ({shorten(list(self.plan.plan.names), 2)})",
        )
        queue_callback(self._reduce_at_end)

    def _reduce_at_end(self) -> None:
        """At the end of the backward: reduce what is still local."""
        books, plan = self.books, self.plan.plan
        if all(books.ledger.entries[name].state == "reduced" for name in plan.names):
            return
        books.begin(plan)
        buffers = [pool.acquire() for pool in self.plan.pools]
        flight = Flight(books.communicator, plan, buffers)
        for place in self.plan.places.values():
            parameter, view = books.parameters[place.name], buffers[place.bucket].views[place.slot]
            held = held_gradient(parameter)
            assert held is not None
            view[...] = held * view.dtype.type(books.scale)
            show_gradient(parameter, view)
        for bucket in range(len(plan.buckets)):
            books.ledger.mark_reduced(plan.buckets[bucket].names)
            flight.ready(bucket)
        books.recorder.flight(flight.wait())
        books.ledger.end(plan.names)
