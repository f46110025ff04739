"""The backend "onnxrt": ONNX Runtime runs the graphs, on the CPU (`pip install "distcompile[onnxrt]"`).

In: graphs of calls that ONNX Runtime has kernels for. Out: a session a graph, all its optimisations on, as many threads
as `OMP_NUM_THREADS` says. Arrays are read and results written where they lie (IOBinding), so nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler_core.backend import ENGINES
from compiler_core.config import config
from compiler_core.dtype import bfloat16
from compiler_core.engines.backend import EngineBackend
from compiler_core.engines.engine import Places, Program, require_package
from compiler_core.engines.onnx.onnx_engine import OnnxEngine
from compiler_core.graph.ir import Call, Graph
from compiler_core.graph.sizes import symbols_of
from compiler_core.ops.registry import Array

_PROVIDERS = ["CPUExecutionProvider"]
_UNSOUND = ["NoopElimination"]  # it takes 0.99999999 for 1, and 1e-9 for 0 (ONNX Runtime 1.32)


class OnnxRuntime(OnnxEngine):
    """The engine."""

    name, title = "onnxrt", "ONNX Runtime"
    any_sizes = True

    def __init__(self) -> None:
        super().__init__()
        require_package("onnxruntime", self.name)

    def refuses_kind(self, call: Call) -> str:
        if any(node.dtype is bfloat16 for node in (*call.args, call)):
            return "ONNX Runtime's kernels for the CPU take no bfloat16"
        return ""

    def load(self, graph: Graph, model: Any, *, quick: bool = False) -> Program:
        made = session(model, quick=quick)
        return _OfAnySizes(graph, made) if symbols_of(graph) else _Bound(graph, made)


def session(model: Any, *, quick: bool = False) -> Any:
    """What runs a ModelProto. quick: it is to be made soon. Raises MissingPackageError without `onnxruntime`."""
    from compiler_core.engines.onnx.model import serialized

    runtime = require_package("onnxruntime", OnnxRuntime.name)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = config.num_threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # what fails is raised
    level = runtime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_DISABLE_ALL if quick else level.ORT_ENABLE_ALL
    data = serialized(model)
    return runtime.InferenceSession(data, options, providers=_PROVIDERS, disabled_optimizers=_UNSOUND)


class _OfAnySizes:
    """A session that makes its results itself, of the sizes that come."""

    def __init__(self, graph: Graph, session: Any) -> None:
        self.session, self.names = session, [node.name for node in graph.inputs]

    def __call__(self, inputs: Sequence[Array], outs: Places) -> Sequence[Array]:
        assert not any(out is not None for out in outs)
        arrays = (np.ascontiguousarray(array).reshape(array.shape) for array in inputs)
        made: Sequence[Array] = self.session.run(None, dict(zip(self.names, arrays)))
        return made


class _Bound:
    """A session whose inputs and outputs are bound to arrays. Of each thread that is in it one binding is in use."""

    def __init__(self, graph: Graph, session: Any) -> None:
        self.session = session
        self.inputs = [(node.name, node.dtype.numpy) for node in graph.inputs]
        self.outputs = [(out.name, node.meta) for out, node in zip(session.get_outputs(), graph.outputs, strict=True)]
        self._idle: list[_Binding] = []

    def __call__(self, inputs: Sequence[Array], outs: Places) -> Sequence[Array]:
        arrays = [np.ascontiguousarray(array).reshape(array.shape) for array in inputs]
        results = [np.empty(m.shape, m.dtype.numpy) if o is None else o for o, (_, m) in zip(outs, self.outputs)]
        binding = self._idle.pop() if self._idle else _Binding(self.session.io_binding())
        for (name, dtype), array in zip(self.inputs, arrays):
            binding.bind(binding.io.bind_input, name, dtype, array)
        for (name, meta), array in zip(self.outputs, results):
            binding.bind(binding.io.bind_output, name, meta.dtype.numpy, array)
        self.session.run_with_iobinding(binding.io)
        self._idle.append(binding)
        return results


class _Binding:
    """An IOBinding, and where each name was bound to: the same address is not bound again."""

    def __init__(self, io: Any) -> None:
        self.io = io
        self._at: dict[str, int] = {}

    def bind(self, bind: Any, name: str, dtype: np.dtype[Any], array: Array) -> None:
        address = array.__array_interface__["data"][0]
        if self._at.get(name) != address:
            bind(name, "cpu", 0, dtype, array.shape, address)
            self._at[name] = address


ENGINES["onnxrt"].fill(lambda: EngineBackend(OnnxRuntime()))
