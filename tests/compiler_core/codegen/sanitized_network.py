"""Run by test_native_backend.py under the sanitizers: a small transformer and its gradients against the interpreter."""

from __future__ import annotations

import numpy as np

from compiler_core.aot.joint import make_joint
from compiler_core.codegen.native_backend import NativeBackend
from compiler_core.dtype import float32, int64
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder
from compiler_core.graph.passes import SIMPLIFY_JOINT, run_passes
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops.registry import use_trace


def network(batch: int, time: int, width: int, heads: int, vocabulary: int) -> Graph:
    """Token ids and targets i64[batch, time] -> loss; parameters are the other inputs. Sizes are odd on purpose."""
    builder = GraphBuilder("network")

    def weight(*shape: int) -> object:
        return builder.placeholder("w", TensorMeta(shape, float32), role="parameter")

    ids = builder.placeholder("ids", TensorMeta((batch, time), int64))
    targets = builder.placeholder("targets", TensorMeta((batch, time), int64))
    with use_trace(builder):
        x = F.add(F.embedding(ids, weight(vocabulary, width)), weight(time, width))
        h = F.linear(
            F.layer_norm(x, (width,), weight(width), weight(width)), weight(3 * width, width), weight(3 * width)
        )
        split = (F.reshape(part, (batch, time, heads, width // heads)) for part in F.split(h, width, 2))
        q, k, v = (F.transpose(part, 1, 2) for part in split)
        a = F.transpose(F.scaled_dot_product_attention(q, k, v, is_causal=True), 1, 2)
        x = F.add(x, F.linear(F.reshape(a, (batch, time, width)), weight(width, width), weight(width)))
        x = F.add(
            x, F.linear(F.gelu(F.linear(x, weight(5 * width, width)), approximate="tanh"), weight(width, 5 * width))
        )
        logits = F.linear(F.layer_norm(x, (width,), weight(width), weight(width)), weight(vocabulary, width))
        flat = F.reshape(logits, (batch * time, vocabulary)), F.reshape(targets, (batch * time,))
        loss = F.cross_entropy(*flat)
    return builder.build([loss])


def main() -> None:
    rng = np.random.default_rng(0)
    for sizes in ((2, 7, 15, 3, 11), (3, 17, 40, 4, 33)):
        forward = network(*sizes)
        joint = make_joint(forward, [node.role == "parameter" for node in forward.inputs]).graph
        graph = run_passes(joint, SIMPLIFY_JOINT)
        inputs = [
            rng.normal(size=node.shape).astype(np.float32) * 0.3
            if node.dtype is float32
            else rng.integers(0, sizes[4], node.shape)
            for node in graph.inputs
        ]
        (native,) = NativeBackend().compile([graph], "network")
        for got, expected in zip(native(inputs), interpret(graph, inputs), strict=True):
            np.testing.assert_allclose(got, expected, rtol=2e-3, atol=2e-5)
        print("right")


if __name__ == "__main__":
    main()
