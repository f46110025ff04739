"""Programs of a CUDA device as CUDA graphs, with a driver that is not there: when they are recorded, when replayed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distcompile
from compiler_core.backend import find_backend
from compiler_core.codegen.cuda_backend import CudaGraphsBackend
from compiler_core.config import config
from compiler_core.dtype import float32, int64
from compiler_core.errors import IndexError_
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.runtime.cuda import graphs
from compiler_core.runtime.cuda.graphs import Replaying
from tests.fake_cuda import FakeCuda
from tests.fake_cuda.programs import SCALAR, compiled, on_device, on_host, vector

pytest.importorskip("triton")
pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore:TRITON_DEFAULT")]


@pytest.fixture(autouse=True)
def no_cache() -> Iterator[None]:
    """What the fake compiles must not be found by others."""
    with config.patch(use_cache=False):
        yield


def test_a_graph_is_recorded_when_addresses_come_again_and_replayed_after_that(fake_cuda: FakeCuda, rng: Any) -> None:
    square = TensorMeta((6, 6), float32)
    run = Replaying(
        compiled(lambda a, x: prims.exp(prims.matmul(x, prims.mul(prims.expand(a, x.shape), x))), SCALAR, square)
    )
    x, out = on_device(rng.standard_normal((6, 6)).astype(np.float32)), on_device(np.zeros((6, 6), np.float32))
    for call in range(5):
        x[...] = on_device(rng.standard_normal((6, 6)).astype(np.float32))
        factor = np.float32(0.1 * call)
        run([factor, x], [out])
        np.testing.assert_allclose(on_host(out), np.exp(on_host(x) @ (factor * on_host(x))), rtol=1e-5)
    assert (run.records, run.replays) == (1, 4)
    assert len(fake_cuda.named("cuGraphLaunch")) == 4
    assert len(fake_cuda.named("cublasGemmEx")) == 2  # one run as it is, one recorded


def test_a_graph_serves_its_own_addresses_alone(fake_cuda: FakeCuda) -> None:
    run = Replaying(compiled(prims.neg, vector(8)))
    places = [(on_device(np.full(8, k, np.float32)), on_device(np.zeros(8, np.float32))) for k in range(3)]
    for _ in range(4):
        for k, (x, out) in enumerate(places):
            run([x], [out])
            assert on_host(out).tolist() == [-k] * 8
    assert (run.records, run.replays) == (3, 9)


def test_what_cannot_be_a_graph_runs_without_and_says_why(fake_cuda: FakeCuda) -> None:
    run = Replaying(compiled(lambda x: prims.argsort(x, 0, False), vector(5)))
    x = on_device(np.zeros(5, np.float32))
    with pytest.warns(UserWarning, match="without a CUDA graph: it calls back into Python"):
        run([x])
    restless = Replaying(compiled(prims.neg, vector(8)))
    kept = [on_device(np.zeros(8, np.float32)) for _ in range(graphs.PATIENCE + 2)]
    with pytest.warns(UserWarning, match="its arrays lie elsewhere at every call"):
        outs = [restless([x]) for x in kept]
    assert len(outs) == len(kept)
    assert not fake_cuda.named("cuGraphLaunch")


def test_a_check_fails_in_a_graph_too(fake_cuda: FakeCuda) -> None:
    run = Replaying(compiled(prims.take, vector(8), vector(3, int64)))
    x, out = on_device(np.arange(8, dtype=np.float32)), on_device(np.zeros(3, np.float32))
    index = on_device(np.array([1, 2, 7]))
    for _ in range(3):
        run([x, index], [out])
    index[...] = on_device(np.array([1, 2, 90]))
    with config.patch(cuda_blocking=True), pytest.raises(IndexError_):
        run([x, index], [out])
    index[...] = on_device(np.array([3, 2, 1]))
    run([x, index], [out])
    assert on_host(out).tolist() == [3, 2, 1]
    assert run.replays == 4


def test_the_mode_and_the_backend_that_ask_for_graphs() -> None:
    assert isinstance(find_backend("cudagraphs"), CudaGraphsBackend)
    x = distcompile.tensor([1.0, 2.0])
    for asked in ({"mode": "reduce-overhead"}, {"backend": "cudagraphs"}):
        assert distcompile.compile(lambda v: v * 2, **asked)(x).tolist() == [2.0, 4.0]  # the CPU's: as "codegen"
