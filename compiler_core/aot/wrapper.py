"""Runs a compiled forward, and its compiled backward when the tape reaches it.

In: the executables of one compiled entry and its `GradientPlan`. Out: arrays forward, gradients backward.
A backward pass is a list of steps made at compile time: which values each segment reads (places in one flat list of
saved values, inputs and tangents), which it makes, which of those are gradients. So a step at run time is a few list
operations around one native call. A `Cut` is replaced as a whole when its owner would cut otherwise (DDP: another
bucket plan); the forward stays as it is.
Errors: AutogradError if a value the backward reads was changed in place after the forward. Differentiating twice is
refused by the tape (`record_function`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from threading import Lock

import numpy as np

from compiler_core import observe
from compiler_core.aot.joint import Joint
from compiler_core.aot.partition import Partition
from compiler_core.aot.strategy import BackwardSession, Gradient, GradientPlan, Segment
from compiler_core.backend import Executable
from compiler_core.dtype import float32
from compiler_core.errors import AutogradError, GraphError
from compiler_core.graph.ir import Graph, Placeholder
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import Array
from compiler_core.runtime.memory import OutputPool
from compiler_core.tensor.cell import Cell

SCALE = -1  # the place of the session's scale in float32; SCALE - 1 in float64
_pooling = Lock()  # ranks may be threads that share a compiled function
SCALE_DTYPES = {SCALE: np.float32, SCALE - 1: np.float64}


@dataclass(frozen=True, slots=True)
class Step:
    """One segment of a backward.

    reads: places of its inputs. makes: places of its outputs. gradients: (its output, output index of the backward).
    first: the number of its first part. parts: of each part that it announces, its gradients; empty if it is one part.
    pools: where gradients go that are announced, but have no place of their own, by output.
    """

    run: Executable
    reads: tuple[int, ...]
    makes: tuple[int, ...]
    gradients: tuple[tuple[int, int], ...]
    first: int
    parts: tuple[tuple[tuple[int, int], ...], ...] = ()
    pools: Mapping[int, OutputPool] = field(default_factory=dict)


class PartEvents:
    """Turns the signals of one running segment into news for the session. outs: where its outputs go."""

    __slots__ = ("outs", "session", "step")

    def __init__(self, step: Step, session: BackwardSession, outs: Sequence[Array | None]) -> None:
        self.step, self.session, self.outs = step, session, outs

    def signal(self, event: int) -> None:
        gradients = {index: out for k, index in self.step.parts[event] if (out := self.outs[k]) is not None}
        self.session.segment_done(self.step.first + event, gradients)

    def wait(self, event: int) -> None:
        raise GraphError(f"a backward waits for event {event}: only forwards may")


@dataclass(frozen=True, slots=True)
class Cut:
    """The segments of a backward, ready to run. size: places in all."""

    plan: GradientPlan
    steps: tuple[Step, ...]
    size: int


@dataclass(slots=True)
class CompiledBackward:
    """The backward of one compiled entry.

    saved: which forward outputs it reads. inputs: which forward inputs it reads; they come after those.
    tangents: the meta of each; they come last. wanted: output index -> forward input. reaches: see `Joint`.
    recut: plans and compiles the segments again. former: cuts that were used before, for plans that come back.
    """

    cut: Cut
    saved: tuple[int, ...]
    inputs: tuple[int, ...]
    tangents: tuple[TensorMeta, ...]
    wanted: tuple[int, ...]
    reaches: tuple[int, ...]
    recut: Callable[[], Cut]
    former: list[Cut] = field(default_factory=list)

    def run(self, values: list[Array], grads: Sequence[Array | None], ticket: object) -> list[Gradient]:
        """One backward pass. values: those saved, then the inputs read. Returns a gradient for each input `wanted`."""
        if self.cut.plan.is_stale:
            self.cut = self._other_cut()
        cut = self.cut
        tangents = [
            np.zeros(meta.shape, meta.dtype.numpy) if grad is None else _dense(grad)
            for grad, meta in zip(grads, self.tangents)
        ]
        places: list[Array] = [*values, *tangents, *(EMPTY,) * (cut.size - len(values) - len(tangents))]
        missing = self._missing(grads)
        session = cut.plan.begin(ticket, missing)
        found: dict[int, Gradient] = {}
        for step in cut.steps:
            observe.segment(step.first)
            reads = [places[i] if i >= 0 else np.asarray(session.scale(), SCALE_DTYPES[i]) for i in step.reads]
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
                session.segment_done(step.first, gradients)
        found.update(session.finish())
        return [None if i in missing else found[i] for i in range(len(self.wanted))]

    def _other_cut(self) -> Cut:
        """The cut that the strategy wants by now: one that was used before, or a new one."""
        self.former = [*self.former[-FORMER_CUTS + 1 :], self.cut]
        for place, cut in enumerate(self.former):
            if not cut.plan.is_stale:
                return self.former.pop(place)
        return self.recut()

    def _missing(self, grads: Sequence[Array | None]) -> Set[int]:
        """The outputs that no cotangent that came reaches."""
        if all(grad is not None for grad in grads):
            return NOTHING
        came = sum(1 << t for t, grad in enumerate(grads) if grad is not None)
        return frozenset(i for i, reached in enumerate(self.reaches) if reached and not reached & came)


def _dense(array: Array) -> Array:
    """`array`, contiguous: the tangent of a sum is one number, expanded, and native calls are slow on such arrays."""
    return array if array.flags.c_contiguous else np.array(array, order="C")


FORMER_CUTS = 16  # kept of one backward: tuning goes to and fro between plans
NOTHING: frozenset[int] = frozenset()
EMPTY = np.empty(0, np.float32)


class BackwardCall:
    """What the tape holds for one compiled call: its saved values, until they are used or freed."""

    __slots__ = ("backward", "cells", "name", "ticket", "values", "versions")

    def __init__(
        self, name: str, backward: CompiledBackward, values: list[Array], cells: Sequence[Cell], ticket: object
    ) -> None:
        self.name, self.backward, self.values, self.cells, self.ticket = name, backward, values, cells, ticket
        self.versions = [cell.version for cell in cells]

    def __call__(self, grads: Sequence[Array | None]) -> list[Gradient]:
        for cell, version in zip(self.cells, self.versions):
            if cell.version != version:
                raise AutogradError(
                    f"a tensor that the backward of {self.name} reads was changed in place after the forward",
                    expected=f"version {version}",
                    got=f"version {cell.version} of an array {cell.value.shape}",
                    remedy="call backward() before changing it, or give the compiled function a clone()",
                )
        return self.backward.run(self.values, grads, self.ticket)


def link_backward(joint: Joint, parts: Partition, cut: Cut, recut: Callable[[], Cut]) -> CompiledBackward:
    """What the tape runs for a compiled call."""
    forward_inputs = {node.name: i for i, node in enumerate(parts.forward.inputs)}
    read, tangents = _inputs(parts)
    return CompiledBackward(
        cut,
        parts.saved,
        tuple(forward_inputs[node.name] for node in read),
        tuple(node.meta for node in tangents),
        joint.gradients,
        joint.reaches,
        recut,
    )


def _inputs(parts: Partition) -> tuple[list[Placeholder], list[Placeholder]]:
    """The forward inputs that the backward reads, and its tangents."""
    inputs = parts.backward.inputs
    read = [node for node in inputs if node.role not in ("saved", "tangent")]
    return read, [node for node in inputs if node.role == "tangent"]


def link_segments(parts: Partition, plan: GradientPlan, executables: Sequence[Executable]) -> Cut:
    """Fix the places of all values that the segments of `plan` exchange. Raises GraphError if they do not fit."""
    graph = parts.backward
    places = {parts.forward.outputs[i].name: place for place, i in enumerate(parts.saved)}
    read, tangents = _inputs(parts)
    for node in (*read, *tangents):
        places[node.name] = len(places)
    steps: list[Step] = []
    number = 0
    for segment, run in zip(plan.segments, executables, strict=True):
        reads = tuple(_place(node, places, segment.graph) for node in segment.graph.inputs)
        makes = tuple(places.setdefault(node.name, len(places)) for node in segment.graph.outputs)
        gradients = tuple((k, index) for k, index in enumerate(segment.outputs) if index is not None)
        announced = _parts(segment)
        pools = {k: OutputPool(segment.graph.outputs[k].meta) for part in announced for k, _ in part}
        steps.append(Step(run, reads, makes, gradients, number, announced, pools))
        number += max(1, len(announced))
    _check_complete(graph, [index for step in steps for _, index in step.gradients])
    return Cut(plan, tuple(steps), len(places))


def _parts(segment: Segment) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Of each part that the segment announces: (its output, output index of the backward)."""
    outputs = segment.outputs
    return tuple(
        tuple((k, index) for k in signal if (index := outputs[k]) is not None) for signal in segment.graph.signals
    )


def _place(node: Placeholder, places: dict[str, int], graph: Graph) -> int:
    if node.role == "scale":
        return SCALE if node.dtype is float32 else SCALE - 1
    if node.name not in places:
        raise GraphError(f"segment {graph.name} reads %{node.name}, which nothing before it makes")
    return places[node.name]


def _check_complete(graph: Graph, made: Sequence[int]) -> None:
    expected = list(range(len(graph.outputs)))
    if sorted(made) != expected:
        raise GraphError(
            f"the segments of {graph.name} do not make each gradient once",
            expected=str(expected),
            got=str(sorted(made)),
        )
