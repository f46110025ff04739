"""Training steps whose calls are made again give the bits of steps whose calls are all made in full.

Forward, backward and AdamW under autocast, on the stand-in with a cuDNN: losses, parameters, running statistics; also
with hooks, a graph that is kept, gradients of gradients, writes in place, saved values that were changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.config import config
from compiler_core.runtime.cuda import cudnn, replay
from compiler_core.runtime.cuda.again import library
from distcompile import nn
from distcompile.nn import functional as F
from tests.fake_cuda import FakeCuda
from tests.fake_cuda import fake_cuda as fake_cuda  # a fixture
from tests.fake_cuda.dnn import add_cudnn
from tests.fake_cupy import on_fake_device

pytest.importorskip("triton")
pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore:TRITON_DEFAULT", "ignore::RuntimeWarning")]


@pytest.fixture(autouse=True)
def _one_device(fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(cudnn, "_eager_plans", {})
    add_cudnn(fake_cuda)
    with on_fake_device(devices=1), config.patch(cache_dir=tmp_path):
        yield


class Bottleneck(nn.Module):
    """As torchvision's: activations and the sum in place."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(n, n, 1, bias=False), nn.Conv2d(n, n, 3, padding=1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(n), nn.BatchNorm2d(n)])
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Any) -> Any:
        out = self.relu(self.norms[0](self.first(x)))
        out = self.norms[1](self.second(out))
        out += x
        return self.relu(out)


class Layer(nn.Module):
    """As a transformer's, with several heads in one product."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(n), nn.Linear(n, 3 * n), nn.Linear(n, n)
        self.mlp = nn.Sequential(nn.Linear(n, 2 * n), nn.GELU(), nn.Dropout(0.2), nn.Linear(2 * n, n))

    def forward(self, x: Any) -> Any:
        batch, length, n = x.shape
        q, k, v = (t.view(batch, length, 2, n // 2).transpose(1, 2) for t in self.qkv(self.norm(x)).split(n, dim=2))
        weights = (q * 0.5 @ k.transpose(-2, -1)).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, n))
        return x + self.mlp(x)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolutions": (lambda: nn.Sequential(Bottleneck(8), Bottleneck(8)), (2, 8, 6, 6)),
    "many channels": (lambda: Bottleneck(40), (2, 40, 4, 4)),
    "a transformer": (lambda: nn.Sequential(Layer(16), Layer(16)), (2, 6, 16)),
}


def trained(name: str, steps: int = 5) -> list[Any]:
    """Losses, and what is left in parameters and buffers."""
    dc.manual_seed(3)
    make, shape = MODELS[name]
    model = make().to("cuda")
    optimizer = dc.optim.AdamW(model.parameters(), lr=1e-2)
    rng = np.random.default_rng(1)
    found = []
    for _ in range(steps):
        x = dc.tensor(rng.normal(size=shape).astype(np.float32), device="cuda")
        optimizer.zero_grad()
        with dc.autocast("cuda", dtype=dc.bfloat16):
            out = model(x)
        loss = out.float().square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return [*found, *[(key, value.cpu().numpy().tobytes()) for key, value in model.state_dict().items()]]


def repeats() -> int:
    found = library()
    assert found is not None
    return found.repeats()


@pytest.mark.parametrize("name", MODELS)
def test_steps_give_the_bits_of_steps_made_in_full(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = repeats()
    found = [trained(name), trained(name)]
    assert repeats() > before + 40
    monkeypatch.setattr(replay.Noting, "is_on", False)
    assert found == [trained(name)] * 2
    assert all(np.isfinite(found[0][:5]))


def _in_parts(x: Any, w: Any) -> list[Any]:
    seen: list[Any] = []
    with dc.autocast("cuda", dtype=dc.bfloat16):
        y = F.relu(F.conv2d(x, w))
        y.register_hook(lambda g: seen.append(g.float().sum()))
        y.retain_grad()
        z = F.relu(y * 2, inplace=True)
        z.add_(1)
        z[0] = 0
    total = z.float().square().sum()
    total.backward(retain_graph=True)
    total.backward()
    return [z, z._version, *seen, y.grad, x.grad, w.grad]


def _twice(x: Any, w: Any) -> list[Any]:
    y = F.relu(F.conv2d(x, w)).square().sum()
    (gx,) = dc.autograd.grad(y, x, create_graph=True)
    gx.square().sum().backward()
    return [y, gx, x.grad, w.grad]


def _changed(x: Any, w: Any) -> list[Any]:
    y = x.bfloat16() * 2
    z = y * y
    y.mul_(3)
    try:
        z.float().sum().backward()
    except RuntimeError as error:
        return [type(error).__name__]
    return [x.grad]


def _a_kept_leaf(x: Any, w: Any) -> list[Any]:
    try:
        F.relu(x, inplace=True)
    except RuntimeError as error:
        return [type(error).__name__]
    return []


def _views(x: Any, w: Any) -> list[Any]:
    y = x.bfloat16() * 1
    part = y[:, 1:]
    F.relu(part, inplace=True)
    part += 1
    with dc.no_grad():
        other = y.detach().clone()
        F.relu(other[0], inplace=True)
    y.float().square().sum().backward()
    return [y, part, other, x.grad, y._version]


def _frozen(x: Any, w: Any) -> list[Any]:
    with dc.autocast("cuda", dtype=dc.bfloat16):
        y = F.conv2d(x, w.detach())
        z = F.conv2d(x.detach(), w)
    (y.float().square().sum() + z.float().sum()).backward()
    return [y, z, x.grad, w.grad]


PROGRAMS = [_in_parts, _twice, _changed, _a_kept_leaf, _views, _frozen]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.__name__.strip("_"))
def test_what_programs_see_is_as_in_calls_made_in_full(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(seed: int) -> list[Any]:
        rng = np.random.default_rng(seed)
        x, w = (
            dc.tensor(rng.normal(size=shape).astype(np.float32), device="cuda").requires_grad_()
            for shape in ((2, 8, 4, 4), (8, 8, 1, 1))
        )
        return [
            (str(one.dtype), one.detach().cpu().float().numpy().tobytes()) if isinstance(one, dc.Tensor) else one
            for one in program(x, w)
        ]

    found = [told(seed) for seed in (0, 1, 0, 1, 2)]
    assert found[:2] == found[2:4]
    monkeypatch.setattr(replay.Noting, "is_on", False)
    assert found == [told(seed) for seed in (0, 1, 0, 1, 2)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64"])
def test_numbers_in_windows(dtype: str) -> None:
    """Small tensors are written at once; others, and what is wrong, the general way."""

    def told(place: str, size: int) -> list[Any]:
        x = dc.zeros(size, size, dtype=getattr(dc, dtype), device=place)
        seen, part = x.detach(), x[1:]
        x[0:-2, -2:] = 3
        x[1, 2] = 2.5
        x[-1:] = -1
        found = [x.float().tolist(), seen.float().sum().item(), part.float().sum().item(), x._version, seen._version]
        for index in ((0, size), (0, 0, 0), slice(None, None, -1)):
            with pytest.raises((IndexError, ValueError)):
                x[index] = 1
        return [*found, x._version]

    for size in (4, 200):
        assert told("cuda", size) == told("cpu", size)
    w = dc.ones(3, device="cuda", requires_grad=True)
    with pytest.raises(RuntimeError):
        w[0] = 1
    v = w * 2
    v[0] = 1.0
    v.sum().backward()
    assert w.grad.tolist() == [0.0, 2.0, 2.0]


def test_an_activation_in_place_is_one_node() -> None:
    """Its gradient goes to what was there before, once."""
    x = dc.tensor([-1.0, 2.0], device="cuda", requires_grad=True)
    for _ in range(4):
        y = x * 2
        z = F.relu(y, inplace=True)
        assert z is y
        assert type(z.grad_fn).__name__ == "ReluBackward0"
        z.sum().backward()
    assert x.grad.tolist() == [0.0, 8.0]


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_an_activation_in_place_with_channels_last_is_one_node(place: str) -> None:
    """Who shares the memory sees it, strides stay, and its gradient gets no zeros added: a -0 stays one."""
    given = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)
    slope = -np.abs(np.random.default_rng(1).normal(size=given.shape)).astype(np.float32) * (given > 0) - 0.0
    for _ in range(4):
        x = dc.tensor(given, device=place).to(memory_format=dc.channels_last).requires_grad_()
        y = x * 1
        same, part, steps = y.detach(), y[:, 1:], y.stride()
        z = F.relu(y, inplace=True)
        assert z is y
        assert type(z.grad_fn).__name__ == "ReluBackward0"
        assert type(z.grad_fn.next_functions[0][0]).__name__ == "MulBackward0"
        y += x
        assert (y.stride(), y._version, same._version) == (steps, 2, 2)
        wanted = np.maximum(given, 0) + given
        assert np.array_equal(y.detach().cpu().numpy(), wanted)
        assert np.array_equal(same.cpu().numpy(), wanted)
        assert np.array_equal(part.detach().cpu().numpy(), wanted[:, 1:])
        part.mul_(2)
        wanted[:, 1:] *= 2
        assert np.array_equal(y.detach().cpu().numpy(), wanted)
        z = F.relu(x * 1, inplace=True)
        z.backward(dc.tensor(slope, device=place))
        made = x.grad.cpu().numpy()
        assert np.array_equal(made, np.where(given > 0, slope, 0))
    y = dc.tensor(given, device=place).to(memory_format=dc.channels_last)
    y += dc.tensor(given, device=place)  # which lies otherwise
    assert np.array_equal(y.cpu().numpy(), 2 * given)
    w = (dc.tensor(given, device=place).to(memory_format=dc.channels_last) * 1).permute(0, 2, 3, 1).detach()
    w.mul_(3)
    assert np.array_equal(w.cpu().numpy(), 3 * given.transpose(0, 2, 3, 1))


def test_a_tensor_that_permutes_another_is_written_in_place() -> None:
    """A detached handle of a view has a permuted cell, too: who it is a view of sees what is written."""
    x = dc.tensor(np.arange(6.0).reshape(2, 3), device="cuda")
    turned, other = x.t().detach(), dc.ones(2, 3, device="cuda").t().detach()
    turned += other
    assert x.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    assert other.tolist() == [[1.0, 1.0]] * 3
    turned.copy_(other)
    other.mul_(5)
    assert x.tolist() == [[1.0] * 3] * 2
