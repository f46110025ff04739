"""Pass: one DDP instance's part in one backward pass, eager, compiled, or some of each.

In: gradients, as they become complete: from the tape (`deliver`, by the leaves' owners) or written into their slots by
compiled segments (`arrived`). Out: averaged gradients in `.grad`, as views of the layout's buckets.
Method: a synchronised pass opens a gate that tells all ranks its plan, round and forward, and launches each bucket
behind it when its last gradient has come (Li et al., VLDB 2020, section 3.2). At the end, if the gate passed, it waits
for the buckets, or leaves that to whoever needs one (overlap="step", `landing.py`). If not (one rank ran eager and
another compiled its first plan, plans differ, ...) no bucket has moved on any rank: `reconcile` finds one plan for all,
the gradients are put into its layout, and reduced; the next step overlaps again.
Without synchronisation (no_sync) gradients stay local.
Under static_graph a gradient may be complete several times in a backward (`turns.py`).
With find_unused_parameters, slots that no gradient reached are zeros, and a count reduced behind the buckets tells the
parameters that no rank used: their `.grad` stays as it was. What no graph of this backward uses is known from the tape
when it begins, so a branch not taken holds no bucket up.
Invariants: a gradient comes once; all is reduced or a named error is raised; a pass that an exception ends half way is
dropped, and its round is never reused, so the stamps of the next never meet those of its buckets.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from collectives import Gate, Stamp
from compiler_core.device import device_of
from compiler_core.log import warn_once
from compiler_core.ops.registry import Array
from compiler_core.overrides.state import other_layouts
from compiler_core.tensor.autograd.engine import Backward, queue_callback, running_backwards
from compiler_core.tensor.memory.lent import Lending, is_lent
from compiler_core.tensor.tensor import Tensor
from distcompile import watchdog
from distcompile.ddp.buffers import BucketBuffer
from distcompile.ddp.flight import Flight
from distcompile.ddp.landing import can_put_off, put_off
from distcompile.ddp.ledger import reduced_twice, unused_error
from distcompile.ddp.plan.pieces import Took
from distcompile.ddp.reconcile import AGREE, judge, reconcile, words_of
from distcompile.ddp.turns import Turn, may_nest
from distcompile.ddp.users import Users
from distcompile.errors import NotSupportedError

if TYPE_CHECKING:
    from distcompile.ddp.books import Books
    from distcompile.ddp.plan.bucket_plan import BucketPlan
    from distcompile.ddp.plan.pieces import Flown

COUNT_BUCKET = 1 << 20  # the stamp's bucket number of the count of users


class BackwardPass:
    """run: the backward that runs (None: another rank's, which this one shadows). outer: the pass it is nested in."""

    def __init__(self, books: Books, run: Backward | None, *, outer: BackwardPass | None, synchronise: bool) -> None:
        self.books, self.run, self.outer = books, run, outer
        self.layout = books.layout
        self.took: list[Took] = []  # the compiled calls that take part
        self.missing = list(self.layout.counts)  # gradients still to come, by bucket
        self.came: set[str] = set()
        self.unshown: list[str] = []  # delivered, but left local in .grad for another owner to see
        self._buffers: list[BucketBuffer] | None = None
        self.flight: Flight | None = None
        self.scale = 1.0
        self.absent: list[str] = []  # known to get no gradient
        self.is_compiled = False
        self.turn: Turn | None = None  # where gradients may come several times
        if synchronise:
            self._take_off()
        if run is not None:
            queue_callback(self.end)

    def _take_off(self) -> None:
        books = self.books
        if books.landing is not None:
            books.landing.finish()
            books.landing = None
        watchdog.begin_step(books.recorder.count)
        books.round += 1
        self.scale = books.scale
        gate: Gate | None = None
        self.checked = books.used
        if books.communicator.world_size > 1:
            gate = books.communicator.open_gate(words_of(books), AGREE, label=f"backward {books.round}")
        books.used = []
        self.step = books.round
        self.flight = self._flight(gate)
        if books.settings.static_graph:
            self.turn = books.turns.begin(self.run)
        if books.settings.allows_unused and self.run is not None:
            self.absent = unreached(books, self.run)
            self._fill(self.absent)

    def _flight(self, gate: Gate | None) -> Flight:
        books = self.books
        return Flight(books.communicator, self.layout, self.buffers, step=self.step, gate=gate, hook=books.comm_hook)

    def take_part(self, name: str, cut: BucketPlan, outputs: frozenset[str], n_segments: int) -> int:
        """A compiled call begins, with gradients for the parameters `outputs`. Returns its first segment's number."""
        first = self.took[-1].first + self.took[-1].n_segments if self.took else 0
        self.took.append(Took(name, cut, outputs, first, n_segments))
        self.is_compiled = True
        return first

    @property
    def flown(self) -> Flown:
        """Which segments and graphs completed the buckets."""
        return self.layout.flown(self.took)

    @property
    def buffers(self) -> list[BucketBuffer]:
        """A buffer for each bucket, taken when first asked for."""
        if self._buffers is None:
            self._buffers = self.layout.acquire()
        return self._buffers

    def view(self, name: str) -> Array:
        """The slot of a gradient."""
        bucket, slot = self.layout.places[name]
        return self.buffers[bucket].views[slot]

    # -- gradients

    def deliver(self, name: str, parameter: Tensor, *, show: bool) -> None:
        """The tape has completed `.grad` of `name`. show: let `.grad` be the slot at once."""
        if self.flight is None:
            self.came.add(name)
            return
        if self.run is not None and self.run.create_graph:
            raise NotSupportedError(
                "backward(create_graph=True) through DistributedDataParallel: reduced gradients have no history",
                remedy="use autograd.grad(..., create_graph=True) for the part that is differentiated twice",
            )
        if self.turn is None or self.turn.is_last(name, show=show):
            self._put(name, parameter, show=show)

    def _put(self, name: str, parameter: Tensor, *, show: bool) -> None:
        """Have what is in `.grad` in its slot, averaged."""
        if type(parameter._grad) in other_layouts:
            raise NotSupportedError(
                f"the gradient of {name} is sparse: DistributedDataParallel reduces dense gradients",
                remedy="leave sparse=True out of the embedding",
            )
        bucket, slot = self.layout.places[name]
        view, gradient = self.buffers[bucket].views[slot], held_gradient(parameter)
        if gradient is None:  # a hook has taken it away
            with parameter.device.working():
                view[...] = 0
        else:
            parameter.device.scale(gradient, self.scale, out=view)
            if show:
                show_gradient(parameter, view)
            else:
                self.unshown.append(name)
        self.arrived(bucket, (name,))

    def arrived(self, bucket: int, names: Sequence[str]) -> None:
        """These gradients are in their slots of `bucket`. Raises LedgerError for one that was there before."""
        if not self.came.isdisjoint(names):
            raise reduced_twice(next(name for name in names if name in self.came))
        left = self.missing[bucket] = self.missing[bucket] - len(names)
        self.came.update(names)
        if left == 0 and self.flight is not None:
            self.flight.ready(bucket)

    # -- the end

    def end(self) -> None:
        """The backward ended: deal with gradients that did not come, then see all buckets reduced."""
        books = self.books
        books.current = self.outer
        if self.flight is None:
            books.ledger.mark_local(self.came, books.parameters)
            return
        if self.turn is not None:
            for name, show in self.turn.end().items():
                self._put(name, books.parameters[name], show=show)
        now_s = self.flight.ended_s = time.perf_counter()
        books.recorder.span("backward", 1, self.flight.began_s, now_s)
        is_full = not (self.absent or any(self.missing))
        unused = [] if is_full else [name for name in self.layout.places if name not in self.came]
        if unused and not books.settings.allows_unused:
            raise unused_error(unused)
        self._fill(set(unused).difference(self.absent))
        self._land(unused)
        self.run = None  # it holds this pass through its callbacks: nothing is left to the cyclic collector

    def shadow(self) -> None:
        """Take part in other ranks' backward with zeros."""
        for buffer in self.buffers:
            with device_of(buffer.flat).working():
                buffer.flat[...] = 0
        assert self.flight is not None
        for bucket in self.layout.order:
            self.flight.ready(bucket)
        self._land(list(self.layout.places))

    def _fill(self, names: Iterable[str]) -> None:
        """No gradient comes for these: their slots get what was accumulated before, or zeros."""
        assert self.flight is not None
        for name in names:
            parameter = self.books.parameters[name]
            held, view = held_gradient(parameter), self.view(name)
            if held is None:
                with parameter.device.working():
                    view[...] = 0
            else:
                parameter.device.scale(held, self.scale, out=view)
            bucket, _ = self.layout.places[name]
            self.missing[bucket] -= 1
            if not self.missing[bucket]:
                self.flight.ready(bucket)

    def _land(self, unused: Sequence[str]) -> None:
        """See all buckets reduced; show what is in them."""
        books, flight = self.books, self.flight
        assert flight is not None
        users = self._count_users(unused, flight.gate)
        if not flight.passes():
            assert flight.gate is not None
            reconcile(books, flight.gate.wait(), is_compiled=self.is_compiled)
            flight = self._divert()
            users = self._count_users(unused, None)
        elif flight.gate is not None:
            judge(books, flight.gate.wait(), self.checked)
        books.ledger.local.clear()
        for name in self.unshown:
            show_gradient(books.parameters[name], self.view(name))
        lent = [name for name in self.layout.places if _is_lent(books.parameters[name])] if Lending.in_use else []
        is_later = users is None and self.run is not None and can_put_off(books, flight) and not _told_of(lent)
        if is_later and put_off(books, flight, self.flown, self.layout):
            return
        books.recorder.flight(flight.wait(self.flown))
        for name in lent if self.run is not None else ():
            show_gradient(books.parameters[name], self.view(name))
        if users is not None and self.run is not None:
            used = users.wait()
            for name in unused:
                if name in used:
                    show_gradient(books.parameters[name], self.view(name))

    def _divert(self) -> Flight:
        """Ranks have agreed on a plan: move the gradients into its layout, and launch all its buckets."""
        books, before = self.books, self.layout
        after = books.layout
        if after.pools is before.pools:  # laid out alike: the gradients are where they shall be
            self.layout = after
        else:
            old, new = self.buffers, after.acquire()
            for name, (bucket, slot) in after.places.items():
                b, s = before.places[name]
                view, moved = old[b].views[s], new[bucket].views[slot]
                parameter = books.parameters[name]
                with parameter.device.working():
                    moved[...] = view
                if parameter._grad is not None and parameter._grad._cell.value is view:
                    show_gradient(parameter, moved)
            self.layout, self._buffers = after, new
        self.flight = self._flight(None)
        for bucket in after.order:
            self.flight.ready(bucket)
        return self.flight

    def _count_users(self, unused: Sequence[str], gate: Gate | None) -> Users | None:
        """If parameters may be unused: have counted, behind the buckets, how many ranks used each."""
        if not self.books.settings.allows_unused:
            return None
        left_out = set(unused) - self.books.ledger.local.keys()  # as in torch, use under no_sync() counts
        stamp = Stamp(self.layout.word, self.step, COUNT_BUCKET)
        return Users(self.books.communicator, self.layout.places, left_out, stamp=stamp, gate=gate)


def pass_now(books: Books, synchronise: bool) -> BackwardPass:
    """The part in the backward that runs of the instance whose `books` these are; made at its first gradient.

    As in torch, gradients of the module called by itself, without a forward of this instance, stay local.
    """
    run = running_backwards()[-1]
    if books.current is None or books.current.run is not run:
        books.drop_broken_pass()
        books.settle(run)
        if synchronise and not books.awaits_backward and not any(map(books.takes_part, running_backwards())):
            synchronise = False
            warn_once(
                "ddp.module_by_itself",
                "gradients of a backward without a forward of DistributedDataParallel stay on this rank, as in "
                "torch: call the wrapper, not its module, where they are to be averaged (this is said once)",
            )
        books.awaits_backward = books.awaits_backward and not synchronise
        books.current = BackwardPass(books, run, outer=books.current, synchronise=synchronise)
    return books.current


def unreached(books: Books, run: Backward) -> list[str]:
    """The parameters that no node of the tape in `run` gives a gradient to; none if a user's Function, which may run a
    backward of its own for others (a reentrant checkpoint), takes part."""
    pending = run.pending
    found = [name for name, parameter in books.parameters.items() if parameter not in pending]
    return [] if not found or run.wanted is not None or may_nest(run) else found


def held_gradient(parameter: Tensor) -> Array | None:
    """The array in `.grad`; None if there is none."""
    grad = parameter._grad
    if grad is None:
        return None
    array: Array = grad._cell.current()
    return array


def _is_lent(parameter: Tensor) -> bool:
    """Whether others see the memory of its `.grad`, which then is no slot."""
    return parameter._grad is not None and is_lent(parameter._grad._cell)


def _told_of(lent: Sequence[str]) -> bool:
    """Whether there are any; said once, as buckets cannot be waited for later then."""
    if lent:
        warn_once(
            "ddp.lent",
            f"the gradient of {lent[0]} was lent (numpy(), data_ptr(), ...), so each backward waits for all buckets; "
            "read gradients with tolist() or clone().numpy()",
        )
    return bool(lent)


def show_gradient(parameter: Tensor, view: Array) -> None:
    """Make `.grad` show `view`. A `.grad` that is there stays the same Tensor; one that was lent gets the numbers, so
    it is to be shown again when they have been reduced."""
    grad = parameter._grad
    if grad is None:
        parameter._grad = Tensor._wrap(view)  # the setter would compare shape and dtype, which are the plan's
    else:
        grad._cell.write(view)
