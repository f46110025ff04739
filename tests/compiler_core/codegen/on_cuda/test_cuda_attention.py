"""Attention in programs for a CUDA device: which launches it becomes, and the numbers of a driver that is not there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import distcompile
import distcompile.nn.functional as F
from compiler_core import cuda
from compiler_core.aot.joint import make_joint
from compiler_core.codegen.cuda_backend import CudaBackend
from compiler_core.dtype import DType, bfloat16, bool_, float16, float32, float64
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder, Node
from compiler_core.graph.passes import SIMPLIFY, SIMPLIFY_JOINT, run_passes
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as C
from compiler_core.ops import prims
from compiler_core.ops.attention.kernels import FORWARD
from compiler_core.ops.registry import use_trace
from compiler_core.ops.routine import contiguous
from compiler_core.runtime.cuda import context
from tests.fake_cuda import FakeCuda
from tests.fake_cuda.hosted import HostedBackend

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.triton,
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT", "ignore::RuntimeWarning"),
    pytest.mark.usefixtures("no_cache"),
]


def graph_of(function: Callable[..., Any], *metas: TensorMeta, device: str = "cuda:0") -> Graph:
    builder = GraphBuilder("graph")
    builder.device = device
    given = [builder.placeholder(f"x{k}", meta) for k, meta in enumerate(metas)]
    with use_trace(builder):
        made = function(*given)
    return run_passes(builder.build([made]), SIMPLIFY)


def self_attention(x: Node, *mask: Node) -> Any:
    """x: T[2, 40, 3 * 32] -> T[2, 40, 32]: queries, keys and values of two heads side by side."""
    parts = [C.permute(C.reshape(part, (2, 40, 2, 16)), (0, 2, 1, 3)) for part in C.split(x, 32, 2)]
    out = C.scaled_dot_product_attention(*parts, *mask, is_causal=not mask)
    return C.reshape(C.permute(out, (0, 2, 1, 3)), (2, 40, 32))


def names(graph: Graph) -> list[str]:
    return [call.op.name for call in graph.calls]


def wide(dtype: DType) -> TensorMeta:
    return TensorMeta((2, 40, 96), dtype)


@pytest.mark.parametrize("dtype", [bfloat16, float16], ids=str)
def test_sixteen_bit_floats_are_attended_as_they_are(dtype: DType, fake_cuda: FakeCuda, rng: Any) -> None:
    graph = graph_of(self_attention, wide(dtype))
    assert "cast" not in names(graph)
    assert {call.dtype for call in graph.calls} == {dtype}
    x = rng.standard_normal((2, 40, 96)).astype(dtype.numpy)
    (run,) = CudaBackend(90).compile([run_passes(graph, SIMPLIFY_JOINT)], "test")
    (found,) = run([context.cupy().asarray(x)])
    (expected,) = interpret(graph_of(self_attention, wide(float64), device="cpu"), [x.astype(np.float64)])
    kernels = [launch["kernel"] for launch in fake_cuda.named("cuLaunchKernel")]
    assert [kernel.rpartition("_")[0] for kernel in kernels if "attention" in kernel] == ["attention_forward"]
    error = context.cupy().asnumpy(found).astype(np.float64) - expected
    assert np.linalg.norm(error) < 1e-2 * np.linalg.norm(expected)


def test_queries_keys_and_values_are_read_where_their_product_lies(fake_cuda: FakeCuda, rng: Any) -> None:
    graph = run_passes(graph_of(self_attention, wide(bfloat16)), SIMPLIFY_JOINT)
    (run,) = CudaBackend(90).compile([graph], "test")
    x = context.cupy().asarray(rng.standard_normal((2, 40, 96)).astype(bfloat16.numpy))
    run([x])
    first = fake_cuda.named("cuLaunchKernel")[0]
    assert first["addresses"][:3] == [x.data.ptr + 2 * at for at in (0, 32, 64)]


def test_the_gradient_of_the_product_is_what_the_kernels_write(fake_cuda: FakeCuda, rng: Any) -> None:
    graph = graph_of(self_attention, wide(bfloat16))
    joint = make_joint(graph, [True]).graph
    names_ = names(run_passes(joint, SIMPLIFY_JOINT))
    assert "attention_backward" in names_
    assert not {"cat", "pad", "add", "cast"} & set(names_)


def test_the_gradient_of_a_bias_is_summed_by_the_kernels(fake_cuda: FakeCuda, rng: Any) -> None:
    """Of one product's bias; of those of queries and values, which are some heads each."""

    def one(x: Node, bias: Node) -> Any:
        return self_attention(C.add(x, bias))

    def several(x: Node, first: Node, last: Node) -> Any:
        q, k, v = C.split(x, 32, 2)
        return self_attention(C.cat([C.add(q, first), k, C.add(v, last)], 2))

    for function, widths in ((one, [96]), (several, [32, 32])):
        biases = [TensorMeta((n,), bfloat16) for n in widths]
        joint = make_joint(graph_of(function, wide(bfloat16), *biases), [True] * (1 + len(widths))).graph
        graph = run_passes(joint, SIMPLIFY_JOINT)
        made = CudaBackend(90).lay_out(graph)
        assert names(graph).count("sum") == len(widths)
        assert "sum" not in names(made)
        arrays = [rng.standard_normal(node.shape).astype(node.dtype.numpy) for node in graph.inputs]
        for found, expected in zip(interpret(made, arrays), interpret(graph, arrays)):
            np.testing.assert_array_equal(found, expected)
        (run,) = CudaBackend(90).compile([made], "test")
        for found, expected in zip(run([context.cupy().asarray(a) for a in arrays]), interpret(graph, arrays)):
            error = context.cupy().asnumpy(found).astype(np.float64) - expected.astype(np.float64)
            assert np.linalg.norm(error) < 2e-2 * np.linalg.norm(expected.astype(np.float64))
        stems = [launch["kernel"].rpartition("_")[0] for launch in fake_cuda.named("cuLaunchKernel")]
        assert "attention_sums" in stems


def test_other_sums_of_attentions_gradients_stay() -> None:
    """Over positions alone, over heads, of gradients that leave the graph, of f32."""
    packed = [TensorMeta((2, 40, 2, 16), bfloat16), TensorMeta((2, 2, 40), bfloat16)]
    metas = [*packed, TensorMeta((2 * 40 * 32 + 2 * 160,), bfloat16), *([TensorMeta((2, 2, 40, 16), bfloat16)] * 3)]

    def summed(rows: tuple[int, ...], dims: tuple[int, ...], shown: bool = False) -> Any:
        def function(*given: Node) -> Any:
            back = prims.attention_backward(*given, scale=1.0, causal=True)
            return [prims.sum(prims.reshape(back, rows), dims), *([back] if shown else [])]

        builder = GraphBuilder("graph")
        builder.device = "cuda:0"
        nodes = [builder.placeholder(f"x{k}", meta) for k, meta in enumerate(metas)]
        with use_trace(builder):
            made = function(*nodes)
        return names(CudaBackend(90).lay_out(builder.build(made)))

    assert "sum" not in summed((80, 96), (0,))
    assert "sum" not in summed((2, 40, 96), (0, 1))
    for kept in (((2, 40, 96), (0,)), ((2, 40, 6, 16), (0, 1)), ((40, 192), (0,)), ((80, 96), (0,), True)):
        assert "sum" in summed(*kept), kept


def test_casts_stay_where_the_kernels_do_not_take_a_call() -> None:
    def far_apart(q: Node) -> Any:
        return C.scaled_dot_product_attention(q, q, q)

    graph = graph_of(far_apart, TensorMeta((1, 1, 4, 300), bfloat16))
    assert [call.dtype for call in graph.calls if call.op.name == "attention"] == [float32]
    assert "attention" not in names(CudaBackend(90).lay_out(graph))


def test_a_graph_of_the_cpu_is_left_as_it_is() -> None:
    graph = graph_of(self_attention, wide(bfloat16), device="cpu")
    assert [call.dtype for call in graph.calls if call.op.name == "attention"] == [float32]
    other = graph_of(self_attention, wide(float64))
    assert str(replace(other, device="cpu")) == str(graph_of(self_attention, wide(float64), device="cpu"))


def test_a_mask_of_truth_values_is_left_one() -> None:
    graph = graph_of(self_attention, wide(float16), TensorMeta((40, 40), bool_))
    (call,) = (call for call in graph.calls if call.op.name == "attention")
    assert [arg.dtype for arg in call.args] == [float16, float16, float16, bool_]


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_change_of_precision_is_met(
    is_compiled: bool, fake_cuda: FakeCuda, rng: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels of f32 are compiled for what is permitted, those of 16-bit floats once."""
    monkeypatch.setattr("compiler_core.ops.attention.sizes.MANY", 1)
    monkeypatch.setattr("compiler_core.codegen.cuda.eager_attention._programs", {})
    x = distcompile.tensor(rng.standard_normal((1, 2, 20, 16)).astype(np.float32))
    attend: Any = partial(F.scaled_dot_product_attention, is_causal=True)
    function = distcompile.compile(attend, fullgraph=True) if is_compiled else attend

    def kernel(dtype: Any) -> str:
        given = [x.to("cuda", dtype) for _ in range(3)]
        before = len(fake_cuda.named("cuLaunchKernel"))
        np.testing.assert_allclose(function(*given).float().cpu().numpy(), attend(x, x, x).numpy(), atol=3e-2)
        (name,) = (n for n in (c["kernel"] for c in fake_cuda.named("cuLaunchKernel")[before:]) if "attention" in n)
        return str(name)

    found = {}
    for precision in ("highest", "high", "medium", "highest"):
        distcompile.set_float32_matmul_precision(precision)
        found.setdefault(precision, []).append((kernel(distcompile.float32), kernel(distcompile.bfloat16)))
    (wide, narrow), again = found["highest"]
    assert again == (wide, narrow)
    assert found["high"] == found["medium"] == [(found["high"][0][0], narrow)]
    assert found["high"][0][0] != wide


@pytest.mark.parametrize(("permitted", "precision"), [(False, "tf32x3"), (True, "tf32")])
def test_products_of_f32_are_as_precise_as_asked(
    permitted: bool, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda.precision, "tf32", permitted)
    layouts = {n: [contiguous(TensorMeta((1, 1, 20, 16), n))] * 3 for n in (float32, bfloat16)}
    attrs = {"scale": 1.0, "causal": True, "strict": False}
    found = [FORWARD.plan(tuple(x), attrs).launches[0].constants["PRECISION"] for x in layouts.values()]
    assert found == [precision, "tf32x3"]


def test_a_step_of_training_through_both_kernels_of_the_backward(fake_cuda: FakeCuda, rng: Any) -> None:
    x = rng.standard_normal((2, 40, 96)).astype(np.float32)

    def attend(x: Any) -> Any:
        parts = [part.reshape(2, 40, 2, 16).transpose(1, 2) for part in x.split(32, 2)]
        return (F.scaled_dot_product_attention(*parts, is_causal=True) * 2).sin().sum()

    def gradient(function: Callable[..., Any]) -> Any:
        leaf = distcompile.tensor(x.copy()).requires_grad_()
        function(leaf).backward()
        return leaf.grad.numpy()

    found = gradient(distcompile.compile(attend, backend=HostedBackend(), fullgraph=True))
    np.testing.assert_allclose(found, gradient(attend), rtol=1e-4, atol=1e-5)
    kernels = [launch["kernel"] for launch in fake_cuda.named("cuLaunchKernel")]
    stems = [kernel.rpartition("_")[0] for kernel in kernels if "attention" in kernel]
    assert stems == ["attention_forward", "attention_queries", "attention_keys"]
