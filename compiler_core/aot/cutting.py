"""Cuts a graph into parts that run one after the other, and lets values cross the cuts.

In: a Graph, and for each part which nodes it computes and which outputs of the graph it owns. Out: a graph for each
part (`Cutter`), or, of the segments that a strategy planned, `Piece`s that end where the backward stops (`pieces_of`).
Method: a value that crosses a cut is an output of one part and a placeholder (same name) of the next; values that cost
nothing to derive again (views, constants) are repeated instead of crossing.
Invariants: a part reads only placeholders of the whole and what earlier parts pass on; the parts own each output once;
the pieces are in order of their stage (`stops.py`), of equal ones in the order of the segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import field, replace

from compiler_core.aot.strategy import Segment
from compiler_core.graph.ir import Call, Constant, Graph, Node, Placeholder
from compiler_core.ops.rules import Movement
from compiler_core.records import dataclass


def is_free(node: Node) -> bool:
    """Whether deriving `node` again costs nothing: constants, views, and ops with no operand."""
    if isinstance(node, Call):
        return not node.args or isinstance(node.op.lower, Movement)
    return isinstance(node, Constant)


def closure(roots: Iterable[Node], done: set[Node]) -> set[Node]:
    """The calls and constants that `roots` need and that are not `done`."""
    found: set[Node] = set()
    todo = list(roots)
    while todo:
        node = todo.pop()
        if node not in found and node not in done and not isinstance(node, Placeholder):
            found.add(node)
            todo.extend(node.operands)
    return found


@dataclass(slots=True)
class GraphPart:
    """The nodes that a part computes itself, and the outputs of the whole that it owns, by place."""

    own: set[Node]
    owned: list[int] = field(default_factory=list)


class Cutter:
    """The parts of one graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.position = {node: place for place, node in enumerate(graph.nodes)}

    def cut(self, parts: Sequence[GraphPart]) -> list[Segment]:
        """Each part as a graph, whose outputs are those that it owns, then those that later parts read."""
        reads = [self._reads(part) for part in parts]
        later = [set().union(*reads[k + 1 :]) for k in range(len(parts))]
        return [self.segment(k, part, later[k]) for k, part in enumerate(parts)]

    def add_rest(self, parts: Sequence[GraphPart], places: Iterable[int]) -> None:
        """Give each of these outputs to the part that computes it; to the last, if none does."""
        for i in places:
            node = self.graph.outputs[i]
            next((part for part in parts if node in part.own), parts[-1]).owned.append(i)

    def segment(self, k: int, part: GraphPart, later: Set[Node]) -> Segment:
        """Part `k`. later: what parts after it read: it passes on what it has made of that, and writes over none."""
        crossing = sorted(part.own & later, key=self.position.__getitem__)
        placeholders: dict[Node, Node] = {}
        for node in sorted(self._reads(part), key=self.position.__getitem__):
            role = node.role if isinstance(node, Placeholder) else ""
            source = node.source if isinstance(node, Placeholder) else f"segment:{node.name}"
            if not role or (role == "spent" and node in later):
                placeholders[node] = Placeholder(node.name, node.meta, "saved", source)
            else:
                placeholders[node] = node
        body, new = self._copy(part, placeholders)
        more, after, returned = self.finish(part, new)
        passed_on = [new[node] for node in crossing if new[node] not in returned]
        first = [*placeholders.values(), *more]
        nodes = [*first, *(call for node in first for call in after.get(node, ()))]
        for node in body:
            nodes += [node, *after.get(node, ())]
        outputs = (*returned, *passed_on)
        graph = Graph(f"{self.graph.name}_segment{k}", tuple(nodes), outputs, device=self.graph.device)
        return Segment(graph, (*part.owned, *(None for _ in passed_on)))

    def finish(
        self, part: GraphPart, new: Mapping[Node, Node]
    ) -> tuple[Sequence[Node], Mapping[Node, Sequence[Node]], Sequence[Node]]:
        """More placeholders, node -> what is computed right after it, and what is returned for the outputs owned."""
        return (), {}, [new[self.graph.outputs[i]] for i in part.owned]

    def _needs(self, part: GraphPart) -> set[Node]:
        """Everything the part computes or derives again: its own nodes, and free ones of earlier parts."""
        needs: set[Node] = set()
        todo = [*part.own, *(self.graph.outputs[i] for i in part.owned)]
        while todo:
            node = todo.pop()
            if node not in needs and (node in part.own or is_free(node)):
                needs.add(node)
                todo.extend(node.operands)
        return needs

    def _reads(self, part: GraphPart) -> set[Node]:
        """Values from outside that the part reads: placeholders of the whole, or nodes of earlier parts."""
        needs = self._needs(part)
        inside = [*needs, *(self.graph.outputs[i] for i in part.owned)]
        return {n for node in inside for n in (*node.operands, node) if n not in needs}

    def _copy(self, part: GraphPart, placeholders: Mapping[Node, Node]) -> tuple[list[Node], dict[Node, Node]]:
        """The part's nodes in graph order, reading its own placeholders; and old node -> new node."""
        new = dict(placeholders)
        body: list[Node] = []
        for node in sorted(self._needs(part), key=self.position.__getitem__):
            copy = node
            if isinstance(node, Call) and any(new[a] is not a for a in node.args):
                copy = node.changed(node.name, tuple(new[a] for a in node.args))
            new[node] = copy
            body.append(copy)
        return body, new


# -- where the backward stops


@dataclass(frozen=True, slots=True)
class Piece:
    """What of a segment runs in one native call: within one stage.

    outputs: as in `Segment`. numbers: by which the session knows the segment, or each part of it that `graph` signals.
    """

    graph: Graph
    outputs: tuple[int | None, ...]
    stage: int
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stages:
    """When what a backward takes and gives is there.

    outputs: the stage of each output; the first `gradients` of them are gradients, the others what stops read.
    hooked: of each placeholder that a stop makes, the stage from which on it can be read; none without stops.
    """

    outputs: Sequence[int]
    gradients: int
    hooked: Mapping[str, int]


def pieces_of(segments: Sequence[Segment], stages: Stages) -> list[Piece]:
    """The segments of a backward, cut where it stops."""
    available = dict(stages.hooked)  # name -> stage
    pieces: list[Piece] = []
    number = 0
    for k, segment in enumerate(segments):
        count = max(1, len(segment.graph.signals))
        numbers = tuple(range(number, number + count))
        number += count
        if not max(stages.outputs, default=0) and not stages.hooked:
            pieces.append(Piece(segment.graph, segment.outputs, 0, numbers))
            continue
        read_later = {node.name for later in segments[k + 1 :] for node in later.graph.inputs}
        pieces += _stages_of(segment, stages, available, read_later, numbers)
    return sorted(pieces, key=lambda piece: piece.stage)


def _stages_of(
    segment: Segment, stages: Stages, available: dict[str, int], read_later: set[str], numbers: tuple[int, ...]
) -> list[Piece]:
    """The pieces of one segment. available: is told from when on its outputs are."""
    graph = segment.graph
    earliest: dict[Node, int] = {}
    for node in graph.nodes:
        given = available.get(node.name, 0) if isinstance(node, Placeholder) else 0
        earliest[node] = max((earliest[arg] for arg in node.operands), default=given)

    def stage_of(node: Node, index: int | None) -> int:
        planned = 0 if index is None or node.name in read_later else stages.outputs[index]
        return max(planned, earliest[node])

    def is_there(node: Node, index: int | None) -> bool:
        """Whether a stop reads what nobody has to compute."""
        return index is not None and index >= stages.gradients and isinstance(node, Placeholder)

    at = [stage_of(*output) for output in zip(graph.outputs, segment.outputs)]
    cutter, done = Cutter(graph), set[Node]()
    parts: dict[int, GraphPart] = {}
    for stage in sorted(set(at)):
        parts[stage] = GraphPart(closure((node for node, when in zip(graph.outputs, at) if when == stage), done))
        done |= parts[stage].own
    for place, (node, index) in enumerate(zip(graph.outputs, segment.outputs)):
        home = next((stage for stage, part in parts.items() if node in part.own), at[place])
        available[node.name] = home
        if not is_there(node, index):
            parts[home].owned.append(place)
    made = zip(parts, cutter.cut(list(parts.values())))
    return [_piece(segment, piece, stage, numbers) for stage, piece in made if piece.graph.outputs]


def _piece(whole: Segment, cut: Segment, stage: int, numbers: tuple[int, ...]) -> Piece:
    """A piece from a part of `whole`, which numbers its outputs by their place there."""
    place = {old: new for new, old in enumerate(cut.outputs) if old is not None}
    signals = [(n, tuple(place[i] for i in s if i in place)) for n, s in zip(numbers, whole.graph.signals)]
    signals = [(n, places) for n, places in signals if places]
    graph = replace(cut.graph, name=f"{whole.graph.name}_stage{stage}", signals=tuple(places for _, places in signals))
    outputs = tuple(None if old is None else whole.outputs[old] for old in cut.outputs)
    return Piece(graph, outputs, stage, tuple(n for n, _ in signals) or numbers[-1:])
