"""Checks a Graph's invariants; every pass must leave a graph that this accepts.

In: a Graph. Out: nothing, or GraphError that names the node. Checked: unique, well-formed names; placeholders first, of
a known role; operands defined before use and of this graph; every call's meta re-derived from the op's `infer`;
constants' arrays as their meta says; attributes that print and hash; outputs that are nodes of the graph; events, and
the host's line, that name inputs and outputs, each at most once. Of sizes that the call decides nothing is assumed
here: what `infer` asks of them, capture has answered.
"""

from __future__ import annotations

import re

from compiler_core.errors import DistCompileError, GraphError
from compiler_core.graph.input_sizes import assuming_nothing
from compiler_core.graph.ir import OF_BACKWARDS, Call, Constant, Graph, Node, Placeholder
from compiler_core.graph.print import print_attr, print_node
from compiler_core.ops.registry import meta_of

ROLES = frozenset({"input", "parameter", "buffer", "rng", "scale"}) | OF_BACKWARDS
NAME = re.compile(r"\w+")


def verify(graph: Graph) -> Graph:
    """`graph` itself, if it is valid. Raises GraphError with the first node that is not, and why."""
    with assuming_nothing(graph):
        return _verify(graph)


def _verify(graph: Graph) -> Graph:
    names: set[str] = set()
    defined: set[Node] = set()
    inputs = len(graph.inputs)
    for position, node in enumerate(graph.nodes):
        if node.name in names or not NAME.fullmatch(node.name):
            raise _invalid(graph, node, "its name is taken or is not a word")
        if isinstance(node, Placeholder):
            _check_placeholder(graph, node, first=position < inputs)
        elif isinstance(node, Constant) and meta_of(node.array) != node.meta:
            raise _invalid(graph, node, f"its array is {meta_of(node.array)}")
        elif isinstance(node, Call):
            _check_call(graph, node, defined)
        names.add(node.name)
        defined.add(node)
    for output in graph.outputs:
        if output not in defined:
            raise _invalid(graph, output, "it is returned, but is not a node of this graph")
    _check_events(graph, "wait", graph.waits, inputs)
    _check_events(graph, "signal", graph.signals, len(graph.outputs))
    _check_events(graph, "host", (graph.hosted,), len(graph.outputs))
    if graph.behind and (
        len(graph.behind) != len(graph.waits) or not all(-1 <= s < len(graph.signals) for s in graph.behind)
    ):
        raise GraphError(
            f"graph {graph.name} is not valid: a wait is behind a signal that is not there",
            expected=f"a signal, or -1, for each of {len(graph.waits)} waits",
            got=str(graph.behind),
        )
    return graph


def _check_events(graph: Graph, word: str, events: tuple[tuple[int, ...], ...], count: int) -> None:
    """Each event names places below `count`, none of them twice."""
    places = [place for event in events for place in event]
    if len(set(places)) != len(places) or not all(0 <= place < count for place in places):
        raise GraphError(
            f"graph {graph.name} is not valid: its {word} lines name a place twice, or one that is not there",
            expected=f"each of 0..{count - 1} at most once",
            got=str(events),
        )


def _check_placeholder(graph: Graph, node: Placeholder, *, first: bool) -> None:
    if node.role not in ROLES:
        raise _invalid(graph, node, f"role {node.role!r} is none of {', '.join(sorted(ROLES))}")
    if not first:
        raise _invalid(graph, node, "a placeholder stands after a constant or a call")


def _check_call(graph: Graph, node: Call, defined: set[Node]) -> None:
    for arg in node.args:
        if arg not in defined:
            raise _invalid(graph, node, f"operand %{arg.name} is not defined before it")
    for value in node.attrs.values():
        print_attr(value)
    try:
        derived = node.op.infer(*(arg.meta for arg in node.args), **node.attrs)
        differs = derived != node.meta
    except DistCompileError as error:
        raise _invalid(graph, node, f"{node.op.name} does not take its operands: {error.what}") from error
    if differs:
        raise _invalid(graph, node, f"{node.op.name}.infer says {derived}")


def _invalid(graph: Graph, node: Node, why: str) -> GraphError:
    return GraphError(
        f"graph {graph.name} is not valid at {print_node(node)}: {why}", where=getattr(node, "location", "")
    )
