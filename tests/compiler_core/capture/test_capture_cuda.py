"""Compiled functions on a stand-in for CUDA devices, by the backends that run op by op: as eager code."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

import distcompile as dc
from compiler_core.device import cpu
from compiler_core.errors import DeviceError
from compiler_core.graph.ir import Graph
from distcompile import nn
from distcompile._dynamo import mark_dynamic, mark_static, maybe_mark_dynamic
from distcompile.nn import functional as F
from tests.fake_cupy import on_fake_device

BACKENDS = ("eager", "aot_eager")


@pytest.fixture(autouse=True)
def device() -> Iterator[Any]:
    with on_fake_device() as module:
        yield module


class Seen:
    """A backend that keeps the graphs it was given and interprets them."""

    name = "seen"
    announces = True

    def __init__(self) -> None:
        self.graphs: list[Graph] = []

    def lay_out(self, graph: Graph) -> Graph:
        return graph

    def compile(self, graphs: Any, name: str) -> Any:
        from compiler_core.backend import InterpreterBackend

        self.graphs += graphs
        return InterpreterBackend("aot_eager").compile(graphs, name)


@pytest.mark.parametrize("backend", BACKENDS)
def test_forward_backward_and_buffers(backend: str) -> None:
    dc.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 5)).cuda()
    other = copy.deepcopy(net)
    compiled = dc.compile(lambda x, y: F.cross_entropy(net(x), y), backend=backend, fullgraph=True)
    for _ in range(3):
        x, y = dc.randn(4, 6, device="cuda"), dc.randint(0, 5, (4,), device="cuda")
        state = dc.cuda.get_rng_state()
        loss = compiled(x, y)
        loss.backward()
        dc.cuda.set_rng_state(state)
        expected = F.cross_entropy(other(x), y)
        expected.backward()
        assert loss.device == dc.device("cuda:0")
        assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
        for p, q in zip(net.parameters(), other.parameters()):
            assert p.grad is not None
            assert p.grad.is_cuda
            assert dc.allclose(p.grad, q.grad, atol=1e-5)
    for a, b in zip(net.buffers(), other.buffers()):
        assert a.is_cuda
        assert dc.allclose(a.float(), b.float(), atol=1e-5)


def test_a_graph_says_its_device_and_is_found_by_it() -> None:
    seen = Seen()
    f = dc.compile(lambda x: (x * 2).sum(), backend=seen, fullgraph=True)
    for place, count in (("cpu", 1), ("cuda", 2), ("cuda:1", 3), ("cpu", 3), ("cuda:0", 3)):
        result = f(dc.ones(3, device=place))
        assert (result.item(), str(result.device).partition(":")[0]) == (6.0, place.partition(":")[0])
        assert len(seen.graphs) == count
    assert [g.device for g in seen.graphs] == ["cpu", "cuda:0", "cuda:1"]
    g = dc.compile(lambda x: x.sum() * 2, backend=seen, fullgraph=True)
    x = dc.ones(3, device="cuda:1", requires_grad=True)
    g(x).backward()
    assert {graph.device for graph in seen.graphs[3:]} == {"cuda:1"}
    assert x.grad is not None
    assert x.grad.get_device() == 1


def test_views_of_two_devices_are_told_apart() -> None:
    seen = Seen()
    f = dc.compile(lambda x: x + 1, backend=seen, fullgraph=True)
    for place in ("cpu", "cuda", "cpu", "cuda"):
        assert f(dc.arange(6.0, device=place).reshape(2, 3).T).sum().item() == 21
    assert [g.device for g in seen.graphs] == ["cpu", "cuda:0"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_made_inside_is_where_it_was_made(backend: str) -> None:
    def f(x: Any) -> Any:
        mask = dc.arange(4, device=x.device) < 2
        host = dc.arange(3)
        ones = dc.ones(4, device="cuda")
        return dc.where(mask, x, 0.0), host, ones, dc.zeros_like(x), dc.tensor(3.0), x * dc.tensor(2.0), x.device

    x = dc.arange(4.0, device="cuda")
    results = dc.compile(f, backend=backend, fullgraph=True)(x)
    for a, b in zip(results[:-1], f(x)[:-1]):
        assert (a.device, a.tolist()) == (b.device, b.tolist())
    assert results[-1] == x.device


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_number_of_the_cpu_may_stand_beside(backend: str) -> None:
    scale = dc.tensor(3.0, requires_grad=True)
    x = dc.ones(2, device="cuda", requires_grad=True)
    dc.compile(lambda a, b: (a * b).sum(), backend=backend, fullgraph=True)(x, scale).backward()
    assert scale.grad is not None
    assert x.grad is not None
    assert (scale.grad.device, scale.grad.item(), x.grad.tolist()) == (cpu, 2.0, [3.0, 3.0])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", BACKENDS)
def test_moves_break_the_graph(backend: str) -> None:
    def f(x: Any, y: Any) -> Any:
        a = (x * 2).cpu() + y
        return a.to("cuda:1").sum() + 1

    x, y = dc.ones(3, device="cuda", requires_grad=True), dc.ones(3)
    result = dc.compile(f, backend=backend)(x, y)
    assert (result.get_device(), result.item()) == (1, 10.0)
    result.backward()
    assert x.grad is not None
    assert (x.grad.get_device(), x.grad.tolist()) == (0, [2.0, 2.0, 2.0])


@pytest.mark.filterwarnings("ignore")
def test_two_devices_in_one_op_are_eagers_error() -> None:
    with pytest.raises(DeviceError, match="at least two devices, cuda:0 and cpu"):
        dc.compile(lambda x: x + dc.ones(3), backend="eager")(dc.ones(3, device="cuda"))
    with pytest.raises(DeviceError, match="at least two devices"):
        dc.compile(lambda x, y: x + y, backend="eager")(dc.ones(3, device="cuda"), dc.ones(3))


@pytest.mark.parametrize("backend", BACKENDS)
def test_writes_go_to_the_device(backend: str) -> None:
    state = dc.zeros(3, device="cuda")

    def f(x: Any) -> Any:
        state.add_(x)
        state[0] = 7
        return state * 2

    result = dc.compile(f, backend=backend, fullgraph=True)(dc.ones(3, device="cuda"))
    assert (result.tolist(), state.tolist(), state.is_cuda) == ([14, 2, 2], [7, 1, 1], True)


def test_a_module_that_moves_is_compiled_anew() -> None:
    seen = Seen()
    net = nn.Linear(2, 3)
    f = dc.compile(net, backend=seen)
    for place in ("cpu", "cuda", "cuda:1", "cpu"):
        net.to(place)
        assert f(dc.ones(1, 2, device=place)).device == dc.ones(1, device=place).device
    assert [g.device for g in seen.graphs][:5:2] == ["cpu", "cuda:0", "cuda:1"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_decoding_with_dynamic_sizes_is_right_for_every_size(backend: str) -> None:
    """Ten lengths, captured once."""
    dc.manual_seed(0)
    layer = nn.Linear(4, 4).cuda()

    def attend(q: dc.Tensor, cache: dc.Tensor) -> dc.Tensor:
        return F.scaled_dot_product_attention(q, layer(cache), cache)

    compiled: Any = dc.compile(attend, backend=backend)
    q, cache = dc.randn(1, 1, 4, device="cuda"), dc.randn(1, 2, 4, device="cuda")
    for _ in range(10):
        mark_dynamic(cache, 1, min=1, max=64)
        maybe_mark_dynamic(cache, 1)
        mark_static(cache, 2)
        got = compiled(q, cache)
        assert got.is_cuda
        assert dc.allclose(got, attend(q, cache), atol=1e-6)
        cache = dc.cat([cache, dc.randn(1, 1, 4, device="cuda")], dim=1)
    assert len(compiled.explain().entries) == 1


SLICED: list[Any] = [
    lambda x, k: x[k : k + 2] * 2,
    lambda x, k: x[:, k] * 2,
    lambda x, k: dc.autograd.grad((x[k : k + 2] ** 2).sum(), x)[0],
]


@pytest.mark.parametrize("place", range(len(SLICED)))
def test_a_slice_that_moves_is_read_in_one_graph(place: int) -> None:
    compiled: Any = dc.compile(SLICED[place], backend="aot_eager", fullgraph=True)
    x = dc.randn(8, 8, device="cuda", requires_grad=True)
    for k in (1, 2, 3, 0, 5):
        got = compiled(x, k)
        assert got.is_cuda
        assert dc.equal(got, SLICED[place](x, k))
    assert len(compiled.explain().entries) == 2


def test_a_slice_that_moves_is_written_in_one_graph() -> None:
    queue, counter = dc.zeros(12, 4, device="cuda"), {"at": 0}

    def put(x: dc.Tensor) -> None:
        queue[counter["at"] : counter["at"] + 3] = x
        counter["at"] = (counter["at"] + 3) % 12

    compiled: Any = dc.compile(put, backend="aot_eager", fullgraph=True)
    for k in range(8):
        compiled(dc.full((3, 4), float(k), device="cuda"))
    assert queue[:, 0].tolist() == [4.0] * 3 + [5.0] * 3 + [6.0] * 3 + [7.0] * 3
    assert len(compiled.explain().entries) <= 2
