"""Modules as ONNX models: names, sizes that change, files, versions, and what has no model."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import BackendError
from compiler_core.log import DistCompileWarning, forget_warnings
from distcompile import nn
from distcompile.errors import ArgumentError, NotSupportedError
from distcompile.export import Dim, export
from tests.fake_cupy import on_fake_device

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")


def names(values: Any) -> list[str]:
    return [value.name for value in values]


def shape(value: Any) -> list[Any]:
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]


def two_layers() -> nn.Module:
    dc.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()


X = dc.linspace(-1, 1, 12).reshape(3, 4)


def test_names_and_sizes_are_as_declared() -> None:
    net = two_layers()
    rows = Dim("rows", min=1, max=99)
    made = dc.onnx.export(net, (X,), input_names=["x"], output_names=["y"], dynamic_shapes=({0: rows},), verify=True)
    graph = made.model_proto.graph
    onnx.checker.check_model(made.model_proto, full_check=True)
    assert (names(graph.input), names(graph.output)) == (["x"], ["y"])
    assert {"0.weight", "0.bias", "2.weight", "2.bias"} <= set(names(graph.initializer))
    assert (shape(graph.input[0]), shape(graph.output[0])) == (["rows", 4], ["rows", 2])
    for count in (1, 5):
        x = dc.randn(count, 4)
        assert dc.allclose(made(x)[0], net(x), atol=1e-6)
    assert "x -> y" in repr(made)
    with pytest.raises(ArgumentError, match="takes 1 tensors"):
        made(X, X)


def test_a_module_of_a_gpu_has_the_same_model() -> None:
    expected = two_layers()(X)
    with on_fake_device():
        made = dc.onnx.export(two_layers().cuda(), (X.cuda(),), verify=True)
        assert dc.allclose(made(X.cuda())[0], expected, atol=1e-6)


def test_dynamic_axes_say_the_same() -> None:
    net, axes = two_layers(), {"x": {0: "batch"}, "y": {0: "batch"}}
    made = dc.onnx.export(net, X, input_names=["x"], output_names=["y"], dynamic_axes=axes)
    assert shape(made.model_proto.graph.input[0]) == ["batch", 4]
    with pytest.raises(ArgumentError, match="dynamic_axes needs input_names"):
        dc.onnx.export(net, X, dynamic_axes=axes)


@pytest.mark.parametrize("external", [False, True, None])
def test_files(tmp_path: Path, external: bool | None) -> None:
    net, path = two_layers(), tmp_path / "net.onnx"
    big = nn.Sequential(net, nn.Linear(2, 999)).eval()
    assert dc.onnx.export(big, (X,), path, external_data=external, dynamo=False) is None
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: X.numpy()})
    np.testing.assert_allclose(found, big(X).detach().numpy(), atol=1e-6)
    assert path.with_name("net.onnx.data").exists() is (external is True)


def test_an_open_file() -> None:
    file = io.BytesIO()
    dc.onnx.export(two_layers(), (X,), file)
    onnx.checker.check_model(onnx.load_from_string(file.getvalue()), full_check=True)


def test_a_file_without_weights_or_with_weights_to_be_overridden(tmp_path: Path) -> None:
    made = dc.onnx.export(two_layers(), (X,))
    made.save(tmp_path / "bare.onnx", include_initializers=False)
    assert "0.weight" in names(onnx.load(tmp_path / "bare.onnx").graph.input)
    made.save(tmp_path / "open.onnx", keep_initializers_as_inputs=True)
    graph = onnx.load(tmp_path / "open.onnx").graph
    assert "0.weight" in names(graph.input)
    assert "0.weight" in names(graph.initializer)


def test_weights_beyond_one_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from compiler_core.engines.onnx import model

    made = dc.onnx.export(two_layers(), (X,))
    monkeypatch.setattr(model, "PROTOBUF_LIMIT", 100)
    with pytest.raises(BackendError, match="one ONNX file cannot hold"):
        made.save(tmp_path / "net.onnx", external_data=False)


@pytest.mark.parametrize("version", [17, 18, 20, 21, 23])
def test_versions_of_the_operators(version: int) -> None:
    net = two_layers()
    made = dc.onnx.export(net, (X,), opset_version=version)
    assert made.model_proto.opset_import[0].version == version
    assert dc.allclose(made(X)[0], net(X), atol=1e-6)
    with pytest.raises(ArgumentError, match="at most 23"):
        dc.onnx.export(net, (X,), opset_version=99)


def test_containers_constants_and_sizes_among_arguments_and_results() -> None:
    class Net(nn.Module):
        def forward(self, pair: dict[str, dc.Tensor], scale: float, *, bias: dc.Tensor) -> Any:
            a, b = pair["a"], pair["b"]
            return {"sum": a * scale + b, "size": a.shape[0], "twice": (a, a), "bias": bias + 1}

    a, b, bias = dc.ones(3), dc.zeros(3), dc.ones(())
    program = export(Net(), ({"a": a, "b": b}, 2.0), {"bias": bias})
    made = dc.onnx.export(program)
    found = made({"a": a, "b": b}, 2.0, bias=bias)
    assert [x.tolist() for x in found] == [[2.0] * 3, [1.0] * 3, [1.0] * 3, 2.0]


def test_a_size_that_changes_is_a_result() -> None:
    class Net(nn.Module):
        def forward(self, x: dc.Tensor) -> Any:
            return x.sum(), x.shape[0] * 2

    made = dc.onnx.export(Net(), (X,), dynamic_shapes=({0: Dim("rows", min=2)},))
    assert int(made(dc.ones(5, 4))[1]) == 10


class Recurrent(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: dc.Tensor) -> dc.Tensor:
        return self.layer(x)[0]


@pytest.mark.parametrize(
    "layer",
    [nn.LSTM(8, 5, 2, bidirectional=True, batch_first=True), nn.GRU(8, 5, bidirectional=True), nn.RNN(8, 5)],
    ids=lambda layer: type(layer).__name__,
)
def test_recurrent_layers(layer: nn.Module) -> None:
    net, x = Recurrent(layer).eval(), dc.randn(4, 3, 8)
    made = dc.onnx.export(net, (x,))
    onnx.checker.check_model(made.model_proto, full_check=True)
    from onnx.reference import ReferenceEvaluator

    (judged,) = ReferenceEvaluator(made.model_proto).run(None, {made.model_proto.graph.input[0].name: x.numpy()})
    np.testing.assert_allclose(judged, net(x).detach().numpy(), atol=1e-6)
    assert dc.allclose(made(x)[0], net(x), atol=1e-6)


def test_an_index_that_is_out_of_range_is_an_error_of_the_model_too() -> None:
    made = dc.onnx.export(nn.Embedding(5, 3), (dc.tensor([1, 4]),))
    for bad in (5, -1):
        with pytest.raises(Exception, match="out of data bounds"):
            made(dc.tensor([1, bad]))


def test_what_is_written_is_said_and_left_out() -> None:
    forget_warnings()
    net = nn.BatchNorm1d(4)  # in training mode
    with pytest.warns(DistCompileWarning, match=r"no part of an ONNX model: .*running_mean"):
        made = dc.onnx.export(net, (X,))
    assert len(made.model_proto.graph.output) == 1


def test_a_module_knows_that_it_is_exported() -> None:
    class Net(nn.Module):
        def forward(self, x: dc.Tensor) -> dc.Tensor:
            return x + 1 if dc.onnx.is_in_onnx_export() else x - 1

    net = Net()
    assert dc.onnx.export(net, (X,))(X)[0].tolist() == (X + 1).tolist()
    assert net(X).tolist() == (X - 1).tolist()


def test_what_has_no_model_is_a_named_error() -> None:
    class Solve(nn.Module):
        def forward(self, x: dc.Tensor) -> dc.Tensor:
            return dc.linalg.inv(x)

    with pytest.raises(BackendError, match="solve cannot be exported: ONNX has no such operator; LAPACK") as caught:
        dc.onnx.export(Solve(), (dc.eye(3),))
    assert Path(__file__).name in str(caught.value)
    with pytest.raises(NotSupportedError, match="random"):
        dc.onnx.export(nn.Dropout(), (X,))
    with pytest.raises(NotSupportedError, match="does not take colour"):
        dc.onnx.export(two_layers(), (X,), colour=1)
    with pytest.raises(ArgumentError, match="a Module or an ExportedProgram"):
        dc.onnx.export(dc.sin, (X,))
