"""The backend "openvino": OpenVINO runs the graphs, on the CPU (`pip install "distcompile[openvino]"`).

In: graphs of calls of f32, i32 and bool, indices of i64 among them. Out: a compiled model a graph. Arrays are read and
results written where they lie. Its CPU plugin computes f64 in f32 and i64 in i32, and reads 0 where an index is out of
range: such calls are refused, and are our own code's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler_core.backend import ENGINES
from compiler_core.config import config
from compiler_core.dtype import bool_, float32, int32
from compiler_core.engines.backend import EngineBackend
from compiler_core.engines.engine import Places, Program, require_package
from compiler_core.engines.onnx.onnx_engine import OnnxEngine
from compiler_core.graph.ir import Call, Graph
from compiler_core.graph.sizes import symbols_of
from compiler_core.ops.registry import Array

if TYPE_CHECKING:
    from compiler_core.engines.onnx.emitter import Rule

_DTYPES = (float32, int32, bool_)


class OpenVino(OnnxEngine):
    """The engine."""

    name, title = "openvino", "OpenVINO"
    any_sizes = True
    takes_nothing = checks_indices = False

    def corrections(self) -> Mapping[str, Rule | None]:
        """NaN and infinities: its exp, greater and extremes do not see them. Its Mod of floats is not exact."""
        from compiler_core.engines.onnx.model import TABLE
        from compiler_core.engines.onnx.pointwise import choice, seeing_nan
        from compiler_core.engines.onnx.whole import INFINITE_EXTREMES

        seeing = {name: seeing_nan(TABLE[name]) for name in ("exp", "maximum", "minimum")}
        return {
            **seeing,
            **INFINITE_EXTREMES,
            "where": choice,
            **dict.fromkeys(("gt", "ge", "remainder", "floor_divide")),
        }

    def __init__(self) -> None:
        super().__init__()
        self.package = require_package("openvino", self.name)
        self.core = self.package.Core()

    def refuses_kind(self, call: Call) -> str:
        if any(node.dtype not in _DTYPES for node in (*call.args, call)):
            return "OpenVINO computes in float32, int32 and bool on a CPU"
        return ""

    def load(self, graph: Graph, model: Any, *, quick: bool = False) -> Program:
        from compiler_core.engines.onnx.model import serialized

        read = self.core.read_model(serialized(model))
        how = {
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": config.num_threads,
            "PERFORMANCE_HINT": "LATENCY",
        }
        return _Requests(graph, self.core.compile_model(read, "CPU", how), self.package.Tensor)


class _Requests:
    """A compiled model; each thread that is in it has a request of its own. Of any sizes, it makes its results."""

    def __init__(self, graph: Graph, compiled: Any, tensor: Any) -> None:
        self.compiled, self.tensor = compiled, tensor
        self.metas = [node.meta for node in graph.outputs]
        self.any_sizes = bool(symbols_of(graph))
        self._idle: list[Any] = []

    def __call__(self, inputs: Sequence[Array], outs: Places) -> Sequence[Array]:
        request = self._idle.pop() if self._idle else self.compiled.create_infer_request()
        results = [] if self.any_sizes else self._places(outs)
        arrays = [np.ascontiguousarray(array).reshape(array.shape) for array in inputs]
        for number, array in enumerate(arrays):
            request.set_input_tensor(number, self.tensor(array, shared_memory=True))
        for number, array in enumerate(results):
            request.set_output_tensor(number, self.tensor(array, shared_memory=True))
        request.infer()
        if self.any_sizes:
            results = [request.get_output_tensor(k).data.copy() for k in range(len(outs))]
        self._idle.append(request)
        return results

    def _places(self, outs: Places) -> list[Array]:
        return [np.empty(m.shape, m.dtype.numpy) if o is None else o for o, m in zip(outs, self.metas)]


ENGINES["openvino"].fill(lambda: EngineBackend(OpenVino()))
