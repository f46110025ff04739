"""An LSTM language model, trained against torch from the same weights: eager, compiled, and on 2 ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile as dc
from collectives import Communicator, run_ranks
from distcompile.distributed import use_communicator
from distcompile.nn.parallel import DistributedDataParallel

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

VOCABULARY, WIDTH, STEPS, BATCH, LENGTH = 17, 8, 4, 6, 5
TEXT = np.random.default_rng(0).integers(0, VOCABULARY, (STEPS, BATCH, LENGTH + 1))


def model_of(package: Any) -> Any:
    """Embedding, two LSTM layers, and a decoder that shares the embedding's weight."""

    class LanguageModel(package.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.encoder = package.nn.Embedding(VOCABULARY, WIDTH)
            self.rnn = package.nn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True)
            self.decoder = package.nn.Linear(WIDTH, VOCABULARY)
            self.decoder.weight = self.encoder.weight

        def forward(self, tokens: Any, targets: Any) -> Any:
            hidden, _ = self.rnn(self.encoder(tokens))
            scores = self.decoder(hidden)
            return package.nn.functional.cross_entropy(scores.reshape(-1, VOCABULARY), targets.reshape(-1))

    return LanguageModel()


def train(package: Any, model: Any, call: Any, part: slice = slice(None)) -> tuple[list[float], dict[str, Any]]:
    """Losses of every step, and the parameters at the end."""
    optimizer = package.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for tokens in TEXT[:, part]:
        optimizer.zero_grad()
        loss = call(package.tensor(tokens[:, :-1]), package.tensor(tokens[:, 1:]))
        loss.backward()
        package.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, {name: value.detach().numpy().copy() for name, value in model.state_dict().items()}


@pytest.fixture(scope="module")
def judged() -> tuple[dict[str, Any], list[float], dict[str, Any]]:
    """The first weights, and torch's losses and last weights."""
    torch.manual_seed(0)
    model = model_of(torch)
    first = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    losses, last = train(torch, model, model)
    return first, losses, last


def check(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(found) == list(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-3, atol=2e-4, err_msg=name)


@pytest.mark.parametrize("backend", ["tape", "codegen"])
def test_one_process_trains_as_torch(backend: str, judged: Any) -> None:
    first, losses, last = judged
    model = model_of(dc)
    model.load_state_dict(first)
    mine, found = train(dc, model, model if backend == "tape" else dc.compile(model, fullgraph=True))
    np.testing.assert_allclose(mine, losses, rtol=2e-4)
    check(found, last)


def test_two_compiled_ranks_train_as_torch_on_the_joined_batch(judged: Any) -> None:
    first, losses, last = judged

    def step(world: Communicator) -> tuple[list[float], dict[str, Any]]:
        half = BATCH // 2
        with use_communicator(world):
            model = model_of(dc)
            model.load_state_dict(first)
            wrapped = DistributedDataParallel(model, bucket_cap_mb=0.0005)
            part = slice(world.rank * half, (world.rank + 1) * half)
            mine, found = train(dc, wrapped, dc.compile(wrapped), part)
            return mine, {name.removeprefix("module."): value for name, value in found.items()}

    ranks = run_ranks(2, step)
    np.testing.assert_allclose(np.mean([mine for mine, _ in ranks], axis=0), losses, rtol=2e-4)
    for _, found in ranks:
        check(found, last)
