"""The splitter: a backward Graph cut into segments, one after the node that completes each bucket.

In: the backward graph, a BucketPlan, and which output is which parameter's gradient. Out: `Segment`s for the compiled
wrapper, and the plan with the segment of each bucket filled in. Only the backward is cut; the forward stays whole.
Method: segment k holds what bucket k's gradients need and no earlier segment computed (ancestor closure), so a bucket
completes as early as the graph allows; what other outputs need comes last. Buckets that need no computation of their
own share the segment before them. A value that crosses a cut is an output of one segment and a placeholder (same name)
of the next; values that cost nothing to derive again are repeated instead of crossing (`aot/cutting.py`).
A boundary is a cut, or a notification: `whole` makes one segment that signals where `split` would have cut, which keeps
fusion across the boundary.
Invariants: the segments compute exactly the backward's outputs; each planned gradient is multiplied by `scale`
(1/world_size) in the segment that computes it, so that the average costs no pass over memory; on GPUs it is left as it
is (NCCL divides as it adds), so that the backward's kernels are those without DDP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from compiler_core import dtype as dtypes
from compiler_core.aot.cutting import Cutter, GraphPart, closure, is_free
from compiler_core.aot.strategy import Segment
from compiler_core.graph.ir import Call, Graph, Node, Placeholder
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import OPS
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.plan.bucket_plan import READY_ORDER, BucketPlan, Caps, ReadyParameter, make_plan
from distcompile.ddp.plan.tail import places_of, with_a_tail

SCALE = "grad_scale"  # name of the placeholder of role "scale", followed by _f64 if it is one


def gradient_ready_order(backward: Graph, outputs: Mapping[str, int]) -> list[ReadyParameter]:
    """The parameters named in `outputs` (name -> output index), in the order in which their gradients are complete."""
    position = {node: place for place, node in enumerate(backward.nodes)}
    ready = []
    for name, index in outputs.items():
        node = backward.outputs[index]
        ready.append(ReadyParameter(name, node.shape, node.dtype, position[node], position[node]))
    return with_a_tail(backward, sorted(ready, key=lambda p: p.ready))


def plan_backward(
    backward: Graph,
    outputs: Mapping[str, int],
    caps: Caps,
    others: Mapping[str, Tensor] | None = None,
    known: Sequence[ReadyParameter] = (),
) -> BucketPlan:
    """The bucket plan of a backward graph, by gradient-ready order.

    others: parameters that it does not use; last. known: the order, where it has been found already.
    """
    ready, end = list(known) or gradient_ready_order(backward, outputs), places_of(backward)
    ready += [ReadyParameter(name, tuple(p.shape), dtypes.of(p.dtype), end) for name, p in (others or {}).items()]
    plan = make_plan(ready, caps, order=READY_ORDER)
    return plan.with_segments(assign_segments(backward, plan, outputs))


def assign_segments(backward: Graph, plan: BucketPlan, outputs: Mapping[str, int]) -> list[int]:
    """For each bucket, the segment that completes it. Buckets that add no computation join the segment before.

    Planned parameters to which this graph gives no gradient are passed over: the reducer knows what to do with them.
    """
    done: set[Node] = set()
    segments: list[int] = []
    for bucket in plan.buckets:
        new = closure((backward.outputs[outputs[name]] for name in bucket.names if name in outputs), done)
        done |= new
        is_work = any(not is_free(node) for node in new)
        segments.append(segments[-1] + is_work if segments else 0)
    return segments


def split(backward: Graph, plan: BucketPlan, outputs: Mapping[str, int], *, with_scale: bool) -> list[Segment]:
    """Cut `backward` by `plan`. outputs: parameter name -> output index. with_scale: multiply gradients by `scale`."""
    return _Split(backward, plan, outputs, with_scale=with_scale).run()


def whole(backward: Graph, plan: BucketPlan, outputs: Mapping[str, int], *, with_scale: bool) -> list[Segment]:
    """`backward` in one segment that announces its parts: those that `split` would make segments of."""
    return [_Split(backward, plan, outputs, with_scale=with_scale).whole()]


class _Split(Cutter):
    """One run of the splitter."""

    def __init__(self, backward: Graph, plan: BucketPlan, outputs: Mapping[str, int], *, with_scale: bool) -> None:
        super().__init__(backward)
        self.with_scale = with_scale
        self.planned = [outputs[name] for name in plan.names if name in outputs]
        self.segment_of = {
            outputs[name]: bucket.segment for bucket in plan.buckets for name in bucket.names if name in outputs
        }

    def run(self) -> list[Segment]:
        return self.cut(self._parts())

    def whole(self) -> Segment:
        """All parts as one, with a signal for each that completes buckets.

        But for the signals it is the same for every plan: so are its kernels, and with them the order of every sum.
        """
        parts = self._parts()
        owned = sorted((i for p in parts for i in p.owned), key=lambda i: (self.position[self.graph.outputs[i]], i))
        segment = self.segment(0, GraphPart(set().union(*(p.own for p in parts)), owned), frozenset())
        place = {index: k for k, index in enumerate(segment.outputs)}
        signals = [tuple(place[i] for i in part.owned if i in self.segment_of) for part in parts]
        graph = replace(segment.graph, signals=tuple(signal for signal in signals if signal))
        return Segment(graph, segment.outputs)

    def _parts(self) -> list[GraphPart]:
        """Which nodes and which outputs each segment has."""
        done: set[Node] = set()
        parts: list[GraphPart] = []
        for k in range(max(self.segment_of.values(), default=0) + 1):
            owned = [i for i in self.planned if self.segment_of[i] == k]
            own = closure((self.graph.outputs[i] for i in owned), done)
            done |= own
            parts.append(GraphPart(own, owned))
        rest = [i for i in range(len(self.graph.outputs)) if i not in self.segment_of]
        tail = closure((self.graph.outputs[i] for i in rest), done)
        if any(not is_free(node) for node in tail):
            parts.append(GraphPart(tail))
        else:
            parts[-1].own |= tail
        self.add_rest(parts, rest)
        return parts

    def finish(
        self, part: GraphPart, new: Mapping[Node, Node]
    ) -> tuple[list[Node], dict[Node, list[Node]], list[Node]]:
        """With the scale: an unscaled gradient that later segments read is passed on as it is."""
        scales, after, gradients = self._scaled(part, new)
        return scales, after, [gradients[i] for i in part.owned]

    def _scaled(
        self, part: GraphPart, new: Mapping[Node, Node]
    ) -> tuple[list[Node], dict[Node, list[Node]], dict[int, Node]]:
        """The scale placeholders; gradient -> the calls that apply them; output index -> the node returned for it."""
        gradients = {i: new[self.graph.outputs[i]] for i in part.owned}
        planned = [i for i in part.owned if i in self.segment_of]
        if not self.with_scale or not planned:
            return [], {}, gradients
        scales: dict[dtypes.DType, Node] = {}
        calls: dict[Node, list[Node]] = {}
        for i in planned:
            dtype = dtypes.float64 if gradients[i].dtype.real is dtypes.float64 else dtypes.float32
            scale = scales.setdefault(dtype, scale_placeholder(dtype))
            steps = scale_gradient(gradients[i], scale, f"{gradients[i].name}_avg{i}")
            calls.setdefault(gradients[i], []).extend(steps)
            gradients[i] = steps[-1]
        return list(scales.values()), calls, gradients


def scale_placeholder(dtype: dtypes.DType) -> Placeholder:
    """The number that gradients of `dtype` are multiplied by: as exact as they are."""
    name = SCALE if dtype is dtypes.float32 else f"{SCALE}_{dtype.short}"
    return Placeholder(name, TensorMeta((), dtype), "scale", "session.scale()")


def scale_gradient(gradient: Node, scale: Node, name: str) -> list[Node]:
    """The calls of `gradient * scale`, broadcast and in the gradient's dtype; the last is the product."""
    nodes: list[Node] = []

    def call(stem: str, op: str, args: tuple[Node, ...], meta: TensorMeta, **attrs: object) -> Node:
        nodes.append(Call(stem, meta, op=OPS[op], args=args, attrs=attrs))
        return nodes[-1]

    factor = scale
    if gradient.dtype is not scale.dtype:
        factor = call(f"{name}_cast", "cast", (factor,), factor.meta.with_dtype(gradient.dtype), dtype=gradient.dtype)
    if gradient.shape != ():
        factor = call(f"{name}_scale", "expand", (factor,), gradient.meta, shape=gradient.shape)
    call(name, "mul", (gradient, factor), gradient.meta)
    return nodes
