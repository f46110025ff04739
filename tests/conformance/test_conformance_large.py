"""Sizes at which loops are split: reductions and movement over tens of thousands of elements, on one thread and on two.

Small cases never reach the chunked partial results, the parallel rows or the blocked columns of the schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler_core import dtype as dt
from compiler_core.codegen.native_backend import NativeBackend
from compiler_core.config import config
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph, GraphBuilder
from compiler_core.graph.passes import SIMPLIFY_JOINT, run_passes
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops.registry import Array, use_trace
from tests.sharing import some

SHAPES = ((40000,), (300, 77), (3, 9001), (9001, 3), (16, 40, 48), (2, 3, 5, 700))
RUNS = ((dt.float32, 1), (dt.float32, 2), (dt.bfloat16, 2), (dt.int32, 2))  # dtype, threads
REDUCE: dict[str, Callable[[Any, int], Any]] = {
    "sum": lambda x, d: F.sum(x, d),
    "max": lambda x, d: F.amax(x, d),
    "argmax": lambda x, d: F.argmax(x, d),
    "all": lambda x, d: F.sum(x),
}
FLOATS: dict[str, Callable[[Any, int], Any]] = {
    "softmax": lambda x, d: F.softmax(x, d),
    "layer_norm": lambda x, d: F.layer_norm(x, x.shape[-1]),
    "var": lambda x, d: F.var(x, d),
    "centered": lambda x, d: F.sub(x, F.mean(x, d, keepdim=True)),
    "mean": lambda x, d: F.mean(F.mul(x, x)),
    "roll_cat": lambda x, d: F.cat([F.roll(x, 5, d), F.flip(x, d)], d),
    "flat_sum": lambda x, d: F.sum(F.flatten(F.transpose(x, d, 0)), 0),
}


def graph_of(name: str, shape: tuple[int, ...], dim: int, dtype: dt.DType) -> Graph:
    """One function of one input."""
    builder = GraphBuilder(f"{name}_{'x'.join(map(str, shape))}_{dim}_{dtype.short}")
    x = builder.placeholder("x", TensorMeta(shape, dtype))
    with use_trace(builder):
        result = {**REDUCE, **FLOATS}[name](x, dim)
    return run_passes(builder.build([result]), SIMPLIFY_JOINT)


@cache
def graphs(dtype: dt.DType) -> tuple[Graph, ...]:
    """All functions over all dims of all shapes."""
    names = [*REDUCE, *(FLOATS if dtype.is_floating_point else ())]
    return tuple(graph_of(n, shape, d, dtype) for shape in SHAPES for d in range(len(shape)) for n in names)


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, optimised: None) -> Iterator[None]:
    with config.patch(cache_dir=Path(tmp_path_factory.mktemp("cache"))):
        yield


def values(graph: Graph) -> Array:
    meta = graph.inputs[0].meta
    rng = np.random.default_rng(meta.numel)
    return np.asarray(4 * rng.standard_normal(meta.shape)).astype(meta.dtype.numpy)


def assert_near(actual: Array, expected: Array, dtype: dt.DType) -> None:
    """Sums of tens of thousands of terms: errors are relative to the largest result."""
    if expected.dtype.kind in "iub":
        np.testing.assert_array_equal(actual, expected)
        return
    wide = expected.astype(np.float64)
    rtol = {"f64": 1e-12, "f32": 2e-5, "bf16": 2e-2}[dtype.short]
    scale = max(1.0, float(np.abs(wide).max(initial=0.0)))
    np.testing.assert_allclose(actual.astype(np.float64), wide, rtol=rtol, atol=rtol * scale)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "threads"), some(RUNS, 2), ids=[f"{d.short}-{n}" for d, n in RUNS])
def test_large_cpp_is_eager(dtype: dt.DType, threads: int) -> None:
    with config.patch(num_threads=threads):
        executables = NativeBackend().compile(graphs(dtype), f"large_{dtype.short}_{threads}")
        for graph, executable in zip(graphs(dtype), executables):
            x = values(graph)
            (expected,) = interpret(graph, [x])
            for _ in range(2):
                (result,) = executable([x])
                assert (result.shape, result.dtype) == (expected.shape, expected.dtype), graph.name
                try:
                    assert_near(result, expected, dtype)
                except AssertionError as error:
                    raise AssertionError(f"{graph.name}: {error}\n{graph}") from error
