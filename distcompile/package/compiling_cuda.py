"""The code of a package for a GPU: cubins, and the host functions that launch them and call NVIDIA's libraries.

In: a program of a CUDA device, the sets of sizes. Out: what the file holds, and what is told of it, for on_cuda.py.
Each set of sizes is compiled as it is for a call (codegen/cuda_backend.py), several as sizes that share code; equal
files are stored once.
What the code needs at load: the compute capability that the cubins are for, and, where it calls cuDNN, the version and
kind of device on which its engines were chosen: these are known by their place in a list of that version. cuBLASLt's
algorithms that were measured elsewhere are not used (runtime/cuda/products.py), so they need nothing.
Raises: PackageError for kernels of complex numbers, which run op by op; BackendError without Triton.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np

from compiler_core.backend import for_many_sizes
from compiler_core.codegen.cuda_backend import CONSTANTS, LIBRARY, CudaBackend
from compiler_core.errors import NoComplexError
from compiler_core.graph.ir import Graph
from compiler_core.graph.sizes import graph_at
from compiler_core.pipeline import lay_out, simplify, simplify_joint
from compiler_core.runtime.cuda import cudnn
from compiler_core.symbolic.size import SizeSymbol
from distcompile.errors import PackageError
from distcompile.export import ExportedProgram
from distcompile.package.compiling import inputs_of, outputs_of, results_of, weights_of
from distcompile.package.container import Array


def compiled(
    program: ExportedProgram, wanted: Sequence[Mapping[SizeSymbol, int]]
) -> tuple[dict[str, Array], dict[str, Any]]:
    """See the head of this file."""
    backend, weights = CudaBackend(), weights_of(program)
    arrays = dict(weights)
    graphs = [partial(_graph_at, program, numbers, backend) for numbers in wanted]
    others = [lambda make=make: [make()] for make in graphs[1:3]]
    with for_many_sizes(len(wanted) > 1, others):
        instances = [
            _instance(program, make(), backend, list(weights), arrays) | {"results": results_of(program, numbers)}
            for make, numbers in zip(graphs, wanted, strict=True)
        ]
    planned = any(one["entry"]["planned"] for one in instances)
    return arrays, {
        "gpu": {"capability": backend.capability, "cudnn": cudnn.identity() if planned else ""},
        "instances": instances,
    }


def _graph_at(program: ExportedProgram, numbers: Mapping[SizeSymbol, int], backend: CudaBackend) -> Graph:
    graph = simplify(graph_at(program.dc_graph, numbers, program.dc_graph.name)[0])
    return lay_out(backend, simplify_joint(graph))


def _instance(
    program: ExportedProgram, graph: Graph, backend: CudaBackend, weights: Sequence[str], arrays: dict[str, Array]
) -> dict[str, Any]:
    """One set of sizes. arrays: added to."""
    try:
        entry = backend.artefact([graph], graph.name)
    except NoComplexError as error:
        what = f"a package for a GPU cannot hold kernels of complex numbers: {error.what}"
        raise PackageError(what, remedy="export it on the CPU, or run its module()") from error
    (row,) = entry.manifest["entries"]

    def stored(kind: str, file: str) -> str:
        data = entry.read(file)
        name = f"{kind}:{sha256(data).hexdigest()[:16]}"
        arrays[name] = np.frombuffer(data, np.uint8)
        return name

    files = sorted({cubin[0] for cubin in entry.manifest["cubins"].values()})
    return {
        "entry": row,
        "code": stored("code", LIBRARY),
        "constants": stored("constants-of-code", CONSTANTS),
        "cubins": {file: stored("cubin", file) for file in files},
        "inputs": [astuple(one) for one in inputs_of(program, graph, weights, dict.fromkeys(weights, 0))],
        "outputs": [astuple(one) for one in outputs_of(program, graph)],
    }
