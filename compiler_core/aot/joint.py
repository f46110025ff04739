"""The joint graph: a forward Graph continued by its own gradient, through each op's `vjp` (the rules the tape uses).

In: a forward Graph and which of its inputs want gradients.
Out: `Joint`, whose graph takes (forward inputs..., tangents...) and returns (forward outputs..., gradients...).
Method: one reverse sweep over the forward's calls; contributions to a value are added up in the order they come, so a
gradient is complete at its last contribution and the natural order of the backward is reverse layer order.
Invariants: a gradient has its input's shape and dtype; every backward node carries the location and the region of the
forward node it belongs to. An input without a path to any output gets no gradient (None to the tape), as in torch; one
whose paths all pass through piecewise constant ops (round, sign) gets zeros, as from the tape: weight decay reaches it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from compiler_core.aot.boundary import Boundary, boundary_cotangents, boundary_groups, is_boundary
from compiler_core.errors import GraphBreak, GraphError
from compiler_core.graph.ir import Call, Graph, GraphBuilder, Node
from compiler_core.location import user_location
from compiler_core.ops import prims
from compiler_core.ops.convert import DETACH
from compiler_core.ops.registry import Attrs, NotDifferentiable, Op, Value, use_trace
from compiler_core.tensor.cell import Cell


@dataclass(frozen=True, slots=True)
class Joint:
    """A joint graph and what its inputs and outputs stand for.

    outputs: how many of the graph's first outputs are the forward's.
    tangents[k]: the forward output whose cotangent is tangent input k.
    gradients[k]: the forward input whose gradient is gradient output k.
    reaches[k]: bit t is set if that input has a path to the forward output of tangent t. A backward in which none of
        those tangents came gives the input no gradient (None, as from the tape), though its graph computes zeros.
    """

    graph: Graph
    outputs: int
    tangents: tuple[int, ...]
    gradients: tuple[int, ...]
    reaches: tuple[int, ...]


def differentiable_nodes(forward: Graph, wanted: Sequence[bool]) -> set[Node]:
    """The nodes through which gradients flow to an input that is `wanted`."""
    flows: set[Node] = {node for node, want in zip(forward.inputs, wanted, strict=True) if want}
    for call in forward.calls:
        if call.dtype.is_inexact and call.op is not DETACH and any(arg in flows for arg in call.args):
            flows.add(call)
    return flows


def make_joint(
    forward: Graph,
    wanted: Sequence[bool],
    boundaries: Mapping[int, Boundary] | None = None,
    *,
    results: int | None = None,
    cells: Mapping[Cell, Node] | None = None,
) -> Joint:
    """The joint graph of `forward`.

    wanted[i]: whether input i takes a gradient. boundaries: see `boundary.py`. results: how many of the first outputs
    have cotangents (the others are written back to where they came from); None: all. cells: the tensors from outside
    that backward hooks may read, and the inputs that hold them. Raises GraphBreak for a hook that cannot be traced.
    """
    flows = differentiable_nodes(forward, wanted)
    builder = _JointBuilder(forward, cells or {})
    cotangents = _Cotangents(builder, flows)
    tangents = tuple(i for i, node in enumerate(forward.outputs[:results]) if node in flows)
    groups = boundary_groups(forward.calls)
    with use_trace(builder):
        for i in tangents:
            meta = forward.outputs[i].meta
            tangent = builder.placeholder(f"tangent_{i}", meta, role="tangent", source=f"tangents[{i}]")
            cotangents.add(forward.outputs[i], tangent)
        for call in reversed(forward.calls):
            builder.location, builder.region = call.location, call.region
            if call in groups:
                cotangents.add_all(boundary_cotangents(groups[call], cotangents.table, boundaries or {}))
            elif call in cotangents.table and not is_boundary(call):
                cotangents.add_all(_pull_back(call, cotangents.table[call]))
    inputs = forward.inputs
    gradients = tuple(i for i, node in enumerate(inputs) if node in cotangents.table)
    found = [cotangents.table[inputs[i]] for i in gradients]
    reached = reached_tangents(forward, flows, [forward.outputs[i] for i in tangents], groups)
    return Joint(
        builder.build([*forward.outputs, *found]),
        len(forward.outputs),
        tangents,
        gradients,
        tuple(reached.get(inputs[i], 0) for i in gradients),
    )


def reached_tangents(
    forward: Graph, flows: set[Node], outputs: Sequence[Node], groups: Mapping[Call, Sequence[Call]]
) -> dict[Node, int]:
    """Node -> a bit for each of `outputs` to which gradients flow from it. A boundary's hook may mix what passes it."""
    reached: dict[Node, int] = {}
    for bit, node in enumerate(outputs):
        reached[node] = reached.get(node, 0) | 1 << bit
    for call in reversed(forward.calls):
        members = groups.get(call, () if is_boundary(call) else (call,))
        bits = 0
        for member in members:
            bits |= reached.get(member, 0)
        for arg in (arg for member in members for arg in member.args):
            if bits and arg in flows:
                reached[arg] = reached.get(arg, 0) | bits
    return reached


class _JointBuilder(GraphBuilder):
    """Continues `forward`; what is bound gets the current location. Backward hooks see it as a `CellTrace`."""

    def __init__(self, forward: Graph, cells: Mapping[Cell, Node]) -> None:
        super().__init__(forward.name)
        inputs = forward.inputs
        self.placeholders.extend(inputs)
        self.body.extend(forward.nodes[len(inputs) :])
        self._counts = {node.name: 1 for node in forward.nodes}
        self.cells = cells
        self.location = ""

    def read_cell(self, cell: Cell, handle: object) -> Value:
        """The input that holds a tensor from outside."""
        if cell not in self.cells:
            raise _untraceable("reads a tensor that the forward does not")
        return self.cells[cell]

    def write_cell(self, cell: Cell, node: Value) -> None:
        """Not in a backward."""
        raise _untraceable("writes to a tensor from outside")

    def next_rng(self) -> tuple[Value, int]:
        """Not in a backward."""
        raise _untraceable("draws random numbers")

    def bind(self, op: Op, values: tuple[Value, ...], attrs: Attrs) -> Value:
        args = [value if isinstance(value, Node) else self.constant(value) for value in values]
        return self.call(op, args, attrs, location=self.location)


def _untraceable(what: str) -> GraphBreak:
    return GraphBreak(f"a backward hook {what}, which cannot be traced", where=user_location())


class _Cotangents:
    """Node -> the sum of what flowed back into it so far. Nodes through which no gradient flows are not kept."""

    def __init__(self, builder: GraphBuilder, flows: set[Node]) -> None:
        self.builder, self.flows = builder, flows
        self.table: dict[Node, Node] = {}

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
        before = self.table.get(node)
        if before is None or _is_zero(before):
            self.table[node] = value
        elif not _is_zero(value):
            self.table[node] = prims.add(before, value)


def _is_zero(value: Node) -> bool:
    """Whether `value` is the zeros that a piecewise constant op hands back."""
    return isinstance(value, Call) and value.op.name == "full" and value.attrs["value"] == 0


def _pull_back(call: Call, cotangent: Node) -> list[tuple[Node, Value | None]]:
    """(operand, its share of the cotangent of `call`); of a piecewise constant op, zeros, as on the tape."""
    if isinstance(call.op.vjp, NotDifferentiable):
        return [(arg, prims.full(arg.shape, 0, arg.dtype)) for arg in call.args if arg.dtype.is_inexact]
    return list(zip(call.args, call.op.vjp(cotangent, call, *call.args, **call.attrs), strict=True))
