"""A small network as a graph, and nothing that a warm start would not import."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler_core.dtype import DType, float32
from compiler_core.graph.ir import Graph, GraphBuilder
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops.registry import Value, use_trace


def graph_of(
    function: Callable[..., Any], *shapes: tuple[int, ...], dtypes: Sequence[DType] = (), name: str = "f"
) -> Graph:
    builder = GraphBuilder(name)
    metas = [TensorMeta(s, d) for s, d in zip(shapes, dtypes or [float32] * len(shapes), strict=True)]
    with use_trace(builder):
        result: Value = function(*(builder.placeholder(f"x{k}", meta) for k, meta in enumerate(metas)))
    return builder.build(result if isinstance(result, list) else [result])


def mlp(x: Value, w1: Value, b1: Value, w2: Value) -> Value:
    return F.softmax(F.linear(F.gelu(F.linear(x, w1, b1), approximate="tanh"), w2), -1)


MLP = graph_of(mlp, (6, 5), (7, 5), (7,), (3, 7), name="mlp")


def mlp_inputs() -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=node.shape).astype(np.float32) for node in MLP.inputs]
