"""The joint graph: a forward Graph continued by its own gradient, through each op's `vjp` (the rules the tape uses).

In: a forward Graph and which of its inputs want gradients.
Out: `Joint`, whose graph takes (forward inputs..., tangents...) and returns (forward outputs..., gradients...).
Method: one reverse sweep over the forward's calls; contributions to a value are added up in the order they come, so a
gradient is complete at its last contribution and the natural order of the backward is reverse layer order.
Invariants: a gradient has its input's shape and dtype; every backward node carries the location and the region of the
forward node it belongs to. An input without a path to any output gets no gradient (None to the tape), as in torch; one
whose paths all pass through piecewise constant ops (round, sign) gets zeros, as from the tape: weight decay reaches it.
At a boundary (hooks, rules that are not traced) the sweep stops and goes on from new inputs: see `stops.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from compiler_core.aot.boundary import (
    GRADIENT_BOUNDARY,
    OPAQUE_BACKWARD,
    boundary_groups,
    is_boundary,
    passes_gradients,
    saved_of,
    sources_of,
)
from compiler_core.aot.custom_gradient import gradient_operands, rule_cotangents, rule_groups
from compiler_core.aot.stops import Stop
from compiler_core.errors import GraphError
from compiler_core.graph.ir import Call, Graph, GraphBuilder, Node
from compiler_core.graph.kept import number_of
from compiler_core.ops import prims
from compiler_core.ops.primitives.convert import DETACH
from compiler_core.ops.primitives.custom_gradient import CUSTOM_GRADIENT
from compiler_core.ops.registry import Attrs, NotDifferentiable, Op, Value, bind, use_trace
from compiler_core.records import dataclass


@dataclass(frozen=True, slots=True)
class Joint:
    """A joint graph and what its inputs and outputs stand for.

    outputs: how many of the graph's first outputs are the forward's. After them come the gradients, then what stops
    read. Inputs: the forward's, the tangents, what stops make (role "hooked").
    tangents[k]: the forward output whose cotangent is tangent input k.
    gradients[k]: the forward input whose gradient is gradient output k.
    reaches[k]: the mask of the arrivals (`stops.py`) that have a path to that input. A backward in which none of these
        came gives the input no gradient (None, as from the tape), though its graph computes zeros.
    stops: in the order of the backward. stages[k]: the stage at whose end gradient k is complete. turns: in which order
    the gradients are. is_ordered: what a tangent reaches runs in the order in which it stands.
    """

    graph: Graph
    outputs: int
    tangents: tuple[int, ...]
    gradients: tuple[int, ...]
    reaches: tuple[int, ...]
    stops: tuple[Stop, ...] = ()
    stages: tuple[int, ...] = ()
    turns: tuple[int, ...] = ()
    is_ordered: bool = False

    @property
    def output_stages(self) -> list[int]:
        """The stage of each output of the backward: gradients, then what stops read."""
        reads = {k: h for h, stop in enumerate(self.stops) for k in _reads(stop)}
        return [*self.stages, *(reads[k] for k in sorted(reads))]


def _reads(stop: Stop) -> list[int]:
    return [*(cotangent[0] for cotangent in stop.cotangents if cotangent is not None), *stop.saved]


def differentiable_nodes(forward: Graph, wanted: Sequence[bool]) -> set[Node]:
    """The nodes through which gradients flow to an input that is `wanted`."""
    flows: set[Node] = {node for node, want in zip(forward.inputs, wanted, strict=True) if want}
    for call in forward.calls:
        if call.dtype.is_inexact and call.op is not DETACH and passes_gradients(call, flows):
            flows.add(call)
    return flows


def make_joint(
    forward: Graph, wanted: Sequence[bool], *, results: int | None = None, hooks: bool = True, remakes: bool = False
) -> Joint:
    """The joint graph of `forward`.

    wanted[i]: whether input i takes a gradient. results: how many of the first outputs have cotangents (the others are
    written back to where they came from); None: all. hooks: whether to stop at hooks; gradients pass them else.
    remakes: whether rules get results made anew that the tape would make anew for them (`Op.remakes_out`).
    """
    flows = differentiable_nodes(forward, wanted)
    builder = _JointBuilder(forward)
    cotangents = Cotangents(builder, flows)
    tangents = tuple(i for i, node in enumerate(forward.outputs[:results]) if node in flows)
    stops = _Stops(builder, cotangents, len(tangents))
    with use_trace(builder):
        for i in tangents:
            meta = forward.outputs[i].meta
            tangent = builder.placeholder(f"tangent_{i}", meta, role="tangent", source=f"tangents[{i}]")
            cotangents.add(forward.outputs[i], tangent)
        for bit, i in enumerate(tangents):
            stops.reach(forward.outputs[i], 1 << bit)
        _go_back(forward.calls, builder, cotangents, stops, hooks=hooks, remakes=remakes)
    inputs = forward.inputs
    gradients = tuple(i for i, node in enumerate(inputs) if node in cotangents.table)
    found = [cotangents.table[inputs[i]] for i in gradients]
    return Joint(
        builder.build([*forward.outputs, *found, *stops.reads]),
        len(forward.outputs),
        tangents,
        gradients,
        tuple(stops.reached[inputs[i]] for i in gradients),
        stops.finished(len(gradients)),
        tuple(cotangents.stage[inputs[i]] for i in gradients),
        tuple(sorted(range(len(gradients)), key=lambda k: cotangents.turn[inputs[gradients[k]]])),
    )


def _go_back(
    calls: Sequence[Call],
    builder: _JointBuilder,
    cotangents: Cotangents,
    stops: _Stops,
    *,
    hooks: bool,
    remakes: bool,
) -> None:
    """Cotangents go back through the calls, the last first."""
    groups, rules = boundary_groups(calls), rule_groups(calls)
    for call in reversed(calls):
        builder.location, builder.region = call.location, number_of(call.region)
        if is_boundary(call):
            if call.op is GRADIENT_BOUNDARY and not hooks:
                stops.pass_on(call)
            elif call in groups:
                stops.stop(groups[call])
        elif call in rules:
            cotangents.add_all(rule_cotangents(rules[call], cotangents.table))
            stops.pass_back(rules[call])
        elif call in cotangents.table and call.op is not CUSTOM_GRADIENT:
            cotangents.add_all(pull_back(call, cotangents.table[call], remakes))
            stops.pass_back([call])


class _JointBuilder(GraphBuilder):
    """Continues `forward`; what is bound gets the current location."""

    def __init__(self, forward: Graph) -> None:
        super().__init__(forward.name)
        self.device = forward.device
        inputs = forward.inputs
        self.placeholders.extend(inputs)
        self.body.extend(forward.nodes[len(inputs) :])
        self._counts = {node.name: 1 for node in forward.nodes}
        self.location = ""

    def bind(self, op: Op, values: tuple[Value, ...], attrs: Attrs) -> Value:
        args = [value if isinstance(value, Node) else self.constant(value) for value in values]
        return self.call(op, args, attrs, location=self.location)


class Cotangents:
    """Node -> the sum of what flowed back into it so far. Nodes through which no gradient flows are not kept."""

    def __init__(self, builder: GraphBuilder, flows: set[Node]) -> None:
        self.builder, self.flows = builder, flows
        self.table: dict[Node, Node] = {}
        self.stage: dict[Node, int] = {}  # in which the last contribution came
        self.stage_now = 0
        self.turn: dict[Node, int] = {}  # the number of the last contribution
        self.turns = 0

    def add_all(self, parts: Iterable[tuple[Node, Value | None]]) -> None:
        """Add what one call hands back; what goes to one operand twice (x * x) is added up first."""
        sums: dict[Node, Value] = {}
        for node, contribution in parts:
            if contribution is not None and node in self.flows:
                sums[node] = contribution if node not in sums else prims.add(sums[node], contribution)
        for node, value in sums.items():
            self.add(node, value)

    def add(self, node: Node, contribution: Value) -> None:
        """Add to what flowed back into `node`."""
        value = contribution if isinstance(contribution, Node) else self.builder.constant(contribution)
        if value.meta != node.meta:
            raise GraphError(
                f"a vjp gave %{node.name} a cotangent that does not fit it",
                where=getattr(node, "location", ""),
                expected=str(node.meta),
                got=str(value.meta),
            )
        self.stage[node] = self.stage_now
        self.turns += 1
        self.turn[node] = self.turns
        before = self.table.get(node)
        if before is None or _is_zero(before):
            self.table[node] = value
        elif not _is_zero(value):
            self.table[node] = prims.add(before, value)


class _Stops:
    """The stops met so far, what they read, and node -> the mask of the arrivals that reach it."""

    def __init__(self, builder: GraphBuilder, cotangents: Cotangents, tangents: int) -> None:
        self.builder, self.cotangents = builder, cotangents
        self.reads: list[Node] = []
        self.reached: dict[Node, int] = {}
        self._stops: list[Stop] = []
        self._hooked = 0
        self._tangents = tangents

    def reach(self, node: Node, mask: int) -> None:
        """What `mask` stands for has a path to `node`."""
        if mask and node in self.cotangents.flows:
            self.reached[node] = self.reached.get(node, 0) | mask

    def pass_back(self, calls: Sequence[Call]) -> None:
        """What has a path to any of `calls`, of one rule, has one to their operands."""
        for mask in [self.reached.get(call, 0) for call in calls]:
            for arg in gradient_operands(calls[0]):
                self.reach(arg, mask)

    def pass_on(self, call: Call) -> None:
        """Gradients pass `call` as they are."""
        if call in self.cotangents.table:
            self.cotangents.add_all([(call.args[0], self.cotangents.table[call])])
            self.reach(call.args[0], self.reached[call])

    def stop(self, group: Sequence[Call]) -> None:
        """Stop at a boundary, whose calls are `group`; if no gradient can come to it, nothing is behind it either."""
        table, first = self.cotangents.table, group[0]
        if not any(call in table for call in group):
            return
        slots = {call.attrs["slot"]: (self._read(table[call]), self.reached[call]) for call in group if call in table}
        saved = tuple(self._read(node) for node in saved_of(first))
        number, sources, is_rule = first.attrs["boundary"], sources_of(first), first.op is OPAQUE_BACKWARD
        self.cotangents.stage_now += 1
        made = tuple(self._make(node, f"hooks[{number}][{k}]") for k, node in enumerate(sources))
        cotangents = tuple(slots.get(slot) for slot in range(first.attrs["width"]))
        self._stops.append(Stop(number, is_rule, cotangents, saved, tuple(node.meta for node in sources), made))

    def _read(self, node: Node) -> int:
        self.reads.append(node)
        return len(self.reads) - 1

    def _make(self, node: Node, source: str) -> tuple[int, int] | None:
        """A hooked placeholder that is a gradient of `node`."""
        if node not in self.cotangents.flows:
            return None
        number, bit = self._hooked, 1 << (self._tangents + self._hooked)
        self._hooked += 1
        hooked = self.builder.placeholder(f"hooked_{number}", node.meta, role="hooked", source=source)
        self.cotangents.add_all([(node, hooked)])
        self.reach(node, bit)
        return number, bit

    def finished(self, gradients: int) -> tuple[Stop, ...]:
        """All stops; what they read comes after so many gradients."""
        return tuple(
            replace(
                stop,
                cotangents=tuple(None if c is None else (c[0] + gradients, c[1]) for c in stop.cotangents),
                saved=tuple(k + gradients for k in stop.saved),
            )
            for stop in self._stops
        )


def _is_zero(value: Node) -> bool:
    """Whether `value` is the zeros that a piecewise constant op hands back."""
    return isinstance(value, Call) and value.op.name == "full" and value.attrs["value"] == 0


def pull_back(call: Call, cotangent: Node, remakes: bool) -> list[tuple[Node, Value | None]]:
    """(operand, its share of the cotangent of `call`); of a piecewise constant op, zeros, as on the tape."""
    if isinstance(call.op.vjp, NotDifferentiable):
        return [(arg, prims.full(arg.shape, 0, arg.dtype)) for arg in call.args if arg.dtype.is_inexact]
    out = bind(call.op, *call.args, **call.attrs) if remakes and call.op.remakes_out else call
    return list(zip(call.args, call.op.vjp(cotangent, out, *call.args, **call.attrs), strict=True))
