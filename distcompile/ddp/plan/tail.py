"""What a backward computes last: gradients that nobody waits for go behind a large one that is complete at its end.

In: the backward graph, and its gradients in the order of its nodes. Out: the gradients in the order in which they shall
be complete. The bucket plan is made from that order, and generated code computes the buckets in it.
The gradient of an embedding is complete when the backward ends, so nothing is left to hide its all-reduce. Where the
head shares that weight, it is a third of GPT-2's bytes. The gradients of the first layers' weights could be computed a
little earlier, and nothing waits for them. Computed after the embedding's instead, they hide its all-reduce, and the
last bucket is a small one.
Method: take the largest gradient of those that are complete within the last SHARE of the work. Move the last ones
before it behind it: as few as make up SHARE, if each is small beside it. What they read then lives longer, so no more
are moved than memory allows. Work is estimated as in order.py. GPT-2 124 M of 16 x 1024 tokens on two H200s: with
no such limit 1.6 GiB more, and 0.2 ms of 34 less; NVLink is quick.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

from compiler_core.aot.cutting import closure
from compiler_core.aot.recompute import is_view
from compiler_core.graph.ir import Call, Graph, Node
from distcompile.ddp.plan.bucket_plan import ReadyParameter
from distcompile.ddp.plan.order import work_of

LARGE_NBYTES = 1 << 20
SMALL = 1 / 4  # of the large one: what travels last must be less
MORE = 1 / 16  # of the bytes that the backward is given: what moving may hold besides
SHARE = 1 / 8  # of the backward's work is left when the large one leaves

Ready = Sequence[ReadyParameter]


def with_a_tail(backward: Graph, ready: list[ReadyParameter]) -> list[ReadyParameter]:
    """`ready` with some of its gradients moved behind the others: their `ready` is behind the graph's end.

    ready: in the order of the graph's nodes.
    """
    if max((p.nbytes for p in ready), default=0) < LARGE_NBYTES:
        return ready
    wanted = SHARE * sum(map(work_of, backward.nodes))
    of_all = range(len(ready))
    begin = bisect_left(of_all, -wanted, key=lambda k: -_work(_late(backward, ready[: k + 1], ready)))
    large = max(ready[begin:], key=lambda p: p.nbytes)
    if large.nbytes < LARGE_NBYTES:
        return ready
    at = ready.index(large)

    def late(count: int) -> set[Node]:
        """What is computed last if `count` of those before the large one are complete after it."""
        return _late(backward, [*ready[: at - count], large], ready)

    enough = bisect_left(range(at), wanted, key=lambda count: _work(late(count)))
    most = MORE * sum(node.meta.nbytes for node in backward.inputs)
    count = bisect_left(range(1, enough + 1), True, key=lambda count: _kept_nbytes(late(count)) > most)
    moved = ready[at - count : at]
    if not moved or max(p.nbytes for p in moved) > SMALL * large.nbytes:
        return ready
    behind = (replace(p, ready=p.place + len(backward.nodes)) for p in moved)
    return [*ready[: at - count], large, *ready[at + 1 :], *behind]


def places_of(backward: Graph) -> int:
    """Every gradient's `ready` is less."""
    return 2 * len(backward.nodes)


def _late(backward: Graph, early: Ready, ready: Ready) -> set[Node]:
    """What the gradients need beyond what the early ones do."""
    done = closure((backward.nodes[p.place] for p in early), set())
    return closure((backward.nodes[p.place] for p in ready), done)


def _work(nodes: set[Node]) -> float:
    return sum(map(work_of, nodes))


# -- memory


def _kept_nbytes(late: set[Node]) -> int:
    """Bytes of what is made before `late` for it to read. Not of what the backward is given: its caller holds that."""
    read = {_origin(operand) for node in late for operand in node.operands}
    return sum(node.meta.nbytes for node in read - late if isinstance(node, Call))


def _origin(node: Node) -> Node:
    """Whose memory `node` shows."""
    while is_view(node):
        node = node.operands[0]
    return node
