"""A step in less memory: what is saved for a backward under a budget, what that takes, and that gradients stay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import distcompile as torch
from compiler_core.aot.budget import peak_of, within
from compiler_core.aot.recompute import HELD
from compiler_core.errors import ConfigError
from compiler_core.graph.parse import parse_graph
from compiler_core.schedule.from_graphs import lower_and_schedule
from distcompile import Tensor, nn
from distcompile.nn import functional as F


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down = nn.Linear(32, 128), nn.Linear(128, 32)

    def forward(self, x: Tensor) -> Tensor:
        n, t, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(n, t, 3, 2, 16).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, 32)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(F.dropout(x, 0.1))))


def transformer() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(*(Block() for _ in range(4))), torch.randn(4, 24, 32)


def convolutions() -> tuple[nn.Module, Tensor]:
    layers = [nn.Sequential(nn.Conv2d(k or 3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()) for k in (0, 8, 8)]
    return nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 4)), torch.randn(2, 3, 8, 8)


def recurrent() -> tuple[nn.Module, Tensor]:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells, self.head = nn.LSTM(8, 16, num_layers=2), nn.Linear(16, 2)

        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(self.head(self.cells(x)[0]).cumsum(0).amax(1))

    return Net(), torch.randn(6, 3, 8)


def gradients(make: Callable[[], tuple[nn.Module, Tensor]], budget: float) -> tuple[list[np.ndarray], int, int]:
    """Of all parameters; what is saved, and that with the backward's arena: bytes."""
    torch.manual_seed(0)
    model, x = make()
    compiled = torch.compile(model, memory_budget=budget, fullgraph=True)
    for _ in range(2):
        model.zero_grad()
        compiled(x).pow(2).mean().backward()
    graphs = dict(compiled.explain().entries[0].graphs)
    saved = sum(node.meta.nbytes for node in graphs["backward"].inputs if node.role in ("saved", "spent"))
    (program,) = lower_and_schedule([graphs["backward"]], "peak")
    return [p.grad.numpy() for p in model.parameters()], saved, saved + program.arena_nbytes


@pytest.mark.filterwarnings("ignore:.*memory_budget")
@pytest.mark.parametrize("make", [transformer, convolutions, recurrent])
def test_gradients_are_the_same_in_less_memory(make: Callable[[], tuple[nn.Module, Tensor]]) -> None:
    whole, saved, takes = gradients(make, 1.0)
    for budget in (0.6, 0.0):
        less, saved_less, takes_less = gradients(make, budget)
        for a, b in zip(whole, less, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-6)
        assert saved_less <= saved
        assert takes_less <= 1.05 * takes
        assert make is not transformer or takes_less < 0.7 * takes


def test_a_budget_that_cannot_be_kept_is_said() -> None:
    with pytest.warns(UserWarning, match=r"memory_budget=0 cannot be kept for .*: the least is 0\.\d+ of the memory"):
        gradients(transformer, 0.0)


@pytest.mark.parametrize("budget", [-0.1, 1.5, float("nan")])
def test_another_budget_is_an_error(budget: float) -> None:
    with pytest.raises(ConfigError, match="memory_budget"):
        torch.compile(nn.Linear(2, 2), memory_budget=budget)


def test_the_first_that_fits_is_taken() -> None:
    asked: list[int] = []

    def split(worth: int) -> int:
        asked.append(worth)
        return {HELD: 100, HELD + 1: 90, 2 * HELD * 2: 120}.get(worth, 40)

    assert within(1.0, split, int, "f") == 100
    assert asked == [HELD]
    assert within(0.9, split, int, "f") == 90
    assert within(0.5, split, int, "f") == 40


def test_the_peak_is_what_lives_at_once() -> None:
    graph = parse_graph(
        """graph g(%s: f32[64] saved 's', %t: f32[64] tangent 't') {
             %a: f32[64] = exp(%s)
             %b: f32[] = sum(%a) dims=(0,)
             %c: f32[64] = mul(%a, %t)
             %e: f32[64] = expand(%b) shape=(64,)
             %d: f32[64] = mul(%c, %e)
             return %d
           }"""
    )
    assert peak_of(graph) == 256 + 256 + 4  # s, then a (read twice) and b; c is in registers, e is b, d a result
