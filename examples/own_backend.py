"""A backend of your own: what the compiler hands over, run one operation at a time, and timed.

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
from collections.abc import Callable
from typing import Any

import distcompile as torch
import distcompile.nn as nn
from distcompile import compiler, fx, parity
from distcompile.nn.parallel import DistributedDataParallel

seconds: Counter[str] = Counter()  # operation -> how long it took
graphs: list[str] = []


class Timed(fx.Interpreter):
    """Runs a graph node by node."""

    def run_node(self, n: fx.Node) -> Any:
        begun = time.perf_counter()
        result = super().run_node(n)
        if n.op == "call_function":
            seconds[n.target.__name__] += time.perf_counter() - begun
        return result


def timed(module: Any, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """The backend: a graph in, a function of tensors out. example_inputs: zeros of the right shapes and dtypes."""
    graphs.append(module.ir.name)
    return Timed(module).run


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
