"""A graph of symbolic sizes for the sizes of one call.

In: a graph whose metas and attributes hold Syms, and a number for each symbol. Out: the graph of these numbers, and
which node of it stands for which: attributes evaluated, every meta inferred again. Nodes keep names and locations; what
holds no symbol, and reads nothing that does, is shared.
Raises: GraphError where what is inferred for the numbers is not what was inferred for the symbols.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from compiler_core.dtype import DType
from compiler_core.errors import GraphError
from compiler_core.graph.ir import Call, Graph, Node, Placeholder
from compiler_core.meta import TensorMeta
from compiler_core.symbolic.size import SizeSymbol, at_sizes, symbols_in

Numbers = Mapping[SizeSymbol, int]
_WITHOUT = frozenset({int, bool, float, str, type(None), DType})  # most sizes and attributes


def symbols_of(graph: Graph) -> set[SizeSymbol]:
    """The symbols that metas and attributes of the graph hold."""
    found: set[SizeSymbol] = set()
    values = [value for node in graph.nodes if type(node) is Call for value in node.attrs.values()]
    for value in (*{node.meta.shape for node in graph.nodes}, *values):
        kind = type(value)
        if kind not in _WITHOUT and not (kind is tuple and _WITHOUT.issuperset(map(type, value))):
            found |= symbols_in(value)
    return found


def graph_at(graph: Graph, numbers: Numbers, name: str) -> tuple[Graph, dict[Node, Node]]:
    """The graph for these sizes, called `name`, and what stands in it for each node."""
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        new[node] = _node_at(node, numbers, new)
    nodes, outputs = (tuple(new[node] for node in nodes) for nodes in (graph.nodes, graph.outputs))
    return replace(graph, name=name, nodes=nodes, outputs=outputs), new


def meta_at(meta: TensorMeta, numbers: Numbers) -> TensorMeta:
    """The meta for these sizes; itself where it holds no symbol."""
    shape = at_sizes(meta.shape, numbers)
    return meta if shape is meta.shape else meta.with_shape(shape)


def _node_at(node: Node, numbers: Numbers, new: Mapping[Node, Node]) -> Node:
    meta = meta_at(node.meta, numbers)
    if isinstance(node, Placeholder):
        return node if meta is node.meta else replace(node, meta=meta)
    if not isinstance(node, Call):
        return node
    args = tuple(new[arg] for arg in node.args)
    attrs = {key: at_sizes(value, numbers) for key, value in node.attrs.items()}
    same = meta is node.meta and _are_same(args, node.args) and _are_same(attrs.values(), node.attrs.values())
    if same:
        return node
    _check(node, meta, node.op.infer(*(arg.meta for arg in args), **attrs))
    return Call(node.name, meta, op=node.op, args=args, attrs=attrs, location=node.location, region=node.region)


def _are_same(some: Iterable[object], others: Iterable[object]) -> bool:
    return all(a is b for a, b in zip(some, others))


def _check(node: Call, expected: TensorMeta, got: TensorMeta) -> None:
    if got != expected:
        raise GraphError(
            f"%{node.name} has another shape for these sizes than its graph says",
            where=node.location,
            expected=str(expected),
            got=str(got),
        )
