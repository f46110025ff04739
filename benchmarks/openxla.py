"""A GPT's forward through backend "openxla", beside jax.jit of the same mathematics written with JAX, in one process.

    OMP_NUM_THREADS=1 python benchmarks/openxla.py [--model gpt] [--repeats 40]

The two are called in turn. A line gives the median time of each, the medians' ratio (above 1: ours is faster), and our
own backend's; the results are compared first. Both sides are XLA's programs, on the core that this process is bound to.
"""

from __future__ import annotations

import argparse
import os
import statistics
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from framework import torch
from models import make
from timing import seconds


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * weight + bias


def gpt(parameters: dict[str, Any], x: Any, y: Any, layers: int, heads: int) -> Any:
    """The loss of models.GPT."""
    p = parameters
    h = p["tokens.weight"][x] + p["positions"]
    batch, time, width = h.shape
    mask = jnp.tril(jnp.ones((time, time), bool))
    for k in range(layers):
        own = {name.removeprefix(f"blocks.{k}."): value for name, value in p.items() if name.startswith(f"blocks.{k}.")}
        qkv = layer_norm(h, own["n1.weight"], own["n1.bias"]) @ own["qkv.weight"].T + own["qkv.bias"]
        q, key, v = (
            t.reshape(batch, time, heads, width // heads).transpose(0, 2, 1, 3) for t in jnp.split(qkv, 3, axis=2)
        )
        scores = q @ key.transpose(0, 1, 3, 2) / np.float32(np.sqrt(width // heads))
        a = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), axis=-1) @ v
        h = h + a.transpose(0, 2, 1, 3).reshape(batch, time, width) @ own["out.weight"].T + own["out.bias"]
        up = layer_norm(h, own["n2.weight"], own["n2.bias"]) @ own["up.weight"].T + own["up.bias"]
        h = h + jax.nn.gelu(up, approximate=True) @ own["down.weight"].T + own["down.bias"]
    logits = (layer_norm(h, p["norm.weight"], p["norm.bias"]) @ p["head.weight"].T).reshape(-1, len(p["tokens.weight"]))
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y.reshape(-1, 1), axis=1).mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="gpt")
    parser.add_argument("--repeats", type=int, default=40)
    arguments = parser.parse_args()
    case = make(arguments.model)
    model, (x, y) = case.model.eval(), case.batch
    parameters = {name: jnp.asarray(p.detach().numpy()) for name, p in model.named_parameters()}
    layers, heads = len(model.blocks), model.blocks[0].heads
    theirs = jax.jit(lambda p, x, y: gpt(p, x, y, layers, heads))
    tokens = [jnp.asarray(t.numpy()) for t in (x, y)]
    through, own = (torch.compile(model, backend=name, fullgraph=True) for name in ("openxla", "inductor"))

    @torch.no_grad()
    def call(compiled: Any) -> Any:
        return compiled(x, y)

    sides = {
        "openxla": lambda: call(through).item(),
        "jax.jit": lambda: theirs(parameters, *tokens).block_until_ready(),
        "inductor": lambda: call(own).item(),
    }
    results = {name: float(run()) for name, run in sides.items()}
    assert max(results.values()) - min(results.values()) < 1e-4, results
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(arguments.repeats):
        for name, run in sides.items():
            times[name].append(seconds(run) * 1e3)
    ms = {name: statistics.median(values) for name, values in times.items()}
    shown = ", ".join(f"{name} {value:.2f} ms" for name, value in ms.items())
    print(f"{arguments.model} forward: {shown}; openxla against jax.jit {ms['jax.jit'] / ms['openxla']:.2f}")


if __name__ == "__main__":
    main()
