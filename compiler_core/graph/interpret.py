"""Runs a Graph op by op: the living definition of what a graph means, and the oracle of all generated code.

In: a Graph and one value a placeholder (arrays, Tensors, or nodes of another trace: anything `bind` takes).
Out: one value an output. On arrays every op is `Op.eager`; on Tensors the autograd tape records; on nodes the graph is
inlined into the current trace. A value is dropped after its last use, so peak memory is that of a good program.
Events: an input that waits is waited for before the first call that takes it; an output is announced once it is in
its place.
Sizes that the call decides are what the inputs' shapes say (input_sizes.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from compiler_core.device import device_of
from compiler_core.errors import GraphError
from compiler_core.events import Events
from compiler_core.graph.input_sizes import Numbers, numbers_of
from compiler_core.graph.ir import Call, Constant, Graph, Node
from compiler_core.ops.registry import Array, Value, bind, current_trace, meta_of
from compiler_core.symbolic.size import at_sizes

Override: TypeAlias = Callable[[Call, Mapping[Node, Value]], Mapping[Node, Value] | None]


def interpret(
    graph: Graph,
    inputs: Sequence[Value],
    outs: Sequence[Array | None] | None = None,
    events: Events | None = None,
    *,
    override: Override | None = None,
) -> list[Value]:
    """The outputs of `graph` on `inputs`. outs[i], where given, receives output i in place and is returned for it.

    override: asked before each call; the values it gives (of that call and of others) are taken instead of running it.
    events: whom the graph's events go to; None: nobody, and all inputs may be read from the start.
    Raises GraphError if an input's shape or dtype is not its placeholder's.
    """
    numbers = numbers_of(graph, [value.shape for value in inputs]) if len(inputs) == len(graph.inputs) else {}
    environment = _bind_inputs(graph, inputs, numbers)
    places = list(outs) if outs is not None else [None] * len(graph.outputs)
    announcer = None if events is None else _Announcer(graph, events, places)
    on_arrays = all(isinstance(value, np.ndarray) for value in inputs) and current_trace() is None
    dying = _last_uses(graph)
    for node in graph.nodes:
        if announcer is not None:
            announcer.before(node)
        if isinstance(node, Call) and node not in environment:
            given = None if override is None else override(node, environment)
            environment.update({node: _run(node, environment, numbers, on_arrays)} if given is None else given)
        elif isinstance(node, Constant):
            environment[node] = node.array
        if announcer is not None:
            announcer.after(node, environment)
        for dead in dying.get(node, ()):
            del environment[dead]
    delivered = {} if announcer is None else announcer.finish(environment)
    results = [environment[node] for node in graph.outputs]
    if outs is None and announcer is None:
        return results
    return [delivered[k] if k in delivered else _deliver(results[k], out) for k, out in enumerate(places)]


class _Announcer:
    """Waits for and signals the events of one run. places: where each output goes, if the caller said so."""

    def __init__(self, graph: Graph, events: Events, places: Sequence[Array | None]) -> None:
        self.graph, self.events, self.places = graph, events, places
        inputs = graph.inputs
        self.event_of: dict[Node, int] = {inputs[i]: k for k, wait in enumerate(graph.waits) for i in wait}
        self.waiting = set(range(len(graph.waits)))
        self.left = [{graph.outputs[i] for i in signal} for signal in graph.signals]
        self.delivered: dict[int, Value] = {}

    def before(self, node: Node) -> None:
        """`node` is about to run."""
        for operand in node.operands:
            self._wait(self.event_of.get(operand, -1))

    def _wait(self, event: int) -> None:
        if event in self.waiting:
            self.waiting.discard(event)
            self.events.wait(event)

    def after(self, node: Node, environment: Mapping[Node, Value]) -> None:
        """`node` has run: signal the events that waited for it."""
        for event, left in enumerate(self.left):
            if node in left:
                self._wait(self.event_of.get(node, -1))  # an input that is returned as it is
                left.discard(node)
                if not left:
                    self._signal(event, environment)

    def _signal(self, event: int, environment: Mapping[Node, Value]) -> None:
        for k in self.graph.signals[event]:
            self.delivered[k] = _deliver(environment[self.graph.outputs[k]], self.places[k])
        self.events.signal(event)

    def finish(self, environment: Mapping[Node, Value]) -> Mapping[int, Value]:
        """At the end: the events that no call has met. Returns the outputs that are in their places."""
        for event in sorted(self.waiting):
            self._wait(event)
        for event, signal in enumerate(self.graph.signals):
            if not signal:
                self._signal(event, environment)
        return self.delivered


def _run(call: Call, environment: Mapping[Node, Value], numbers: Numbers, on_arrays: bool) -> Value:
    operands = [environment[arg] for arg in call.args]
    attrs = {key: at_sizes(value, numbers) for key, value in call.attrs.items()} if numbers else call.attrs
    if on_arrays:
        return np.asarray(call.op.eager(np, *operands, **attrs))
    return bind(call.op, *operands, **attrs)


def _bind_inputs(graph: Graph, inputs: Sequence[Value], numbers: Numbers) -> dict[Node, Value]:
    placeholders = graph.inputs
    if len(placeholders) != len(inputs):
        raise GraphError(f"graph {graph.name} takes {len(placeholders)} inputs", got=f"{len(inputs)}")
    for node, value in zip(placeholders, inputs):
        if meta_of(value) != node.meta.with_shape(at_sizes(node.shape, numbers)):
            raise GraphError(
                f"graph {graph.name}: input %{node.name} does not fit", expected=str(node.meta), got=str(meta_of(value))
            )
    return dict(zip(placeholders, inputs))


def _last_uses(graph: Graph) -> dict[Node, list[Node]]:
    """Node -> the values that no node after it reads and that are not returned."""
    last = {node: node for node in graph.nodes}
    for call in graph.calls:
        for arg in call.args:
            last[arg] = call
    table: dict[Node, list[Node]] = {}
    kept = set(graph.outputs)
    for value, user in last.items():
        if value not in kept:
            table.setdefault(user, []).append(value)
    return table


def _deliver(value: Value, out: Array | None) -> Value:
    if out is None:
        return value
    out[...] = value if type(value) is type(out) else device_of(out).put(value)
    return out
