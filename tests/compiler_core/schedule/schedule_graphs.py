"""Random graphs over shapes that meet in many ways: what the lowering and schedule fuzz tests run.

In: a seed. Out: a Graph and arrays for its inputs. Values stay tame (bounded ops, small matrix products), so that f32
results compare.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from compiler_core.dtype import float32, int64
from compiler_core.graph.ir import Graph, GraphBuilder, Node
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.registry import Array, use_trace

SHAPES = ((4, 6), (24,), (2, 3, 4), (6, 4), (4, 1), (6,), (2, 12), (1, 6), (3, 2, 4))
Step = Callable[[random.Random, list[Node]], Node]


def _pick(rng: random.Random, pool: list[Node], ndim: int = 0) -> Node:
    return rng.choice([node for node in pool if node.meta.ndim >= ndim] or pool)


def _dims(rng: random.Random, node: Node) -> tuple[int, ...]:
    return tuple(sorted(rng.sample(range(node.meta.ndim), rng.randint(1, node.meta.ndim))))


def _unary(rng: random.Random, pool: list[Node]) -> Node:
    function = rng.choice(
        [prims.tanh, prims.neg, prims.sigmoid, prims.abs, lambda x: prims.exp(prims.tanh(x)), prims.sin]
    )
    return function(_pick(rng, pool))


def _binary(rng: random.Random, pool: list[Node]) -> Node:
    a = _pick(rng, pool)
    fitting = [b for b in pool if _broadcasts(a.shape, b.shape)]
    function = rng.choice([F.add, F.sub, F.mul, F.maximum, F.minimum])
    return prims.tanh(function(a, rng.choice(fitting)))


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(a[::-1], b[::-1]))


def _reduce(rng: random.Random, pool: list[Node]) -> Node:
    x = _pick(rng, pool, 1)
    if x.meta.ndim == 0:
        return x
    dims, keep = _dims(rng, x), rng.random() < 0.6
    return rng.choice([F.sum, F.mean, F.amax, F.amin])(x, dims, keep)


def _row_op(rng: random.Random, pool: list[Node]) -> Node:
    x = _pick(rng, pool, 1)
    if x.meta.ndim == 0:
        return x
    dim = rng.randrange(-1, x.meta.ndim)
    return rng.choice([F.softmax, F.log_softmax, lambda v, d: F.layer_norm(v, v.shape[-1:])])(x, dim)


def _move(rng: random.Random, pool: list[Node]) -> Node:
    x = _pick(rng, pool, 1)
    if x.meta.ndim == 0:
        return x
    match rng.randrange(6):
        case 0:
            return prims.permute(x, tuple(rng.sample(range(x.meta.ndim), x.meta.ndim)))
        case 1:
            return prims.reshape(x, rng.choice([s for s in SHAPES if np.prod(s) == x.meta.numel] or [(x.meta.numel,)]))
        case 2:
            d = rng.randrange(x.meta.ndim)
            n = max(1, x.shape[d] // 2)
            return F.narrow(x, d, rng.randint(0, x.shape[d] - n), n)
        case 3:
            return F.cat([x, prims.neg(x)], rng.randrange(x.meta.ndim))
        case 4:
            low = tuple(rng.randint(0, 1) for _ in x.shape)
            return prims.pad(x, low, tuple(1 - k for k in low), 0.5)
        case _:
            return prims.flip(x, _dims(rng, x))


def _product(rng: random.Random, pool: list[Node]) -> Node:
    a = _pick(rng, pool, 2)
    if a.meta.ndim < 2:
        return a
    b = rng.choice([F.transpose(a, -1, -2), *[n for n in pool if n.meta.ndim == 2 and n.shape[0] == a.shape[-1]]])
    return prims.tanh(F.matmul(a, b)) if rng.random() < 0.5 else F.mul(F.matmul(a, b), 0.25)


def _select(rng: random.Random, pool: list[Node]) -> Node:
    x = _pick(rng, pool, 1)
    if x.meta.ndim == 0:
        return x
    match rng.randrange(3):
        case 0:
            return F.where(F.gt(x, 0.1), x, F.mul(x, 0.5))
        case 1 if x.meta.ndim >= 2:
            return F.tril(x)
        case _:
            places = F.argmax(x, -1, True)
            return F.gather(x, -1, places)


def _scatter(rng: random.Random, pool: list[Node]) -> Node:
    x = _pick(rng, pool, 1)
    if x.meta.ndim == 0:
        return x
    index = prims.cast(prims.iota((x.shape[0],), 0, float32), int64)
    index = prims.bitwise_and(index, prims.full_like(index, rng.choice([0, 1, -1])))
    base = prims.full_like(x, 0.25) if rng.random() < 0.5 else x
    return prims.index_add(base, index, x)


STEPS: tuple[Step, ...] = (
    _unary,
    _binary,
    _binary,
    _reduce,
    _row_op,
    _row_op,
    _move,
    _move,
    _product,
    _select,
    _scatter,
)


def random_graph(seed: int, n_steps: int = 14) -> tuple[Graph, list[Array]]:
    """A graph of `n_steps` random steps, a few of its values as outputs, and its inputs."""
    rng = random.Random(seed)
    values = np.random.default_rng(seed)
    builder = GraphBuilder(f"random{seed}")
    shapes = rng.sample(SHAPES, 3)
    pool: list[Node] = [builder.placeholder("x", TensorMeta(shape, float32)) for shape in shapes]
    with use_trace(builder):
        for _ in range(n_steps):
            node = rng.choice(STEPS)(rng, pool)
            if node.meta.numel <= 4096:
                pool.append(node)
    outputs = [*rng.sample(pool, min(3, len(pool))), pool[-1]]
    return builder.build(outputs), [values.standard_normal(shape).astype(np.float32) for shape in shapes]
