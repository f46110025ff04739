"""A graph that holds backwards, differentiated anew, and taken apart where the last of them begins.

In: a captured graph in which each backward is marked (BEGINS at the gradients of its roots, ENDS at those of inputs:
see ops/primitives/custom_gradient.py), and what simplifies forwards. Out: a joint graph whose tangents are the first
gradients of the last backward: as one graph again (`whole`), or to be partitioned as others are (`joint`).
Why: capture differentiates the forward as it is written. Here it is simplified first (attention that is written out
becomes one op, 16-bit where its operands are), and only then differentiated, as the forward of a call that the tape
differentiates is; and the partition says what is computed again for the backward, and not kept for it.
Known limits: a backward stays as capture traced it where something else reads what it computes on its way, and where
it ends at what is no input. Gradients of gradients are not marked. What comes before the last backward is not
partitioned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from compiler_core.aot.joint import Joint, make_joint
from compiler_core.aot.partition import dependents
from compiler_core.graph.extract import extract
from compiler_core.graph.ir import Call, Constant, Graph, Node, Placeholder
from compiler_core.graph.passes.dce import Dce
from compiler_core.graph.passes.rename import Rename
from compiler_core.ops.primitives.custom_gradient import BEGINS, CUSTOM_GRADIENT, ENDS
from compiler_core.records import dataclass


@dataclass(frozen=True, slots=True)
class Within:
    """graph: takes (inputs..., tangents...), gives (outputs of the captured graph..., the tangents' values...)."""

    graph: Graph
    outputs: int

    def joint(self) -> tuple[Joint, tuple[int, ...]]:
        """With what no tangent reaches first, and of each output of the captured graph, then each tangent's value, the
        place among the joint's."""
        graph = self.graph
        after = dependents(graph, [node for node in graph.inputs if node.role == "tangent"])
        order = sorted(range(len(graph.outputs)), key=lambda i: graph.outputs[i] in after)
        sorted_graph = graph.with_nodes(graph.nodes, [graph.outputs[i] for i in order])
        first = sum(node not in after for node in graph.outputs)
        places = sorted(range(len(order)), key=order.__getitem__)
        later = range(len(order) - first)
        joint = Joint(sorted_graph, first, (), tuple(later), (), stages=(0,) * len(later), is_ordered=True)
        return joint, tuple(places)

    def first_gradients(self) -> Graph:
        """From the inputs, what the tangents are."""
        inputs = [node for node in self.graph.inputs if node.role != "tangent"]
        return extract(self.graph, f"{self.graph.name}_first", self.graph.outputs[self.outputs :], inputs)

    def whole(self) -> Graph:
        """The step as one graph: tangents are their values."""
        graph, tangents = self.graph, [node for node in self.graph.inputs if node.role == "tangent"]
        new: dict[Node, Node] = {node: node for node in graph.nodes if node not in tangents}
        values: dict[Node, Node] = dict(zip(tangents, graph.outputs[self.outputs :], strict=True))
        for call in graph.calls:
            args = tuple(new[arg if arg in new else values[arg]] for arg in call.args)
            new[call] = call if args == call.args else call.changed(call.name, args)
        nodes = [new[node] for node in graph.nodes if node in new]
        return graph.with_nodes(nodes, [new[node] for node in graph.outputs[: self.outputs]])

    def changed(self, graph: Graph) -> Within:
        """After a pass."""
        return replace(self, graph=graph)


def backwards_marked(graph: Graph) -> set[int]:
    """The numbers of the backwards that are marked in a graph."""
    return {call.attrs["slot"] for call in _marked(graph, BEGINS)}


def backwards_within(graph: Graph, simplify: Callable[[Graph], Graph]) -> Within | None:
    """A captured graph, its backwards made anew, the last of them apart; None if it holds none that can be."""
    found = None
    for number in sorted(backwards_marked(graph)):
        made = _made_anew(graph, number, simplify)
        if made is not None:
            found, graph = made, made.whole()
    return found


def _made_anew(graph: Graph, number: int, simplify: Callable[[Graph], Graph]) -> Within | None:
    """The joint graph of one of the backwards; None if that cannot be told from the rest."""
    begins = [call for call in _marked(graph, BEGINS) if call.attrs["slot"] == number]
    ends = [call for call in _marked(graph, ENDS) if call.attrs["slot"] == number]
    wanted = {call.args[2]: call for call in ends}
    if not (wanted and begins and all(isinstance(node, Placeholder) for node in wanted)):
        return None
    begun, ended = dependents(graph, begins), dependents(graph, ends)
    read = {arg for call in graph.calls if call in ended and call not in ends for arg in call.args} | {*graph.outputs}
    if not read.isdisjoint(begun - ended):
        return None
    before = [node for node in graph.nodes if node not in begun]
    crossing = [node for node in before if isinstance(node, Call) and node in read]
    roots, seeds = [call.args[2] for call in begins], [call.args[1] for call in begins]
    forward = simplify(Dce().apply(graph.with_nodes(before, [*roots, *seeds, *crossing])))
    joint = make_joint(forward, [node in wanted for node in graph.inputs], results=len(roots))
    made = joint.graph.outputs[joint.outputs :]
    found: dict[Node, Node] = {graph.inputs[place]: made[k] for k, place in enumerate(joint.gradients)}
    if joint.stops or len(joint.tangents) != len(roots) or found.keys() != wanted.keys():
        return None
    new: dict[Node, Node] = dict(zip(graph.inputs, joint.graph.inputs))
    new |= dict(zip(crossing, joint.graph.outputs[2 * len(roots) :]))
    new |= {call: found[node] for node, call in wanted.items()}
    rest = [node for node in graph.nodes if (node in ended and node not in ends) or isinstance(node, Constant)]
    nodes = _as_early([*joint.graph.nodes], list(_renamed(rest, new, {node.name for node in joint.graph.nodes})))
    outputs = [*(new[node] for node in graph.outputs), *joint.graph.outputs[len(roots) : 2 * len(roots)]]
    return Within(Rename().apply(Dce().apply(graph.with_nodes(nodes, outputs))), len(graph.outputs))


def _marked(graph: Graph, rule: str) -> list[Call]:
    return [call for call in graph.calls if call.op is CUSTOM_GRADIENT and call.attrs["rule"] == rule]


def _as_early(nodes: Sequence[Node], rest: Sequence[Node]) -> list[Node]:
    """Both, each of the rest as soon as its operands are there, and those others that read its inputs have run: so a
    parameter is updated once its gradient is complete, and written where it is."""
    last = {node: k for k, node in enumerate(nodes)}  # where it is made, or, of an input, read for the last time
    for k, node in enumerate(nodes):
        last.update({operand: k for operand in node.operands if isinstance(operand, Placeholder)})
    for node in rest:
        last[node] = max((last[operand] for operand in node.operands), default=0)
    places = {node: k for k, node in enumerate(nodes)}
    start = sum(isinstance(node, Placeholder) for node in nodes)  # they stand first
    body = sorted([*nodes[start:], *rest], key=lambda node: places.get(node, max(last[node], start - 1)))
    return [*nodes[:start], *body]


def _renamed(nodes: Sequence[Node], new: dict[Node, Node], taken: set[str]) -> Iterable[Node]:
    """Those nodes over what stands for their operands, under names that are not taken. new: gets them."""
    stem = "rest"
    while any(name.startswith(stem) for name in taken):
        stem += "_"
    for number, node in enumerate(nodes):
        name = f"{stem}_{number}"
        if isinstance(node, Call):
            new[node] = node.changed(name, tuple(new[arg] for arg in node.args))
        elif node not in new:
            new[node] = replace(node, name=name)
        yield new[node]
