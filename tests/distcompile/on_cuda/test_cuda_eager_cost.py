"""What an eager training step on a CUDA device makes the host wait for: nothing goes there, nothing is asked of it.

Counted on the stand-in: arrays of the host given to CuPy (a copy out of pageable memory waits for the stream), values
asked back, and arrays that are made. Losses and weights are the CPU's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.ops import registry
from distcompile import nn
from distcompile.nn import functional as F
from tests.fake_cupy import array, on_fake_device

ASKED = ("get", "item", "tolist", "__bool__", "__int__", "__float__", "__index__")


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often each happened: "up", "down", "made"."""
    found: Counter[str] = Counter()
    with on_fake_device(1) as cupy:
        for name in ("array", "asarray", "ascontiguousarray"):
            made = getattr(cupy, name)

            def counted(obj: Any, *args: Any, made: Any = made, **kwargs: Any) -> Any:
                found["up"] += not isinstance(obj, array.ndarray)
                return made(obj, *args, **kwargs)

            monkeypatch.setattr(cupy, name, counted)
        for name in ASKED:
            monkeypatch.setattr(array.ndarray, name, _counting(found, "down", getattr(array.ndarray, name)))
        allocate = cupy.state.allocate

        def allocated(nbytes: int) -> Any:
            found["made"] += 1
            return allocate(nbytes)

        monkeypatch.setattr(cupy.state, "allocate", allocated)
        yield found


def _counting(found: Counter[str], kind: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        found[kind] += 1
        return method(self, *args, **kwargs)

    return counted


class Block(nn.Module):
    """A residual block."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Sequential(nn.Conv2d(n, n, 3, padding=1, bias=False), nn.BatchNorm2d(n)) for _ in "12"
        )

    def forward(self, x: Any) -> Any:
        return F.relu(self.second(F.relu(self.first(x))) + x)


class Layer(nn.Module):
    """A layer of a transformer."""

    def __init__(self, n: int, causal: bool) -> None:
        super().__init__()
        self.norm, self.qkv, self.out, self.causal = nn.LayerNorm(n), nn.Linear(n, 3 * n), nn.Linear(n, n), causal
        gelu = nn.GELU(approximate="tanh" if causal else "none")
        self.mlp = nn.Sequential(nn.LayerNorm(n), nn.Linear(n, 2 * n), gelu, nn.Linear(2 * n, n), nn.Dropout(0.1))

    def forward(self, x: Any) -> Any:
        batch, length, n = x.shape
        q, k, v = (t.view(batch, length, 2, n // 2).transpose(1, 2) for t in self.qkv(self.norm(x)).split(n, dim=2))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, n))
        return x + self.mlp(x)


class Resnet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.body, self.head = nn.Sequential(Block(4), Block(4)), nn.Linear(4, 5)

    def forward(self, x: Any) -> Any:
        return self.head(F.adaptive_avg_pool2d(self.body(self.stem(x)), 1).flatten(1))


class Vit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch, self.place = nn.Conv2d(3, 8, 4, stride=4), nn.Parameter(dc.zeros(1, 5, 8))
        self.first = nn.Parameter(dc.zeros(1, 1, 8))
        self.body, self.head = nn.Sequential(Layer(8, False), Layer(8, False)), nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = dc.cat([self.first.expand(len(x), -1, -1), x], dim=1) + self.place
        return self.head(self.body(x)[:, 0])


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(9, 8), nn.Embedding(6, 8)
        self.body, self.head = nn.Sequential(Layer(8, True), Layer(8, True)), nn.Linear(8, 9, bias=False)

    def forward(self, x: Any) -> Any:
        places = dc.arange(x.shape[1], device=x.device)
        return self.head(self.body(self.words(x) + self.places(places))).flatten(0, 1)


IMAGES = (np.random.default_rng(0).normal(size=(3, 3, 8, 8)).astype(np.float32), np.array([1, 0, 4]))
TEXT = (np.arange(12).reshape(2, 6) % 9, np.arange(12) % 7)


@pytest.mark.parametrize(
    ("kind", "data", "most"),
    [(Resnet, IMAGES, 141), (Vit, IMAGES, 124), (Gpt, TEXT, 118)],
    ids=["resnet", "vit", "gpt"],
)
def test_a_step_sends_nothing_and_waits_for_nothing(
    kind: Any, data: tuple[Any, Any], most: int, counts: Counter[str], counter_draws: None
) -> None:
    """most: arrays that forward and backward may make, each of which some kernel writes."""
    results = []
    for place in ("cpu", "cuda"):
        dc.manual_seed(0)
        model = kind().to(place)
        x, y = (dc.tensor(d, device=place) for d in data)
        optimizer = dc.optim.SGD(model.parameters(), lr=0.1, fused=False)
        for _ in range(3):
            counts.clear()
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            made = counts["made"]
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            waits = counts["up"], counts["down"]
            optimizer.step()
        results.append([loss.detach().cpu().numpy(), *(p.detach().cpu().numpy() for p in model.parameters())])
    assert waits == (0, 0)
    assert made <= most
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clipping_takes_no_operation_a_gradient(
    max_norm: float, counts: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not an operation each; versions rise, and a gradient that somebody else sees is not written over."""
    ran: list[str] = []
    run = registry.run_eager
    monkeypatch.setattr(registry, "run_eager", lambda op, *a, **k: (ran.append(op.name), run(op, *a, **k))[1])
    found = []
    for device in ("cpu", "cuda"):
        dc.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3)).to(device)
        model(dc.ones(2, 4).to(device)).square().sum().backward()
        gradients = [p.grad for p in model.parameters()]
        seen, versions = gradients[0].detach(), [g._version for g in gradients]
        held = gradients[1].clone()
        other = nn.Parameter(dc.ones(3, device=device))
        other.grad = dc.ones(3, device=device)
        nn.utils.clip_grad_norm_(other, 1.0)  # proves its kernels, once
        other.grad *= dc.ones(1, device=device)  # so does a product
        ran.clear()
        counts.clear()
        total = nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        if device == "cuda":
            assert "mul" not in ran
            assert counts["down"] == 0
            assert all(g._version > v for g, v in zip(gradients, versions, strict=True))
        assert dc.equal(seen, gradients[0]), "one memory"
        assert (max_norm > 1) == dc.allclose(held, gradients[1])
        found.append([total.item(), *(g.cpu().numpy() for g in gradients)])
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)
