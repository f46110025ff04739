"""The backend "tvm": Apache TVM compiles the graphs, for the CPU (`pip install "distcompile[tvm]"`).

In: graphs of calls that TVM's ONNX importer and its Relax compiler take. Out: a Relax virtual machine a graph, by LLVM.
Inputs are read where they lie if they are aligned as TVM wants them; results are copied out of TVM's memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler_core.backend import ENGINES
from compiler_core.config import config
from compiler_core.engines.backend import EngineBackend
from compiler_core.engines.engine import Places, Program, require_package
from compiler_core.engines.onnx.onnx_engine import OnnxEngine
from compiler_core.graph.ir import Graph
from compiler_core.ops.registry import Array

if TYPE_CHECKING:
    from compiler_core.engines.onnx.emitter import Rule

_TARGET = "llvm"
_SPREAD = 0  # TVM's thread pool: threads go to cores as the system puts them


class Tvm(OnnxEngine):
    """The engine."""

    name, title = "tvm", "TVM"
    takes_nothing = checks_indices = False

    def corrections(self) -> Mapping[str, Rule | None]:
        """Infinities and NaN: its extremes begin with the last finite number, a maximum with a constant drops NaN."""
        from compiler_core.engines.onnx.model import TABLE
        from compiler_core.engines.onnx.pointwise import choice, seeing_nan
        from compiler_core.engines.onnx.whole import INFINITE_EXTREMES

        seeing = {name: seeing_nan(TABLE[name]) for name in ("maximum", "minimum")}
        return {**seeing, **INFINITE_EXTREMES, "where": choice, **dict.fromkeys(("argmax", "argmin", "window_max"))}

    def __init__(self) -> None:
        super().__init__()
        self.package = require_package("tvm", self.name)
        self.importer = require_package("tvm.relax.frontend.onnx", self.name)
        self.machine = require_package("tvm.relax", self.name).VirtualMachine
        self.package.get_global_func("runtime.config_threadpool")(_SPREAD, config.num_threads)

    def load(self, graph: Graph, model: Any, *, quick: bool = False) -> Program:
        module = self.importer.from_onnx(model, keep_params_in_input=False)
        made = self.machine(self.package.compile(module, target=_TARGET), self.package.cpu())
        return _Machine(graph, made["main"], self.package.runtime.tensor)


class _Machine:
    """A function of a virtual machine, which one thread at a time is in: its frames are the machine's."""

    def __init__(self, graph: Graph, function: Any, tensor: Any) -> None:
        self.function, self.tensor = function, tensor
        self.is_one, self.lock = len(graph.outputs) == 1, Lock()

    def __call__(self, inputs: Sequence[Array], outs: Places) -> Sequence[Array]:
        given = [self.tensor(np.ascontiguousarray(array).reshape(array.shape)) for array in inputs]
        with self.lock:
            made = self.function(*given)
        results = [np.asarray(value.numpy()) for value in ([made] if self.is_one else made)]
        for number, out in enumerate(outs):
            if out is not None:
                np.copyto(out, results[number])
                results[number] = out
        return results


ENGINES["tvm"].fill(lambda: EngineBackend(Tvm()))
