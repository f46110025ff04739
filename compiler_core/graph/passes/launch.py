"""Collectives of a graph as events of it: launched when their operands are complete, waited for where they are read.

In: a Graph with collectives as ops. Out: `Launched`: the graph in which each is an output, which a signal announces,
and an input, which a wait that is behind this signal makes readable; and what is launched, in the graph's order.
Order: that of the graph's text, in which the program asks for them, and so the same on all ranks. When operands are
complete is not: what a rank multiplies by 1, or chooses by its number, may be there earlier than on another. (Who
reduces gradients asks in the order in which they are made.) Those that follow one another, and do the same to arrays of
one dtype, are one launch of several parts, which travel as one array: a launch takes no more once it has `FULL_NBYTES`
(on the host), and never more than `most` (as a reducer's buckets).
In place: an all-reduce, or a broadcast, leaves its result where the operand lay, so that is nobody else's memory: an
operand that others read is copied (a cast to its own dtype). A result that the graph returns is no output of native
code: the caller is given the memory that it came in.
Known limits: messages of two ranks (send, receive) stay calls that native code makes back; so do collectives in the
branches and bodies of loops, which are graphs of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from compiler_core.graph.effects import has_effects
from compiler_core.graph.ir import Call, Graph, Node, Placeholder
from compiler_core.ops.collectives.messages import RECEIVE, SEND
from compiler_core.ops.collectives.op import ALL_REDUCE, BROADCAST_FROM, REDUCE_TO
from compiler_core.ops.collectives.runner import Collective, Launch, Part
from compiler_core.ops.primitives.convert import CAST
from compiler_core.records import dataclass
from compiler_core.symbolic.size import symbols_in

IN_PLACE = (ALL_REDUCE, BROADCAST_FROM, REDUCE_TO)
BUCKETED = (ALL_REDUCE, BROADCAST_FROM)  # whose parts may lie one behind the other
FULL_NBYTES = 1 << 20  # with more, nothing is gained, and the first would wait for the last


@dataclass(frozen=True, slots=True)
class Launched:
    """graph: has `inputs` of the caller's, then a result each; its first outputs are the caller's, by place (`kept`),
    then an operand each. shown: the caller's other outputs, and which result each is. launches: in order."""

    graph: Graph
    launches: tuple[Launch, ...]
    inputs: int
    kept: tuple[int, ...]
    shown: tuple[tuple[int, int], ...]

    @property
    def outputs(self) -> int:
        return len(self.kept) + len(self.shown)


def launched(graph: Graph, most: int) -> Launched | None:
    """See the head of this file; None: there is nothing to launch. most: bytes of what may travel as one; 0: nothing
    does."""
    if not has_effects(graph.nodes) or any(symbols_in(node.shape) for node in graph.inputs):
        return None
    calls = [call for call in graph.calls if is_launched(call)]
    if not calls:
        return None
    return _Launcher(graph, buckets(graph, calls, most)).run()


def is_launched(call: Call) -> bool:
    """Whether a call is a collective that can be launched."""
    return call.op.effect and call.op not in (SEND, RECEIVE) and call.attrs["ranks"] > 1


def buckets(graph: Graph, calls: Sequence[Call], most: int) -> list[list[Call]]:
    """The collectives in the order in which they are launched, those together that travel as one."""
    needs = _needs(graph, calls)
    groups: list[list[Call]] = []
    group_of: dict[Call, int] = {}
    full = most if graph.on_gpu else FULL_NBYTES
    for call in calls:
        last = groups[-1] if groups else []
        if last and all(group_of[other] < len(groups) - 1 for other in needs[call]) and _fits(last, call, full, most):
            last.append(call)
        else:
            groups.append([call])
        group_of[call] = len(groups) - 1
    return groups


def is_mixed(graph: Graph) -> bool:
    """Whether collectives stand among effects that are not launched: then they keep their places."""
    return any(call.op in (SEND, RECEIVE) for call in graph.calls)


def _needs(graph: Graph, calls: Sequence[Call]) -> dict[Call, set[Call]]:
    """Of each collective, those that it needs."""
    launches, behind = set(calls), dict[Node, set[Call]]()
    found: dict[Call, set[Call]] = {}
    for node in graph.nodes:
        before: set[Call] = set().union(*(behind[arg] for arg in node.operands)) if node.operands else set()
        behind[node] = before
        if isinstance(node, Call) and node in launches:
            found[node] = before
            behind[node] = before | {node}
    return found


def _fits(group: Sequence[Call], call: Call, full: int, most: int) -> bool:
    """Whether a collective may travel with those before it."""
    first, nbytes = group[0], sum(one.meta.nbytes for one in group)
    alike = call.op is first.op and call.op in BUCKETED and call.attrs == first.attrs and call.dtype is first.dtype
    return alike and nbytes < full and nbytes + call.meta.nbytes <= most


class _Launcher:
    """The graph, while collectives become events. groups: those that travel as one."""

    def __init__(self, graph: Graph, groups: Sequence[Sequence[Call]]) -> None:
        self.graph, self.groups = graph, groups
        self.uses = Counter(arg for call in graph.calls for arg in call.args)
        self.uses.update(graph.outputs)
        self.names = {node.name for node in graph.nodes}
        self.new: dict[Node, Node] = {}
        self.operands: dict[Call, Node] = {}  # collective -> what is handed over
        self.is_mixed = is_mixed(graph)  # then copies stand where they stood

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
        result_of = {call: k for k, call in enumerate(calls)}
        announced = {place for places in graph.signals for place in places}
        kept = [k for k, node in enumerate(graph.outputs) if node not in result_of or k in announced]
        shown = [
            (k, result_of[node]) for k, node in enumerate(graph.outputs) if node in result_of and k not in announced
        ]
        place = {old: new for new, old in enumerate(kept)}
        events = _places([len(group) for group in groups])
        signals = tuple(tuple(len(kept) + k for k in places) for places in events)
        waits = tuple(tuple(len(graph.inputs) + k for k in places) for places in events)
        first = len(graph.signals)
        made = Graph(
            graph.name,
            (*graph.inputs, *results, *body),
            (*(self.new[graph.outputs[k]] for k in kept), *(self.operands[call] for call in calls)),
            (*(tuple(place[k] for k in places) for places in graph.signals), *signals),
            (*graph.waits, *waits),
            graph.device,
            (*(graph.behind or (-1,) * len(graph.waits)), *range(first, first + len(groups))),
            tuple(place[k] for k in graph.hosted),
        )
        launches = tuple(_launch(group, graph.device) for group in groups)
        return Launched(made, launches, len(graph.inputs), tuple(kept), tuple(shown))

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


def _launch(group: Sequence[Call], device: str) -> Launch:
    first = group[0]
    parts = tuple(Part(call.args[0].meta, call.meta) for call in group)
    where = ", ".join(dict.fromkeys(call.location for call in group if call.location))
    return Launch(Collective.of(first.op.name, first.attrs), parts, first.op in IN_PLACE, where, device)
