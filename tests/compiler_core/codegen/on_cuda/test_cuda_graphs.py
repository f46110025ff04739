"""Programs of a CUDA device as CUDA graphs, with a driver that is not there: when they are recorded, when replayed."""

from __future__ import annotations

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
from compiler_core.runtime.cuda import graphs, settling
from compiler_core.runtime.cuda.graphs import Replaying
from tests.fake_cuda import FakeCuda
from tests.fake_cuda.programs import SCALAR, compiled, on_device, on_host, vector

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.triton,
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT"),
    pytest.mark.usefixtures("no_cache"),
]


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


def test_what_cannot_be_a_graph_runs_without_and_says_why(fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "MOST_NBYTES", 31)  # `x` is too large to be copied at every call
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


def test_outputs_lie_where_they_lay_once_nobody_has_them(fake_cuda: FakeCuda) -> None:
    """The pool gives out blocks of one size in turns: this one never the same block twice."""
    run = Replaying(compiled(lambda x: (prims.neg(x), prims.exp(x)), vector(8)))
    x, blocked = on_device(np.arange(8, dtype=np.float32)), []
    for _ in range(5):
        blocked.append(on_device(np.zeros(8, np.float32)))
        first, second = run([x])
        assert on_host(first).tolist() == [-k for k in range(8)]
        del first, second
    assert (run.records, run.replays) == (1, 4)
    first, second = run([x])
    address, view = first.data.ptr, first[2:5]
    del first
    x[...] = on_device(np.ones(8, np.float32))
    other, _ = run([x])
    assert other.data.ptr != address  # a view of it is held
    assert on_host(view).tolist() == [-2, -3, -4]
    assert on_host(other).tolist() == [-1] * 8
    np.testing.assert_allclose(on_host(second), np.exp(np.arange(8)), rtol=1e-6)


def test_what_lies_alone_in_memory_that_is_kept(fake_cuda: FakeCuda) -> None:
    """It may be written in place; who has a view of it would see that."""
    run = Replaying(compiled(lambda x: (prims.neg(x), prims.exp(x)), vector(8)))
    x = on_device(np.arange(8, dtype=np.float32))
    first, second = run([x])
    assert run.made(0, first)
    assert run.made(1, second)
    assert not run.made(1, first)
    assert not run.made(0, x)
    view = first[2:5]
    assert not run.made(0, first)
    del view
    assert run.made(0, first)


def test_what_little_lies_elsewhere_at_every_call_is_copied(fake_cuda: FakeCuda) -> None:
    """A batch comes in memory of its own, and the program keeps every result: one graph serves them all."""
    run = Replaying(compiled(lambda w, x: (prims.mul(w, x), prims.neg(x)), vector(8), vector(8)))
    weight, kept, batches = on_device(np.full(8, 2, np.float32)), [], []
    for call in range(6):
        batches.append(on_device(np.full(8, call, np.float32)))
        product, negative = run([weight, batches[-1]])
        kept.append(product)
        assert on_host(negative).tolist() == [-call] * 8
    assert [on_host(product).tolist() for product in kept] == [[2 * call] * 8 for call in range(6)]
    assert len({product.data.ptr for product in kept}) == 6
    assert (run.records, run.replays) == (1, 3)
    assert len(run.settling.inputs) == 1
    assert on_host(batches[0]).tolist() == [0] * 8


def test_places_that_are_given_and_what_is_much_are_not_copied(fake_cuda: FakeCuda) -> None:
    run = Replaying(compiled(lambda *xs: [prims.neg(x) for x in xs], *[vector(8)] * (settling.MOST + 1)))
    many = [[on_device(np.full(8, k, np.float32)) for k in range(settling.MOST + 1)] for _ in range(2)]
    for call in range(6):  # in two places in turns
        assert [on_host(x).tolist() for x in run(many[call % 2])] == [[-k] * 8 for k in range(settling.MOST + 1)]
    assert (run.records, run.replays, run.settling.inputs) == (2, 4, set())
    one = Replaying(compiled(prims.neg, vector(8)))
    x, outs = on_device(np.ones(8, np.float32)), [on_device(np.zeros(8, np.float32)) for _ in range(3)]
    for out in outs:
        assert one([x], [out])[0] is out
        assert on_host(out).tolist() == [-1] * 8
    assert not one.settling.blocks


def test_memory_that_is_kept_is_let_go_when_there_is_not_enough(
    fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Replaying(compiled(prims.neg, vector(8)))
    x = on_device(np.ones(8, np.float32))
    run([x])
    assert run._kept
    prepare, failures = run.run.prepare, [MemoryError()]

    def short(*given: Any) -> Any:
        if failures:
            assert run._kept
            raise failures.pop()
        assert not run._kept
        return prepare(*given)

    monkeypatch.setattr(run.run, "prepare", short)
    (out,) = run([x])
    assert on_host(out).tolist() == [-1] * 8
