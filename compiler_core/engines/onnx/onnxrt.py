"""The backend "onnxrt": ONNX Runtime runs the graphs, on the CPU (`pip install "distcompile[onnxrt]"`).

In: graphs of calls that ONNX Runtime has kernels for. Out: a session a graph, all its optimisations on, as many threads
as `OMP_NUM_THREADS` says. Arrays are read and results written where they lie (IOBinding), so nothing is copied.
Whether there is a kernel of an op for these dtypes is asked of ONNX Runtime itself: a model of that one call is made
into a session, once per op, dtypes, dims and attributes.
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
from compiler_core.errors import BackendError
from compiler_core.graph.ir import Call, Graph, Node, Placeholder
from compiler_core.ops.registry import Array

NAME = "onnxrt"
_PROVIDERS = ["CPUExecutionProvider"]
_SIZES = frozenset({"shape", "size", "starts", "stops", "value", "low", "high"})  # attributes that choose no kernel


class OnnxRuntime:
    """The engine."""

    name = NAME
    devices = frozenset((False,))

    def __init__(self) -> None:
        require_package("onnx", NAME)
        self.runtime = require_package("onnxruntime", NAME)
        self._refusals: dict[tuple[Any, ...], str] = {}

    def refuses(self, call: Call) -> str:
        from compiler_core.engines.onnx.model import refused

        why = refused(call)
        if why:
            return why
        if any(node.dtype is bfloat16 for node in (*call.args, call)):
            return "ONNX Runtime's kernels for the CPU take no bfloat16"
        key = _kernel_of(call)
        if key not in self._refusals:
            self._refusals[key] = self._tried(call)
        return self._refusals[key]

    def _tried(self, call: Call) -> str:
        """Why a session of this call alone cannot be made."""
        try:
            self.session(alone(call), quick=True)
        except Exception as error:  # noqa: BLE001 - of ONNX Runtime: several classes, known by their texts
            return f"ONNX Runtime: {str(error).partition(' : ')[2] or error}"
        return ""

    def session(self, graph: Graph, *, quick: bool = False) -> Any:
        """quick: without optimisations."""
        from compiler_core.engines.onnx.model import to_model

        runtime = self.runtime
        options = runtime.SessionOptions()
        options.intra_op_num_threads = config.num_threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 4  # what fails is raised
        level = runtime.GraphOptimizationLevel
        options.graph_optimization_level = level.ORT_DISABLE_ALL if quick else level.ORT_ENABLE_ALL
        return runtime.InferenceSession(to_model(graph).SerializeToString(), options, providers=_PROVIDERS)

    def build(self, graph: Graph) -> Program:
        try:
            return _Bound(graph, self.session(graph))
        except BackendError:
            raise
        except Exception as error:
            raise BackendError(f"ONNX Runtime does not take {graph.name}: {error}") from error


def _kernel_of(call: Call) -> tuple[Any, ...]:
    """What a kernel is chosen by."""
    operands = tuple((arg.dtype.short, len(arg.shape)) for arg in call.args)
    attrs = tuple((key, value) for key, value in sorted(call.attrs.items()) if key not in _SIZES)
    return call.op.name, operands, call.dtype.short, str(attrs)


def alone(call: Call) -> Graph:
    """A graph of one call."""
    stands: dict[Node, Placeholder] = {arg: Placeholder(f"x{k}", arg.meta) for k, arg in enumerate(call.args)}
    one = call.changed("result", tuple(stands[arg] for arg in call.args))
    return Graph(call.op.name, (*stands.values(), one), (one,))


class _Bound:
    """A session whose inputs and outputs are bound to arrays. Bindings are made once a thread that runs it."""

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


def _backend() -> EngineBackend:
    return EngineBackend(OnnxRuntime())


ENGINES[NAME].fill(_backend)
