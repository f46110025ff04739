"""Gradients of a whole step that the forward makes already: those which the backward's first products read.

In: `Within`, its last backward apart. Out: one whose forward ends later.

    forward: logits -> loss, and d loss / d logits        backward: what is made of that by products, and all behind it

In a whole step the cotangent of the loss is known before its backward begins: a constant, or a number that is an input.
So a gradient that is made of it and of forward values by elementwise functions, reductions and views can be made where
the forward has these at hand: a kernel that has a row of logits for their loss writes that row of their gradient too,
and nobody reads the logits again. Such gradients are tangents then, and `Within.ahead` says how many.
Which: those of LEAST bytes and more, if the backward is handed no more bytes than before: what was saved for them is
not, and their memory is written over as that of saved values is.
Known limits: what checkpointed functions compute, draws and collectives stay where they are. So does a gradient that
is summed before the first product, as for a bias: the kernel that makes it sums it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compiler_core.aot.partition import dependents, partition
from compiler_core.aot.recompute import behind_views, is_library, is_view, needed_for
from compiler_core.aot.within import Within
from compiler_core.graph.ir import SAVED, Call, Graph, Node, Placeholder
from compiler_core.graph.passes.dce import Dce
from compiler_core.graph.passes.rename import Rename
from compiler_core.ops.rules import Indexed, Movement, Pointwise, Reduction

LEAST = 1 << 20  # bytes of a gradient


def with_gradients_ahead(within: Within, memory_budget: float) -> Within:
    """See the head of this file; itself where nothing is gained. For steps that are two programs (`in_turn.py`)."""
    gradients = _of_first_products(within)
    if not gradients or not _values_come_first(within, gradients):
        return within
    found = _moved(within, gradients)
    return found if _handed(found, memory_budget) <= _handed(within, memory_budget) else within


def _handed(within: Within, memory_budget: float) -> int:
    """Bytes that the backward is handed."""
    joint, _ = within.joint()
    return sum(n.meta.nbytes for n in partition(joint, memory_budget).backward.inputs if n.role in SAVED)


def _of_first_products(within: Within) -> list[Node]:
    """The gradients that may be made ahead, in order."""
    graph = within.graph
    after = dependents(graph, within.tangents)
    early = after - dependents(graph, [call for call in graph.calls if call in after and not _may_move(call)])
    sources = [(call, arg) for call in graph.calls if call in after for arg in _shown(call.args)]
    read_early = {arg for call, arg in sources if call in early and not is_view(call)}
    read = {arg for call, arg in sources if is_library(call) and arg in early}
    kept = {*graph.inputs, *graph.outputs} | read_early
    return [node for node in graph.nodes if node in read and node not in kept and node.meta.nbytes >= LEAST]


def _may_move(call: Call) -> bool:
    """Whether a kernel makes it from what it reads, whenever that is."""
    is_ours = isinstance(call.op.lower, Pointwise | Movement | Indexed | Reduction)
    return is_ours and not (call.op.random or call.op.effect or call.region)


def _shown(nodes: Iterable[Node]) -> Iterable[Node]:
    """What those that are views are views of; the others as they are."""
    for node in nodes:
        *_, source = behind_views([node])
        yield source


def _behind(within: Within, gradients: Sequence[Node]) -> list[Call]:
    """What these are made of, of all that depends on tangents; themselves included."""
    graph, needed = within.graph, needed_for(within.graph, gradients)
    after = dependents(graph, within.tangents)
    return [call for call in graph.calls if call in needed and call in after]


def _values_come_first(within: Within, gradients: Sequence[Node]) -> bool:
    """Whether the values of the tangents stand before what is made of them."""
    place = {node: k for k, node in enumerate(within.graph.nodes)}
    first = min(place[call] for call in _behind(within, gradients))
    return all(place[value] < first for value in within.values)


def _moved(within: Within, gradients: Sequence[Node]) -> Within:
    """With these as tangents. What else is made of the same stays; what nobody reads then is dropped."""
    graph, outputs = within.graph, within.outputs
    moved, names = set(_behind(within, gradients)), {node.name for node in graph.nodes}
    ahead: dict[Node, Node] = dict(zip(within.tangents, within.values, strict=True))
    behind: dict[Node, Node] = {
        node: Placeholder(_fresh(f"{node.name}_tangent", names), node.meta, "tangent", f"ahead[{k}]")
        for k, node in enumerate(gradients)
    }
    inputs, body = [*graph.inputs, *behind.values()], list[Node]()
    for node in graph.nodes[len(graph.inputs) :]:
        if node in moved and isinstance(node, Call):
            args = tuple(ahead.get(arg, arg) for arg in node.args)
            ahead[node] = node.changed(_fresh(f"{node.name}_ahead", names), args)
            body.append(ahead[node])
        if isinstance(node, Call) and node not in behind:
            args = tuple(behind.get(arg, arg) for arg in node.args)
            behind[node] = node if args == node.args else node.changed(node.name, args)
        if node not in gradients:
            body.append(behind.get(node, node))
    results = [behind.get(node, node) for node in graph.outputs[:outputs]]
    made = graph.with_nodes([*inputs, *body], [*results, *within.values, *(ahead[node] for node in gradients)])
    return _without_idle(Rename().apply(Dce().apply(made)), outputs, len(gradients))


def _fresh(name: str, names: set[str]) -> str:
    while name in names:
        name += "_"
    names.add(name)
    return name


def _without_idle(graph: Graph, outputs: int, ahead: int) -> Within:
    """Without tangents that nobody reads, and their values."""
    read = {arg for call in graph.calls for arg in call.args} | {*graph.outputs[:outputs]}
    tangents = [node for node in graph.inputs if node.role == "tangent"]
    values = [value for node, value in zip(tangents, graph.outputs[outputs:], strict=True) if node in read]
    idle = {node for node in tangents if node not in read}
    nodes = [node for node in graph.nodes if node not in idle]
    return Within(Dce().apply(graph.with_nodes(nodes, [*graph.outputs[:outputs], *values])), outputs, ahead)
