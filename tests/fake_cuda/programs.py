"""Small programs for a CUDA device: an op or a few, compiled, and the arrays that they run on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from compiler_core.codegen.cuda_backend import CudaBackend
from compiler_core.dtype import DType, float32
from compiler_core.graph.ir import Graph, GraphBuilder, Node
from compiler_core.meta import TensorMeta
from compiler_core.ops.registry import use_trace
from compiler_core.runtime.cuda import context
from compiler_core.runtime.cuda.executable import CudaExecutable


def graph_of(function: Callable[..., Any], *metas: TensorMeta) -> Graph:
    builder = GraphBuilder("graph")
    builder.device = "cuda:0"
    given = [builder.placeholder(f"x{k}", meta) for k, meta in enumerate(metas)]
    with use_trace(builder):
        made = function(*given)
    return builder.build([made] if isinstance(made, Node) else made)


def compiled(function: Callable[..., Any], *metas: TensorMeta) -> CudaExecutable:
    (executable,) = CudaBackend(90).compile([graph_of(function, *metas)], "test")
    return executable


def vector(n: int, dtype: DType = float32) -> TensorMeta:
    return TensorMeta((n,), dtype)


def on_device(array: Any) -> Any:
    return context.cupy().asarray(array)


def on_host(array: Any) -> Any:
    return context.cupy().asnumpy(array)


SCALAR = TensorMeta((), float32)
