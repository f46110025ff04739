"""A compiled graph whose collectives are under way while it computes: `Executable` around `Executable`.

In: what the backend made of a graph whose collectives are events (`graph/passes/launch.py`), and what is launched.
Out: an executable of the graph as it was. A call launches all its collectives, held, in the graph's order; the native
code says when an operand is complete, and waits right before it reads a result. When the call returns, all of them are
done. The caller's own events keep their numbers; those of the collectives come behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compiler_core.backend import Executable, Spends, WritesOver, stack_of
from compiler_core.events import Events
from compiler_core.graph.passes.launch import Launched
from compiler_core.meta import TensorMeta
from compiler_core.ops.collectives.runner import runner
from compiler_core.ops.registry import Array


class Launching:
    """See the head of this file. signals, waits: how many events of the graph are the caller's."""

    def __init__(self, run: Executable, plan: Launched, signals: int, waits: int) -> None:
        self.run, self.plan, self.signals, self.waits = run, plan, signals, waits
        self.over_inputs: frozenset[tuple[int, int]] = frozenset()
        self._spending = run.spend if isinstance(run, Spends) else run  # asked once: a Protocol takes long to tell
        self._made: Callable[[int, Array], bool] | None = None
        if isinstance(run, WritesOver):
            self._made = run.made
            self.over_inputs = frozenset(
                (plan.kept[output], place)
                for output, place in run.over_inputs
                if output < len(plan.kept) and place < plan.inputs
            )
        self.stack = stack_of(run)
        self.spends: tuple[int, ...] = tuple(k for k in getattr(run, "spends", ()) if k < plan.inputs)
        self.place = {old: new for new, old in enumerate(plan.kept)}
        if hasattr(run, "working_nbytes"):
            self._take_over(run)

    def _take_over(self, run: Any) -> None:
        """What it takes (`aot/memory.py`), where the executable knows: of its arena, and of what collectives write."""
        launches = self.plan.launches
        results = [part.result for launch in launches for part in launch.parts]
        metas = dict(zip(self.plan.kept, run.output_metas)) | {output: results[k] for output, k in self.plan.shown}
        self.output_metas: list[TensorMeta] = [metas[k] for k in range(self.plan.outputs)]
        travels = sum(
            part.result.nbytes + (0 if launch.in_place else part.operand.nbytes)
            for launch in launches
            for part in launch.parts
        )
        self.working_nbytes: int = run.working_nbytes + travels

    def made(self, output: int, array: Array) -> bool:
        """Whether an array is memory for an output that is handed out again."""
        return self._made is not None and output in self.place and self._made(self.place[output], array)

    def __call__(
        self, inputs: Sequence[Array], outs: Sequence[Array | None] | None = None, events: Events | None = None
    ) -> list[Array]:
        return self._call(self.run, inputs, outs, events)

    def spend(
        self, inputs: Sequence[Array], outs: Sequence[Array | None] | None = None, events: Events | None = None
    ) -> list[Array]:
        """As a call; but the inputs that it `spends` are written over."""
        return self._call(self._spending, inputs, outs, events)

    def _call(
        self, run: Executable, inputs: Sequence[Array], outs: Sequence[Array | None] | None, events: Events | None
    ) -> list[Array]:
        plan = self.plan
        flight = runner().launch(plan.launches, plan.shown)
        try:
            places = [None if outs is None else outs[k] for k in plan.kept]
            places += [place for group in flight.operands for place in group]
            results = [array for group in flight.results for array in group]
            news = flight.events
            if self.signals or self.waits:
                news = _Both(events, flight.events, self.signals, self.waits)
            made = run([*inputs, *results], places, news)
        except BaseException:
            flight.fail()
            raise
        flight.land()
        found: list[Array] = made[: len(plan.kept)]
        if plan.shown:
            found = self._with_results(found, results, outs)
        return found

    def _with_results(
        self, made: Sequence[Array], results: Sequence[Array], outs: Sequence[Array | None] | None
    ) -> list[Array]:
        """All outputs of the graph. Results that are some are given as they came, or copied where the caller said."""
        found = dict(zip(self.plan.kept, made))
        given: set[int] = set()
        for output, k in self.plan.shown:
            out = None if outs is None else outs[output]
            if out is not None:
                out[...] = results[k]
            found[output] = out if out is not None else results[k].copy() if k in given else results[k]
            given.add(k)
        return [found[k] for k in range(self.plan.outputs)]


class _Both:
    """The caller's events, and behind them those of the collectives."""

    def __init__(self, outer: Events | None, inner: Events, signals: int, waits: int) -> None:
        self.outer, self.inner, self.signals, self.waits = outer, inner, signals, waits

    def signal(self, event: int) -> None:
        if event >= self.signals:
            self.inner.signal(event - self.signals)
        elif self.outer is not None:
            self.outer.signal(event)

    def wait(self, event: int) -> None:
        if event >= self.waits:
            self.inner.wait(event - self.waits)
        elif self.outer is not None:
            self.outer.wait(event)
