"""torch.cuda's names, and training, on a stand-in for CUDA devices."""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator
from typing import Any

import pytest

import distcompile as dc
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


def test_draws_have_the_cpus_bits() -> None:
    dc.manual_seed(1)
    expected = dc.randn(5).tolist(), dc.rand(3).tolist()
    dc.cuda.manual_seed_all(1)
    assert (dc.randn(5, device="cuda").tolist(), dc.rand(3, device="cuda:1").tolist()) == expected
    assert dc.cuda.initial_seed() == 1
    state = dc.cuda.get_rng_state()
    first = dc.rand(2, device="cuda").tolist()
    dc.cuda.set_rng_state(state)
    assert dc.rand(2, device="cuda").tolist() == first


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
    [("SGD", {"momentum": 0.9}), ("AdamW", {}), ("RMSprop", {}), ("Adagrad", {}), ("Adafactor", {})],
)
def test_training_is_as_on_the_cpu(kind: str, options: dict[str, Any]) -> None:
    expected, there, _ = train("cpu", kind, **options)
    losses, here, optimizer = train("cuda", kind, **options)
    assert losses == pytest.approx(expected, rel=1e-5)
    for a, b in zip(here.parameters(), there.parameters()):
        assert a.is_cuda
        assert a.grad is not None
        assert a.grad.is_cuda
        assert dc.allclose(a.detach().cpu(), b.detach(), atol=1e-4)
    if kind == "AdamW":
        (first, *_) = here.parameters()
        assert optimizer.state[first]["exp_avg"].is_cuda


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
