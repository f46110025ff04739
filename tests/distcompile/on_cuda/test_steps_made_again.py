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
    monkeypatch.setattr(cudnn, "_first_plans", {})
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
