"""Cuts a graph between an engine and our own code, by what the engine takes.

In: a Graph, and of each call why the engine does not take it. Out: `Segment`s in an order in which they can run: graphs
of the engine's calls alone, or of others alone, with the nodes of the whole graph that they read and give.
Method: a call's level is the longest chain of changes between engine and own code that leads to it; the calls of one
level are one segment, whether they stand side by side or not. So there are as few segments as the longest chain has,
and none waits for one that comes later. Calls without operands (ramps, constants) are made anew in every segment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from compiler_core.graph.extract import extract
from compiler_core.graph.ir import Call, Constant, Graph, Node, Placeholder
from compiler_core.ops.rules import Movement
from compiler_core.records import dataclass

Refuses = Callable[[Call], str]


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a graph. inputs, outputs: the whole graph's nodes that are the part's inputs and outputs, in order."""

    graph: Graph
    by_engine: bool
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]


def cut(graph: Graph, refusals: Mapping[Call, str]) -> list[Segment]:
    """The segments of a graph. refusals[call]: "" where the engine takes it."""
    taken = {call for call in graph.calls if not refusals[call]}
    levels = _fewest(graph, taken)
    slight = {call for part in _by_level(levels) if len(set(levels.values())) > 1 for call in part}
    slight = {call for call in slight & taken if _is_slight(call)} - _beside_more(levels, taken)
    if slight:
        taken -= slight
        levels = _fewest(graph, taken)
    return [_segment(graph, k, part, part[0] in taken) for k, part in enumerate(_by_level(levels))]


def _is_free(call: Call) -> bool:
    """Whether it is made anew where it is read."""
    return not call.args and not call.op.random


def _is_slight(call: Call) -> bool:
    """Whether it only moves elements: not worth a segment between two of our own."""
    return isinstance(call.op.lower, Movement) or _is_free(call)


def _beside_more(levels: Mapping[Call, int], taken: set[Call]) -> set[Call]:
    """The calls of levels in which the engine computes something."""
    computing = {level for call, level in levels.items() if call in taken and not _is_slight(call)}
    return {call for call, level in levels.items() if level in computing}


def _fewest(graph: Graph, taken: set[Call]) -> dict[Call, int]:
    """The level of each call that is in a segment of its own right, the first being the engine's or ours."""
    made = [_levels(graph, taken, first) for first in (True, False)]
    return min(made, key=lambda levels: len(set(levels.values())))


def _levels(graph: Graph, taken: set[Call], first: bool) -> dict[Call, int]:
    """first: whether the segments of even numbers are the engine's."""
    returned = set(graph.outputs)
    levels: dict[Call, int] = {}
    latest = 0  # of those that other ranks take part in, whose order stays
    for call in graph.calls:
        if _is_free(call) and call not in returned:
            continue
        least = max((levels[arg] for arg in call.args if isinstance(arg, Call) and arg in levels), default=0)
        least = max(least, latest) if call.op.effect else least
        is_even = (call in taken) is first
        levels[call] = least + (least % 2 == (1 if is_even else 0))
        latest = levels[call] if call.op.effect else latest
    return levels


def _by_level(levels: Mapping[Call, int]) -> list[list[Call]]:
    parts: dict[int, list[Call]] = {}
    for call, level in levels.items():
        parts.setdefault(level, []).append(call)
    return [parts[level] for level in sorted(parts)]


def _segment(graph: Graph, number: int, calls: Sequence[Call], by_engine: bool) -> Segment:
    inside = set(calls)
    users = graph.users()
    returned = set(graph.outputs)
    outputs = tuple(call for call in calls if call in returned or any(user not in inside for user in users[call]))
    read = dict.fromkeys(arg for call in calls for arg in call.args)
    inputs = tuple(arg for arg in read if arg not in inside and not _is_made_here(arg, returned))
    stands = {node: node for node in inputs if isinstance(node, Placeholder)}
    given = {node: Placeholder(node.name, node.meta) for node in inputs if not isinstance(node, Placeholder)}
    name = f"{graph.name}_{'engine' if by_engine else 'own'}{number}"
    part = extract(graph, name, outputs, [*stands], replaced=given)
    order = {placeholder: node for node, placeholder in (*stands.items(), *given.items())}
    return Segment(part, by_engine, tuple(order[node] for node in part.inputs), outputs)


def _is_made_here(node: Node, returned: set[Node]) -> bool:
    return isinstance(node, Constant) or (isinstance(node, Call) and _is_free(node) and node not in returned)
