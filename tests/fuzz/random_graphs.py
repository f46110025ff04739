"""Random graphs over the composite functions: what a seed builds, it always builds.

In: a seed. Out: a verified Graph with a few inputs and some fourteen calls, pointwise, reducing, moving,
indexing and products, and the arrays to run it on. Values are kept near 1 (tanh after what grows), and nothing is
compared, so that float32 programs that are right agree with each other closely.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler_core.dtype import bfloat16, float16, float32, float64
from compiler_core.graph.ir import Graph, GraphBuilder, Node
from compiler_core.graph.verify import verify
from compiler_core.ops import functional as F
from compiler_core.ops.registry import Array, meta_of, use_trace

Rule = Callable[["RandomGraph"], Any]
DTYPES = (*[float32] * 6, float64, bfloat16, float16)
SIZES = (1, 2, 3, 4, 7, 8, 16)


class RandomGraph:
    """A graph under construction: a pool of values, and a rule chosen at random at every step."""

    def __init__(self, seed: int, steps: int = 14) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = DTYPES[self.rng.integers(len(DTYPES))]
        self.builder = GraphBuilder(f"fuzz_{seed}")
        self.arrays: list[Array] = []
        self.pool: list[Node] = []
        with use_trace(self.builder):
            for _ in range(self.rng.integers(1, 4)):
                self.pool.append(self.input(self.shape()))
            for _ in range(steps):
                self.step()
            outputs = self.pool[-3:]
        self.graph: Graph = verify(self.builder.build(dict.fromkeys(outputs)))

    def shape(self) -> tuple[int, ...]:
        return tuple(int(n) for n in self.rng.choice(SIZES, self.rng.integers(1, 4)))

    def input(self, shape: tuple[int, ...]) -> Node:
        """A new placeholder of floats."""
        return self.new_input(self.rng.standard_normal(shape).astype(self.dtype.numpy))

    def new_input(self, array: Array) -> Node:
        self.arrays.append(array)
        return self.builder.placeholder(f"x{len(self.arrays)}", meta_of(array))

    def pick(self, min_ndim: int = 0) -> Node:
        """A value of the pool, a late one more often than not; a new input if none has enough dims."""
        fitting = [v for v in self.pool if len(v.shape) >= min_ndim]
        if not fitting:
            return self.input((3, 4, 2)[: max(min_ndim, 1)])
        place = max(self.rng.integers(0, len(fitting)), self.rng.integers(0, len(fitting)))
        return fitting[place]

    def partner(self, x: Node) -> Node:
        """Something that broadcasts with x: a value of its shape, or a new input with some sizes 1 or dims gone."""
        same = [v for v in self.pool if v.shape == x.shape]
        if same and self.rng.random() < 0.6:
            return same[self.rng.integers(len(same))]
        kept = x.shape[self.rng.integers(0, len(x.shape) + 1) :]
        return self.input(tuple(1 if self.rng.random() < 0.3 else n for n in kept))

    def dim(self, x: Node) -> int:
        return int(self.rng.integers(len(x.shape)))

    def step(self) -> None:
        rule = RULES[self.rng.integers(len(RULES))]
        value = rule(self)
        if value.shape and np.prod(value.shape) > 4096:
            value = F.mean(value, 0)
        self.pool.append(value)


def _unary(g: RandomGraph) -> Node:
    names = ("tanh", "sigmoid", "gelu", "silu", "erf", "sin", "relu", "softplus", "neg", "square")
    x = getattr(F, names[g.rng.integers(len(names))])(g.pick())
    return x


def _binary(g: RandomGraph) -> Node:
    x = g.pick()
    y = g.partner(x)
    name = ("add", "sub", "mul")[g.rng.integers(3)]
    return F.tanh(getattr(F, name)(x, y)) if name == "mul" else getattr(F, name)(x, y)


def _scalar(g: RandomGraph) -> Node:
    return F.mul(F.add(g.pick(), round(float(g.rng.uniform(-1, 1)), 2)), round(float(g.rng.uniform(-1, 1)), 2))


def _select(g: RandomGraph) -> Node:
    x = g.pick()
    if not x.shape:
        return F.relu(x)
    chosen = g.new_input(g.rng.random(x.shape) < 0.5)
    return F.where(chosen, x, F.sin(x))


def _reduce(g: RandomGraph) -> Node:
    x = g.pick(1)
    dims = tuple(d for d in range(len(x.shape)) if g.rng.random() < 0.5) or (g.dim(x),)
    name = ("mean", "sum", "mean")[g.rng.integers(3)]
    return F.tanh(getattr(F, name)(x, dims, keepdim=bool(g.rng.random() < 0.5)))


def _row_function(g: RandomGraph) -> Node:
    x = g.pick(1)
    kind = g.rng.integers(4)
    if kind == 0:
        return F.softmax(x, g.dim(x))
    if kind == 1:
        return F.log_softmax(x, g.dim(x))
    if kind == 2:
        return F.mul(F.layer_norm(x, x.shape[-1], eps=0.1), 0.5)
    return F.logsumexp(x, g.dim(x))


def _reshape(g: RandomGraph) -> Node:
    x = g.pick(1)
    if g.rng.random() < 0.5:
        return F.flatten(x, g.dim(x) if len(x.shape) > 1 else 0)
    even = [d for d, n in enumerate(x.shape) if n % 2 == 0 and n]
    return F.unflatten(x, even[0], (2, -1)) if even and len(x.shape) < 4 else F.unsqueeze(x, 0)


def _permute(g: RandomGraph) -> Node:
    x = g.pick(2)
    return F.permute(x, tuple(int(d) for d in g.rng.permutation(len(x.shape))))


def _slice(g: RandomGraph) -> Node:
    x = g.pick(1)
    d = g.dim(x)
    n = x.shape[d]
    start, stop = sorted(int(i) for i in g.rng.integers(0, n + 1, 2))
    step = int(g.rng.choice([1, 1, 2, -1]))
    index = slice(start, max(stop, start + 1), step) if step > 0 else slice(None, None, step)
    start = min(start, n - 1)
    index = slice(start, max(stop, start + 1), step) if step > 0 else index
    return F.getitem(x, (*[slice(None)] * d, index))


def _pad_or_roll(g: RandomGraph) -> Node:
    x = g.pick(1)
    if g.rng.random() < 0.5:
        return F.pad(x, (int(g.rng.integers(0, 3)), int(g.rng.integers(0, 3))))
    return F.roll(x, int(g.rng.integers(-3, 4)), g.dim(x))


def _join(g: RandomGraph) -> Node:
    x = g.pick(1)
    same = [v for v in g.pool if v.shape == x.shape]
    return F.cat([x, same[g.rng.integers(len(same))], F.neg(x)], g.dim(x))


def _matmul(g: RandomGraph) -> Node:
    x = g.pick(2)
    kind = g.rng.integers(3)
    n = int(g.rng.choice(SIZES))
    scale = x.shape[-1] ** -0.5
    if kind == 0:
        return F.linear(x, F.mul(g.input((n, x.shape[-1])), scale), g.input((n,)))
    if kind == 1:
        return F.tanh(F.mul(F.matmul(x, F.transpose(x, -1, -2)), 1.0 / x.shape[-1]))
    return F.tanh(F.mul(F.matmul(F.transpose(x, -1, -2), x), 1.0 / x.shape[-2]))


def _index(g: RandomGraph) -> Node:
    x = g.pick(1)
    d = g.dim(x)
    rows = g.new_input(g.rng.integers(0, x.shape[d], g.rng.integers(1, 6)))
    return F.index_select(x, d, rows)


def _attention(g: RandomGraph) -> Node:
    """Attention of a value to itself or to new keys, causal or not, sometimes by way of heads."""
    x = g.pick(2)
    if g.rng.random() < 0.5 and len(x.shape) == 3 and x.shape[-1] % 2 == 0:
        q, k, v = (F.transpose(F.unflatten(F.mul(x, scale), 2, (2, -1)), 1, 2) for scale in (1.0, 0.5, -0.7))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=bool(g.rng.random() < 0.7))
        return F.flatten(F.transpose(out, 1, 2), 2)
    other = x if g.rng.random() < 0.5 else g.input((*x.shape[:-2], int(g.rng.choice(SIZES)), x.shape[-1]))
    return F.scaled_dot_product_attention(x, other, F.sin(other), is_causal=bool(g.rng.random() < 0.7))


def _masked_product(g: RandomGraph) -> Node:
    """A product whose result or operand is a triangle, which the compiler may compute in part."""
    x = g.pick(2)
    scores = F.mul(F.matmul(x, F.transpose(x, -1, -2)), 1.0 / x.shape[-1])
    scores = F.tril(scores) if g.rng.random() < 0.5 else F.triu(scores, int(g.rng.integers(-1, 2)))
    return F.tanh(F.matmul(scores, x))


def _triangle(g: RandomGraph) -> Node:
    return F.tril(g.pick(2), int(g.rng.integers(-1, 2)))


RULES: tuple[Rule, ...] = (
    *(_unary, _unary, _binary, _binary, _binary, _scalar, _select, _reduce, _reduce, _row_function, _row_function),
    *(
        _reshape,
        _permute,
        _slice,
        _pad_or_roll,
        _join,
        _matmul,
        _matmul,
        _index,
        _triangle,
        _attention,
        _masked_product,
    ),
)
