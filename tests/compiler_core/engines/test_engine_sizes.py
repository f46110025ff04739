"""Functions whose sizes change, through engines: one program for all sizes where there is one, else one a size."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import distcompile as dc
from compiler_core.engines.engine import Program
from compiler_core.engines.onnx import onnxrt
from compiler_core.graph.ir import Graph
from distcompile import nn

SIZES = ((2, 5, 8), (3, 7, 8), (4, 9, 8))


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The graphs that sessions were made of to run."""
    made: list[str] = []

    def session(model: Any, *, quick: bool = False) -> Any:
        if not quick:
            made.append(model.graph.name)
        return real(model, quick=quick)

    real = onnxrt.session
    monkeypatch.setattr(onnxrt, "session", session)
    return made


def encoder() -> nn.Module:
    dc.manual_seed(0)
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).eval()


@pytest.mark.parametrize(("dynamic", "expected"), [(True, 1), (None, 2), (False, 3)])
def test_inference_is_one_session_for_all_sizes(dynamic: bool | None, expected: int, sessions: list[str]) -> None:
    """By default sizes are symbols from the second on."""
    net = encoder()
    compiled = dc.compile(net, backend="onnxrt", dynamic=dynamic)
    with dc.no_grad():
        for size in SIZES:
            x = dc.randn(*size)
            assert dc.allclose(compiled(x), net(x), atol=1e-5)
    assert len(sessions) == expected


def test_a_training_step_is_two_sessions_a_size(sessions: list[str]) -> None:
    net = encoder()
    compiled = dc.compile(net, backend="onnxrt", dynamic=True)
    for size in SIZES[:2]:
        x = dc.randn(*size)
        expected = dc.autograd.grad(net(x).square().sum(), [*net.parameters()])
        found = dc.autograd.grad(compiled(x).square().sum(), [*net.parameters()])
        assert all(dc.allclose(a, b, atol=1e-4) for a, b in zip(found, expected))
    assert len(sessions) == 4


def test_openvino_is_one_model_for_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openvino")
    from compiler_core.engines.onnx.openvino import OpenVino

    built: list[str] = []
    build = OpenVino.build

    def counted(self: OpenVino, graph: Graph) -> Program:
        built.append(graph.name)
        return build(self, graph)

    monkeypatch.setattr(OpenVino, "build", counted)
    net = encoder()
    compiled = dc.compile(net, backend="openvino", dynamic=True)
    with dc.no_grad():
        for size in SIZES:
            x = dc.randn(*size)
            assert dc.allclose(compiled(x), net(x), atol=1e-5)
    assert len(built) == 1


@pytest.mark.filterwarnings("ignore:.*is run by our own code")
def test_what_an_engine_does_not_take_whole_is_compiled_for_each_size() -> None:
    def f(x: dc.Tensor) -> dc.Tensor:
        return dc.linalg.inv(x @ x.t() + x.shape[0] * dc.eye(x.shape[0])) + 1

    compiled = dc.compile(f, backend="onnxrt", dynamic=True)
    for n in (3, 4, 5):
        x = dc.randn(n, n)
        assert dc.allclose(compiled(x), f(x), atol=1e-4)


def test_results_that_are_inputs_or_made_of_sizes_alone() -> None:
    def f(x: dc.Tensor) -> tuple[Any, ...]:
        return x, x.t(), dc.zeros(x.shape[0], 2), dc.arange(x.shape[1]), x.shape[0] * x

    compiled = dc.compile(f, backend="onnxrt", dynamic=True)
    for size in ((3, 4), (5, 2), (2, 7)):
        for found, expected in zip(compiled(dc.ones(size)), f(dc.ones(size)), strict=True):
            assert dc.equal(found, expected)
