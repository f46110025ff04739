"""Collectives of a graph as events of it: launched when their operands are complete, waited for where they are read.

In: a Graph with collectives as ops. Out: `Launched`: the graph in which each is an output, which a signal announces,
and an input, which a wait that is behind this signal makes readable; and what is launched, in the graph's order.
Consecutive collectives that do the same to small arrays of one dtype, where none reads what another gives, are one
launch of several parts, which travel as one array: up to `bucket_nbytes` together (as a reducer's buckets).
In place: an all-reduce, or a broadcast, leaves its result where the operand lay, so that is nobody else's memory: an
operand that others read is copied (a cast to its own dtype).
Known limits: messages of two ranks (send, receive) stay calls that native code makes back; so do collectives in the
branches and bodies of loops, which are graphs of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from compiler_core.graph.effects import has_effects
from compiler_core.graph.ir import Call, Graph, Node, Placeholder
from compiler_core.ops.collectives.messages import RECEIVE, SEND
from compiler_core.ops.collectives.op import ALL_REDUCE, BROADCAST_FROM, REDUCE_TO
from compiler_core.ops.collectives.runner import Collective, Launch, Part
from compiler_core.ops.primitives.convert import CAST
from compiler_core.symbolic.size import symbols_in

IN_PLACE = (ALL_REDUCE, BROADCAST_FROM, REDUCE_TO)
BUCKETED = (ALL_REDUCE, BROADCAST_FROM)  # whose parts may lie one behind the other
SMALL_NBYTES = 1 << 20  # larger ones travel alone: nothing is gained, and the first would wait for the last


@dataclass(frozen=True, slots=True)
class Launched:
    """graph: with `inputs` and `outputs` of those of the collectives behind its own. launches: in order."""

    graph: Graph
    launches: tuple[Launch, ...]
    inputs: int
    outputs: int


def launched(graph: Graph, bucket_nbytes: int) -> Launched | None:
    """See the head of this file; None: there is nothing to launch."""
    if not has_effects(graph.nodes) or any(symbols_in(node.shape) for node in graph.inputs):
        return None
    calls = [call for call in graph.calls if is_launched(call)]
    if not calls:
        return None
    groups = buckets(graph, calls, bucket_nbytes)
    return _Launcher(graph, groups).run()


def is_launched(call: Call) -> bool:
    """Whether a call is a collective that can be launched."""
    return call.op.effect and call.op not in (SEND, RECEIVE) and call.attrs["ranks"] > 1


def buckets(graph: Graph, calls: Sequence[Call], most: int) -> list[list[Call]]:
    """The collectives, in order, those together that travel as one."""
    behind: dict[Node, set[int]] = {}  # node -> the groups that it needs
    number: dict[Node, int] = {}
    groups: list[list[Call]] = []
    launches = set(calls)
    for node in graph.nodes:
        needs = set().union(*(behind[arg] for arg in node.operands)) if node.operands else set()
        if isinstance(node, Call) and node.op.effect:
            last = groups[-1] if groups else []
            if node in launches and last and len(groups) - 1 not in needs and _fits(last, node, most):
                last.append(node)
            else:
                groups.append([node])
            number[node] = len(groups) - 1
            needs = needs | {number[node]}
        behind[node] = needs
    return [group for group in groups if group[0] in launches]


def _fits(group: Sequence[Call], call: Call, most: int) -> bool:
    """Whether a collective may travel with those before it."""
    first, nbytes = group[0], sum(one.meta.nbytes for one in group)
    alike = call.op is first.op and call.op in BUCKETED and call.attrs == first.attrs and call.dtype is first.dtype
    small = max(call.meta.nbytes, *(one.meta.nbytes for one in group)) <= SMALL_NBYTES
    return alike and small and nbytes + call.meta.nbytes <= most


class _Launcher:
    """The graph, while collectives become events. groups: those that travel as one."""

    def __init__(self, graph: Graph, groups: Sequence[Sequence[Call]]) -> None:
        self.graph, self.groups = graph, groups
        self.uses = Counter(arg for call in graph.calls for arg in call.args)
        self.uses.update(graph.outputs)
        self.names = {node.name for node in graph.nodes}
        self.new: dict[Node, Node] = {}
        self.operands: dict[Call, Node] = {}  # collective -> what is handed over
        self.is_mixed = any(call.op in (SEND, RECEIVE) for call in graph.calls)  # then copies stand where they stood

    def run(self) -> Launched:
        graph, groups = self.graph, self.groups
        calls = [call for group in groups for call in group]
        results = [Placeholder(call.name, call.meta, "input", f"collective:{call.name}") for call in calls]
        self.new.update(zip(calls, results))
        body: list[Node] = []
        for node in graph.nodes:
            if isinstance(node, Call) and node in self.new:
                body += self.operand(node)
            elif not isinstance(node, Placeholder):
                body.append(self.renewed(node))
            else:
                self.new[node] = node
        inputs, outputs = len(graph.inputs), len(graph.outputs)
        handed = [self.operands[call] for call in calls]
        events = _places([len(group) for group in groups])
        signals = tuple(tuple(outputs + k for k in places) for places in events)
        waits = tuple(tuple(inputs + k for k in places) for places in events)
        first = len(graph.signals)
        made = Graph(
            graph.name,
            (*graph.inputs, *results, *body),
            (*(self.new[node] for node in graph.outputs), *handed),
            (*graph.signals, *signals),
            (*graph.waits, *waits),
            graph.device,
            (*(graph.behind or (-1,) * len(graph.waits)), *range(first, first + len(groups))),
        )
        return Launched(made, tuple(map(_launch, groups)), inputs, outputs)

    def renewed(self, node: Node) -> Node:
        """The node over what stands for its operands."""
        made = node
        if isinstance(node, Call) and any(self.new[arg] is not arg for arg in node.args):
            made = node.changed(node.name, tuple(self.new[arg] for arg in node.args))
        self.new[node] = made
        return made

    def operand(self, node: Node) -> list[Node]:
        """What is computed for a collective's sake: a copy of its operand, where that is not its own."""
        assert isinstance(node, Call)
        operand = self.new[node.args[0]]
        alone = isinstance(operand, Call) and self.uses[node.args[0]] == 1
        if (alone or node.op not in IN_PLACE) and not self.is_mixed:
            self.operands[node] = operand
            return []
        copy = Call(
            self.fresh(f"{node.name}_operand"), operand.meta, op=CAST, args=(operand,),
            attrs={"dtype": operand.dtype}, location=node.location,
        )  # fmt: skip
        self.operands[node] = copy
        return [copy]

    def fresh(self, name: str) -> str:
        while name in self.names:
            name += "_"
        self.names.add(name)
        return name


def _places(sizes: Sequence[int]) -> list[range]:
    """Of each group, the numbers of its members."""
    found, start = [], 0
    for size in sizes:
        found.append(range(start, start + size))
        start += size
    return found


def _launch(group: Sequence[Call]) -> Launch:
    first = group[0]
    parts = tuple(Part(call.args[0].meta, call.meta) for call in group)
    where = ", ".join(dict.fromkeys(call.location for call in group if call.location))
    return Launch(Collective.of(first.op.name, first.attrs), parts, first.op in IN_PLACE, where)
