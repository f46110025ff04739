"""Whether buckets on GPUs travel by few multiprocessors, which takes longer, because the backward hides that, too.

In: a backward graph and its bucket plan. Out: `is_hidden`, the same on all ranks: they have one graph.
NCCL takes as many multiprocessors as fill the link. Products of matrices are cut into as many parts as a GPU has
multiprocessors: with some of them gone each takes two rounds, so twice as long. GPT-2 124 M on two H200s: 3.7 ms of
all-reduces on 24 multiprocessors made the backward 1.9 ms longer. On 8 they take 7.6 ms; products that were chosen
beside so many (runtime/cuda/products.py) lose nothing, and all is hidden while the backward is long enough.
Method: the time of the backward is at least that of its products at RATES; half of it must do for the buckets at LINK.
"""

from __future__ import annotations

from compiler_core.graph.ir import Call, Graph, Node
from compiler_core.ops.routine import Routine
from compiler_core.ops.rules import Expansion
from distcompile.ddp.bucket_plan import BucketPlan

LINK = 90e9  # bytes a second of an all-reduce by 8 multiprocessors of H200s, two ranks
RATES = {2: 700e12, 4: 400e12}  # operations a second, by the bytes of an element: what H200s reach (f32 as tf32)
SLOWEST = 60e12  # of all others


def is_hidden(backward: Graph, plan: BucketPlan) -> bool:
    """Whether the buckets take less than half of the backward's time even so."""
    nbytes = sum(bucket.nbytes for bucket in plan.buckets)
    return 2 * nbytes / LINK < sum(map(_seconds, backward.nodes))


def _seconds(node: Node) -> float:
    """Of a call of a library, at least; 0 of all else."""
    if not isinstance(node, Call) or not isinstance(node.op.lower, Routine | Expansion):
        return 0.0
    flops = node.op.lower.flops(*(arg.meta for arg in node.args), **node.attrs)
    return float(flops) / RATES.get(node.args[0].meta.dtype.itemsize, SLOWEST)
