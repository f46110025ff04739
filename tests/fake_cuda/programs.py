"""Small programs for a CUDA device: an op or a few, compiled, and the arrays that they run on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import distcompile as dc
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


def spectral(x: dc.Tensor, weight: dc.Tensor) -> dc.Tensor:
    """A layer of a Fourier neural operator: complex products between two transforms."""
    low = dc.fft.rfft(x)[..., :3] * dc.complex(weight, 2 * weight)
    return dc.fft.irfft(dc.nn.functional.pad(low, (0, 2)), n=8).relu()


def spectral_step(run: Any, place: str) -> list[dc.Tensor]:
    """The result of `run`, `spectral` or what was compiled of it, and its gradients."""
    x = dc.linspace(-1, 2, 16).reshape(2, 8).sin().to(place).requires_grad_()
    weight = dc.linspace(1, 2, 3).to(place).requires_grad_()
    out = run(x, weight)
    out.square().sum().backward()
    return [out, x.grad, weight.grad]
