"""Sums down the columns with fewer sweeps: batch norm's statistics and gradient, as numbers and as counts of sums."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from compiler_core.dtype import DType, bfloat16, float32
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder
from compiler_core.graph.passes import SIMPLIFY_JOINT, ColumnSums, run_passes
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.composites.norm import batch_norm, batch_statistics
from compiler_core.ops.differentiate import vjp_of
from compiler_core.ops.registry import use_trace

SHAPE = (16, 8, 24, 24)  # channels are dim 1


def _trained(dtype: DType) -> Graph:
    """batch_norm in training: its result, statistics, and the gradients of x, weight and bias by a cotangent."""
    builder = GraphBuilder("graph")
    names = [("x", SHAPE, dtype), ("weight", (SHAPE[1],), float32), ("bias", (SHAPE[1],), float32)]
    x, weight, bias = (builder.placeholder(name, TensorMeta(shape, d)) for name, shape, d in names)
    g = builder.placeholder("g", TensorMeta(SHAPE, dtype))
    with use_trace(builder):
        out = batch_norm(x, None, None, weight, bias, training=True)
        grads = vjp_of(lambda *v: batch_norm(v[0], None, None, v[1], v[2], training=True), g, x, weight, bias)
        return run_passes(builder.build([out, *batch_statistics(x), *grads]), SIMPLIFY_JOINT)


def _sums(graph: Graph) -> int:
    return sum(call.op.name == "sum" and call.args[0].meta.numel > 1 << 15 for call in graph.calls)


@pytest.mark.parametrize(("dtype", "sums"), [(bfloat16, 4), (float32, 4)])
def test_batch_norm_takes_fewer_sums_and_means_the_same(dtype: DType, sums: int) -> None:
    rng, graph = np.random.default_rng(0), _trained(dtype)
    made = ColumnSums().apply(graph)
    assert _sums(made) == sums < _sums(graph)
    x = (rng.standard_normal(SHAPE) * 3 + 40).astype(dtype.numpy)
    arrays = [x, *rng.standard_normal((2, SHAPE[1])).astype(np.float32), rng.standard_normal(SHAPE).astype(dtype.numpy)]
    tolerance = 2e-2 if dtype is bfloat16 else 1e-4
    for ours, expected in zip(interpret(made, arrays), interpret(graph, arrays), strict=True):
        wide = np.asarray(expected, np.float64)
        np.testing.assert_allclose(
            np.asarray(ours, np.float64), wide, rtol=tolerance, atol=tolerance * np.abs(wide).max()
        )


def test_a_first_row_far_off_costs_little() -> None:
    """The shift is a median."""
    rng = np.random.default_rng(0)
    builder = GraphBuilder("graph")
    x = builder.placeholder("x", TensorMeta((1 << 14, 8), bfloat16))
    with use_trace(builder):
        graph = run_passes(builder.build([*batch_statistics(x)]), SIMPLIFY_JOINT)
    array = rng.standard_normal((1 << 14, 8)).astype(ml_dtypes.bfloat16)
    array[0] = 1000
    (mean, variance), (_, expected) = (interpret(g, [array]) for g in (ColumnSums().apply(graph), graph))
    np.testing.assert_allclose(variance, expected, rtol=1e-2)
    np.testing.assert_allclose(mean, array.astype(np.float64).mean(0), rtol=1e-2, atol=1e-2)


def test_other_sums_stay() -> None:
    builder = GraphBuilder("graph")
    x = builder.placeholder("x", TensorMeta((1 << 10, 128), float32))
    with use_trace(builder):
        graph = builder.build([prims.sum(x, (0,)), prims.sum(prims.mul(x, x), (0,)), prims.sum(prims.add(x, x), (1,))])
    assert [call.op.name for call in ColumnSums().apply(graph).calls] == [call.op.name for call in graph.calls]


def test_what_repeats_along_the_columns_too_is_no_column() -> None:
    """One number for all, and an array that varies along axes that are summed."""
    builder = GraphBuilder("graph")
    x = builder.placeholder("x", TensorMeta((64, 32, 64), float32))
    one, row = (
        builder.placeholder("one", TensorMeta((1, 1, 1), float32)),
        builder.placeholder("v", TensorMeta((64,), float32)),
    )
    with use_trace(builder):
        turned = prims.permute(prims.expand(prims.reshape(row, (64, 1)), (64, 32)), (1, 0))  # (32, 64)
        scaled = [prims.expand(one, x.shape), prims.expand(turned, x.shape)]
        graph = builder.build([prims.sum(prims.mul(x, scale), (1, 2)) for scale in scaled])
    arrays = [np.random.default_rng(0).standard_normal(node.shape).astype(np.float32) for node in graph.inputs]
    for ours, expected in zip(interpret(ColumnSums().apply(graph), arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-3)
