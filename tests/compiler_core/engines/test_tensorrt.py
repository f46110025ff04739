"""The glue to TensorRT, with stand-ins for it and for the GPU: what is called, in which order, and with which memory.

The stand-in of TensorRT has the part of its API (version 10) that the glue uses; its engine is ONNX's reference
evaluator, which reads and writes the addresses that it is given. It shows that the glue is whole, not that TensorRT is
right.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from compiler_core.backend import find_backend
from compiler_core.config import config
from compiler_core.engines.backend import EngineBackend
from compiler_core.errors import BackendError
from compiler_core.graph.interpret import interpret
from compiler_core.graph.parse import parse_graph
from tests.fake_cupy import on_fake_device

onnx = pytest.importorskip("onnx")

GRAPH = """graph g(%x: f32[2, 3] input '', %w: f32[3, 2] input '') on cuda:0 {
  %y: f32[2, 2] = matmul(%x, %w)
  %z: f32[2, 2] = tanh(%y)
  return %z, %y
}"""


class Context:
    def __init__(self, model: Any) -> None:
        self.model, self.addresses = model, {}  # type: ignore[var-annotated]

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return True

    def _memory(self, value: Any) -> np.ndarray[Any, Any]:
        kind = value.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        shape = [dim.dim_value for dim in kind.shape.dim]
        count = int(np.prod(shape)) * dtype.itemsize
        return np.frombuffer((ctypes.c_char * count).from_address(self.addresses[value.name]), dtype).reshape(shape)

    def execute_async_v3(self, stream: int) -> bool:
        from onnx.reference import ReferenceEvaluator

        graph = self.model.graph
        results = ReferenceEvaluator(self.model).run(None, {v.name: self._memory(v) for v in graph.input})
        for value, result in zip(graph.output, results):
            self._memory(value)[...] = result
        return True


class Engine:
    def __init__(self, data: bytes) -> None:
        self.model = onnx.load_from_string(data)

    def create_execution_context(self) -> Context:
        return Context(self.model)


class Stand:
    """The module `tensorrt`. lacks: operators that its parser does not know. built: networks that were built."""

    __version__ = "10.0.0"

    class NetworkDefinitionCreationFlag(IntEnum):
        STRONGLY_TYPED = 1

    class BuilderFlag(IntEnum):
        TF32 = 7

    class Logger:
        ERROR = 1

        def __init__(self, level: int) -> None:
            self.level = level

    def __init__(self, lacks: str = "") -> None:
        self.lacks, self.built = lacks, 0
        self.flags: list[Any] = []

    def Builder(self, logger: Any) -> Any:
        def create_network(flags: int) -> Any:
            assert flags == 2
            return SimpleNamespace(data=b"")

        def build(network: Any, how: Any) -> bytes:
            self.built += 1
            return network.data  # type: ignore[no-any-return]

        how = SimpleNamespace(clear_flag=self.flags.append)
        return SimpleNamespace(
            create_network=create_network, create_builder_config=lambda: how, build_serialized_network=build
        )

    def OnnxParser(self, network: Any, logger: Any) -> Any:
        def parse(data: bytes) -> bool:
            network.data = data
            return all(node.op_type != self.lacks for node in onnx.load_from_string(data).graph.node)

        error = SimpleNamespace(desc=lambda: f"no importer for {self.lacks}")
        return SimpleNamespace(parse=parse, num_errors=1, get_error=lambda k: error)

    def Runtime(self, logger: Any) -> Any:
        return SimpleNamespace(deserialize_cuda_engine=Engine)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Any]:
    with on_fake_device() as module, config.patch(cache_dir=tmp_path):
        module.cuda.runtime.getDeviceProperties = lambda number: {"name": b"a GPU"}
        yield module


def backend(monkeypatch: pytest.MonkeyPatch, lacks: str = "") -> tuple[Stand, EngineBackend]:
    stand = Stand(lacks)
    monkeypatch.setitem(sys.modules, "tensorrt", stand)  # type: ignore[arg-type]
    found = find_backend("tensorrt")
    assert isinstance(found, EngineBackend)
    return stand, EngineBackend(found.engine, own="aot_eager")


def test_a_graph_runs_and_its_engine_is_kept(monkeypatch: pytest.MonkeyPatch, device: Any) -> None:
    stand, made = backend(monkeypatch)
    graph = parse_graph(GRAPH)
    x, w = np.arange(6, dtype=np.float32).reshape(2, 3) / 6, np.ones((3, 2), np.float32)
    on_device = [device.asarray(x), device.asarray(w)]
    (run,) = made.compile([graph], "g")
    place = device.empty((2, 2), np.float32)
    results = run(on_device, [place, None])
    assert results[0] is place
    for got, expected in zip(results, interpret(graph, [x, w]), strict=True):
        np.testing.assert_allclose(got.get(), expected, rtol=1e-6)
    assert stand.flags == [Stand.BuilderFlag.TF32]
    made.compile([graph], "g")
    assert stand.built == 1


def test_what_its_parser_refuses_is_our_own_codes(monkeypatch: pytest.MonkeyPatch, device: Any) -> None:
    _, made = backend(monkeypatch, lacks="Tanh")
    call = parse_graph(GRAPH).calls[1]
    assert made.engine.refuses(call) == "TensorRT: TensorRT does not parse the model: no importer for Tanh"
    assert made.engine.refuses(parse_graph(GRAPH).calls[0]) == ""


def test_a_graph_of_the_cpu_is_refused(monkeypatch: pytest.MonkeyPatch, device: Any) -> None:
    _, made = backend(monkeypatch)
    with pytest.raises(BackendError, match="'tensorrt' does not run graphs of cpu"):
        made.compile([parse_graph(GRAPH.replace(" on cuda:0", ""))], "g")
