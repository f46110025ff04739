"""Our own products of f32: their numbers in every layout, their bits however they are cut, and what is handed on."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.config import config
from compiler_core.runtime import blas, products
from compiler_core.runtime.toolchain import cpu_features

on_such_a_cpu = pytest.mark.skipif("avx512f" not in cpu_features(), reason="this CPU has no AVX-512")
# m, n, k: whole tiles, parts of each, several blocks of every direction, few rows or columns
SHAPES = [
    (128, 96, 128), (193, 97, 65), (55, 481, 70), (200, 1000, 385), (449, 130, 1153), (3, 900, 500), (700, 5, 400),
    (1, 2000, 600), (2000, 1, 600), (90, 16000, 1), (50, 50, 7000),
]  # fmt: skip
_INT, _POINTER = ctypes.c_int, ctypes.c_void_p
_TYPES = [*[_INT] * 6, ctypes.c_float, _POINTER, _INT, _POINTER, _INT, ctypes.c_float, _POINTER, _INT]


def gemm_at(address: int) -> Callable[..., None]:
    """c = alpha a b + beta c by the function at `address`, whatever of the operands' strides is 1."""
    function = ctypes.CFUNCTYPE(None, *_TYPES)(address)

    def multiply(a: Any, b: Any, c: Any, alpha: float = 1.0, beta: float = 0.0) -> None:
        (m, k), n = a.shape, b.shape[1]
        (ta, lda), (tb, ldb), (_, ldc) = map(_order, (a, b, c))
        function(101, ta, tb, m, n, k, alpha, a.ctypes.data, lda, b.ctypes.data, ldb, beta, c.ctypes.data, ldc)

    return multiply


def _order(x: Any) -> tuple[int, int]:
    row, column = (stride // 4 for stride in x.strides)
    return (111, row) if column == 1 else (112, column)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def own() -> Callable[..., None]:
    return gemm_at(blas.address_of("cblas_sgemm"))


def laid(rng: Any, rows: int, columns: int, turned: bool, gap: int = 3) -> Any:
    """A matrix with something between its rows (turned: its columns)."""
    shape = (columns, rows) if turned else (rows, columns)
    whole = rng.standard_normal((shape[0], shape[1] + gap)).astype(np.float32)
    return whole[:, : shape[1]].T if turned else whole[:, : shape[1]]


def test_ours_takes_the_place_of_sgemm_alone() -> None:
    openblas = blas.load_openblas()
    theirs = {
        name: ctypes.cast(getattr(openblas, f"scipy_{name}"), _POINTER).value for name in ("cblas_sgemm", "cblas_dgemm")
    }
    assert (blas.address_of("cblas_sgemm") != theirs["cblas_sgemm"]) == ("avx512f" in cpu_features())
    assert blas.address_of("cblas_dgemm") == theirs["cblas_dgemm"]


def test_other_cpus_keep_openblas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "cpu_features", lambda: frozenset({"avx2"}))
    assert products.sgemm_address(1) is None


@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_its_numbers_are_those_of_float64(own: Any, shape: tuple[int, int, int], turned: str, rng: Any) -> None:
    m, n, k = shape
    a, b = laid(rng, m, k, "a" in turned), laid(rng, k, n, "b" in turned)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    room = np.sqrt(k) * 2e-6
    for alpha, beta in ((1.0, 0.0), (1.0, 1.0), (-0.5, 0.0), (1.0, 0.25), (0.125, -2.0)):
        around = rng.standard_normal((m + 2, n + 5)).astype(np.float32)
        before, c = around.copy(), around[1:-1, 2:-3]
        own(a, b, c, alpha, beta)
        np.testing.assert_allclose(
            c, alpha * exact + beta * before[1:-1, 2:-3].astype(np.float64), rtol=1e-5, atol=room * 4
        )
        around[1:-1, 2:-3] = before[1:-1, 2:-3]
        np.testing.assert_array_equal(around, before)  # nothing else was written


def test_what_stands_in_the_result_does_not_matter_without_beta(own: Any, rng: Any) -> None:
    a, b = laid(rng, 130, 130, False), laid(rng, 130, 131, False)
    c = np.full((130, 131), np.nan, np.float32)
    own(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


def test_no_number_and_infinity_reach_their_row_and_column_only(own: Any, rng: Any) -> None:
    a, b = laid(rng, 130, 140, False), laid(rng, 140, 130, True)
    a[7, 3], b[5, 129] = np.nan, np.inf
    c = np.empty((130, 130), np.float32)
    own(a, b, c)
    assert np.isnan(c[7]).all()
    assert not np.isfinite(c[:, 129]).any()
    rest = np.delete(np.delete(c, 7, 0), 129, 1)
    assert np.isfinite(rest).all()


@on_such_a_cpu
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
def test_its_bits_do_not_depend_on_how_it_is_cut_or_lies(own: Any, turned: str, rng: Any) -> None:
    m, n, k = 300, 500, 900
    a, b = laid(rng, m, k, False, 0), laid(rng, k, n, False, 0)
    whole, again, parts = (np.empty((m, n), np.float32) for _ in range(3))
    own(a, b, whole)
    own(np.asfortranarray(a) if "a" in turned else a, np.asfortranarray(b) if "b" in turned else b, again)
    np.testing.assert_array_equal(again, whole)
    for rows in (slice(0, 51), slice(51, 300)):
        for columns in (slice(0, 85), slice(85, 500)):
            own(a[rows], b[:, columns], parts[rows, columns])
    np.testing.assert_array_equal(parts, whole)


@pytest.mark.parametrize("shape", [(64, 64, 64), (40, 47, 9000), (5, 7, 9), (47, 2, 20000)], ids=str)
def test_small_ones_are_openblas(own: Any, shape: tuple[int, int, int], rng: Any) -> None:
    m, n, k = shape
    a, b = laid(rng, m, k, False), laid(rng, k, n, True)
    found, theirs = np.empty((m, n), np.float32), np.empty((m, n), np.float32)
    own(a, b, found)
    gemm_at(ctypes.cast(blas.load_openblas().scipy_cblas_sgemm, _POINTER).value or 0)(a, b, theirs)
    np.testing.assert_array_equal(found, theirs)


@pytest.mark.parametrize("shape", [(128, 1024, 784), (1024, 130, 700), (9, 5000, 300), (3000, 20, 100)], ids=str)
def test_compiled_products_have_the_same_bits_on_any_number_of_threads(shape: tuple[int, int, int], rng: Any) -> None:
    m, n, k = shape
    a, b = dc.from_numpy(laid(rng, m, k, False, 0)), dc.from_numpy(laid(rng, n, k, False, 0))

    def product(a: Any, b: Any) -> Any:
        return a @ b.t()

    found = []
    for threads in (1, 2, 5):
        with config.patch(num_threads=threads):
            found.append(dc.compile(product, fullgraph=True, dynamic=False)(a, b).numpy().copy())
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])
    np.testing.assert_allclose(found[0], a.double().numpy() @ b.double().numpy().T, rtol=1e-4, atol=1e-3)


def test_threads_that_end_leave_nothing(own: Any, rng: Any) -> None:
    """A thread's memory goes with it: a hundred of them take no more than a few."""
    import resource
    import threading

    a, b = laid(rng, 300, 400, True), laid(rng, 400, 300, False)

    def work() -> None:
        own(a, b, np.empty((300, 300), np.float32))

    def run(times: int) -> None:
        for _ in range(times):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()

    run(10)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run(100)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000  # KiB; of each 1,000
