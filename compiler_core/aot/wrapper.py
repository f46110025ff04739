"""Runs a compiled forward, and its compiled backward when the tape reaches it.

In: the executables of one compiled entry and its `GradientPlan`. Out: arrays forward, gradients backward.
A backward pass is a list of steps made at compile time: which values each segment reads (places in one flat list of
saved values, inputs and tangents), which it makes, which of those are gradients. So a step at run time is a few list
operations around one native call. Where the backward stops for Python (`halt.py`), steps have halts before them. A
`Cut` is replaced as a whole when its owner would cut otherwise (DDP: another bucket plan); the forward stays as it is.
Errors: AutogradError if a value was changed in place after the forward that the backward, or eager's, reads, and in a
second pass over values that the first has freed (`needs.py`: outputs that share none may be differentiated apart).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from compiler_core import observe
from compiler_core.aot.boundary import Hook
from compiler_core.aot.halt import Halt, Halting, TapePass
from compiler_core.aot.layout import NOTHING, BackwardLayout
from compiler_core.aot.needs import Needs
from compiler_core.aot.pruning import Pruned
from compiler_core.aot.strategy import BackwardSession, Gradient, GradientPlan, LocalPlan
from compiler_core.backend import Executable
from compiler_core.device import copy_of, cpu, device_of
from compiler_core.errors import AutogradError, GraphError
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import Array
from compiler_core.overrides.state import other_layouts
from compiler_core.records import dataclass
from compiler_core.tensor.autograd.gone import freed_error
from compiler_core.tensor.autograd.tape import Edge, GradNode
from compiler_core.tensor.memory.cell import Cell

if TYPE_CHECKING:
    from compiler_core.tensor.tensor import Tensor

SCALE = -1  # the place of the session's scale in float32; SCALE - 1 in float64
_pooling = Lock()  # ranks may be threads that share a compiled function
SCALE_DTYPES = {SCALE: np.float32, SCALE - 1: np.float64}


class Places(Protocol):
    """Memory for an output, again and again."""

    def take(self) -> Array: ...


@dataclass(frozen=True, slots=True)
class BackwardStep:
    """One segment of a backward, or a piece of one.

    reads: places of its inputs. makes: places of its outputs. gradients: (its output, output index of the backward).
    numbers: of the segment, or of each part that it announces. parts: of each of these, its gradients; empty if it is
    one part. pools: where gradients go that are announced, but have no place of their own, by output. halts: what comes
    right before it. spends: those of its inputs (counted in `reads`) that it writes over. stack: see `stack_of`.
    """

    run: Executable
    reads: tuple[int, ...]
    makes: tuple[int, ...]
    gradients: tuple[tuple[int, int], ...]
    numbers: tuple[int, ...]
    parts: tuple[tuple[tuple[int, int], ...], ...] = ()
    pools: Mapping[int, Places] = field(default_factory=dict)
    halts: tuple[Halt, ...] = ()
    spends: tuple[int, ...] = ()
    stack: tuple[tuple[int, int], ...] = ()


class PartEvents:
    """Turns the signals of one running segment into news for the session. outs: where its outputs go."""

    __slots__ = ("outs", "session", "step")

    def __init__(self, step: BackwardStep, session: BackwardSession, outs: Sequence[Array | None]) -> None:
        self.step, self.session, self.outs = step, session, outs

    def signal(self, event: int) -> None:
        gradients = {index: out for k, index in self.step.parts[event] if (out := self.outs[k]) is not None}
        self.session.segment_done(self.step.numbers[event], gradients)

    def wait(self, event: int) -> None:
        raise GraphError(f"a backward waits for event {event}: only forwards may")


@dataclass(frozen=True, slots=True)
class Cut:
    """The segments of a backward, ready to run. size: places in all. halts: what comes after the last step."""

    plan: GradientPlan
    steps: tuple[BackwardStep, ...]
    size: int
    halts: tuple[Halt, ...] = ()

    def reads_after(self, step: BackwardStep, place: int) -> bool:
        """Whether a step after this one reads what lies at a place."""
        return any(place in later.reads for later in self.steps[self.steps.index(step) + 1 :])


class Recompiler(Protocol):
    """What compiles more of a call when it is first needed (`compiler_core/pipeline.py`)."""

    def recut(self) -> Cut:
        """The segments, planned and compiled again."""

    def prune(self, came: int) -> Pruned | None:
        """What runs when only these tangents come; None: nothing would be saved."""

    @property
    def exact_needs(self) -> Needs:
        """`needs` of the graph as it was captured."""


@dataclass(slots=True)
class CompiledBackward:
    """The backward of one compiled entry. former: cuts that were used before, for plans that come back."""

    layout: BackwardLayout
    cut: Cut
    source: Recompiler
    former: list[Cut] = field(default_factory=list)
    pruned: dict[int, Pruned | None] = field(default_factory=dict)

    def run(
        self, values: list[Array], grads: Sequence[Array | None], call: BackwardCall, tape: TapePass | None
    ) -> list[Gradient]:
        """One backward pass. values: those saved, then the inputs read. tape: needed if it stops.

        Returns a gradient for each input `wanted`.
        """
        if self.cut.plan.is_stale:
            self.cut = self._other_cut()
        layout, came = self.layout, call.came
        rest = self.for_tangents(came)
        cut = self.cut if rest is None else rest.cut
        tangents = [
            zeros_beside(grads, meta) if grad is None else _dense(grad) for grad, meta in zip(grads, layout.tangents)
        ]
        places: list[Array] = [*values, *tangents, *(EMPTY,) * (cut.size - len(values) - len(tangents))]
        missing = layout.missing(grads, came)
        session = cut.plan.begin(call.ticket, missing)
        found: dict[int, Gradient] = {}
        halting = None
        if tape is not None and layout.stops:
            halting = Halting(layout, places, came, missing, call, tape, session, found)
        for step in cut.steps:
            if step.halts and halting is not None:
                halting.run(step.halts)
            observe.segment(step.numbers[0])
            reads = [places[i] if i >= 0 else np.asarray(session.scale(), SCALE_DTYPES[i]) for i in step.reads]
            again = bool(step.spends) and call.is_needed_again
            if step.spends and not again:
                call.used |= call.came  # at once: if the pass fails from here on, nothing may read them again
            for k in step.spends:
                if again or cut.reads_after(step, step.reads[k]):
                    reads[k] = copy_of(reads[k])
            outs: list[Array | None] = [None] * len(step.makes)
            for k, index in step.gradients:
                outs[k] = session.destination(index)
            with _pooling:
                for k, pool in step.pools.items():
                    if outs[k] is None:
                        outs[k] = pool.take()
            results = step.run(reads, outs, PartEvents(step, session, outs) if step.parts else None)
            for place, result in zip(step.makes, results):
                places[place] = result
            gradients = {index: results[k] for k, index in step.gradients}
            found.update(gradients)
            if not step.parts:
                session.segment_done(step.numbers[0], gradients)
        if halting is not None:
            halting.run(cut.halts)
            halting.deliver(NOTHING)
            missing = halting.missing
        found.update({**session.finish(), **(halting.delivered if halting is not None else {})})
        return [None if i in missing else found[i] for i in range(len(layout.wanted))]

    def stacks(self) -> list[dict[int, int]]:
        """Of each step that wants some outputs of the forward in one block, at which byte of it they are to begin."""
        steps = [{self.layout.saved[step.reads[k]]: start for k, start in step.stack} for step in self.cut.steps]
        return [stack for stack in steps if stack]

    @property
    def is_local(self) -> bool:
        """Whether nobody else has a say in where the gradients go."""
        return isinstance(self.cut.plan, LocalPlan)

    def for_tangents(self, came: int) -> Pruned | None:
        """What runs if these tangents come, and no others; None: the whole backward."""
        if came + 1 == 1 << len(self.layout.tangents) or not self.is_local:
            return None
        if came not in self.pruned:
            self.pruned[came] = self.source.prune(came)
        return self.pruned[came]

    def places_for(self, came: int) -> Collection[int] | None:
        """The places of the values that a backward reads in which no other tangents come; None: of all."""
        rest = self.for_tangents(came)
        return None if rest is None else rest.reads

    def _other_cut(self) -> Cut:
        """The cut that the strategy wants by now: one that was used before, or a new one."""
        if self.cut.steps:  # not one that was put off
            self.former = [*self.former[-FORMER_CUTS + 1 :], self.cut]
        for place, cut in enumerate(self.former):
            if not cut.plan.is_stale:
                return self.former.pop(place)
        return self.source.recut()


def _dense(array: Any) -> Array:
    """`array`, contiguous: the tangent of a sum is one number, expanded, and native calls are slow on such arrays.

    A sparse gradient of an output, with its zeros: graphs have dense ones.
    """
    if type(array) in other_layouts:
        array = array.to_dense()._read()
    return array if array.flags.c_contiguous else copy_of(array)  # type: ignore[no-any-return]


def zeros_beside(others: Sequence[Array | None], meta: TensorMeta) -> Array:
    """Zeros on the device that the others are on."""
    found = next((other for other in others if other is not None), None)
    place = cpu if found is None else device_of(found)
    zeros: Array = place.zeros(meta.shape, meta.dtype.numpy)
    return zeros


def _is_intact(array: Array, cell: Cell, version: int) -> bool:
    """Whether `array`, what `cell` held at `version`, is what it was: it was replaced, once, not written into."""
    return cell.root is cell and cell.version == version + 1 and cell.raw is not array


FORMER_CUTS = 16  # kept of one backward: tuning goes to and fro between plans
EMPTY = np.empty(0, np.float32)


class ReplayCall(Protocol):
    """Computes a call on the tape (`capture/crossing.py`)."""

    def __call__(
        self, inputs: Sequence[Array], edges: Sequence[Edge], hooks: Sequence[Hook]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """(inputs that take gradients, outputs that have cotangents). edges: where the gradients of the inputs go."""


class BackwardCall:
    """What the tape holds for one compiled call: its saved values, until they are used or freed.

    cells: what the inputs among `values` were read from. read_at: their places. hooks: this call's, by number.
    partly: (mask of the outputs that use it, output) of those that are used inside the call, too.
    watched: (root cell, its version, mask, input or result that it is, whether an input) of other memory that the tape
    would read in the backward of the outputs of mask.
    outputs: the tape's nodes of the outputs, if these may be differentiated one after the other. used: the mask of
    those that were, and have freed their values, or written over them. came: of the pass that ran last. is_last:
    whether the pass that runs frees what it needs; it must say so. replay: computes it again, from its
    inputs; None if their gradients are not the tape's alone.
    """

    __slots__ = (
        "backward",
        "came",
        "cells",
        "hooks",
        "inputs",
        "is_last",
        "name",
        "outputs",
        "partly",
        "read_at",
        "replay",
        "ticket",
        "used",
        "values",
        "versions",
        "watched",
    )

    def __init__(
        self,
        name: str,
        backward: CompiledBackward,
        values: list[Array],
        cells: Sequence[Cell],
        read_at: Sequence[int],
        ticket: object,
        hooks: Sequence[Hook],
    ) -> None:
        self.name, self.backward, self.values, self.ticket = name, backward, values, ticket
        self.cells, self.read_at = cells, read_at
        self.hooks = hooks
        self.partly: list[tuple[int, weakref.ref[GradNode]]] = []
        self.versions = [cell.version for cell in cells]
        self.watched: Sequence[tuple[weakref.ref[Cell], int, int, int, bool]] = ()
        self.outputs: Sequence[weakref.ref[GradNode]] = ()
        self.used = self.came = 0
        self.is_last = False
        self.replay: ReplayCall | None = None
        self.inputs: Sequence[Array] | None = None

    @property
    def turns(self) -> Sequence[int]:
        """The inputs in the order in which their gradients are complete."""
        return self.backward.layout.turns

    @property
    def leads(self) -> Sequence[Collection[int]]:
        """For each output, the inputs to which its gradient flows."""
        return self.backward.layout.leads

    def __call__(self, grads: Sequence[Array | None], tape: TapePass | None = None) -> list[Gradient]:
        """tape: the pass, which a call that asks for it is given."""
        came = self._begin(grads)
        if self.partly:
            self._refuse(self._partial(came, lambda node: node.is_observed))
        return self.backward.run(self.values, grads, self, tape)

    def partial_outputs(self, came: int, is_wanted: Callable[[GradNode], bool]) -> list[GradNode]:
        """The outputs whose gradient is wanted and that this call, too, adds to. came: the outputs of a pass.

        Raises AutogradError if it cannot say what it adds.
        """
        found = self._partial(came, is_wanted)
        if self.replay is None or self.inputs is None:
            self._refuse(found)
        return found

    def _partial(self, came: int, is_wanted: Callable[[GradNode], bool]) -> list[GradNode]:
        nodes = [node for mask, output in self.partly if mask & came and (node := output()) is not None]
        return [node for node in nodes if is_wanted(node)]

    def _refuse(self, found: Sequence[GradNode]) -> None:
        if found:
            raise self._not_known()

    def _not_known(self) -> AutogradError:
        return AutogradError(
            f"the gradient of a tensor that {self.name} returns, and uses itself, is not known outside of it",
            expected="a hook, retain_grad() or a wanted gradient of a tensor that is not used before it is "
            "returned, or before the graph breaks",
            remedy="register the hook, or call retain_grad(), inside the compiled function",
        )

    def _begin(self, grads: Sequence[object]) -> int:
        """The mask of the outputs that a pass has gradients of. Raises AutogradError if what it reads is gone."""
        came = self.came = sum(1 << t for t, grad in enumerate(grads) if grad is not None)
        if self.used and self.used & self.backward.source.exact_needs.met_by(came):
            raise freed_error()
        self._check_versions(came)
        return came

    def again(self, grads: Sequence[object], edges: Sequence[Edge]) -> tuple[list[Tensor], list[Tensor]]:
        """(inputs, outputs) of the call, computed again on the tape. grads: of a pass. edges: behind the inputs."""
        self._begin(grads)
        if self.replay is None or self.inputs is None:
            raise self._not_known()
        return self.replay(self.inputs, edges, self.hooks)

    def release(self) -> bool:
        """The pass that ran last frees what it needs. Returns whether other outputs may still be differentiated."""
        if not self.outputs:
            return False
        self.used |= self.came
        left = self._left()
        if left:
            places = self.backward.places_for(left)
            if places is not None:
                self.values = [v if k in places else EMPTY for k, v in enumerate(self.values)]
        return bool(left)

    def _alive(self) -> list[int]:
        return [t for t, output in enumerate(self.outputs) if output() is not None]

    def _left(self) -> int:
        """The mask of the outputs that may be differentiated after the pass that runs: those that share nothing with
        what was."""
        alive = self._alive()
        if all(self.came >> t & 1 for t in alive) and not self.backward.layout.needs.separable:
            return 0
        together, used = self.backward.source.exact_needs.together, self.used | self.came
        return sum(1 << t for t in alive if not together[t] & used)

    @property
    def is_needed_again(self) -> bool:
        """Whether another pass may read the saved values after the one that runs."""
        return not self.is_last or bool(self._left())

    def _check_versions(self, came: int) -> None:
        """Raise AutogradError if what the backward of these outputs reads, here or on the tape, has changed."""
        self.check()
        for found, version, mask, place, is_input in self.watched:
            root = found()
            if root is None or root.version == version or not mask & came:
                continue
            if self._is_read(place, came, is_input=is_input):
                raise self._changed(version, root)

    def _is_read(self, place: int, came: int, *, is_input: bool) -> bool:
        """Whether the tape would read that input or result, too: equal tensors of a simplified graph are one."""
        return self.backward.source.exact_needs.reads(place, came, is_input=is_input)

    def _changed(self, version: int, cell: Cell) -> AutogradError:
        return AutogradError(
            f"a value needed for the gradient was changed in place: the backward of {self.name} reads it",
            expected=f"version {version}",
            got=f"version {cell.version} of an array {cell.value.shape}",
            remedy="call backward() before changing it, or clone() what is to be changed, or was",
        )

    def check(self, places: Collection[int] | None = None) -> None:
        """Raise AutogradError if what is to be read at one of `places` (None: at any) has changed."""
        first, came = len(self.backward.layout.saved), self.came
        for place, cell, version in zip(self.read_at, self.cells, self.versions):
            if cell.version != version and (places is None or place in places):
                here, on_tape = self.backward.layout.masks[place - first]
                is_read = on_tape & came and self._is_read(
                    self.backward.layout.inputs[place - first], came, is_input=True
                )
                if is_read or (here & came and not _is_intact(self.values[place], cell, version)):
                    raise self._changed(version, cell)
