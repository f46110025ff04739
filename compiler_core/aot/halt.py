"""Halts: the stops of a compiled backward, ready to run between its steps.

In: the stops of a joint, and the places of all values of a cut. Out: `Halt`s, and for every backward pass that has some
a `Halting`: it calls the hooks and rules of one call on real Tensors, and puts what they return where later steps read.
Invariants: as on the tape, a hook runs if there is a path to it from an output of which a cotangent came, a rule if one
came to it; and if somebody needs what is behind it. Cotangents that did not come are None to it. What it does not give
is zeros to later steps and no gradient to the tape. What it changes in place and a later step reads is an
AutogradError. What it raises comes out of the backward.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Protocol

import numpy as np

from compiler_core.aot.boundary import Gradients, Hook, checked, run_hook
from compiler_core.aot.joint import Joint
from compiler_core.aot.layout import BackwardLayout
from compiler_core.aot.stops import Stop, all_that_may_come, gradients_behind
from compiler_core.aot.strategy import DELIVERED, BackwardSession, Gradient
from compiler_core.device import copy_of
from compiler_core.graph.ir import Graph
from compiler_core.ops.registry import Array
from compiler_core.records import dataclass

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Halt:
    """A stop with its places.

    reads: of each cotangent, its place, the mask of what reaches it, and whether the array there is somebody's own, to
    be copied; None if none can come. saved, makes: places, None where no gradient is needed. behind: the gradients that
    depend on it. read_later: places that are read after it.
    """

    stop: Stop
    reads: tuple[tuple[int, int, bool] | None, ...]
    saved: tuple[int, ...]
    makes: tuple[int | None, ...]
    behind: frozenset[int]
    read_later: frozenset[int]


class Reading(Protocol):
    """A step."""

    @property
    def reads(self) -> tuple[int, ...]: ...
    @property
    def makes(self) -> tuple[int, ...]: ...
    @property
    def gradients(self) -> tuple[tuple[int, int], ...]: ...


def halts_of(
    joint: Joint,
    backward: Graph,
    places: Mapping[str, int],
    hooked: Sequence[int],
    steps: Sequence[Reading],
    stages: Sequence[int],
) -> list[Halt]:
    """The halts of a cut. places: by name of a value. hooked: of the hooked placeholders. stages: of the steps."""
    first = len(joint.gradients)
    at = [places[node.name] for node in backward.outputs[first:]]
    handed_out = {step.makes[k] for step in steps for k, _ in step.gradients}
    made: list[Halt] = []
    for h, (stop, behind) in enumerate(zip(joint.stops, gradients_behind(joint.stops, joint.reaches))):
        reads = [None if c is None else (at[c[0] - first], c[1]) for c in stop.cotangents]
        later = {place for step, stage in zip(steps, stages) if stage > h for place in step.reads}
        made.append(
            Halt(
                stop,
                tuple(None if read is None else (*read, read[0] in handed_out) for read in reads),
                tuple(at[k - first] for k in stop.saved),
                tuple(None if made is None else hooked[made[0]] for made in stop.made),
                behind,
                frozenset(later.union(at[k - first] for other in joint.stops[h + 1 :] for k in other.saved)),
            )
        )
    return made


class OneCall(Protocol):
    """The compiled call whose backward runs."""

    hooks: Sequence[Hook]

    def check(self, places: Collection[int] | None = None) -> None:
        """Raise AutogradError if what is to be read at one of `places` (None: at any) has changed."""


class TapePass(Protocol):
    """The pass of the tape in which a compiled backward runs."""

    @property
    def needed(self) -> Collection[int] | None:
        """The inputs whose gradient is asked for; None: all."""

    def deliver(self, place: int, gradient: Gradient) -> bool:
        """Take the gradient of an input now, if it is a leaf's that has hooks."""


class Halting:
    """One backward pass, as far as its halts are concerned.

    missing: the gradients that do not come in it. found: those made so far, by output. delivered: those that the tape
    has taken already: hooks of leaves run in their turn, too.
    """

    def __init__(
        self,
        layout: BackwardLayout,
        places: list[Array],
        came: int,
        missing: Set[int],
        call: OneCall,
        tape: TapePass,
        session: BackwardSession,
        found: Mapping[int, Gradient],
    ) -> None:
        self.reaches, self.turns, self.left = layout.reaches, layout.turns, list(layout.stops)
        self.places, self.came, self.missing = places, came, missing
        self.call, self.tape, self.session, self.found = call, tape, session, found
        self.places_of_wanted = layout.places_of_wanted
        self.is_complete = True  # all came so far that can
        self.passed = all_that_may_come(came, layout.stops)
        self.delivered: dict[int, Gradient] = {}
        self._turn = 0  # how many of `turns` were found
        self._waiting: list[int] = []  # of these, those that the tape has not been asked to take

    def run(self, halts: Sequence[Halt]) -> None:
        """Run `halts`, and tell the session which gradients will not come after that."""
        for halt in halts:
            self.deliver(halt.read_later)
            self.is_complete &= self._run(halt)
        if not self.is_complete:
            may_come = self._may_come()
            lost = {k for k, mask in enumerate(self.reaches) if not mask & may_come} - self.missing
            if lost:
                self.missing = self.missing | lost
                self.session.lose(lost)

    def _may_come(self) -> int:
        """The arrivals that came, and those that may come yet: a hook that runs may make a gradient out of nothing."""
        came = self.came
        for stop in self.left:
            if stop.reaching & (came if stop.is_rule else came | self.passed):
                came |= stop.making
        return came

    def deliver(self, read_later: Collection[int]) -> None:
        """Have the tape take what was made since the last time, in the order in which it was complete.

        read_later: the places that are read from here on; a leaf whose own is among them waits, as its hooks may change
        it, and what they change of others is an error.
        """
        while self._turn < len(self.turns) and self.turns[self._turn] in self.found:
            self._waiting.append(self.turns[self._turn])
            self._turn += 1
        ready = [k for k in self._waiting if self.places_of_wanted[k] not in read_later]
        self._waiting = [k for k in self._waiting if self.places_of_wanted[k] in read_later]
        for k in ready:
            if k not in self.missing and self.session.is_for_tape(k) and self.tape.deliver(k, self.found[k]):
                self.delivered[k] = DELIVERED
                self.call.check(read_later)

    def _run(self, halt: Halt) -> bool:
        """Whether everything came that can come from it."""
        stop, places = halt.stop, self.places
        del self.left[0]
        cotangents = [self._cotangent(read) for read in halt.reads]
        found: Gradients = [None] * len(stop.made)
        if self._runs(halt, cotangents):
            found = self._call(halt, cotangents)
            self.call.check(halt.read_later)
        complete = True
        for place, made, meta, gradient in zip(halt.makes, stop.made, stop.sources, found):
            if place is None or made is None:
                continue
            if gradient is None:
                complete = False
                places[place] = np.zeros(meta.shape, meta.dtype.numpy)
            else:
                self.came |= made[1]
                array = gradient._cell.current()
                places[place] = array if array.flags.c_contiguous else copy_of(array)
        return complete

    def _cotangent(self, read: tuple[int, int, bool] | None) -> Tensor | None:
        from compiler_core.tensor.tensor import Tensor

        if read is None or not read[1] & self.came:
            return None
        array = self.places[read[0]]
        return Tensor._wrap(copy_of(array) if read[2] else array)

    def _runs(self, halt: Halt, cotangents: Gradients) -> bool:
        """Whether it has anything to do."""
        needed = self.tape.needed
        if needed is not None and halt.behind.isdisjoint(needed):
            return False
        if halt.stop.is_rule:
            return any(c is not None for c in cotangents)
        return bool(halt.stop.reaching & self.passed)

    def _call(self, halt: Halt, cotangents: Gradients) -> Gradients:
        from compiler_core.tensor.tensor import Tensor

        stop = halt.stop
        hook = self.call.hooks[stop.boundary]
        if not stop.is_rule:
            return run_hook(hook, cotangents, stop.sources)
        saved = tuple(Tensor._wrap(self.places[place]) for place in halt.saved)
        return checked(hook(saved, *cotangents) or (), stop.sources, "a backward rule")
