"""Whole convolutional networks against torch with the same weights: eager, compiled, and on two threaded ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from convolutional_models import MODELS

import distcompile as dc
from collectives import Communicator, run_ranks
from distcompile.distributed import use_communicator
from tests.sharing import some

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
STEPS = 2


def batch(shape: tuple[int, ...]) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    return rng.standard_normal(shape).astype(np.float32), rng.integers(0, 10, shape[0])


def make_torchs(name: str) -> Any:
    torch.manual_seed(0)
    return MODELS[name][0](torch.nn)


def make_ours(name: str, weights: dict[str, Any]) -> Any:
    model = MODELS[name][0](dc.nn)
    assert repr(model.load_state_dict(weights)) == "<All keys matched successfully>"
    return model


def train(library: Any, model: Any, step: Any, x: Any, y: Any, lr: float = 0.05) -> list[float]:
    """STEPS of SGD with momentum; the losses."""
    optimizer = library.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(library, step(x), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def loss_of(library: Any, out: Any, y: Any) -> Any:
    if out.dim() == 2:
        return library.nn.functional.cross_entropy(out, y)
    return library.nn.functional.mse_loss(out, library.zeros_like(out))


def assert_close(mine: Any, want: Any, what: str, tolerance: float = 2e-3) -> None:
    a, b = np.asarray(mine.detach().numpy(), np.float64), np.asarray(want.detach().numpy(), np.float64)
    assert a.shape == b.shape, what
    assert np.abs(a - b).max(initial=0) <= tolerance * max(np.abs(b).max(initial=0), 1e-2), what


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", MODELS)
def test_outputs_gradients_and_buffers_are_torchs(name: str, compiled: bool) -> None:
    theirs = make_torchs(name)
    ours = make_ours(name, theirs.state_dict())
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert repr(ours) == repr(theirs)
    x, y = batch(MODELS[name][1])
    step = dc.compile(ours, fullgraph=True) if compiled else ours
    mine, want = step(dc.tensor(x)), theirs(torch.tensor(x))
    assert_close(mine, want, "output", 1e-4)
    loss_of(dc, mine, dc.tensor(y)).backward()
    loss_of(torch, want, torch.tensor(y)).backward()
    for key, parameter in theirs.named_parameters():
        assert_close(ours.get_parameter(key).grad, parameter.grad, key)
    for key, buffer in theirs.named_buffers():
        assert_close(ours.get_buffer(key), buffer, key)
    assert_close(ours.eval()(dc.tensor(x)), theirs.eval()(torch.tensor(x)), "evaluation", 1e-4)


@pytest.mark.parametrize("name", some(list(MODELS), 3))
def test_training_on_two_ranks_is_torchs_on_both_halves(name: str) -> None:
    """The gradient of DDP is the mean over ranks; the batch statistics of rank 0 are its own."""
    theirs = make_torchs(name)
    weights = {key: value.clone() for key, value in theirs.state_dict().items()}
    x, y = batch(MODELS[name][1])
    half = len(x) // 2
    replicas = [make_torchs(name) for _ in range(2)]
    for rank, replica in enumerate(replicas):
        part = slice(rank * half, (rank + 1) * half)
        loss_of(torch, replica(torch.tensor(x[part])), torch.tensor(y[part])).backward()
    want = {
        key: (a.grad + b.grad) / 2
        for (key, a), (_, b) in zip(replicas[0].named_parameters(), replicas[1].named_parameters())
    }

    def rank_main(communicator: Communicator) -> dict[str, Any]:
        part = slice(communicator.rank * half, (communicator.rank + 1) * half)
        with use_communicator(communicator):
            ddp = dc.nn.parallel.DistributedDataParallel(make_ours(name, weights), bucket_cap_mb=0.01)
            step = dc.compile(ddp)
            loss_of(dc, step(dc.tensor(x[part])), dc.tensor(y[part])).backward()
            return {key: p.grad.clone() for key, p in ddp.module.named_parameters()}

    for grads in run_ranks(2, rank_main, timeout_s=120):
        assert list(grads) == list(want)
        for key, grad in grads.items():
            assert_close(grad, want[key], key)


def test_two_steps_of_training_give_torchs_losses() -> None:
    theirs = make_torchs("resnet")
    ours = make_ours("resnet", theirs.state_dict())
    x, y = batch(MODELS["resnet"][1])
    mine = train(dc, ours, dc.compile(ours), dc.tensor(x), dc.tensor(y))
    want = train(torch, theirs, theirs, torch.tensor(x), torch.tensor(y))
    np.testing.assert_allclose(mine, want, rtol=1e-3)
