"""The backend "triton": the same fused programs as "codegen", as Triton kernels.

In: graphs that are compiled together. Out: an `Executable` per graph. Lowering and schedule are those of "codegen" for
a GPU; the kernels run in Triton's interpreter, on NumPy's arrays. That is right and very slow: for tests and for
reading, without a GPU; it is said once. Steps run in program order, as `loop_ir/interpret.py` has it.
Limits: arrays of the host only. What runs on a GPU is compiled by "codegen" (cuda_backend.py), from the same text.
Raises: BackendError without Triton, LoweringError, IndexError_ from a failed check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from compiler_core import log
from compiler_core.backend import NATIVE, come_in_many_sizes
from compiler_core.codegen.triton.load import HostArray, import_triton, load
from compiler_core.codegen.triton.many_sizes import SEEN, opened
from compiler_core.codegen.triton.module import Launch, TritonModule, print_module
from compiler_core.errors import failed_check
from compiler_core.events import Events
from compiler_core.graph.ir import Graph
from compiler_core.graph.passes import SIMPLIFY_JOINT, AttentionComposed, PoolingComposed, run_passes
from compiler_core.loop_ir.interpret import run_program
from compiler_core.loop_ir.ir import Kernel, Program
from compiler_core.lowering.target import GPU
from compiler_core.ops.registry import Array
from compiler_core.records import dataclass
from compiler_core.schedule.from_graphs import lower_and_schedule
from compiler_core.steps import compiling, record


class TritonBackend:
    """Backend "triton"."""

    name = "triton"
    announces = True

    def lay_out(self, graph: Graph) -> Graph:
        """Attention as products and a softmax, and the backward of pooling as loops: their routines are C++."""
        attention = AttentionComposed().apply(graph)
        made = PoolingComposed().apply(attention)
        return made if made is attention else run_passes(made, SIMPLIFY_JOINT)

    def compile(self, graphs: Sequence[Graph], name: str) -> list[TritonExecutable]:
        """Executables of `graphs`, in order. `name` goes into log and dump."""
        import_triton()
        log.warn_once("triton interpreter", "backend 'triton' runs in Triton's interpreter here: right, but very slow")
        programs = lower_and_schedule(graphs, name, GPU)
        kernels = dict.fromkeys(kernel for program in programs for kernel in program.kernels)
        with compiling(name, "emit"):
            module = print_module(list(kernels))
            if come_in_many_sizes():
                module = opened(module, SEEN)
        record(name, "emit", lambda: module.source, part="triton", artefact="code")
        kernel_runner = KernelRunner(module, load(module, interpret=True))
        return [TritonExecutable(p, graph, kernel_runner) for p, graph in zip(programs, graphs, strict=True)]


@dataclass(frozen=True, slots=True)
class KernelRunner:
    """Runs kernels of one module on host memory."""

    module: TritonModule
    functions: Mapping[str, Any]

    def __call__(self, kernel: Kernel, arrays: Sequence[Array]) -> None:
        """Run `kernel` on flat arrays, one per Param, in place. Raises IndexError_ if a check failed."""
        for launch in self.module.launches[kernel.name]:
            self._launch(launch, [a[: p.numel] for p, a in zip(kernel.params, arrays, strict=True)])

    def _launch(self, launch: Launch, arrays: Sequence[Array]) -> None:
        scratch = [np.empty(s.numel * launch.programs, s.dtype.numpy) for s in launch.scratch]
        status = np.zeros(1, np.int32)
        arguments = [*arrays, *scratch, *([status] if launch.has_status else [])]
        self.functions[launch.function][(launch.programs,)](*map(HostArray, arguments), *launch.numbers)
        if status[0]:
            raise failed_check(self.module.messages[int(status[0]) - 1])


@dataclass(frozen=True, slots=True)
class TritonExecutable:
    """One graph's program."""

    program: Program
    graph: Graph
    run_kernel: KernelRunner

    def __call__(
        self, inputs: Sequence[Array], outs: Sequence[Array | None] | None = None, events: Events | None = None
    ) -> list[Array]:
        results = run_program(self.program, inputs, outs, self.run_kernel, events)
        return [r.reshape(node.shape) for r, node in zip(results, self.graph.outputs, strict=True)]


NATIVE["triton"].fill(TritonBackend)
