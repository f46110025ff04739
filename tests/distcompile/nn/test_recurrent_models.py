"""Recurrent models as people publish them, trained against torch from the same weights: eager, compiled, on 2 ranks.

A translator: GRU encoder, GRU decoder with attention over the states of the encoder. A tagger: bidirectional LSTM over
packed sequences of different lengths, with a padding index in embedding and loss.
"""

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

VOCABULARY, WIDTH, TAGS, STEPS, BATCH, LENGTH = 13, 6, 5, 3, 6, 5
LENGTHS = [5, 3, 2]  # of half a batch: both ranks meet the same
RNG = np.random.default_rng(0)
TOKENS = RNG.integers(1, VOCABULARY, (STEPS, BATCH, LENGTH + 1))
LABELS = RNG.integers(0, TAGS, (STEPS, BATCH, LENGTH))


def translator(package: Any) -> Any:
    nn, functional = package.nn, package.nn.functional

    class Translator(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.source, self.target = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(VOCABULARY, WIDTH)
            self.encoder = nn.GRU(WIDTH, WIDTH, num_layers=2, batch_first=True)
            self.decoder = nn.GRU(WIDTH, WIDTH, num_layers=2, batch_first=True)
            self.key, self.join = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(2 * WIDTH, WIDTH)
            self.out = nn.Linear(WIDTH, VOCABULARY)

        def forward(self, tokens: Any, labels: Any) -> Any:
            memory, state = self.encoder(self.source(tokens[:, :-1].flip(1)))
            hidden, _ = self.decoder(self.target(tokens[:, :-1]), state)
            weights = functional.softmax(hidden @ self.key(memory).transpose(1, 2), dim=-1)
            joined = package.tanh(self.join(package.cat([hidden, weights @ memory], dim=-1)))
            return functional.cross_entropy(self.out(joined).reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))

    return Translator()


def tagger(package: Any) -> Any:
    nn, rnn = package.nn, package.nn.utils.rnn

    class Tagger(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
            self.rnn = nn.LSTM(WIDTH, WIDTH, num_layers=2, bidirectional=True, batch_first=True)
            self.out = nn.Linear(2 * WIDTH, TAGS)

        def forward(self, tokens: Any, labels: Any) -> Any:
            lengths = LENGTHS * (tokens.shape[0] // len(LENGTHS))
            packed = rnn.pack_padded_sequence(self.words(tokens[:, :-1]), lengths, batch_first=True,
                                              enforce_sorted=False)  # fmt: skip
            out, (h, _) = self.rnn(packed)
            scores = self.out(rnn.pad_packed_sequence(out, batch_first=True)[0])
            loss = nn.functional.cross_entropy(scores.reshape(-1, TAGS), labels.reshape(-1), ignore_index=-1)
            return loss + (h * h).mean()

    return Tagger()


MODELS = {"translator": translator, "tagger": tagger}
OPTIONS = {"translator": {"lr": 0.5}, "tagger": {"lr": 0.5}}


def labels_of(step: int) -> Any:
    labels = LABELS[step].copy()
    for row, length in enumerate(LENGTHS * (BATCH // len(LENGTHS))):
        labels[row, length:] = -1
    return labels


def train(package: Any, name: str, model: Any, call: Any, part: slice = slice(None)) -> tuple[list[float], Any]:
    """Losses of every step, and the parameters at the end."""
    optimizer, losses = package.optim.SGD(model.parameters(), **OPTIONS[name]), []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = call(package.tensor(TOKENS[step][part]), package.tensor(labels_of(step)[part]))
        loss.backward()
        package.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses, {key: value.detach().numpy().copy() for key, value in model.state_dict().items()}


@pytest.fixture(scope="module", params=MODELS)
def judged(request: pytest.FixtureRequest) -> Any:
    """The name, the first weights, and torch's losses and last weights."""
    torch.manual_seed(0)
    model = MODELS[request.param](torch)
    first = {key: value.numpy().copy() for key, value in model.state_dict().items()}
    return request.param, first, *train(torch, request.param, model, model)


def check(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(found) == list(expected)
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=2e-4, atol=2e-5, err_msg=key)


@pytest.mark.parametrize("backend", ["tape", "codegen"])
def test_one_process_trains_as_torch(backend: str, judged: Any) -> None:
    name, first, losses, last = judged
    model = MODELS[name](dc)
    model.load_state_dict(first)
    call = model if backend == "tape" else dc.compile(model, fullgraph=True)
    mine, found = train(dc, name, model, call)
    np.testing.assert_allclose(mine, losses, rtol=1e-5)
    check(found, last)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_two_ranks_train_as_torch_on_the_joined_batch(compiled: bool, judged: Any) -> None:
    name, first, losses, last = judged

    def step(world: Communicator) -> tuple[list[float], dict[str, Any]]:
        half = BATCH // 2
        with use_communicator(world):
            model = MODELS[name](dc)
            model.load_state_dict(first)
            wrapped = DistributedDataParallel(model, bucket_cap_mb=0.0005)
            part = slice(world.rank * half, (world.rank + 1) * half)
            mine, found = train(dc, name, wrapped, dc.compile(wrapped) if compiled else wrapped, part)
            return mine, {key.removeprefix("module."): value for key, value in found.items()}

    ranks = run_ranks(2, step)
    np.testing.assert_allclose(np.mean([mine for mine, _ in ranks], axis=0), losses, rtol=1e-5)
    for _, found in ranks:
        check(found, last)
