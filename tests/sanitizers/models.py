"""Run under the sanitizers: two training steps of a model, compiled, against the tape's from the same weights."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from convolutional_models import resnet
from exact_buffers import exact_backend

import distcompile as dc
from distcompile import nn
from distcompile.demo.model import GPT, ModelSizes

RNG = np.random.default_rng(0)


class LanguageModel(nn.Module):
    """Embedding, two LSTM layers, and a decoder that shares the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Embedding(17, 9)
        self.rnn = nn.LSTM(9, 9, num_layers=2, batch_first=True)
        self.decoder = nn.Linear(9, 17)
        self.decoder.weight = self.encoder.weight

    def forward(self, tokens: dc.Tensor, targets: dc.Tensor) -> dc.Tensor:
        hidden, _ = self.rnn(self.encoder(tokens))
        return nn.functional.cross_entropy(self.decoder(hidden).reshape(-1, 17), targets.reshape(-1))


class Classifier(nn.Module):
    """A residual network and its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.network = resnet(nn)

    def forward(self, images: dc.Tensor, classes: dc.Tensor) -> dc.Tensor:
        return nn.functional.cross_entropy(self.network(images), classes)


def tokens(*shape: int) -> tuple[dc.Tensor, dc.Tensor]:
    return dc.tensor(RNG.integers(0, 17, shape)), dc.tensor(RNG.integers(0, 17, shape))


def images() -> tuple[dc.Tensor, dc.Tensor]:
    return dc.tensor(RNG.standard_normal((3, 3, 33, 32)).astype(np.float32)), dc.tensor(RNG.integers(0, 5, 3))


GPT_SIZES = ModelSizes(vocabulary=17, time=7, width=15, heads=3, layers=2)  # odd, so that vector loops have a rest
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "gpt": (lambda: GPT(GPT_SIZES), lambda: tokens(3, 7)),
    "resnet": (Classifier, images),
    "lstm": (LanguageModel, lambda: tokens(4, 5)),
}


def train(model: nn.Module, call: Callable[..., Any], data: Any) -> list[np.ndarray]:
    """Losses, then the parameters after two steps."""
    optimizer = dc.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = call(*data)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().numpy().copy())
    return losses + [value.detach().numpy().copy() for value in model.state_dict().values()]


def main(name: str) -> None:
    build, make_data = MODELS[name]
    data, found = make_data(), []
    for is_compiled in (False, True):
        dc.manual_seed(0)
        model = build()
        call = dc.compile(model, backend=exact_backend, fullgraph=True) if is_compiled else model
        found.append(train(model, call, data))
    for got, expected in zip(*found, strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-3, atol=2e-5)
    print(f"{name}: right")


if __name__ == "__main__":
    main(sys.argv[1])
