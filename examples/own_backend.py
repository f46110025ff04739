"""A backend of your own: what the compiler hands over, run by NumPy, one operation at a time, and timed.

    python examples/own_backend.py
    distcompile-run -n 2 examples/own_backend.py

A backend gets straight-line graphs, after capture and differentiation: the forward, and a piece of the backward for
each bucket of gradients. Out: the operations that took longest, and the proof that the gradients are right; exit code 1
if it fails.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import distcompile as torch
import distcompile.nn as nn
from compiler_core.graph.ir import Call, Constant, Graph
from distcompile import compiler, parity
from distcompile.nn.parallel import DistributedDataParallel

seconds: Counter[str] = Counter()  # operation -> how long it took
graphs: list[str] = []


def timed(graph: Graph, example_inputs: Sequence[np.ndarray]) -> Callable[..., list[np.ndarray]]:
    """The backend: a graph in, a function of arrays out. example_inputs: zeros of the right shapes and dtypes."""
    graphs.append(graph.name)

    def run(*arrays: np.ndarray) -> list[np.ndarray]:
        values: dict[Any, Any] = dict(zip(graph.inputs, arrays))
        for node in graph.nodes:
            if isinstance(node, Constant):
                values[node] = node.array
            elif isinstance(node, Call):
                begun = time.perf_counter()
                values[node] = node.op.eager(np, *(values[operand] for operand in node.args), **node.attrs)
                seconds[node.op.name] += time.perf_counter() - begun
        return [values[node] for node in graph.outputs]

    return run


def main() -> int:
    torch.distributed.init_process_group()
    rank = torch.distributed.get_rank()
    torch.manual_seed(0)
    compiler.register_backend(timed, name="timed")
    net = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 4))
    model = DistributedDataParallel(net, bucket_cap_mb=0.01)
    compiled = torch.compile(model, backend="timed")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(1 + rank)
    x = torch.randn(256, 32)
    y = x[:, :4].argmax(dim=1)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(compiled(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    handed_over = list(graphs)
    slowest = [name for name, _ in seconds.most_common(3)]
    proof = parity.check(net, x, backend="timed")
    if rank == 0:
        print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
        print(f"graphs: {', '.join(handed_over)}")
        print(f"slowest: {', '.join(slowest)}")
        print(proof.verdict(), flush=True)
    torch.distributed.destroy_process_group()
    return 0 if proof.ok and losses[-1] < losses[0] else 1


if __name__ == "__main__":
    sys.exit(main())
