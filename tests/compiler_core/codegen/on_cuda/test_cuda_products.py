"""Products on a CUDA device that take in what stands around them, with a cuBLAS that is not there (tests/fake_cuda)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from compiler_core import log
from compiler_core.backend import for_many_sizes
from compiler_core.config import config
from compiler_core.dtype import DType, bfloat16, float16, float32
from compiler_core.errors import DeviceError
from compiler_core.log import DistCompileWarning
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.linear_algebra import gemm_cuda
from compiler_core.runtime.cuda import context, driver, measure, products
from compiler_core.runtime.cuda.entry import CudaEntry
from tests.fake_cuda import FakeCuda
from tests.fake_cuda.programs import compiled, on_device, on_host

pytest.importorskip("triton")
pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore:TRITON_DEFAULT")]


@pytest.fixture(autouse=True)
def no_cache() -> Iterator[None]:
    """What the fake compiles must not be found by others. What is lowered is verified."""
    with config.patch(use_cache=False, verify=True):
        yield


def normal(rng: Any, dtype: DType, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(dtype.numpy)


# -- f32 results of 16-bit operands


@pytest.mark.parametrize("dtype", [bfloat16, float16], ids=str)
def test_a_gradient_that_is_widened_is_written_as_it_was_summed(fake_cuda: FakeCuda, dtype: DType, rng: Any) -> None:
    def gradients(g: Any, x: Any) -> list[Any]:  # of a weight and a bias, under autocast
        weight = prims.matmul(F.transpose(g, 0, 1), x)
        return [prims.cast(F.transpose(weight, 0, 1), float32), prims.cast(prims.sum(g, (0,)), float32)]

    run = compiled(gradients, TensorMeta((64, 6), dtype), TensorMeta((64, 5), dtype))
    g, x = normal(rng, dtype, 64, 6), normal(rng, dtype, 64, 5)
    weight, bias = map(on_host, run([on_device(g), on_device(x)]))
    np.testing.assert_allclose(weight, (g.astype(np.float64).T @ x.astype(np.float64)).T, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(bias, g.astype(np.float64).sum(0), rtol=1e-5, atol=1e-5)
    (product,) = fake_cuda.named("cublasGemmEx")
    assert (product["type"], product["result"]) == ({bfloat16: 14, float16: 2}[dtype], 0)
    assert [step.split()[0] for step in run.entry.steps] == ["gemm", "k0_sum"]


def test_the_average_over_ranks_is_a_factor_of_that_product(fake_cuda: FakeCuda, rng: Any) -> None:
    def averaged(a: Any, b: Any, scale: Any) -> Any:
        return prims.mul(prims.cast(prims.matmul(a, b), float32), prims.expand(scale, (6, 5)))

    run = compiled(averaged, TensorMeta((6, 7), bfloat16), TensorMeta((7, 5), bfloat16), TensorMeta((), float32))
    a, b = normal(rng, bfloat16, 6, 7), normal(rng, bfloat16, 7, 5)
    (out,) = run([on_device(a), on_device(b), np.float32(0.5)])
    np.testing.assert_allclose(on_host(out), a.astype(np.float32) @ b.astype(np.float32) / 2, rtol=1e-5, atol=1e-5)
    assert not fake_cuda.named("cuLaunchKernel")


def test_a_product_whose_readers_are_loops_stays_of_16_bits(fake_cuda: FakeCuda, rng: Any) -> None:
    square = TensorMeta((6, 6), bfloat16)
    run = compiled(lambda a, b: prims.tanh(prims.cast(prims.matmul(a, b), float32)), square, square)
    a, b = normal(rng, bfloat16, 6, 6), normal(rng, bfloat16, 6, 6)
    (out,) = run([on_device(a), on_device(b)])
    expected = np.tanh((a.astype(np.float32) @ b.astype(np.float32)).astype(bfloat16.numpy).astype(np.float32))
    np.testing.assert_allclose(on_host(out), expected, rtol=1e-5, atol=1e-5)
    (product,) = fake_cuda.named("cublasGemmEx")
    assert (product["type"], product["result"]) == (14, 14)


# -- cuBLASLt


@pytest.fixture
def all_lt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of any size are cuBLASLt's."""
    monkeypatch.setattr(gemm_cuda, "LEAST_FLOPS", 0)


@pytest.mark.usefixtures("all_lt")
@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", [bfloat16, float16, float32], ids=str)
def test_products_are_cublaslts(
    fake_cuda: FakeCuda, dtype: DType, turned: bool, batch: tuple[int, ...], rng: Any
) -> None:
    def multiply(a: Any, b: Any) -> Any:
        return prims.matmul(F.transpose(a, -1, -2) if turned else a, F.transpose(b, -1, -2) if turned else b)

    a, b = (*batch, 8, 16), (*batch, 16, 24)
    a, b = ((*batch, 16, 8), (*batch, 24, 16)) if turned else (a, b)
    run = compiled(multiply, TensorMeta(a, dtype), TensorMeta(b, dtype))
    x, y = normal(rng, dtype, *a), normal(rng, dtype, *b)
    (out,) = run([on_device(x), on_device(y)])
    wide = [np.swapaxes(v, -1, -2) if turned else v for v in (x.astype(np.float64), y.astype(np.float64))]
    tolerance = 1e-5 if dtype is float32 else 2e-2
    np.testing.assert_allclose(on_host(out).astype(np.float64), np.matmul(*wide), rtol=tolerance, atol=4 * tolerance)
    assert {call["batch"] for call in fake_cuda.named("cublasLtMatmul")} == {3 if batch else 1}
    assert {made[3] for made in fake_cuda.lt.made if 1 in made and "kind" not in made} == {2}  # no 16-bit partial sums
    assert not fake_cuda.named("cublasGemmEx")


@pytest.mark.usefixtures("all_lt")
def test_a_factor_on_the_device_and_tf32_are_cublaslts_too(fake_cuda: FakeCuda, rng: Any) -> None:
    square = TensorMeta((8, 8), float32)
    run = compiled(
        lambda a, b, s: prims.mul(prims.matmul(a, b), prims.expand(s, (8, 8))), square, square, TensorMeta((), float32)
    )
    a, b = normal(rng, float32, 8, 8), normal(rng, float32, 8, 8)
    fake_cuda.calls.clear()
    for permitted in (False, True):
        context.permit_tf32(permitted)
        try:
            (out,) = run([on_device(a), on_device(b), np.float32(0.25)])
        finally:
            context.permit_tf32(False)
        np.testing.assert_allclose(on_host(out), a @ b / 4, rtol=1e-5, atol=1e-6)
    calls = fake_cuda.named("cublasLtMatmul")
    assert [(call["compute"], call["device"]) for call in calls] == [(68, True), (77, True)]


@pytest.mark.usefixtures("all_lt")
def test_a_product_that_cublaslt_does_not_take_is_cublass(fake_cuda: FakeCuda, rng: Any) -> None:
    fake_cuda.fails["cublasLtMatmulAlgoGetHeuristic"] = 15
    square = TensorMeta((8, 8), bfloat16)
    run = compiled(prims.matmul, square, square)
    a, b = normal(rng, bfloat16, 8, 8), normal(rng, bfloat16, 8, 8)
    (out,) = run([on_device(a), on_device(b)])
    np.testing.assert_allclose(on_host(out).astype(np.float32), a.astype(np.float32) @ b.astype(np.float32), rtol=1e-2)
    assert len(fake_cuda.named("cublasGemmEx")) == 1


# -- biases


def linear_twice(x: Any, w: Any, bias: Any, v: Any) -> Any:
    """The first sum is read by a product, so that no kernel adds the bias."""
    return prims.matmul(F.linear(x, w, bias), v)


@pytest.mark.usefixtures("all_lt")
@pytest.mark.parametrize("dtype", [bfloat16, float16, float32], ids=str)
def test_a_bias_that_no_kernel_would_add_is_added_by_the_product(fake_cuda: FakeCuda, dtype: DType, rng: Any) -> None:
    shapes = (40, 8), (16, 8), (16,), (16, 8)
    run = compiled(linear_twice, *(TensorMeta(shape, dtype) for shape in shapes))
    x, w, bias, v = (normal(rng, dtype, *shape) for shape in shapes)
    (out,) = run([on_device(array) for array in (x, w, bias, v)])
    first = x.astype(np.float32) @ w.astype(np.float32).T + bias.astype(np.float32)
    expected = first.astype(dtype.numpy).astype(np.float64) @ v.astype(np.float64)
    tolerance = 1e-5 if dtype is float32 else 1e-2
    np.testing.assert_allclose(on_host(out).astype(np.float64), expected, rtol=tolerance, atol=8 * tolerance)
    assert [call["bias"] for call in fake_cuda.named("cublasLtMatmul")[-2:]] == [True, False]
    assert not fake_cuda.named("cuLaunchKernel")


@pytest.mark.usefixtures("all_lt")
def test_a_bias_of_f32_is_rounded_before_as_under_autocast(fake_cuda: FakeCuda, rng: Any) -> None:
    def function(x: Any, w: Any, bias: Any, v: Any) -> Any:
        return linear_twice(x, w, prims.cast(bias, bfloat16), v)

    shapes = (40, 8), (16, 8), (16,), (16, 8)
    metas = [TensorMeta(shape, float32 if k == 2 else bfloat16) for k, shape in enumerate(shapes)]
    arrays = [normal(rng, meta.dtype, *meta.shape) for meta in metas]
    (out,) = compiled(function, *metas)([on_device(array) for array in arrays])
    x, w, bias, v = (array.astype(bfloat16.numpy).astype(np.float64) for array in arrays)
    np.testing.assert_allclose(on_host(out).astype(np.float64), (x @ w.T + bias) @ v, rtol=2e-2, atol=0.2)
    assert fake_cuda.named("cublasLtMatmul")[-2]["bias"]


@pytest.mark.usefixtures("all_lt")
def test_a_bias_whose_sum_a_kernel_reads_is_added_there(fake_cuda: FakeCuda, rng: Any) -> None:
    shapes = (40, 8), (16, 8), (16,)
    run = compiled(lambda x, w, bias: prims.tanh(F.linear(x, w, bias)), *(TensorMeta(s, float32) for s in shapes))
    x, w, bias = (normal(rng, float32, *shape) for shape in shapes)
    (out,) = run([on_device(array) for array in (x, w, bias)])
    np.testing.assert_allclose(on_host(out), np.tanh(x @ w.T + bias), rtol=1e-5, atol=1e-5)
    assert not fake_cuda.named("cublasLtMatmul")[-1]["bias"]


def test_a_bias_of_lines_that_start_anywhere_stays_outside(fake_cuda: FakeCuda, rng: Any) -> None:
    shapes = (40, 8), (15, 8), (15,), (15, 8)
    run = compiled(linear_twice, *(TensorMeta(shape, bfloat16) for shape in shapes))
    x, w, bias, v = (normal(rng, bfloat16, *shape) for shape in shapes)
    (out,) = run([on_device(array) for array in (x, w, bias, v)])
    wide = [array.astype(np.float64) for array in (x, w, bias, v)]
    np.testing.assert_allclose(
        on_host(out).astype(np.float64), (wide[0] @ wide[1].T + wide[2]) @ wide[3], rtol=2e-2, atol=0.2
    )


@pytest.mark.usefixtures("all_lt")
def test_a_bias_beside_a_matrix_that_starts_one_element_late_stays_outside(fake_cuda: FakeCuda, rng: Any) -> None:
    """Rows that are 16 bytes apart, from an address that is no multiple of 16."""

    def function(x: Any, w: Any, bias: Any, v: Any) -> Any:
        return linear_twice(prims.slice(x, (0, 1), (40, 9), (1, 1)), w, bias, v)

    shapes = (40, 16), (16, 8), (16,), (16, 8)
    run = compiled(function, *(TensorMeta(shape, bfloat16) for shape in shapes))
    x, w, bias, v = (normal(rng, bfloat16, *shape) for shape in shapes)
    (out,) = run([on_device(array) for array in (x, w, bias, v)])
    wide = [array.astype(np.float64) for array in (x[:, 1:9], w, bias, v)]
    expected = (wide[0] @ wide[1].T + wide[2]) @ wide[3]
    np.testing.assert_allclose(on_host(out).astype(np.float64), expected, rtol=2e-2, atol=0.2)
    assert not any(call["bias"] for call in fake_cuda.named("cublasLtMatmul"))


@pytest.mark.usefixtures("all_lt")
@pytest.mark.parametrize("rows", [1, 2, 40, 37])
@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=str)
def test_a_bias_that_cublaslt_does_not_add_is_what_cublas_adds_onto(
    fake_cuda: FakeCuda, dtype: DType, rows: int, rng: Any
) -> None:
    fake_cuda.fails["cublasLtMatmulAlgoGetHeuristic"] = 15
    shapes = (rows, 8), (16, 8), (16,), (16, 8)
    run = compiled(linear_twice, *(TensorMeta(shape, dtype) for shape in shapes))
    arrays = [normal(rng, dtype, *shape) for shape in shapes]
    with pytest.warns(DistCompileWarning, match="cuBLASLt has no algorithm for 16 x .* bias"):
        (out,) = run([on_device(array) for array in arrays])
    x, w, bias, v = (array.astype(np.float64) for array in arrays)
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype is float32 else {"rtol": 2e-2, "atol": 0.2}
    np.testing.assert_allclose(on_host(out).astype(np.float64), (x @ w.T + bias) @ v, **tolerance)
    preferences = [made for made in fake_cuda.lt.made if 1 in made and "kind" not in made]
    assert any(made[3] != 2 for made in preferences)  # any sums, before it gives up
    assert len(fake_cuda.named("cuMemcpyDtoDAsync_v2")) == math.ceil(math.log2(rows)) + 1
    fake_cuda.fails["cuMemcpyDtoDAsync_v2"] = 1
    with pytest.raises(DeviceError, match=r"cuMemcpyDtoDAsync_v2 failed[\s\S]*matmul"):
        run([on_device(array) for array in arrays])


# -- algorithms


def a_product(monkeypatch: pytest.MonkeyPatch, fake_cuda: FakeCuda, **slowness: float) -> CudaEntry:
    monkeypatch.setattr(gemm_cuda, "LEAST_FLOPS", 0)
    fake_cuda.lt.slowness = {int(name[1:]): seconds for name, seconds in slowness.items()}
    square = TensorMeta((8, 8), bfloat16)
    run = compiled(prims.matmul, square, square)
    fake_cuda.calls.clear()
    run([on_device(np.ones((8, 8), bfloat16.numpy)) for _ in range(2)])
    return run.entry


def test_the_fastest_algorithm_is_chosen_and_kept(
    fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with config.patch(logs=frozenset({"tuning"})):
        entry = a_product(monkeypatch, fake_cuda, n0=0.004, n2=0.004)
    assert [call["algorithm"] for call in fake_cuda.named("cublasLtMatmul")] == [1]
    assert entry.choices == ((1, *(0,) * 7),)
    assert CudaEntry.from_json(entry.to_json()) == entry
    assert "8 x 8 x 8 NN bf16 -> bf16: algorithm 1" in capsys.readouterr().err
    assert log.is_on("tuning") is False


def test_of_many_sizes_one_of_a_class_is_measured(fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm_cuda, "LEAST_FLOPS", 0)
    monkeypatch.setattr(products, "_classes", defaultdict(dict))
    fake_cuda.lt.slowness = {0: 0.004, 2: 0.004}
    measured, choices = [], []
    for rows, algorithms in ((40, 3), (48, 3), (56, 1), (72, 3)):  # the last is of another class
        fake_cuda.calls.clear()
        fake_cuda.lt.algorithms = algorithms
        with for_many_sizes():
            entry = compiled(prims.matmul, TensorMeta((rows, 8), bfloat16), TensorMeta((8, 8), bfloat16)).entry
        measured.append(bool(fake_cuda.named("cublasLtMatmul")))
        choices.append(entry.choices[0] and entry.choices[0][0])
    assert measured == [True, False, False, True]
    assert choices == [1, 1, None, 1]  # cuBLASLt does not name algorithm 1 for 56 rows


def test_a_choice_of_another_place_is_not_used(fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    places = iter(["another", "this", "this"])
    monkeypatch.setattr(products, "place", lambda device: next(places))
    entry = a_product(monkeypatch, fake_cuda, n0=0.004, n2=0.004)
    assert entry.choices == ((1, *(0,) * 7),)
    assert [call["algorithm"] for call in fake_cuda.named("cublasLtMatmul")] == [0]


def test_the_first_is_kept_where_nothing_is_measured(fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    with config.patch(measure=False):
        entry = a_product(monkeypatch, fake_cuda, n0=0.004)
    assert entry.choices == (None,)
    assert [call["algorithm"] for call in fake_cuda.named("cublasLtMatmul")] == [0]


def test_a_product_without_memory_for_measuring_takes_the_first(
    fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*sizes: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(measure, "normal_numbers", none)
    assert a_product(monkeypatch, fake_cuda, n0=0.004).choices == (None,)


def test_cublaslt_is_opened_beside_cublas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "load_cublas", lambda: SimpleNamespace(cublasGemmEx=1))
    monkeypatch.setattr(driver, "load_cublaslt", lambda: SimpleNamespace(cublasLtMatmul=2))
    assert (driver.function("cublasGemmEx"), driver.function("cublasLtMatmul")) == (1, 2)
