"""What each step of a program took on a CUDA device, on a driver that is not there (tests/fake_cuda)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from compiler_core.codegen.cuda_backend import CudaGraphsBackend
from compiler_core.config import config
from compiler_core.dtype import float32
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.runtime.cuda import marks
from compiler_core.runtime.profiler import profiling
from tests.fake_cuda import FakeCuda
from tests.fake_cuda.programs import compiled, graph_of, on_device, on_host, vector

pytest.importorskip("triton")
pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore:TRITON_DEFAULT")]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(marks, "_NBYTES", 1 << 20)
    marks.copy_rate.cache_clear()
    with config.patch(use_cache=False):
        yield
    marks.copy_rate.cache_clear()


def product(a: Any, b: Any) -> Any:
    return prims.exp(prims.matmul(a, b))


def test_every_step_has_a_row_with_its_share_of_a_copy(fake_cuda: FakeCuda, rng: Any) -> None:
    run = compiled(product, TensorMeta((16, 32), float32), TensorMeta((32, 8), float32))
    inputs = [on_device(rng.standard_normal(shape).astype(np.float32)) for shape in ((16, 32), (32, 8))]
    (before,) = run(inputs)
    recorded = len(fake_cuda.named("cuEventRecord"))
    with profiling() as profile:
        for _ in range(3):
            (measured,) = run(inputs)
    np.testing.assert_array_equal(on_host(measured), on_host(before))
    assert recorded == 0
    assert len(fake_cuda.named("cuEventRecord")) == 3 * len(run.costs)
    rows = {row.label: row for row in profile.rows if row.graph == run.symbol}
    assert rows["gemm f32 16x32 32x8"].flops == 3 * 2 * 16 * 8 * 32
    assert {row.calls for row in rows.values()} == {3}
    assert all(row.seconds > 0 < row.nbytes for row in rows.values())
    assert all(row.copy_share > 0 for row in rows.values())
    assert "copy %" in str(profile)
    run(inputs)
    assert len(fake_cuda.named("cuEventRecord")) == 3 * len(run.costs)


def test_graphs_are_not_replayed_while_it_is_measured(fake_cuda: FakeCuda) -> None:
    (run,) = CudaGraphsBackend().compile([graph_of(prims.exp, vector(64))], "exponential")
    x, out = on_device(np.ones(64, np.float32)), on_device(np.zeros(64, np.float32))
    for _ in range(3):
        run([x], [out])
    replays = run.replays  # type: ignore[attr-defined]
    with profiling() as profile:
        run([x], [out])
    assert replays
    assert run.replays == replays  # type: ignore[attr-defined]
    assert [row.calls for row in profile.rows if row.graph == run.entry.symbol]  # type: ignore[attr-defined] == [1]
