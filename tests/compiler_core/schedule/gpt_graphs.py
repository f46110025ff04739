"""Training graphs of small models, forward and backward, as the compiler meets them.

In: sizes. Out: (forward, backward) Graphs, arrays for the forward's inputs, and `backward_inputs`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from compiler_core.aot.joint import make_joint
from compiler_core.aot.partition import partition
from compiler_core.dtype import float32, int64, uint64
from compiler_core.graph.ir import Graph, GraphBuilder, Node
from compiler_core.graph.passes import run_passes
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops.registry import Array, use_trace


@dataclass(frozen=True)
class Training:
    """saved[k]: the forward output that the backward's saved input of that name is."""

    forward: Graph
    backward: Graph
    arrays: tuple[Array, ...]

    def backward_inputs(self, results: Sequence[Array]) -> list[Array]:
        """Arrays for the backward, given the forward's results; tangents are ones."""
        known = dict(zip((node.name for node in self.forward.inputs), self.arrays))
        known |= {node.name: value for node, value in zip(self.forward.outputs, results)}
        return [known.get(n.name, np.ones(n.shape, n.dtype.numpy)) for n in self.backward.inputs]


class Model:
    """Placeholders with their arrays, while a model is written down."""

    def __init__(self, name: str) -> None:
        self.builder = GraphBuilder(name)
        self.rng = np.random.default_rng(0)
        self.arrays: list[Array] = []
        self.trained: list[bool] = []

    def parameter(self, name: str, *shape: int) -> Node:
        scale = 1.0 / np.sqrt(shape[-1])
        self.arrays.append((self.rng.standard_normal(shape) * scale).astype(np.float32))
        self.trained.append(True)
        return self.builder.placeholder(name, TensorMeta(shape, float32), role="parameter", source=name)

    def data(self, name: str, array: Array) -> Node:
        self.arrays.append(array)
        self.trained.append(False)
        kind = {"f": float32, "i": int64, "u": uint64}[array.dtype.kind]
        return self.builder.placeholder(name, TensorMeta(array.shape, kind))

    def training(self, loss: Callable[[], Node]) -> Training:
        """The two graphs of the model that `loss` writes down."""
        with use_trace(self.builder):
            forward = self.builder.build([loss()])
        joint = make_joint(run_passes(forward), self.trained)
        graph = run_passes(joint.graph)
        parts = partition(replace(joint, graph=graph))
        return Training(parts.forward, parts.backward, tuple(self.arrays))


def mlp(batch: int = 5, sizes: Sequence[int] = (7, 8, 6, 3)) -> Training:
    """Linear, relu, ..., cross entropy."""
    model = Model("mlp")
    x = model.data("x", model.rng.standard_normal((batch, sizes[0])).astype(np.float32))
    y = model.data("y", model.rng.integers(0, sizes[-1], batch))
    layers = [(model.parameter(f"w{k}", n, m), model.parameter(f"b{k}", n)) for k, (m, n) in enumerate(pairwise(sizes))]

    def loss() -> Node:
        h = x
        for k, (w, b) in enumerate(layers):
            h = F.linear(h, w, b)
            h = F.relu(h) if k < len(layers) - 1 else h
        return F.cross_entropy(h, y)

    return model.training(loss)


def gpt(
    layers: int = 2, d: int = 8, heads: int = 2, batch: int = 2, time: int = 5, vocabulary: int = 7,
    *, tied: bool = False, dropout: float = 0.0,
) -> Training:  # fmt: skip
    """The benchmark's GPT at any size."""
    model = Model("gpt")
    tokens = model.parameter("tokens", vocabulary, d)
    places = model.parameter("places", time, d)
    shapes = {
        "n1w": (d,), "n1b": (d,), "qkvw": (3 * d, d), "qkvb": (3 * d,), "ow": (d, d), "ob": (d,),
        "n2w": (d,), "n2b": (d,), "f1w": (4 * d, d), "f1b": (4 * d,), "f2w": (d, 4 * d), "f2b": (d,),
    }  # fmt: skip
    blocks = [{key: model.parameter(f"l{k}_{key}", *shape) for key, shape in shapes.items()} for k in range(layers)]
    nfw, nfb = model.parameter("nfw", d), model.parameter("nfb", d)
    head = tokens if tied else model.parameter("head", vocabulary, d)
    x = model.data("x", model.rng.integers(0, vocabulary, (batch, time)))
    y = model.data("y", model.rng.integers(0, vocabulary, (batch, time)))
    key = model.data("key", np.array([7, 3, 1], np.uint64)) if dropout else None
    draws = iter(range(100))

    def drop(h: Node) -> Node:
        return h if key is None else F.dropout(h, dropout, rng=(key, next(draws)))

    def block(h: Node, p: dict[str, Node]) -> Node:
        q, k, v = F.split(F.linear(F.layer_norm(h, (d,), p["n1w"], p["n1b"]), p["qkvw"], p["qkvb"]), d, 2)
        q, k, v = (F.transpose(F.view(t, batch, time, heads, d // heads), 1, 2) for t in (q, k, v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = F.add(h, drop(F.linear(F.reshape(F.transpose(a, 1, 2), batch, time, d), p["ow"], p["ob"])))
        wide = F.gelu(F.linear(F.layer_norm(h, (d,), p["n2w"], p["n2b"]), p["f1w"], p["f1b"]), approximate="tanh")
        return F.add(h, drop(F.linear(wide, p["f2w"], p["f2b"])))

    def loss() -> Node:
        h = F.add(F.embedding(x, tokens), places)
        for p in blocks:
            h = block(h, p)
        logits = F.linear(F.layer_norm(h, (d,), nfw, nfb), head)
        return F.cross_entropy(F.view(logits, -1, vocabulary), F.view(y, -1))

    return model.training(loss)
