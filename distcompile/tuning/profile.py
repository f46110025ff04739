"""When each gradient is ready: measured segment times, shared out among the gradients of a segment by static cost.

In: the backward graph, the gradients in ready order, and when segments ended in recorded passes. Out: ready times in
seconds of computation alone, one a gradient. What a gradient costs is the ancestor closure that it adds to those
before it, as the splitter cuts (splitter.py), so a gradient that adds only views is ready together with the one
before. Static cost of a node: the operations that its routine counts (2mnk of a matrix product) at FLOPS, and the bytes
it reads and writes at BYTES_PER_S; only ratios within a segment matter, the measured segment fixes the scale.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from compiler_core.aot.cutting import closure, is_free
from compiler_core.graph.ir import Call, Graph, Node
from compiler_core.ops.routine import Routine
from compiler_core.ops.rules import Expansion
from distcompile.ddp.plan.bucket_plan import ReadyParameter

FLOPS = 80e9
BYTES_PER_S = 10e9
LEAST_S = 1e-8  # of a node that is not free: it must count, or the plan would think that cutting after it costs nothing


def node_cost_s(node: Node) -> float:
    """A guess of the seconds that computing `node` takes on one core."""
    if not isinstance(node, Call) or is_free(node):
        return 0.0
    nbytes = sum(n.meta.nbytes for n in (node, *node.args))
    rule = node.op.lower
    metas = (arg.meta for arg in node.args)
    operations = rule.flops(*metas, **node.attrs) if isinstance(rule, Expansion | Routine) else 0
    return max(LEAST_S, operations / FLOPS + nbytes / BYTES_PER_S)


def static_costs_s(backward: Graph, gradients: Sequence[ReadyParameter]) -> list[float]:
    """What each gradient adds, in ready order; then what the backward computes after the last of them."""
    done: set[Node] = set()
    costs = []
    for gradient in gradients:
        new = closure([backward.nodes[gradient.place]], done)
        done |= new
        costs.append(sum(node_cost_s(node) for node in new))
    rest = closure(backward.outputs, done)
    return [*costs, sum(node_cost_s(node) for node in rest)]


def spread_over_segments(
    costs_s: Sequence[float], segments: Sequence[int], ends_s: Sequence[float], backward_s: float
) -> list[float]:
    """Ready times from measured segment ends.

    costs_s: of each gradient in ready order, then the tail. segments: of each gradient, not falling. ends_s: of each
    segment, seconds of computation after the backward began. backward_s: the end of it all.
    """
    ready: list[float] = []
    for number, end_s in enumerate(ends_s):
        inside = [cost for cost, segment in zip(costs_s, segments) if segment == number]
        began_s = ends_s[number - 1] if number else 0.0
        whole, so_far = sum(inside), 0.0
        for cost in inside:
            so_far += cost
            share = so_far / whole if whole else 1.0
            ready.append(began_s + share * max(0.0, end_s - began_s))
    return [min(r, backward_s) for r in ready]


def median_ends(lengths: Iterable[Sequence[float]]) -> list[float]:
    """Ends of segments, from the medians of their lengths over passes of the same segments."""
    ends: list[float] = []
    for column in zip(*lengths, strict=True):
        ends.append((ends[-1] if ends else 0.0) + median(column))
    return ends
