"""Cuts a joint graph into a forward and a backward graph at the cheapest set of saved values.

In: `Joint`. Out: `Partition`: forward (inputs -> outputs, saved values), backward (saved, inputs it needs, tangents
-> gradients). Method: minimum cut (Chen et al.'s recomputation as AOTAutograd's min-cut partitioner poses it): a node
that depends on no tangent becomes an edge in->out whose capacity is the cost of keeping it; an edge from the source to
it holds the cost of computing it again; what the backward reads hangs on the sink; the nodes whose edges are cut are
the saved values (costs: `recompute.py`).
Invariants: no matrix product runs twice, unless its user checkpointed it (`regions.py`); a saved value is never a view
of something as cheap to save; the backward is in an order in which each gradient is complete as early as its operands
allow (`emission_order`).
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler_core.aot.budget import peak_of, within
from compiler_core.aot.joint import Joint
from compiler_core.aot.min_cut import INFINITE, FlowNetwork
from compiler_core.aot.recompute import CostModel, is_library, is_view, needed_for
from compiler_core.aot.regions import Regions
from compiler_core.graph.effects import has_effects
from compiler_core.graph.extract import extract
from compiler_core.graph.ir import Call, Graph, Node, Placeholder
from compiler_core.records import dataclass

ARRIVING = ("tangent", "hooked")  # roles of inputs that come in the course of a backward
_ADDS = ("add", "cast", "index_add")  # what gradients of a parameter's several uses are made into one by


@dataclass(frozen=True, slots=True)
class Partition:
    """The two halves. `saved`: which outputs of the forward the backward reads: results too, then those only saved.

    The backward's placeholders carry the name of the value they take: a saved value (role "saved" or "spent", in the
    order of `saved`), an input of the forward, a tangent, what a stop makes. Its outputs are the joint's gradients and
    what stops read, in the joint's order.
    """

    forward: Graph
    backward: Graph
    saved: tuple[int, ...]

    def describe(self) -> str:
        """What is saved and how large it is, for the log."""
        kept = [self.forward.outputs[i] for i in self.saved]
        rows = [f"  %{node.name}: {node.meta}, {node.meta.nbytes} bytes" for node in kept]
        return "\n".join([f"saved for backward: {sum(node.meta.nbytes for node in kept)} bytes", *rows])


def partition(joint: Joint, memory_budget: float = 1.0) -> Partition:
    """Split `joint` at a minimum cut; memory_budget: which part of the memory that this takes a step may take."""
    graph = joint.graph
    results, gradients = graph.outputs[: joint.outputs], graph.outputs[joint.outputs :]
    after = dependents(graph, _arriving(graph, results))
    regions = Regions(graph, after, needed_for(graph, gradients), results)

    def split(held: int) -> Partition:
        costs = CostModel(graph, results, regions, on_gpu=graph.on_gpu, held=held)
        return _split(joint, _without_views(_cut(graph, costs, after, gradients)))

    return within(memory_budget, split, lambda parts: peak_of(parts.backward), graph.name)


def _arriving(graph: Graph, results: Sequence[Node]) -> list[Node]:
    """What comes in the course of the backward; and the collectives that gradients take, though on this rank they may
    depend on nothing that comes: on others they do."""
    found: list[Node] = [node for node in graph.inputs if node.role in ARRIVING]
    if has_effects(graph.nodes):
        forward = needed_for(graph, results)
        found += [call for call in graph.calls if call.op.effect and call not in forward]
    return found


def _split(joint: Joint, saved: set[Node]) -> Partition:
    graph = joint.graph
    results, gradients = graph.outputs[: joint.outputs], graph.outputs[joint.outputs :]
    tangents = [node for node in graph.inputs if node.role in ARRIVING]
    values = [node for node in graph.nodes if node in saved and not isinstance(node, Placeholder)]
    inputs = [node for node in graph.inputs if node.role not in ARRIVING]
    outputs = [*results, *(node for node in values if node not in results)]
    forward = extract(graph, f"{graph.name}_forward", outputs, inputs)
    kept = [Placeholder(node.name, node.meta, _role(node, joint), node.name) for node in values]
    given = [node for node in inputs if node in saved]
    backward = extract(
        graph,
        f"{graph.name}_backward",
        gradients,
        [*given, *tangents],
        replaced=dict(zip(values, kept)),
        order=_as_it_stands(graph, tangents)
        if joint.is_ordered
        else emission_order(graph, gradients, joint.output_stages),
    )
    return Partition(forward, backward, tuple(outputs.index(node) for node in values))


def _role(node: Node, joint: Joint) -> str:
    """Of a saved value: spent if only one run of the backward reads it, which may compute in its memory, then."""
    is_shown = node in joint.graph.outputs[: joint.outputs]
    return "saved" if is_shown or joint.stops else "spent"


def _as_it_stands(graph: Graph, tangents: Sequence[Node]) -> list[Node]:
    after = dependents(graph, tangents)
    return [call for call in graph.calls if call in after]


def emission_order(graph: Graph, gradients: Sequence[Node], stages: Sequence[int] = ()) -> list[Node]:
    """Gradients in the order in which they can be complete: by the place of the node that completes them.

    Where there is one stage, products that one of them adds up stand among them, at their own places: that of a head
    whose weight is an embedding's too is smaller than the logits' gradient, which would else be held to the end.
    stages: of each, the stage (`stops.py`) at whose end it must be; () if there is but one.
    """
    place = {node: i for i, node in enumerate(graph.nodes)}
    stage = dict(sorted(zip(gradients, stages), key=lambda item: -item[1]))  # the first of those of one node
    parts = [part for gradient in gradients for part in _added_products(gradient)] if len(set(stages)) < 2 else []
    return sorted(dict.fromkeys([*gradients, *parts]), key=lambda node: (stage.get(node, 0), place[node]))


def _added_products(gradient: Node) -> list[Call]:
    """The products among the terms of a sum that are smaller than what they are made from."""
    found, todo = [], [gradient]
    while todo:
        node = todo.pop()
        if not isinstance(node, Call):
            continue
        if node.op.name in _ADDS:
            todo += [arg for arg in node.args if arg.shape == node.shape]
        elif is_library(node) and node.meta.nbytes < max(arg.meta.nbytes for arg in node.args):
            found.append(node)
    return found


def dependents(graph: Graph, roots: Sequence[Node]) -> set[Node]:
    """The nodes that depend on any of `roots`, those included."""
    found = set(roots)
    for call in graph.calls:
        if not found.isdisjoint(call.args):
            found.add(call)
    return found


def _cut(graph: Graph, costs: CostModel, after: set[Node], gradients: Sequence[Node]) -> set[Node]:
    """The values (and inputs) to keep: a minimum cut between the inputs and what the backward reads."""
    needed = needed_for(graph, gradients)
    before = [node for node in graph.nodes if node in needed and node not in after]
    place = {node: 2 * i + 2 for i, node in enumerate(before)}  # vertex of its in; its out is one more
    network = FlowNetwork(2 * len(before) + 2)
    source, sink = 0, 1
    read_after = {arg for call in graph.calls if call in after and call in needed for arg in call.args}
    read_after.update(gradients)
    for node, vertex in place.items():
        made_from_nothing = not isinstance(node, Placeholder) and not node.operands
        network.edge(vertex, vertex + 1, INFINITE if made_from_nothing else costs.keep_cost(node))
        if again := costs.recompute_cost(node):
            network.edge(source, vertex, again)
        if node in read_after:
            network.edge(vertex + 1, sink, INFINITE)
        for operand in dict.fromkeys(node.operands):
            network.edge(place[operand] + 1, vertex, INFINITE)
    side = network.source_side(source, sink)
    return {node for node, vertex in place.items() if vertex in side and vertex + 1 not in side}


def _without_views(saved: set[Node]) -> set[Node]:
    """Saved views replaced by what they are views of, while that is no larger: taking a view costs nothing.

    A permuted matrix product stays: the product is written in that layout, and whoever reads it so needs no copy.
    """
    result = set()
    for node in saved:
        while is_view(node) and node.operands[0].meta.nbytes <= node.meta.nbytes and not _permutes_product(node):
            node = node.operands[0]
        result.add(node)
    return result


def _permutes_product(node: Node) -> bool:
    """Whether `node` permutes what a library routine computes."""
    if not isinstance(node, Call) or node.op.name != "permute":
        return False
    behind: Node = node
    while isinstance(behind, Call) and is_view(behind):
        behind = behind.args[0]
    return isinstance(behind, Call) and is_library(behind)
