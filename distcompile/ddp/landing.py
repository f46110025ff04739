"""Landing across the step: a backward returns while its buckets travel; whoever needs one waits for that one.

In: a flight whose gate has passed, and the gradients that its buckets show. Out: a fence for each bucket
(`compiler_core/tensor/fence.py`): reading such a gradient waits for its bucket; an optimizer's step puts its updates
off behind it; the next forward waits for a parameter where it first uses it. When the last bucket has been waited for,
the flight is recorded.
Invariant: the fences of one flight are ordered as its buckets were launched, so whoever waits for one may settle those
before it meanwhile without waiting any longer.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from collectives import Work
from compiler_core.ops.registry import Array
from compiler_core.tensor.cell import Cell
from compiler_core.tensor.fence import Fence, can_guard
from distcompile.ddp.overlap import FlightRecord

if TYPE_CHECKING:
    from distcompile.ddp.books import Books
    from distcompile.ddp.flight import Flight
    from distcompile.ddp.layout import Layout
    from distcompile.ddp.pieces import Flown


def can_put_off(books: Books, flight: Flight) -> bool:
    """Whether this flight may be waited for after the backward."""
    if books.settings.overlap != "step" or books.joining is not None or books.communicator.world_size == 1:
        return False
    return all(isinstance(work, Work) for work in flight.works)


def put_off(books: Books, flight: Flight, flown: Flown, layout: Layout) -> bool:
    """Let the backward return; False, and nothing done, if somebody looks at a gradient in a way that cannot wait.

    flown: `layout`'s plan, with segments, for the record.
    """
    cells = [_cells(books, flight.buffers[bucket].views, layout.groups[bucket]) for bucket in layout.order]
    if not all(can_guard(cell) for group in cells for cell in group):
        return False
    landing = Landing(books, flight, flown)
    for place, group in enumerate(cells):
        landing.fence(place).guard(group)
    return True


def _cells(books: Books, views: list[Array], names: tuple[str, ...]) -> list[Cell]:
    """Where `.grad` shows one of these views."""
    grads = [books.parameters[name]._grad for name in names]
    return [grad._cell for grad, view in zip(grads, views, strict=True) if grad is not None and grad._cell.raw is view]


class Landing:
    """One flight until its last bucket has been waited for."""

    def __init__(self, books: Books, flight: Flight, flown: Flown) -> None:
        self.books, self.flight, self.flown = books, flight, flown
        flight.ended_s = time.perf_counter()
        self.waits = [(flight.ended_s, flight.ended_s)] * len(flight.works)
        self.left = len(flight.works)

    def fence(self, place: int) -> Fence:
        """The fence of the bucket that was launched at `place`."""
        work = self.flight.works[place]
        assert isinstance(work, Work)
        bucket = self.flight.layout.order[place]
        return Fence(
            work.wait,
            work.is_done,
            f"bucket {bucket} of {len(self.flown.plan.buckets)}, or the update that was put off behind it,",
            order=place,
            observe=partial(self._observe, place, bucket),
            owner=self.books.communicator,
        )

    def _observe(self, place: int, bucket: int, kind: str, began_s: float, ended_s: float) -> None:
        if kind == "update":
            self.books.recorder.span("update", bucket, began_s, ended_s)
            return
        self.books.recorder.span("wait", bucket, began_s, ended_s)
        self.waits[place] = began_s, ended_s
        self.left -= 1
        if self.left == 0:
            self._record()

    def _record(self) -> None:
        flight = self.flight
        times = [work.times for work in flight.works]
        ready_s, order = flight.ready_s, flight.layout.order
        plan, graphs = self.flown
        record = FlightRecord(
            plan, flight.began_s, flight.ended_s, ready_s, times, self.waits, order, spread=True, graphs=graphs
        )
        self.books.recorder.flight(record)
