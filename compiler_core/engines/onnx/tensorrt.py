"""The backend "tensorrt": NVIDIA TensorRT runs graphs of a CUDA device (`pip install "distcompile[tensorrt]"`).

In: graphs on a CUDA device, for inference. Out: a TensorRT engine a graph, built once and kept in the artefact cache
(key: the model, TensorRT's version, the GPU). The network is strongly typed and TF32 is off, so f32 stays f32. Arrays
are read and results written where they lie, on the device's current stream.
Written against the API of TensorRT 10 (https://docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/
python-api-docs.html); run against a stand-in of it alone (tests/compiler_core/engines/test_tensorrt.py), on no GPU yet.
Refused, as nothing says that TensorRT is right of them: f64, arrays without elements, indices that may be out of range.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from compiler_core import cuda
from compiler_core.backend import ENGINES
from compiler_core.dtype import float64
from compiler_core.engines.backend import EngineBackend
from compiler_core.engines.engine import Places, Program, require_package
from compiler_core.engines.onnx.onnx_engine import OnnxEngine
from compiler_core.errors import BackendError
from compiler_core.graph.ir import Call, Graph
from compiler_core.ops.registry import Array
from compiler_core.runtime.cache import Manifest, load_or_build, make_key

_PLAN = "engine.plan"  # a file of a cache entry


class TensorRt(OnnxEngine):
    """The engine."""

    name, title = "tensorrt", "TensorRT"
    devices = frozenset((True,))
    takes_nothing = checks_indices = False

    def __init__(self) -> None:
        super().__init__()
        self.package = require_package("tensorrt", self.name)
        self.logger = self.package.Logger(self.package.Logger.ERROR)

    def refuses_kind(self, call: Call) -> str:
        is_wide = any(node.dtype is float64 for node in (*call.args, call))
        return "TensorRT computes with no float64" if is_wide else ""

    def load(self, graph: Graph, model: Any, *, quick: bool = False) -> Program:
        """quick: the model is only parsed, by which TensorRT refuses operators; the program is not to be run."""
        from compiler_core.engines.onnx.model import serialized

        data = serialized(model)
        if quick:
            self._network(data)
            return _not_built
        number = cuda.current()
        gpu = cuda.module().cuda.runtime.getDeviceProperties(number)["name"]
        key = make_key({"model": sha256(data).hexdigest(), "tensorrt": self.package.__version__, "gpu": str(gpu)})
        entry = load_or_build(key, lambda folder: self._build(folder, data))
        engine = self.package.Runtime(self.logger).deserialize_cuda_engine(entry.read(_PLAN))
        if engine is None:
            raise BackendError(f"TensorRT cannot load its engine of {graph.name}", remedy="distcompile cache clear")
        return _Context(graph, [out.name for out in model.graph.output], engine, number)

    def _network(self, data: bytes) -> tuple[Any, Any, Any]:
        """(builder, network, parser): each must live as long as the network. Raises BackendError where it refuses."""
        trt = self.package
        builder = trt.Builder(self.logger)
        network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
        parser = trt.OnnxParser(network, self.logger)
        if not parser.parse(data):
            said = "; ".join(parser.get_error(k).desc() for k in range(parser.num_errors))
            raise BackendError(f"TensorRT does not parse the model: {said}")
        return builder, network, parser

    def _build(self, folder: Path, data: bytes) -> Manifest:
        builder, network, _parser = self._network(data)
        how = builder.create_builder_config()
        how.clear_flag(self.package.BuilderFlag.TF32)
        plan = builder.build_serialized_network(network, how)
        if plan is None:
            raise BackendError("TensorRT builds no engine of the model", remedy="backend='inductor' runs it")
        (folder / _PLAN).write_bytes(bytes(plan))
        return {"engine": self.name}


def _not_built(inputs: Sequence[Array], outs: Places) -> Sequence[Array]:
    raise AssertionError("a model that was only parsed is run")


class _Context:
    """An engine's execution contexts; each thread that is in it has one of its own."""

    def __init__(self, graph: Graph, outputs: Sequence[str], engine: Any, number: int) -> None:
        self.engine, self.number = engine, number
        self.inputs = [node.name for node in graph.inputs]
        self.outputs = [(name, node.meta) for name, node in zip(outputs, graph.outputs, strict=True)]
        self._idle: list[Any] = []

    def __call__(self, inputs: Sequence[Array], outs: Places) -> Sequence[Array]:
        xp = cuda.module()
        context = self._idle.pop() if self._idle else self.engine.create_execution_context()
        arrays = [xp.ascontiguousarray(cuda.put(array, self.number, dense=True)) for array in inputs]
        results = [xp.empty(m.shape, m.dtype.numpy) if o is None else o for o, (_, m) in zip(outs, self.outputs)]
        for name, array in (*zip(self.inputs, arrays), *zip((name for name, _ in self.outputs), results)):
            context.set_tensor_address(name, array.data.ptr)
        if not context.execute_async_v3(xp.cuda.get_current_stream().ptr):
            raise BackendError("TensorRT could not run its engine")
        self._idle.append(context)
        return results


ENGINES["tensorrt"].fill(lambda: EngineBackend(TensorRt()))
