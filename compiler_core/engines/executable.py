"""Runs the segments of a cut graph in order: one `Executable` (backend.py) of programs of an engine and of our own.

In: a graph, and `Step`s: what runs, and which of the graph's nodes it reads and gives. Out: `Segmented`.
A result goes straight to the place that the caller named for it, unless an input may lie there: then it is copied when
all has run. A value is dropped after the last step that reads it. Events come before the first step and after the last:
an engine tells nothing in between.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from compiler_core.engines.engine import Places
from compiler_core.errors import BackendError
from compiler_core.events import Events
from compiler_core.graph.ir import Constant, Graph, Node
from compiler_core.ops.registry import Array, meta_of
from compiler_core.records import dataclass

Run: TypeAlias = Callable[[Sequence[Array], Places], Sequence[Array]]


@dataclass(frozen=True, slots=True)
class Step:
    """One segment: `run(inputs, places)` gives its outputs."""

    run: Run
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]


class Segmented:
    """The steps of a graph as one executable."""

    def __init__(self, graph: Graph, steps: Sequence[Step], name: str) -> None:
        self.graph, self.steps, self.name = graph, steps, name
        self._first_place = {node: k for k, node in reversed([*enumerate(graph.outputs)])}
        self._dying = self._last_reads()
        self._fits = False  # whether results were what the graph says, once

    def _last_reads(self) -> list[list[Node]]:
        """Of each step, the values that nobody reads after it."""
        seen, dying = set(self.graph.outputs), []
        for step in reversed(self.steps):
            dying.append([node for node in (*step.inputs, *step.outputs) if node not in seen])
            seen.update(step.inputs)
        return dying[::-1]

    def __call__(
        self, inputs: Sequence[Array], outs: Places | None = None, events: Events | None = None
    ) -> list[Array]:
        if events is not None:
            for event in range(len(self.graph.waits)):
                events.wait(event)
        places = list(outs) if outs is not None else [None] * len(self.graph.outputs)
        results = self._run(inputs, [None if p is None or _is_shared(p, inputs) else p for p in places])
        for k, place in enumerate(places):
            if place is not None and results[k] is not place:
                place[...] = results[k]
                results[k] = place
        if events is not None:
            for event in range(len(self.graph.signals)):
                events.signal(event)
        return results

    def _run(self, inputs: Sequence[Array], places: Places) -> list[Array]:
        values: dict[Node, Array] = dict(zip(self.graph.inputs, inputs, strict=True))
        values.update((node, node.array) for node in self.graph.outputs if isinstance(node, Constant))
        for step, dying in zip(self.steps, self._dying):
            first = [self._first_place.get(node) for node in step.outputs]
            given = step.run([values[node] for node in step.inputs], [None if k is None else places[k] for k in first])
            if not self._fits:
                self._check(step, given)
            values.update(zip(step.outputs, given, strict=True))
            for node in dying:
                values.pop(node, None)
        self._fits = True
        return [values[node] for node in self.graph.outputs]

    def _check(self, step: Step, given: Sequence[Array]) -> None:
        """Raise BackendError where results are not of the metas that the graph says."""
        expected, got = [node.meta for node in step.outputs], [meta_of(value) for value in given]
        if expected != got:
            raise BackendError(
                f"what {self.name} made of {self.graph.name} returned something else",
                expected=", ".join(map(str, expected)),
                got=", ".join(map(str, got)),
            )


def _is_shared(place: Array, inputs: Sequence[Array]) -> bool:
    """Whether a place is no contiguous memory of its own: an input may lie there."""
    if type(place) is not np.ndarray or not place.flags.c_contiguous:
        return True
    start = place.__array_interface__["data"][0]
    ends = sorted(_range(array) for array in inputs if type(array) is np.ndarray)
    at = bisect_left(ends, (start + place.nbytes, 0))
    return any(end > start for _, end in ends[:at])


def _range(array: Array) -> tuple[int, int]:
    """The first and the last byte's address, the latter plus one."""
    low, high = np.lib.array_utils.byte_bounds(array)
    return int(low), int(high)
