"""What the backward of each output needs: which values it reads, and whose backward has to run in the same pass.

In: a joint graph as `make_joint` left it (simplified, it would no longer say what eager reads), or a backward. Out:
`Needs`. Masks: bit t stands for tangent t; what a stop makes stands for the tangents that may reach the stop.
Two backwards through one call are legal, as on the tape, while no op that needs a value gets gradients in both: the
first frees what it needs (GAN: `d_loss.backward(); g_loss.backward()`). A write to a value that an op needs is an error
in the backwards that reach this op, and in no other; memory is compared as torch does, by storage, so a write to a view
is a write to what it is a view of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from compiler_core.aot.joint import Joint
from compiler_core.aot.partition import ARRIVING
from compiler_core.aot.recompute import needed_for
from compiler_core.aot.stops import Stop
from compiler_core.graph.ir import Call, Graph, Node, Placeholder
from compiler_core.records import dataclass


@dataclass(frozen=True, slots=True)
class Needs:
    """See the head of this file.

    together[t]: a mask of tangents. The backward of t frees the values that it has used; the backward of each tangent
        in the mask needs one of them. t is in its own mask, whether its backward needs any value or none: torch's
        compiled calls refuse a second backward too.
    inputs, results: (input or output of the forward, the tangents whose backward reads it, or memory it shares).
    tangents: the output of each.
    """

    together: tuple[int, ...]
    inputs: tuple[tuple[int, int], ...]
    results: tuple[tuple[int, int], ...]
    tangents: tuple[int, ...] = ()

    @property
    def separable(self) -> bool:
        """Whether a backward may follow another one that has freed its values."""
        everything = (1 << len(self.together)) - 1
        return any(mask != everything for mask in self.together)

    def reads(self, place: int, came: int, *, is_input: bool) -> bool:
        """Whether the backward of the outputs of mask `came` reads this input or result, or memory that it shares."""
        return bool(dict(self.inputs if is_input else self.results).get(place, 0) & came)

    def of(self, tangents: Sequence[int]) -> Needs:
        """The same by the numbers of these tangents, which may be fewer."""
        place = {output: t for t, output in enumerate(tangents)}
        bits = [(t, place[output]) for t, output in enumerate(self.tangents) if output in place]

        def moved(mask: int) -> int:
            return sum(1 << new for old, new in bits if mask >> old & 1)

        together = [0] * len(tangents)
        for old, new in bits:
            together[new] = moved(self.together[old])
        inputs, results = ([(i, moved(mask)) for i, mask in table] for table in (self.inputs, self.results))
        return Needs(tuple(together), tuple(inputs), tuple(results), tuple(tangents))

    def met_by(self, came: int) -> int:
        """The tangents that cannot come once those of `came` have freed what they need."""
        mask = 0
        for t, others in enumerate(self.together):
            if came >> t & 1:
                mask |= others
        return mask


def needs_of(joint: Joint, forward: Graph, results: int) -> Needs:
    """joint: of `forward`, nothing simplified. results: how many of its first outputs are results."""
    flow = Flow(joint.graph, joint.graph.outputs[joint.outputs :], tangents_behind(joint), set(forward.nodes))
    read = {node: flow.needed.get(node, 0) for node in forward.nodes}
    for node, mask in _saved_by_rules(joint):
        read[node] = read.get(node, 0) | mask
    together = [1 << t for t in range(len(joint.tangents))]
    for mask in (*flow.reading(), *(mask for _, mask in _saved_by_rules(joint))):
        for t in range(len(together)):
            together[t] |= mask if mask >> t & 1 else 0
    memory: dict[Node, int] = {}
    for node, mask in read.items():
        memory[memory_of(node)] = memory.get(memory_of(node), 0) | mask
    inputs = ((i, memory[node]) for i, node in enumerate(forward.inputs))
    outputs = ((i, memory_of(node)) for i, node in enumerate(forward.outputs[:results]))
    return Needs(
        tuple(together),
        tuple((i, mask) for i, mask in inputs if mask),
        tuple((i, memory[node]) for i, node in outputs if memory[node] and not isinstance(node, Placeholder)),
        joint.tangents,
    )


def tangents_behind(joint: Joint) -> list[int]:
    """Of each arrival (tangents, then what stops make), the tangents that it may depend on."""
    masks = [1 << t for t in range(len(joint.tangents))]
    for stop in joint.stops:
        behind = _behind(stop, masks)
        masks += [behind for made in stop.made if made is not None]
    return masks


def _behind(stop: Stop, masks: Sequence[int]) -> int:
    """The tangents that may reach `stop`."""
    found = 0
    for n, mask in enumerate(masks):
        found |= mask if stop.reaching >> n & 1 else 0
    return found


def arrivals_of(graph: Graph) -> list[Placeholder]:
    """The inputs that come in the course of a backward, in the order of their numbers."""
    return [node for role in ARRIVING for node in graph.inputs if node.role == role]


class Flow:
    """What depends on which tangents in a graph, as far as `outputs` need it.

    masks: of each arrival, its tangents. forward: nodes that are there before any backward. after: node -> the tangents
    that it depends on, if any. needed: node that depends on none -> the tangents behind what reads it.
    """

    def __init__(
        self, graph: Graph, outputs: Sequence[Node], masks: Sequence[int], forward: Set[Node] = frozenset()
    ) -> None:
        live = needed_for(graph, outputs)
        self.calls = [call for call in graph.calls if call in live]
        self.after: dict[Node, int] = {node: mask for node, mask in zip(arrivals_of(graph), masks) if mask}
        for call in self.calls:
            if mask := self._of(call.args):
                self.after[call] = mask
        self.needed: dict[Node, int] = {}
        for call in reversed(self.calls):
            if call in forward:
                continue
            if mask := self.after.get(call, 0) or self.needed.get(call, 0):
                for arg in call.args:
                    if arg not in self.after:
                        self.needed[arg] = self.needed.get(arg, 0) | mask

    def _of(self, nodes: Sequence[Node]) -> int:
        found = 0
        for node in nodes:
            found |= self.after.get(node, 0)
        return found

    def reading(self) -> Iterator[int]:
        """Of each call that depends on tangents and reads a value besides, the tangents."""
        values: set[Node] = set()
        for call in self.calls:
            if not values.isdisjoint(call.args) or any(self._is_input(arg) for arg in call.args):
                if call in self.after:
                    yield self.after[call]
                else:
                    values.add(call)

    def _is_input(self, node: Node) -> bool:
        return isinstance(node, Placeholder) and node not in self.after


def _saved_by_rules(joint: Joint) -> Iterator[tuple[Node, int]]:
    """Each value that a rule which is not traced reads, and the tangents that may reach the rule."""
    masks = tangents_behind(joint)
    for stop in joint.stops:
        for k in stop.saved:
            yield joint.graph.outputs[joint.outputs + k], _behind(stop, masks)


def memory_of(node: Node) -> Node:
    """Whose memory `node` shows."""
    while isinstance(node, Call) and node.op.alias is not None:
        node = node.args[0]
    return node
