"""Landing across the step: a backward returns while its buckets travel; whoever needs one waits for that one.

In: a flight whose gate has passed, and the gradients that its buckets show. Out: a fence for each bucket
(`compiler_core/tensor/memory/fence.py`): reading such a gradient waits for its bucket; an optimizer's step puts its
updates off behind it; the next forward waits for a parameter where it first uses it. When the last bucket has been
waited for, the flight is recorded, with overlap="backward" at once.
On a GPU it is the stream that waits, where the host's program says so; the host goes on. There the last bucket has a
fence also with overlap="backward", one that a step of an optimizer settles at its end: what that bucket has left to
travel is hidden behind the updates of the others.
Invariant: the fences of one flight are ordered as its buckets were launched, so whoever waits for one may settle those
before it meanwhile without waiting any longer.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from collectives import Work
from collectives.work import Mark
from compiler_core.ops.registry import Array
from compiler_core.tensor.memory.cell import Cell
from compiler_core.tensor.memory.fence import Fence, can_guard
from distcompile.ddp.overlap import FlightRecord

if TYPE_CHECKING:
    from distcompile.ddp.books import Books
    from distcompile.ddp.flight import Flight
    from distcompile.ddp.plan.layout import Layout
    from distcompile.ddp.plan.pieces import Flown


def can_put_off(books: Books, flight: Flight) -> bool:
    """Whether buckets of this flight may be waited for after the backward."""
    is_wanted = books.settings.overlap == "step" or flight.began is not None
    if not is_wanted or books.joining is not None or books.communicator.world_size == 1:
        return False
    return all(isinstance(work, Work) for work in flight.works)


def put_off(books: Books, flight: Flight, flown: Flown, layout: Layout) -> bool:
    """Let the backward return; False, and nothing done, if somebody looks at a gradient in a way that cannot wait.

    flown: `layout`'s plan, with segments, for the record.
    """
    across = books.settings.overlap == "step"
    first = 0 if across else len(layout.order) - 1
    cells = [_cells(books, flight.buffers[bucket].views, layout.groups[bucket]) for bucket in layout.order[first:]]
    if not all(can_guard(cell) for group in cells for cell in group):
        return False
    landing = Landing(books, flight, flown, is_brief=not across)
    for place in range(first):
        landing.land(place)
    for place, group in enumerate(cells, first):
        fence = landing.fence(place)
        fence.guard(group)
        if landing.is_brief:
            landing.fences.append(fence)
    if landing.is_brief:
        landing.record()
        books.landing = landing
    return True


def _cells(books: Books, views: list[Array], names: tuple[str, ...]) -> list[Cell]:
    """Where `.grad` shows one of these views."""
    grads = [books.parameters[name]._grad for name in names]
    return [grad._cell for grad, view in zip(grads, views, strict=True) if grad is not None and grad._cell.raw is view]


class Landing:
    """One flight until its last bucket has been waited for. is_brief: no longer than the next step of an optimizer.

    On a GPU: ended, reached, arrived: where the stream was when the backward ended, when it began to wait for each
    bucket, and when that was over.
    """

    def __init__(self, books: Books, flight: Flight, flown: Flown, *, is_brief: bool) -> None:
        self.books, self.flight, self.flown, self.is_brief = books, flight, flown, is_brief
        flight.ended_s = time.perf_counter()
        self.waits = [(flight.ended_s, flight.ended_s)] * len(flight.works)
        self.left = len(flight.works)
        self.fences: list[Fence] = []  # of a brief one: those that are still to be settled
        self.ended = flight.mark()
        self.reached: list[Mark | None] = [None] * len(flight.works)
        self.arrived: dict[int, Mark | None] = {}

    def finish(self) -> None:
        """Wait for what nobody waited for, if gradients were dropped unread: their bucket is about to be used again."""
        for fence in self.fences:
            fence.settle()
        self.fences.clear()

    def land(self, place: int) -> None:
        """Wait for the bucket that was launched at `place`."""
        self.reached[place] = self.ended
        self.flight.works[place].wait()

    def _wait(self, place: int) -> None:
        self.reached[place] = self.flight.mark()
        self.flight.works[place].wait()
        self.arrived[place] = self.flight.mark()

    def fence(self, place: int) -> Fence:
        """The fence of the bucket that was launched at `place`."""
        work = self.flight.works[place]
        assert isinstance(work, Work)
        bucket = self.flight.layout.order[place]
        return Fence(
            partial(self._wait, place),
            work.is_done,
            f"bucket {bucket} of {len(self.flown.plan.buckets)}, or the update that was put off behind it,",
            order=place,
            observe=partial(self._observe, place, bucket),
            owner=self.books.communicator,
            is_brief=self.is_brief,
        )

    def _observe(self, place: int, bucket: int, kind: str, began_s: float, ended_s: float) -> None:
        if kind == "update":
            began, ended = self.arrived.get(place), self.flight.mark()
            self.books.recorder.span("update", bucket, began or began_s, ended or ended_s)
            return
        self.books.recorder.span("wait", bucket, began_s, ended_s)
        self.waits[place] = began_s, ended_s
        self.left -= 1
        if self.left == 0:
            self.record()

    def record(self) -> None:
        """Keep the times of the flight; what a GPU's stream waits for later is seen when they are read."""
        flight = self.flight
        times = [work.late_times() if isinstance(work, Work) else work.times for work in flight.works]
        marks = None if flight.began is None or self.ended is None else (flight.began, self.ended)
        ready_s, order = flight.ready_s, flight.layout.order
        plan, graphs = self.flown
        record = FlightRecord(
            plan, flight.began_s, flight.ended_s, ready_s, times, self.waits, order, True, graphs, marks, self.reached
        )
        self.books.recorder.flight(record)
