"""Random small models, built alike in both packages: compiled and eager, value and every gradient equal torch's.

The seed is the test's id; `build(package, seed)` makes the model again. A model is a random graph: every step applies
a random layer to an earlier value, or joins two, so values are used twice, never, or late.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("optimised")]

WIDTH, STEPS = 6, 9

LAYERS: list[Callable[[Any], Any]] = [
    lambda nn: nn.Linear(WIDTH, WIDTH),
    lambda nn: nn.Linear(WIDTH, WIDTH, bias=False),
    lambda nn: nn.LayerNorm(WIDTH),
    lambda nn: nn.RMSNorm(WIDTH),
    lambda nn: nn.GELU(),
    lambda nn: nn.GELU(approximate="tanh"),
    lambda nn: nn.Softplus(),
    lambda nn: nn.Softmax(dim=-1),
    lambda nn: nn.LeakyReLU(0.1),
    lambda nn: nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.Tanh(), nn.Linear(2 * WIDTH, WIDTH)),
    lambda nn: nn.TransformerEncoderLayer(WIDTH, 2, 8, dropout=0.0, batch_first=True),
]
FUNCTIONS: list[Callable[[Any, Any], Any]] = [
    lambda p, x: x.transpose(0, 1).contiguous().transpose(0, 1) * 0.5,
    lambda p, x: x - x.mean(dim=1, keepdim=True),
    lambda p, x: p.cat(x.chunk(2, dim=-1)[::-1], dim=-1),
    lambda p, x: x.flip(1) + x[:, :1],
    lambda p, x: p.where(x > 0, x.sin(), x * 0.3),
    lambda p, x: x / (1.0 + x.abs().amax(dim=-1, keepdim=True)),
    lambda p, x: x.masked_fill(p.ones(x.shape[1], WIDTH).tril() == 0, 0.25),
    lambda p, x: p.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True),
    lambda p, x: x.reshape(-1, WIDTH // 2, 2).permute(0, 2, 1).reshape(x.shape),
    lambda p, x: x.clamp(-1.5, 1.5).exp().log1p(),
]
JOINS: list[Callable[[Any, Any, Any], Any]] = [
    lambda p, x, y: x + y,
    lambda p, x, y: x * p.sigmoid(y),
    lambda p, x, y: p.maximum(x, y),
    lambda p, x, y: (x @ y.transpose(-2, -1)).softmax(-1) @ y,
    lambda p, x, y: p.stack([x, y]).mean(0),
]


def build(p: Any, seed: int) -> Any:
    """The model of `seed`, in package `p`."""
    rng = random.Random(seed)
    plan: list[tuple[str, int, int, int]] = []
    for step in range(STEPS):
        kind = rng.choice(["layer", "layer", "function", "join"])
        size = {"layer": len(LAYERS), "function": len(FUNCTIONS), "join": len(JOINS)}[kind]
        plan.append((kind, rng.randrange(size), rng.randrange(max(0, step - 2), step + 1), rng.randrange(step + 1)))
    tied = rng.random() < 0.5

    class Model(p.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first = p.nn.Linear(WIDTH, WIDTH, bias=False)
            self.layers = p.nn.ModuleList(LAYERS[which](p.nn) for kind, which, _, _ in plan if kind == "layer")
            self.last = p.nn.Linear(WIDTH, WIDTH, bias=False)
            if tied:
                self.last.weight = self.first.weight

        def forward(self, x: Any, target: Any) -> Any:
            values, layers = [self.first(x)], iter(self.layers)
            for kind, which, source, other in plan:
                if kind == "layer":
                    values.append(next(layers)(values[source]))
                elif kind == "function":
                    values.append(FUNCTIONS[which](p, values[source]))
                else:
                    values.append(JOINS[which](p, values[source], values[other]))
            logits = self.last(values[-1] + values[-2])
            return p.nn.functional.cross_entropy(logits.reshape(-1, WIDTH), target.reshape(-1))

    return Model()


def check(seed: int, compile_: Callable[[Any], Any]) -> None:
    torch.manual_seed(seed)
    ours, theirs = build(dc, seed), build(torch, seed)
    ours.load_state_dict(theirs.state_dict())
    rng = np.random.default_rng(seed)
    model = compile_(ours)
    for rows in (3, 2):
        x = rng.standard_normal((rows, 5, WIDTH)).astype(np.float32)
        target = rng.integers(0, WIDTH, (rows, 5))
        a, b = dc.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
        loss, expected = model(a, dc.tensor(target)), theirs(b, torch.tensor(target))
        loss.backward()
        expected.backward()
        np.testing.assert_allclose(float(loss.detach()), float(expected.detach()), rtol=1e-5)
        pairs = [("x", a, b), *((n, p, dict(theirs.named_parameters())[n]) for n, p in ours.named_parameters())]
        for name, mine, want in pairs:
            assert (mine.grad is None) == (want.grad is None), name
            if want.grad is not None:
                scale = float(want.grad.abs().max()) + 1e-6
                np.testing.assert_allclose(
                    mine.grad.numpy(), want.grad.numpy(), rtol=1e-4, atol=2e-5 * scale, err_msg=name
                )


@pytest.mark.parametrize("seed", range(24))
def test_eager(seed: int) -> None:
    check(seed, lambda m: m)


@pytest.mark.parametrize("seed", range(100, 112))
def test_aot_eager(seed: int) -> None:
    check(seed, lambda m: dc.compile(m, backend="aot_eager", fullgraph=True))


@pytest.mark.parametrize("seed", range(200, 206))
def test_codegen(seed: int) -> None:
    check(seed, lambda m: dc.compile(m, fullgraph=True))
