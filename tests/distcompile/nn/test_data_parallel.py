"""DataParallel and what it is made of, on two stand-in devices, beside the module alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import distcompile as dc
from distcompile import nn
from distcompile.cuda import comm
from distcompile.nn.parallel import DataParallel, data_parallel, gather, parallel_apply, replicate, scatter
from tests.fake_cupy import on_fake_device


@pytest.fixture
def device() -> Iterator[None]:
    with on_fake_device():
        yield


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        dc.manual_seed(0)
        self.up, self.norm, self.down = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3, bias=False)
        self.seen: list[Any] = []

    def forward(self, x: Any, *, scale: float = 1.0) -> dict[str, Any]:
        y = self.down(dc.relu(self.norm(self.up(x)))) * scale
        return {"out": y, "loss": y.square().sum()}


def test_without_a_gpu_the_module_runs() -> None:
    net = Net()
    wrapped = DataParallel(net)
    x = dc.randn(5, 4)
    assert wrapped(x, scale=2.0)["out"].shape == (5, 3)
    assert next(iter(wrapped.state_dict())) == "module.up.weight"


@pytest.mark.usefixtures("device")
def test_two_devices_give_what_their_halves_give() -> None:
    net, alone = Net().cuda(), Net()
    wrapped = DataParallel(net)
    assert wrapped.device_ids == [0, 1]
    x = dc.randn(6, 4)
    with pytest.warns(UserWarning, match="will instead unsqueeze"):
        result = wrapped(x.cuda(), scale=2.0)
    halves = [alone(part, scale=2.0) for part in (x[:3], x[3:])]
    expected = dc.cat([half["out"] for half in halves])
    assert (result["out"].device, result["loss"].shape) == (dc.device("cuda:0"), (2,))
    assert dc.allclose(result["out"].cpu(), expected, atol=1e-5)
    result["loss"].sum().backward()
    sum(half["loss"] for half in halves).backward()
    for mine, other in zip(net.parameters(), alone.parameters()):
        assert mine.grad.device == mine.device == dc.device("cuda:0")
        assert dc.allclose(mine.grad.cpu(), other.grad, atol=1e-4)
    assert net.norm.num_batches_tracked.item() == 1  # the first device's alone, as in torch


@pytest.mark.usefixtures("device")
def test_short_batches_and_wrong_homes() -> None:
    net = Net().eval().cuda()
    assert DataParallel(net)(dc.ones(1, 4, device="cuda"))["out"].shape == (1, 3)
    with pytest.warns(UserWarning, match="all input tensors were scalars"):
        result = data_parallel(net, dc.ones(4, 4, device="cuda"), [0, 1], "cuda:1")
    assert result["out"].device == dc.device("cuda:1")
    with pytest.raises(RuntimeError, match=r"device_ids.0.. but found one of them on device: cpu"):
        DataParallel(Net())(dc.ones(2, 4))
    one = DataParallel(Net(), device_ids=[1])
    assert next(one.parameters()).device == dc.device("cuda:1")
    assert one(dc.ones(4, 4))["out"].device == dc.device("cuda:1")


@pytest.mark.usefixtures("device")
def test_the_parts() -> None:
    x = dc.arange(6.0, device="cuda").requires_grad_()
    parts = scatter({"x": x, "n": 3, "more": [x, (x,)]}, [0, 1])
    assert [part["x"].tolist() for part in parts] == [[0, 1, 2], [3, 4, 5]]
    assert [part["x"].get_device() for part in parts] == [0, 1]
    assert parts[1]["n"] == 3
    assert parts[1]["more"][1][0].tolist() == [3, 4, 5]
    gather([part["x"] * (k + 1) for k, part in enumerate(parts)], 0).sum().backward()
    assert x.grad.tolist() == [1, 1, 1, 2, 2, 2]
    copies = replicate(nn.Linear(2, 1).cuda(), [0, 1])
    outputs = parallel_apply(copies, [dc.ones(1, 2, device=f"cuda:{k}") for k in range(2)])
    assert [one.get_device() for one in outputs] == [0, 1]
    assert gather(outputs, "cpu").device == dc.device("cpu")


@pytest.mark.usefixtures("device")
def test_comm() -> None:
    x = dc.arange(4.0, device="cuda")
    assert [one.get_device() for one in comm.broadcast(x, [0, 1])] == [0, 1]
    total = comm.reduce_add([x, x.to("cuda:1")], 1)
    assert (total.tolist(), total.get_device()) == ([0, 2, 4, 6], 1)
    parts = comm.scatter(x, [0, 1], [1, 3])
    assert [one.tolist() for one in parts] == [[0], [1, 2, 3]]
    assert comm.gather(parts, destination=1).tolist() == x.tolist()
    assert comm.reduce_add_coalesced([[x, x], [x, x]], 0)[1].tolist() == [0, 2, 4, 6]
