"""torch.cuda's names, and training, on a stand-in for CUDA devices."""

from __future__ import annotations

import copy
import io
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core import cuda as core
from distcompile import nn
from distcompile.nn import functional as F
from tests.fake_cupy import on_fake_device

pytestmark = pytest.mark.filterwarnings("ignore:.*runs op by op, not compiled. the CUDA driver cannot be opened")


@pytest.fixture(autouse=True)
def device() -> Iterator[Any]:
    with on_fake_device() as module:
        yield module


def test_devices() -> None:
    assert dc.cuda.is_available()
    assert dc.accelerator.current_accelerator() == dc.device("cuda")
    assert (dc.cuda.device_count(), dc.cuda.current_device(), dc.accelerator.device_count()) == (2, 0, 2)
    dc.cuda.set_device(1)
    assert (dc.cuda.current_device(), dc.ones(1, device="cuda").get_device()) == (1, 1)
    with dc.cuda.device("cuda:0"), dc.cuda.device(None), dc.cuda.device_of(dc.ones(1)):
        assert dc.cuda.current_device() == 0
    assert dc.cuda.current_device() == 1
    assert (dc.cuda.get_device_name(), dc.cuda.get_device_capability(0)) == ("Stand-in GPU", (9, 0))
    assert dc.cuda.get_device_properties("cuda:1").multi_processor_count == 132
    assert dc.cuda.can_device_access_peer(0, 1)
    assert dc.cuda.is_bf16_supported()
    dc.cuda.synchronize()
    dc.cuda.set_device(0)


def test_streams_and_events() -> None:
    main, side = dc.cuda.current_stream(), dc.cuda.Stream()
    start, end = dc.cuda.Event(enable_timing=True), dc.cuda.Event(enable_timing=True)
    with dc.cuda.stream(side):
        assert dc.cuda.current_stream() == side != main == dc.cuda.default_stream()
        start.record()
        end.record()
    assert dc.cuda.current_stream() == main
    main.wait_stream(side)
    assert main._stream.log[-1][0] == "wait"
    assert start.elapsed_time(end) >= 0
    assert end.query()
    end.synchronize()
    with side:
        assert dc.cuda.current_stream() == side
    with pytest.raises(ValueError, match="enable_timing"):
        start.elapsed_time(dc.cuda.Event())


def test_memory(device: Any) -> None:
    dc.cuda.reset_peak_memory_stats()
    before = dc.cuda.memory_allocated()
    x = dc.rand(256, 256, device="cuda")
    y = dc.rand(256, 256, device="cuda")
    assert dc.cuda.memory_allocated() - before == 2 * 256 * 256 * 4
    del y
    assert dc.cuda.max_memory_allocated() - before == 2 * x.nbytes
    assert dc.cuda.memory_allocated() - before == x.nbytes
    assert dc.cuda.memory_reserved() >= 2 * x.nbytes
    dc.cuda.empty_cache()
    assert dc.cuda.memory_reserved() - before == x.nbytes
    assert dc.cuda.memory_stats()["allocated_bytes.all.peak"] == dc.cuda.max_memory_allocated()
    assert "Tensor 'x'" in dc.cuda.memory_summary()
    assert dc.cuda.memory_allocated(1) == 0
    dc.cuda.reset_peak_memory_stats()
    assert dc.cuda.max_memory_allocated() == dc.cuda.memory_allocated()


def test_the_peak_is_the_pools_which_is_seldom_asked(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pool, draw, asked = core._found.memory.pool, random.Random(0), []
    ask = pool.used_bytes
    monkeypatch.setattr(pool, "used_bytes", lambda: asked.append(1) or ask())
    dc.cuda.reset_peak_memory_stats()
    most, held = ask(), []
    for _ in range(500):
        held.append(device.empty(draw.randrange(4000), "u1"))
        most = max(most, ask())
        if draw.random() < 0.4:
            del held[draw.randrange(len(held)) :]
    assert dc.cuda.max_memory_allocated() == most
    for _ in range(3):  # steps: much is made, all of it is freed
        held.clear()
        asked.clear()
        held += [device.empty(2000, "u1") for _ in range(200)]
    assert len(asked) <= 2


def test_counter_based_draws_have_the_cpus_bits(counter_draws: None) -> None:
    dc.manual_seed(1)
    expected = dc.randn(5).tolist(), dc.rand(3).tolist()
    dc.cuda.manual_seed_all(1)
    assert (dc.randn(5, device="cuda").tolist(), dc.rand(3, device="cuda:1").tolist()) == expected
    assert dc.cuda.initial_seed() == 1
    state = dc.cuda.get_rng_state()
    first = dc.rand(2, device="cuda").tolist()
    dc.cuda.set_rng_state(state)
    assert dc.rand(2, device="cuda").tolist() == first


def test_each_device_has_a_generator_that_the_cpus_draws_leave_alone() -> None:
    dc.manual_seed(1)
    expected = [dc.rand(3, device=place).tolist() for place in ("cuda:0", "cuda:1")]
    assert expected[0] == expected[1]
    dc.manual_seed(1)
    here = dc.rand(3).tolist()
    assert dc.rand(3, device="cuda:1").tolist() == expected[1]
    dc.cuda.manual_seed(1)
    assert dc.rand(3, device="cuda:0").tolist() == expected[0]
    dc.manual_seed(1)
    dc.rand(3, device="cuda")
    assert dc.rand(3).tolist() == here
    assert [state.numel() for state in (dc.get_rng_state(), dc.cuda.get_rng_state())] == [5056, 16]


def model() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 8, bias=False), nn.BatchNorm1d(8),
        nn.ReLU(), nn.Linear(8, 5),
    )  # fmt: skip


def train(place: str, kind: str, **options: Any) -> tuple[list[float], nn.Module, Any]:
    dc.manual_seed(0)
    net = model().to(place)
    optimizer = getattr(dc.optim, kind)(net.parameters(), lr=0.05, **options)
    losses = []
    for _ in range(4):
        x, y = dc.randn(8, 6).to(place), dc.randint(0, 5, (8,)).to(place, non_blocking=True)
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses, net, optimizer


@pytest.mark.parametrize(
    ("kind", "options"),
    [("SGD", {"momentum": 0.9}), ("AdamW", {}), ("RMSprop", {}), ("Adagrad", {}), ("Adafactor", {"weight_decay": 0.1})],
)
def test_training_is_as_on_the_cpu(kind: str, options: dict[str, Any], counter_draws: None) -> None:
    expected, there, _ = train("cpu", kind, **options)
    losses, here, optimizer = train("cuda", kind, **options)
    assert losses == pytest.approx(expected, rel=1e-5)
    for a, b in zip(here.parameters(), there.parameters()):
        assert a.is_cuda
        assert a.grad is not None
        assert a.grad.is_cuda
        assert dc.allclose(a.detach().cpu(), b.detach(), atol=1e-4)
    (first, *_) = here.parameters()
    assert {name: t.is_cuda for name, t in optimizer.state[first].items() if name != "step"} == {
        name: True for name in optimizer.state[first] if name != "step"
    }


@pytest.mark.parametrize("kind", ["Muon", "Adafactor"])
def test_steps_over_whole_parameters_stay_on_the_device(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """16-bit parameters too; nothing is fetched."""
    found = []
    for place in ("cpu", "cuda:1"):
        dc.manual_seed(0)
        values = [dc.randn(6, 4), dc.randn(3, 8).bfloat16()]
        p = [nn.Parameter(value.to(place)) for value in values]
        optimizer = getattr(dc.optim, kind)(p, lr=0.02)
        x = values[1].to(place)
        ((x + x) * x - x / x).float().bfloat16().sum(0)  # kernels are compared with the CPU's once
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("compiler_core.cuda.fetch", None)
            for _ in range(5):
                for each in p:
                    each.grad = dc.randn(each.shape, dtype=dc.float32).to(place, each.dtype)
                optimizer.step()
        assert {t.device for each in p for name, t in optimizer.state[each].items() if name != "step"} == {p[0].device}
        found.append([each.detach().cpu().float().numpy() for each in p])
    for here, there in zip(*found):
        np.testing.assert_allclose(there, here, atol=1e-2 if kind == "Muon" else 1e-6)  # ties of bfloat16 in Muon


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
@pytest.mark.parametrize("dtype", [dc.float64, dc.bfloat16])
def test_lbfgs_is_as_on_the_cpu(search: str | None, dtype: Any) -> None:
    """Of 16-bit floats its vectors are on the host. The closure sees its caller's current device."""
    found = []
    for place in ("cpu", "cuda:1"):
        x = nn.Parameter(dc.tensor([-1.2, 1.0, 0.7, -0.3], device=place, dtype=dtype))
        y = nn.Parameter(dc.tensor([[0.5, 2.0]], device=place, dtype=dtype))
        optimizer = dc.optim.LBFGS([x, y], lr=0.1, max_iter=6, line_search_fn=search)

        def closure(x: Any = x, y: Any = y, optimizer: Any = optimizer, place: str = place) -> Any:
            optimizer.zero_grad()
            assert place == "cpu" or dc.cuda.current_device() == 0
            loss = ((x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum() + (y * x[0]).square().sum()
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
        state = optimizer.state[x]
        assert state["d"].device == (x.device if dtype is dc.float64 else dc.device("cpu"))
        assert (x.get_device(), y.get_device()) == ((1, 1) if place != "cpu" else (-1, -1))
        found.append(dc.cat([x.detach().cpu(), y.detach().cpu().view(-1)]).double().numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9)


def test_modules_move_and_stay_the_same_objects() -> None:
    net = model()
    before = list(net.parameters())
    assert net.cuda() is net
    assert [p is q for p, q in zip(net.parameters(), before)] == [True] * len(before)
    assert all(t.get_device() == 0 for t in (*net.parameters(), *net.buffers()))
    net.to("cuda:1", dc.bfloat16)
    assert {(p.get_device(), p.dtype) for p in net.parameters()} == {(1, dc.bfloat16)}
    twin = copy.deepcopy(net)
    assert {p.get_device() for p in twin.parameters()} == {1}
    net.cpu()
    assert {p.device for p in net.parameters()} == {dc.device("cpu")}


def test_a_file_says_where_its_tensors_were() -> None:
    net = model().to("cuda:1")
    file = io.BytesIO()
    dc.save({"model": net.state_dict(), "x": dc.ones(3, device="cuda")}, file)

    def loaded(**options: Any) -> Any:
        file.seek(0)
        return dc.load(file, **options)

    found = loaded()
    assert (found["x"].get_device(), found["model"]["0.weight"].get_device()) == (0, 1)
    assert loaded(map_location="cpu")["model"]["0.weight"].device == dc.device("cpu")
    assert loaded(map_location={"cuda:1": "cuda:0"})["model"]["0.weight"].get_device() == 0
    assert loaded(map_location=lambda storage, place: storage.cuda(1))["x"].get_device() == 1
    net.load_state_dict(loaded(map_location="cpu")["model"])
    assert next(iter(net.parameters())).get_device() == 1
    with on_fake_device(0), pytest.raises(ValueError, match="deserialize object on cuda"):
        loaded()


@pytest.mark.parametrize("kind", ["AdamW", "NAdam", "Adafactor", "LBFGS"])
def test_a_loaded_state_goes_to_the_parameters(kind: str) -> None:
    def step(place: str, state: Any = None) -> tuple[Any, Any]:
        p = nn.Parameter(dc.ones(3, 2, device=place))
        optimizer = getattr(dc.optim, kind)([p])
        if state is not None:
            optimizer.load_state_dict(state)

        def closure() -> Any:
            optimizer.zero_grad()
            loss = (p - 2).square().sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        return p, optimizer

    p, first = step("cuda")
    a, _ = step("cpu", first.state_dict())
    b, second = step("cuda:1", first.state_dict())
    if kind == "AdamW":
        assert second.state[b]["exp_avg"].get_device() == 1
        assert not second.state[b]["step"].is_cuda
    assert (p.get_device(), b.get_device(), a.device) == (0, 1, dc.device("cpu"))
    assert dc.allclose(a.detach(), b.detach().cpu())


def test_clipping_and_scaling_by_value() -> None:
    p = nn.Parameter(dc.zeros(3, device="cuda"))
    p.grad = dc.tensor([1.0, -5.0, 2.0], device="cuda")
    total = nn.utils.clip_grad_norm_([p], 1.0)
    assert (total.get_device(), round(total.item(), 4)) == (0, 5.4772)
    assert p.grad.norm().item() == pytest.approx(1.0, rel=1e-5)
    nn.utils.clip_grad_value_([p], 0.1)
    assert p.grad.abs().max().item() == pytest.approx(0.1)


def test_recurrent_and_convolutional_layers() -> None:
    for net, x in (
        (nn.LSTM(4, 6, batch_first=True), dc.randn(2, 5, 4)),
        (nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.MaxPool2d(2)), dc.randn(2, 2, 6, 6)),
        (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), dc.randn(4, 2, 8)),
        (nn.EmbeddingBag(9, 3), dc.randint(0, 9, (2, 4))),
    ):
        there = copy.deepcopy(net).cuda()
        a, b = net(x), there(x.cuda())  # type: ignore[operator]
        a, b = (v[0] if isinstance(v, tuple) else v for v in (a, b))
        a.square().sum().backward()
        b.square().sum().backward()
        assert dc.allclose(a, b.cpu(), atol=1e-5)
        for p, q in zip(net.parameters(), there.parameters()):
            assert q.grad is not None
            assert dc.allclose(p.grad, q.grad.cpu(), atol=1e-4)
