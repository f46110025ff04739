"""In which order buckets leave when the next forward waits for them: those that it needs first go first.

In: the forward and backward graphs, and the buckets. Out: where each parameter is first used; a launch order.
Buckets become ready from the last layer to the first and are needed from the first to the last: the last to be ready is
the first to be needed. Method: whenever the channel is free, the ready bucket that is needed first leaves (list
scheduling by due date, Horn, "Some simple scheduling algorithms", 1974). All ranks must launch in one order, so it is
planned and not chosen when buckets become ready. Without measurements the plan supposes that communication takes as
long as a step's computation: with less the order matters little, with more nothing hides it. `tuning/` measures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from compiler_core.aot.cutting import closure, is_free
from compiler_core.graph.ir import Call, Graph, Node
from compiler_core.ops.routine import Routine
from compiler_core.ops.rules import Expansion
from distcompile.ddp.plan.bucket_plan import BucketPlan, ReadyParameter

_LIBRARY_WEIGHT = 1 / 16  # of a multiplication in a matrix product, beside one element of any other op


def first_use(forward: Graph, inputs: Mapping[str, str]) -> dict[str, int]:
    """Parameter -> place of the first node of `forward` that reads it; behind all nodes if none does.

    inputs: name of a placeholder of `forward` -> name of the parameter.
    """
    place = {node: k for k, node in enumerate(forward.nodes)}
    users = forward.users()
    used = {node: min((place[user] for user in users[node]), default=len(place)) for node in forward.inputs}
    return {inputs[node.name]: at for node, at in used.items() if node.name in inputs}


def ready_shares(backward: Graph, ready: Sequence[ReadyParameter]) -> dict[str, float]:
    """Parameter -> the share of the work that is done when its gradient is complete, if they are completed in turn."""
    done: set[Node] = set()
    total, so_far, shares = sum(map(work_of, backward.nodes)), 0.0, {}
    for parameter in ready:
        new = closure([backward.nodes[parameter.place]], done)
        done |= new
        so_far += sum(map(work_of, new))
        shares[parameter.name] = so_far / max(total, 1.0)
    return shares


def work_of(node: Node) -> float:
    """What computing `node` takes, beside others."""
    if not isinstance(node, Call) or is_free(node):
        return 0.0
    numel, routine = float(node.meta.numel), node.op.lower
    if not isinstance(routine, Routine | Expansion):
        return numel
    flops = routine.flops(*(arg.meta for arg in node.args), **node.attrs)
    return flops / 2 * _LIBRARY_WEIGHT if flops else numel


def launch_order(plan: BucketPlan, ready: Mapping[str, float], use: Mapping[str, int]) -> tuple[int, ...]:
    """The order in which the buckets of `plan` shall leave.

    ready: parameter -> share of the backward's work after which its gradient is complete, 0..1. use: see `first_use`.
    """
    total = sum(bucket.nbytes for bucket in plan.buckets)
    cost = [1.5 * bucket.nbytes / max(total, 1) for bucket in plan.buckets]  # a step is 1.5 backwards of computation
    release = [max(ready.get(name, 1.0) for name in bucket.names) for bucket in plan.buckets]
    due = [min(use.get(name, math.inf) for name in bucket.names) for bucket in plan.buckets]
    return by_due_date(release, cost, due)


def by_due_date(release: Sequence[float], cost: Sequence[float], due: Sequence[float]) -> tuple[int, ...]:
    """Jobs on one machine that is never idle while one is released: of those, always the one due first."""
    left, order, now = set(range(len(cost))), [], 0.0
    while left:
        now = max(now, min(release[k] for k in left))
        k = min((k for k in left if release[k] <= now), key=lambda k: (due[k], k))
        now += cost[k]
        left.remove(k)
        order.append(k)
    return tuple(order)
