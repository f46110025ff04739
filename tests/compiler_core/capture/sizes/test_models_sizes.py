"""Models over 20 sizes, compiled with dynamic=True: at most 2 captures, no eager call, values and gradients as eager.

The last batch is smaller, as a data loader's is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from sized_runs import captures, same

import distcompile as dc
from distcompile import Tensor, nn
from distcompile.nn import functional as F

LENGTHS = (24, 17, 31, 40, 12, 29, 35, 21, 38, 15, 27, 33, 19, 36, 23, 14, 39, 26, 18, 30)
VOCABULARY = 11


class GPT(nn.Module):
    """Embedding, positions, one layer of causal attention and of an MLP; tokens (B, T) -> the loss of the next."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, 8), nn.Embedding(64, 8)
        self.n1, self.n2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.mlp, self.head = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)), nn.Linear(8, VOCABULARY)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        batch, time = x.shape
        h = self.tokens(x) + self.positions(dc.arange(time))
        q, k, v = (t.view(batch, time, 2, 4).transpose(1, 2) for t in self.qkv(self.n1(h)).split(8, dim=2))
        h = h + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(h.shape))
        h = h + self.mlp(self.n2(h))
        return F.cross_entropy(self.head(h).view(-1, VOCABULARY), y.view(-1))


class Tagger(nn.Module):
    """An LSTM over sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.LSTM(3, 5, batch_first=True), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0]).square().mean()


def pictures() -> nn.Module:
    layers = (nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    return nn.Sequential(*layers, nn.Linear(36, 2))


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(7, 16), nn.ReLU(), nn.Linear(16, 3))


def tokens(length: int, last: bool) -> Sequence[Tensor]:
    return dc.randint(0, VOCABULARY, (2, 3 if last else 4, length)).unbind(0)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int, bool], Sequence[Tensor]]]] = {
    "GPT": (GPT, tokens),
    "MLP, the last batch smaller": (perceptron, lambda n, last: [dc.randn(5 if last else 32, 7)]),
    "MLP": (perceptron, lambda n, last: [dc.randn(n, 7)]),
    "LSTM, batches": (Tagger, lambda n, last: [dc.randn(n, 6, 3)]),
    "LSTM, lengths": (Tagger, lambda n, last: [dc.randn(4 if last else 6, n, 3)]),
    "CNN": (pictures, lambda n, last: [dc.randn(n, 3, 6, 6)]),
}


class Counts:
    """A function, and how many calls of it Python runs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.eager = function, 0

    def __call__(self, *args: Any) -> Any:
        if not dc.compiler.is_compiling():
            self.eager += 1
        return self.function(*args)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_over_20_sizes(name: str) -> None:
    make, batch = MODELS[name]
    dc.manual_seed(0)
    model = make()
    other = copy.deepcopy(model)
    counted = Counts(model)
    compiled: Any = dc.compile(lambda *args: counted(*args), backend="aot_eager", dynamic=True)
    for length in LENGTHS:
        given = batch(length, length == LENGTHS[-1])
        results = []
        for run, net in ((compiled, model), (other, other)):
            net.zero_grad()
            out = run(*given)
            out.square().sum().backward()
            results.append([out, *(p.grad for p in net.parameters()), *net.buffers()])
        same(results[0], results[1], f"at {length}")
    assert captures(compiled) <= 2
    assert counted.eager == 0


def test_keys_and_values_that_grow() -> None:
    dc.manual_seed(0)
    qkv = nn.Linear(8, 24)

    def decode(x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = (t.view(2, 1, 2, 4).transpose(1, 2) for t in qkv(x).split(8, dim=2))
        keys, values = dc.cat([keys, k], dim=2), dc.cat([values, v], dim=2)
        return F.scaled_dot_product_attention(q, keys, values).transpose(1, 2).reshape(2, 1, 8), keys, values

    counted = Counts(decode)
    compiled: Any = dc.compile(lambda *args: counted(*args), backend="aot_eager", dynamic=True)
    state = dc.randn(2, 1, 8), dc.randn(2, 2, 3, 4), dc.randn(2, 2, 3, 4)
    with dc.no_grad():
        for token in range(20):
            wanted = decode(*state)
            state = compiled(*state)
            same(list(state), list(wanted), f"token {token}")
    assert captures(compiled) <= 2
    assert counted.eager == 0


@pytest.mark.parametrize(("dynamic", "count"), [(False, 3), (None, 2), (True, 1)])
def test_how_often_a_size_that_changes_is_captured(dynamic: bool | None, count: int) -> None:
    model = perceptron()
    compiled: Any = dc.compile(model, backend="aot_eager", dynamic=dynamic)
    for n in (4, 5, 6):
        same(compiled(x := dc.randn(n, 7)), model(x), f"at {n}")
    assert captures(compiled) == count
