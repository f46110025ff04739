"""Programs for a CUDA device, run for a caller whose arrays are NumPy's: moved there before each call, and back after.

In: graphs. Out: executables that take and give arrays of the host. So whole models on the CPU run through the launcher.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from compiler_core.codegen.cuda_backend import CudaBackend
from compiler_core.events import Events
from compiler_core.graph.ir import Graph
from compiler_core.ops.registry import Array
from compiler_core.runtime.cuda import context
from compiler_core.runtime.cuda.executable import CudaExecutable


@dataclass(frozen=True)
class Hosted:
    """One executable."""

    run: CudaExecutable

    def __call__(
        self, inputs: Sequence[Array], outs: Sequence[Array | None] | None = None, events: Events | None = None
    ) -> list[Array]:
        xp = context.cupy()
        given = [
            array if k in self.run.entry.staged else xp.asarray(np.ascontiguousarray(array))
            for k, array in enumerate(inputs)
        ]
        results = [xp.asnumpy(result) for result in self.run(given, None, events)]
        for k, out in enumerate(outs or ()):
            if out is not None:
                out[...] = results[k]
                results[k] = out
        return results


@dataclass
class HostedBackend:
    """Backend for tests. made: all executables of it, in order."""

    inner: CudaBackend = field(default_factory=lambda: CudaBackend())
    made: list[CudaExecutable] = field(default_factory=list)
    name: str = "hosted"
    announces: bool = False

    def lay_out(self, graph: Graph) -> Graph:
        return self.inner.lay_out(graph)

    def compile(self, graphs: Sequence[Graph], name: str) -> list[Hosted]:
        executables = self.inner.compile(graphs, name)
        self.made += executables
        return [Hosted(executable) for executable in executables]
