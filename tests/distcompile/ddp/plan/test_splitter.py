"""Segments compute what the whole backward computes; cuts stand where buckets complete; ties wait for the last use."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from compiler_core import dtype as dtypes
from compiler_core.aot.strategy import Segment
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder, Node
from compiler_core.graph.verify import verify
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.registry import use_trace
from compiler_core.tensor.tensor import Tensor
from distcompile.ddp.plan.bucket_plan import BucketPlan, Caps
from distcompile.ddp.plan.splitter import assign_segments, plan_backward, split

TINY = Caps(1, 1)  # every parameter a bucket


def meta(*shape: int, dtype: dtypes.DType = dtypes.float32) -> TensorMeta:
    return TensorMeta(shape, dtype)


def record(function: Callable[..., list[Node]], **placeholders: TensorMeta) -> Graph:
    builder = GraphBuilder("backward")
    nodes = [builder.placeholder(name, m) for name, m in placeholders.items()]
    with use_trace(builder):
        return builder.build(function(*nodes))


def mlp_backward() -> Graph:
    """Gradients of w2, b2, w1, b1 and x of relu(x w1 + b1) w2 + b2, ready in this order."""

    def backward(g: Node, h: Node, x: Node, w1: Node, w2: Node) -> list[Node]:
        dw2 = prims.matmul(prims.permute(h, (1, 0)), g)
        db2 = prims.sum(g, (0,))
        dh = prims.matmul(g, prims.permute(w2, (1, 0)))
        dz = prims.mul(dh, prims.cast(prims.gt(h, prims.full((4, 5), 0.0, dtypes.float32)), dtypes.float32))
        dw1 = prims.matmul(prims.permute(x, (1, 0)), dz)
        db1 = prims.sum(dz, (0,))
        dx = prims.matmul(dz, prims.permute(w1, (1, 0)))
        return [dw1, db1, dw2, db2, dx]

    return record(backward, g=meta(4, 2), h=meta(4, 5), x=meta(4, 3), w1=meta(3, 5), w2=meta(5, 2))


OUTPUTS = {"w1": 0, "b1": 1, "w2": 2, "b2": 3}


def arrays_for(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {p.name: rng.uniform(-1, 1, p.shape).astype(p.dtype.numpy) for p in graph.inputs}


def run_segments(segments: list[Segment], inputs: dict[str, np.ndarray], scale: float) -> dict[int, np.ndarray]:
    """Run the segments one after the other, as the compiled wrapper does: values are found by name."""
    values = {**inputs, "grad_scale": np.float32(scale).reshape(()), "grad_scale_f64": np.asarray(scale)}
    results: dict[int, np.ndarray] = {}
    for segment in segments:
        verify(segment.graph)
        outputs = interpret(segment.graph, [values[p.name] for p in segment.graph.inputs])
        for node, index, array in zip(segment.graph.outputs, segment.outputs, outputs, strict=True):
            values[node.name] = array
            if index is not None:
                assert index not in results, "an output came twice"
                results[index] = array
    return results


def check_equals_whole(graph: Graph, outputs: dict[str, int], plan: BucketPlan, scale: float = 0.25) -> list[Segment]:
    segments = split(graph, plan, outputs, with_scale=scale != 1.0)
    inputs = arrays_for(graph)
    whole = interpret(graph, [inputs[p.name] for p in graph.inputs])
    parts = run_segments(segments, inputs, scale)
    assert sorted(parts) == list(range(len(graph.outputs)))
    for index, expected in enumerate(whole):
        factor = np.asarray(scale, expected.dtype) if index in outputs.values() else expected.dtype.type(1)
        np.testing.assert_array_equal(parts[index], expected * factor)
    return segments


@pytest.mark.parametrize("scale", [1.0, 0.5, 0.3])
@pytest.mark.parametrize("cap", [1, 40, 10_000])
def test_segments_compute_what_the_whole_computes(cap: int, scale: float) -> None:
    graph = mlp_backward()
    check_equals_whole(graph, OUTPUTS, plan_backward(graph, OUTPUTS, Caps(cap, cap)), scale)


def test_buckets_follow_the_backward_and_cuts_follow_buckets() -> None:
    graph = mlp_backward()
    plan = plan_backward(graph, OUTPUTS, TINY)
    assert [b.names for b in plan.buckets] == [("w2",), ("b2",), ("w1",), ("b1",)]
    assert [b.segment for b in plan.buckets] == [0, 1, 2, 3]
    segments = check_equals_whole(graph, OUTPUTS, plan)
    assert len(segments) == 5  # dx is not a parameter: it comes after the last bucket is on its way
    first = [node.op.name for node in segments[0].graph.calls]
    assert "sum" not in first
    assert first.count("matmul") == 1


def test_a_segment_holds_only_what_its_bucket_needs() -> None:
    graph = mlp_backward()
    outputs = {"b1": 1, "w1": 0}  # w2 and b2 frozen
    segments = check_equals_whole(graph, outputs, plan_backward(graph, outputs, Caps(1 << 20, 1 << 20)))
    assert [segment.outputs for segment in segments] == [(0, 1, None), (2, 3, 4)]


def test_views_and_constants_are_repeated_instead_of_crossing() -> None:
    def backward(g: Node, x: Node) -> list[Node]:
        flat = prims.reshape(prims.exp(g), (6,))
        return [prims.sin(flat), prims.mul(flat, x)]

    graph = record(backward, g=meta(2, 3), x=meta(6))
    segments = check_equals_whole(graph, {"a": 0, "b": 1}, plan_backward(graph, {"a": 0, "b": 1}, TINY))
    assert [node.op.name for node in segments[1].graph.calls][:2] == ["reshape", "mul"]
    assert {p.name: str(p.meta) for p in segments[1].graph.inputs} == {
        "exp": "f32[2, 3]",
        "x": "f32[6]",
        "grad_scale": "f32[]",
    }


def test_a_tied_gradient_is_cut_after_its_last_contribution() -> None:
    def backward(g: Node, h: Node, x: Node) -> list[Node]:
        first = prims.matmul(g, prims.permute(h, (1, 0)))
        other = prims.sin(x)
        return [prims.add(first, prims.exp(other)), other]

    graph = record(backward, g=meta(3, 3), h=meta(3, 3), x=meta(3, 3))
    outputs = {"tied": 0, "other": 1}
    plan = plan_backward(graph, outputs, TINY)
    assert [b.names for b in plan.buckets] == [("other",), ("tied",)]
    check_equals_whole(graph, outputs, plan)


def test_two_parameters_with_one_gradient_node_get_a_copy_each() -> None:
    graph = record(lambda g: [prims.sum(g, (0,))] * 2, g=meta(4, 3))
    outputs = {"b1": 0, "b2": 1}
    plan = plan_backward(graph, outputs, TINY)
    assert [b.segment for b in plan.buckets] == [0, 0]
    segments = check_equals_whole(graph, outputs, plan)
    assert len(segments) == 1
    assert len(set(segments[0].graph.outputs)) == 2


def test_a_gradient_that_is_the_tangent_itself() -> None:
    graph = record(lambda g, x: [g, prims.mul(g, x)], g=meta(3), x=meta(3))
    check_equals_whole(graph, {"b": 0}, plan_backward(graph, {"b": 0}, TINY))
    check_equals_whole(graph, {"w": 1}, plan_backward(graph, {"w": 1}, TINY))


@pytest.mark.parametrize("dtype", [dtypes.float64, dtypes.float16, dtypes.bfloat16])
def test_the_scale_takes_the_gradients_dtype(dtype: dtypes.DType) -> None:
    graph = record(lambda g: [prims.mul(g, g)], g=meta(2, 2, dtype=dtype))
    segments = check_equals_whole(graph, {"w": 0}, plan_backward(graph, {"w": 0}, TINY), scale=0.5)
    assert segments[0].graph.outputs[0].dtype is dtype


def test_a_plan_serves_the_same_model_at_another_batch_size() -> None:
    graph = mlp_backward()
    plan = plan_backward(graph, OUTPUTS, TINY)
    assert assign_segments(graph, plan, OUTPUTS) == [b.segment for b in plan.buckets]


def test_planned_parameters_that_a_graph_does_not_use_are_passed_over() -> None:
    graph = mlp_backward()
    plan = plan_backward(graph, OUTPUTS, TINY)
    used = {"w1": 0, "b1": 1}
    made = split(graph, plan.with_segments(assign_segments(graph, plan, used)), used, with_scale=False)
    assert sorted(i for segment in made for i in segment.outputs if i is not None) == list(range(len(graph.outputs)))
    others = {"spare": Tensor._wrap(np.zeros((3, 2), np.float32))}
    assert plan_backward(graph, OUTPUTS, TINY, others).names[-1] == "spare"
