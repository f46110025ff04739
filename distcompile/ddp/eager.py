"""The eager reducer: buckets filled by hooks on leaves, for modules that run uncompiled (or after a graph break).

In: a hook call for each parameter whose `.grad` has just been completed by the tape. Out: reduced gradients in `.grad`.
Method: PyTorch's Reducer (Li et al., VLDB 2020): buckets by reversed registration order, launched in order as they
fill, waited for at the end of the backward. The plan is agreed when DDP is made, and never rebuilt.
With find_unused_parameters, slots that no gradient reached are filled with zeros at the end, and a count reduced across
ranks tells parameters that no rank used: their `.grad` stays as it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from compiler_core import dtype as dtypes
from compiler_core.tensor.engine import queue_callback
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.books import Books, held_gradient, show_gradient
from distcompile.ddp.bucket_plan import REGISTRATION_ORDER, BucketPlan, ReadyParameter, make_plan
from distcompile.ddp.buffers import BucketBuffer
from distcompile.ddp.flight import Flight
from distcompile.ddp.ledger import unused_error


def registration_plan(books: Books) -> BucketPlan:
    """Buckets over all parameters, last registered first: roughly the order in which a backward completes them."""
    last = len(books.parameters) - 1
    ready = [
        ReadyParameter(name, tuple(p.shape), dtypes.of(p.dtype), last - place)
        for place, (name, p) in enumerate(books.parameters.items())
    ]
    return make_plan(ready, books.settings.caps, order=REGISTRATION_ORDER)


class EagerReducer:
    """Hooks on all parameters of one DDP instance."""

    def __init__(self, books: Books) -> None:
        self.books = books
        self.plan = registration_plan(books)
        self.places = {
            slot.name: (b, s) for b, bucket in enumerate(self.plan.buckets) for s, slot in enumerate(bucket.slots)
        }
        self.synchronise = True  # as it was at the last forward
        self.current: _Pass | None = None
        self.hooks = [
            p.register_post_accumulate_grad_hook(self._hook_for(name)) for name, p in books.parameters.items()
        ]

    def on_forward(self) -> None:
        """An eager forward begins: note whether its backward is to synchronise."""
        self.synchronise = self.books.is_synchronising
        self.current = None  # a backward that raised half way is over

    def _hook_for(self, name: str) -> Callable[[Tensor], None]:
        def hook(parameter: Tensor) -> None:
            self._on_gradient(name, parameter)

        return hook

    def _on_gradient(self, name: str, parameter: Tensor) -> None:
        if name in self.books.handled:
            self.books.handled.discard(name)
            return
        if not self.synchronise:
            self.books.ledger.mark_local(name)
            return
        if self.current is None:
            self.current = _Pass(self)
            queue_callback(self._end)
        self.current.deliver(name, parameter)

    def _end(self) -> None:
        current, self.current = self.current, None
        if current is not None:
            current.end()


class _Pass:
    """One synchronised eager backward."""

    def __init__(self, reducer: EagerReducer) -> None:
        self.reducer, self.books, self.plan = reducer, reducer.books, reducer.plan
        self.buffers: list[BucketBuffer] = [pool.acquire() for pool in self.books.pools(self.plan)]
        self.waiting = [set(bucket.names) for bucket in self.plan.buckets]
        self.flight = Flight(self.books.communicator, self.plan, self.buffers)
        self.books.begin(self.plan)

    def deliver(self, name: str, parameter: Tensor) -> None:
        """`.grad` of `name` is complete: average it into its slot; launch the bucket if that was the last."""
        self.books.ledger.mark_reduced([name])
        self._fill(name, held_gradient(parameter))
        bucket, slot = self.reducer.places[name]
        show_gradient(parameter, self.buffers[bucket].views[slot])
        self.waiting[bucket].discard(name)
        if not self.waiting[bucket]:
            self.flight.ready(bucket)

    def _fill(self, name: str, gradient: np.ndarray | None) -> None:
        bucket, slot = self.reducer.places[name]
        view = self.buffers[bucket].views[slot]
        if gradient is None:
            view[...] = 0
        else:
            np.multiply(gradient, gradient.dtype.type(self.books.scale), out=view)

    def end(self) -> None:
        """The backward ended: deal with parameters that got no gradient, then wait for all buckets."""
        unused = [name for names in self.waiting for name in sorted(names)]
        if unused and not self.books.settings.find_unused_parameters:
            raise unused_error(unused)
        for bucket, names in enumerate(self.waiting):
            for name in names:
                self._fill(name, held_gradient(self.books.parameters[name]))
            if names:
                self.flight.ready(bucket)
        used_by = self._count_users(unused) if self.books.settings.find_unused_parameters else {}
        self.books.recorder.span("backward", 1, self.flight.began_s, time.perf_counter())
        self.books.recorder.flight(self.flight.wait())
        for name in unused:
            self.books.ledger.mark_reduced([name])
            if used_by[name]:
                bucket, slot = self.reducer.places[name]
                show_gradient(self.books.parameters[name], self.buffers[bucket].views[slot])
        self.books.ledger.end(self.plan.names)

    def _count_users(self, unused: list[str]) -> dict[str, int]:
        """For each parameter, how many ranks used it. The count travels behind the buckets."""
        names = self.plan.names
        counts = np.array([name not in unused for name in names], np.int32)
        self.books.communicator.all_reduce(counts, "sum", label="used parameters")
        return dict(zip(names, counts.tolist()))
