"""Random straight-line graphs for fuzzing passes, joint graphs and partitions: float64, smooth, modest magnitudes.

In: a seed. Out: `random_graph(seed)`, `random_inputs(graph, seed)`. Shapes are drawn from a few that interact
(broadcasts, reductions, transposes, slices, pads), and constants are chosen so that rewriting rules find work.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler_core.dtype import float64
from compiler_core.graph.ir import Graph, GraphBuilder, Node
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.registry import use_trace

SHAPES = [(2, 3), (3, 2), (2, 3, 4), (1, 3), (3,), (), (2, 1, 4)]
NUMBERS = [0.0, 1.0, -1.0, 2.0, 0.5, 0.3, -0.25]


def random_graph(seed: int, size: int = 18, shapes: Sequence[tuple[Any, ...]] = SHAPES[:5]) -> Graph:
    """A graph of about `size` calls with one to three outputs. shapes: of its inputs; sizes may be symbols."""
    rng = random.Random(seed)
    builder = GraphBuilder(f"random_{seed}")
    values: list[Any] = [builder.placeholder(f"x{i}", TensorMeta(shape, float64)) for i, shape in enumerate(shapes)]
    with use_trace(builder):
        while len(builder.body) < size:
            values.append(_step(rng, values))
    outputs = rng.sample(values[5:], k=rng.randint(1, 3))
    return builder.build([*outputs, values[-1]])


def random_inputs(graph: Graph, seed: int) -> list[np.ndarray]:
    """Values for the placeholders: floats in (0.1, 1), small indices, bits."""
    rng = np.random.default_rng(seed)
    arrays = []
    for node in graph.inputs:
        if node.dtype.is_floating_point:
            arrays.append(rng.uniform(0.1, 1.0, node.shape).astype(node.dtype.numpy))
        else:
            arrays.append(rng.integers(0, 3, node.shape).astype(node.dtype.numpy))
    return arrays


def _step(rng: random.Random, values: list[Any]) -> Any:
    x = rng.choice(values[-8:])
    kinds = [_unary, _binary, _binary, _binary, _number, _movement, _movement, _reduction]
    return rng.choice(kinds)(rng, x, values)


def _unary(rng: random.Random, x: Any, values: list[Any]) -> Any:
    return rng.choice([prims.neg, prims.tanh, prims.sin, prims.sigmoid, prims.erf, prims.detach])(x)


def _binary(rng: random.Random, x: Any, values: list[Any]) -> Any:
    alike = [v for v in values if v.shape == x.shape]
    if len(x.shape) == 2 and rng.random() < 0.3:
        return prims.matmul(x, prims.permute(x, (1, 0)))
    return rng.choice([prims.add, prims.sub, prims.mul, prims.maximum])(x, rng.choice(alike))


def _number(rng: random.Random, x: Any, values: list[Any]) -> Any:
    number = prims.full(x.shape, rng.choice(NUMBERS), float64)
    a, b = (x, number) if rng.random() < 0.5 else (number, x)
    return rng.choice([prims.add, prims.sub, prims.mul])(a, b)


def _movement(rng: random.Random, x: Node, values: list[Any]) -> Any:
    rank = len(x.shape)
    choice = rng.randrange(6)
    if choice == 0:
        return prims.permute(x, rng.sample(range(rank), rank))
    if choice == 1:
        return prims.reshape(x, rng.choice([(x.meta.numel,), (1, *x.shape), (*x.shape, 1)]))
    if choice == 2:
        return prims.expand(x, (2, *x.shape)) if rank < 3 else prims.reshape(x, (x.meta.numel,))
    if choice == 3 and rank and 0 not in x.shape:
        starts = [rng.randrange(n if type(n) is int else 2) for n in x.shape]
        return prims.slice(x, starts, x.shape, [rng.randint(1, 2) for _ in x.shape])
    if choice == 4 and rank:
        low = [rng.randrange(2) for _ in x.shape]
        return prims.pad(x, low, [rng.randrange(2) for _ in x.shape], 0.0)
    return prims.cat([x, x], rng.randrange(rank)) if rank else x


def _reduction(rng: random.Random, x: Node, values: list[Any]) -> Any:
    rank = len(x.shape)
    dims = sorted(rng.sample(range(rank), rng.randint(0, rank)))
    if rng.random() < 0.3:
        small = prims.sum(x, dims)
        kept = tuple(1 if d in dims else n for d, n in enumerate(x.shape))
        return prims.sub(x, prims.expand(prims.reshape(small, kept), x.shape))
    return prims.sum(x, dims)
