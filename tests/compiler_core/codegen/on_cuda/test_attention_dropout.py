"""Attention with dropout on a CUDA device: in the kernels, by the draws of the CPU's products, softmax and dropout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distcompile as dc
import distcompile.nn.functional as F
from compiler_core.aot.joint import make_joint
from compiler_core.codegen.cuda import eager_attention
from compiler_core.codegen.cuda_backend import CudaBackend
from compiler_core.config import config
from compiler_core.dtype import DType, bfloat16, bool_, float32, uint64
from compiler_core.graph.ir import GraphBuilder
from compiler_core.graph.passes import SIMPLIFY, SIMPLIFY_JOINT, run_passes
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as C
from compiler_core.ops.registry import use_trace
from tests.fake_cuda import FakeCuda
from tests.sharing import some

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.triton,
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT", "ignore::RuntimeWarning"),
    pytest.mark.usefixtures("counter_draws"),
]
P = 0.4


@pytest.fixture(autouse=True)
def few_scores_are_many(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("compiler_core.ops.attention.sizes.MANY", 1)
    monkeypatch.setattr(eager_attention, "_programs", {})
    with config.patch(use_cache=False):
        yield


def attend(q: Any, k: Any, v: Any, *mask: Any, **how: Any) -> Any:
    """The second of two, so that its draws are a second stream where a graph is compiled."""
    first = F.scaled_dot_product_attention(q, k, v, *mask, dropout_p=P, **how)
    second = F.scaled_dot_product_attention(q, k, v, *mask, dropout_p=P, **how)
    return first - 2 * second


def gradients(function: Any, arrays: list[Any], device: str, dtype: Any, mask: Any, **how: Any) -> list[Any]:
    """What is attended, and the gradients, of a learned mask too, as float64 of the host."""
    leaves = [dc.tensor(x).to(device, dtype).requires_grad_() for x in arrays]
    given = [] if mask is None else [dc.tensor(mask).to(device)]
    if given and mask.dtype != bool:
        given[0] = given[0].to(dtype).requires_grad_()
        leaves.append(given[0])
    dc.manual_seed(3)
    out = function(*leaves[:3], *given, **how)
    (out.float() * dc.arange(out.numel(), device=device).reshape(out.shape).cos()).sum().backward()
    return [x.detach().cpu().double().numpy() for x in (out, *(leaf.grad for leaf in leaves))]


def launched(fake: FakeCuda) -> list[str]:
    names = [launch["kernel"].rpartition("_")[0] for launch in fake.named("cuLaunchKernel")]
    return [name for name in names if name.startswith("attention")]


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "causal": (dc.bfloat16, {"is_causal": True}),
    "test": (dc.float32, {}),
    "added": (dc.float32, {}),
    "whole": (dc.float16, {}),
    "grouped": (dc.bfloat16, {"enable_gqa": True}),
}
ALWAYS = [("causal", True), ("test", False), ("added", True)]
WAYS = [*ALWAYS, *((n, way) for n in CASES for way in (True, False) if (n, way) not in ALWAYS)]


@pytest.mark.parametrize(("kind", "is_compiled"), some(WAYS, 3))
def test_the_draws_are_the_cpus(kind: str, is_compiled: bool, fake_cuda: FakeCuda, rng: Any) -> None:
    dtype, how = CASES[kind]
    heads = 2 if kind == "grouped" else 4
    arrays = [rng.standard_normal((2, n, 24, 16)).astype(np.float32) for n in (4, heads, heads)]
    mask = {"test": rng.random((2, 1, 24, 24)) < 0.7, "added": rng.standard_normal((24, 24)).astype(np.float32)}.get(
        kind
    )
    rounded = [dc.tensor(x).to(dtype).float().numpy() for x in arrays]
    expected = gradients(attend, rounded, "cpu", dc.float64, mask, **how)
    function = dc.compile(attend, fullgraph=True) if is_compiled else attend
    found = gradients(function, rounded, "cuda", dtype, mask, **how)
    assert sorted(launched(fake_cuda)) == sorted(["attention_forward", "attention_queries", "attention_keys"] * 2)
    tolerance = {dc.bfloat16: 3e-2, dc.float16: 4e-3, dc.float32: 1e-5}[dtype]
    for ours, exact in zip(found, expected, strict=True):
        assert np.linalg.norm(ours - exact) < tolerance * np.linalg.norm(exact)


@pytest.mark.parametrize("kind", ["causal", "test", "added", "whole"])
@pytest.mark.parametrize("dtype", [bfloat16, float32], ids=str)
def test_no_array_of_all_weights_is_there(kind: str, dtype: DType) -> None:
    """Of a step of training, as it is compiled: nothing computed has as many elements as the weights."""
    shapes = {"test": [TensorMeta((80, 80), bool_)], "added": [TensorMeta((80, 80), dtype)]}.get(kind, [])
    builder = GraphBuilder("graph")
    builder.device = "cuda:0"
    heads = [builder.placeholder(name, TensorMeta((2, 4, 80, 16), dtype)) for name in "qkv"]
    mask = [builder.placeholder("mask", meta) for meta in shapes]
    key = builder.placeholder("key", TensorMeta((3,), uint64), role="rng")
    with use_trace(builder):
        how: dict[str, Any] = {"dropout_p": P, "is_causal": kind == "causal", "rng": (key, 4)}
        made = C.scaled_dot_product_attention(*heads, *mask, **how)
    graph = run_passes(builder.build([made]), SIMPLIFY)
    joint = run_passes(make_joint(graph, [True] * 3 + [False] * (len(mask) + 1)).graph, SIMPLIFY_JOINT)
    calls = CudaBackend(90).lay_out(joint).calls
    assert [call.op.name for call in calls if call.op.name.startswith("attention")] == [
        "attention",
        "attention_backward",
    ]
    least = 2 * 4 * 80 * 80
    assert [str(call) for call in calls if call.meta.numel >= least and call.op.name not in ("expand", "reshape")] == []


def test_what_the_kernels_refuse_draws_alike(fake_cuda: FakeCuda, rng: Any) -> None:
    """Heads 300 wide, and f64, are products, a softmax and a dropout."""
    for width, dtype in ((300, dc.float32), (16, dc.float64)):
        arrays = [rng.standard_normal((1, 2, 6, width)).astype(np.float32) for _ in "qkv"]
        expected = gradients(attend, arrays, "cpu", dc.float64, None, is_causal=True)
        for function in (attend, dc.compile(attend, fullgraph=True)):
            found = gradients(function, arrays, "cuda", dtype, None, is_causal=True)
            for ours, exact in zip(found, expected, strict=True):
                np.testing.assert_allclose(ours, exact, rtol=1e-4, atol=1e-4)
    assert launched(fake_cuda) == []


def test_calls_that_draw_by_other_streams_are_of_one_function(fake_cuda: FakeCuda, rng: Any) -> None:
    arrays = [rng.standard_normal((1, 2, 20, 16)).astype(np.float32) for _ in "qkv"]
    gradients(dc.compile(attend, fullgraph=True), arrays, "cuda", dc.bfloat16, None, is_causal=True)
    kernels = [launch["kernel"] for launch in fake_cuda.named("cuLaunchKernel") if "attention" in launch["kernel"]]
    assert len(kernels) == 6
    assert len(set(kernels)) == 3


def test_over_many_lengths_the_draws_are_the_cpus(fake_cuda: FakeCuda, rng: Any, tmp_path: Path) -> None:
    function = dc.compile(attend, fullgraph=True, dynamic=True)
    with config.patch(cache_dir=tmp_path, use_cache=True):
        for n in (17, 23, 40, 19):
            arrays = [rng.standard_normal((2, 2, n, 16)).astype(np.float32) for _ in "qkv"]
            expected = gradients(attend, arrays, "cpu", dc.float64, None, is_causal=True)
            found = gradients(function, arrays, "cuda", dc.float32, None, is_causal=True)
            for ours, exact in zip(found, expected, strict=True):
                np.testing.assert_allclose(ours, exact, rtol=1e-4, atol=1e-4)
    assert len(launched(fake_cuda)) == 4 * 6
