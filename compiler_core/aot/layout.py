"""What a backward reads and makes, by place: fixed when the joint graph is split, whoever cuts it and however.

In: a joint and its partition. Out: `BackwardLayout`, and the backward without what some tangents would bring.
Places: the saved values, the inputs read, the tangents. What stops and steps make comes behind them (`linking.py`).
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from compiler_core.aot.joint import Joint
from compiler_core.aot.needs import Flow, Needs, arrivals_of, tangents_behind
from compiler_core.aot.partition import ARRIVING, Partition
from compiler_core.aot.pruning import only_read, prune
from compiler_core.aot.stops import Stop, all_that_may_come
from compiler_core.graph.ir import SAVED, Graph, Node, Placeholder
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import Array
from compiler_core.records import dataclass

NOTHING: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class BackwardLayout:
    """What a backward reads and makes, and what reaches what: fixed since the joint graph was split.

    saved: which forward outputs it reads. inputs: which forward inputs it reads; they come after those.
    tangents: the meta of each; they come last. wanted: output index -> forward input. reaches: see `Joint`.
    stops: where it goes to Python. turns: the gradients in the order in which they are complete. inside: see
    `inner_uses.py`. needs: see `needs.py`. masks: for each of `inputs`, the tangents whose backward reads it here, and
    those whose backward would on the tape. leads: for each tangent, the gradients that it reaches.
    """

    saved: tuple[int, ...]
    inputs: tuple[int, ...]
    tangents: tuple[TensorMeta, ...]
    wanted: tuple[int, ...]
    reaches: tuple[int, ...]
    stops: tuple[Stop, ...]
    turns: tuple[int, ...]
    inside: tuple[int, ...]
    needs: Needs
    masks: tuple[tuple[int, int], ...]
    leads: tuple[frozenset[int], ...]

    @property
    def places_of_wanted(self) -> list[int]:
        """Of each gradient, the place where the backward reads its input; -1 if it does not."""
        places = {i: place for place, i in enumerate(self.inputs, len(self.saved))}
        return [places.get(i, -1) for i in self.wanted]

    def missing(self, grads: Sequence[Array | None], came: int) -> Set[int]:
        """The outputs that no cotangent that came can reach."""
        if all(grad is not None for grad in grads):
            return NOTHING
        came = all_that_may_come(came, self.stops)
        return frozenset(i for i, reached in enumerate(self.reaches) if reached and not reached & came)


def layout_of(joint: Joint, parts: Partition, inside: tuple[int, ...], needs: Needs) -> BackwardLayout:
    """inside, needs: see `BackwardLayout`."""
    forward_inputs = {node.name: i for i, node in enumerate(parts.forward.inputs)}
    read, tangents, _ = arriving(parts)
    places = tuple(forward_inputs[node.name] for node in read)
    here, on_tape = Flow(parts.backward, parts.backward.outputs, tangents_behind(joint)).needed, dict(needs.inputs)
    return BackwardLayout(
        saved=parts.saved,
        inputs=places,
        tangents=tuple(node.meta for node in tangents),
        wanted=joint.gradients,
        reaches=joint.reaches,
        stops=joint.stops,
        turns=joint.turns,
        inside=inside,
        needs=needs,
        masks=tuple((here.get(node, 0), on_tape.get(place, 0)) for node, place in zip(read, places)),
        leads=tuple(_reached(joint, 1 << t) for t in range(len(tangents))),
    )


def arriving(parts: Partition) -> tuple[list[Placeholder], list[Placeholder], list[Placeholder]]:
    """The forward inputs that the backward reads, its tangents, and what its stops make."""
    inputs = parts.backward.inputs
    read = [node for node in inputs if node.role not in (*SAVED, *ARRIVING)]
    tangents, hooked = ([node for node in inputs if node.role == role] for role in ARRIVING)
    return read, tangents, hooked


def _reached(joint: Joint, came: int) -> frozenset[int]:
    """The gradients that these tangents may reach."""
    came = all_that_may_come(came, joint.stops)
    return frozenset(k for k, mask in enumerate(joint.reaches) if mask & came)


@dataclass(frozen=True, slots=True)
class Rest:
    """What is left of a backward. outputs: which of the backward's it makes. reads: the places of what it reads."""

    graph: Graph
    outputs: Sequence[int]
    reads: frozenset[int]


def rest_of(joint: Joint, parts: Partition, came: int) -> Rest | None:
    """The backward without what the tangents that came do not need; None: nothing would be saved."""
    absent = [node for node, mask in zip(arrivals_of(parts.backward), tangents_behind(joint)) if not mask & came]
    wanted = [k for k, reached in enumerate(joint.reaches) if not reached or reached & came]
    kept = range(len(parts.backward.outputs)) if joint.stops else wanted  # Python reads by place
    graph = prune(parts.backward, absent, kept)
    if graph is None:
        return None
    names = {node.name for node in only_read(graph).inputs}
    placed: list[Node] = [*(parts.forward.outputs[i] for i in parts.saved), *arriving(parts)[0]]
    return Rest(graph, kept, frozenset(place for place, node in enumerate(placed) if node.name in names))
