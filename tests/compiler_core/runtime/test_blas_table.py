"""The BLAS that generated code calls: found, callable by address, and named when it is missing."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from compiler_core.errors import BackendError
from compiler_core.runtime import blas


@pytest.mark.parametrize(
    ("routine", "ctype", "dtype"), [("sgemm", ctypes.c_float, np.float32), ("dgemm", ctypes.c_double, np.float64)]
)
def test_the_address_in_the_table_multiplies(routine, ctype, dtype) -> None:
    a, b, c = np.arange(6, dtype=dtype).reshape(2, 3), np.arange(12, dtype=dtype).reshape(3, 4), np.zeros((2, 4), dtype)
    integers, pointer = ctypes.c_int, ctypes.c_void_p
    types = [*[integers] * 6, ctype, pointer, integers, pointer, integers, ctype, pointer, integers]
    address = blas.routine_table([f"cblas_{routine}"], (), before=0)[1]
    gemm = ctypes.CFUNCTYPE(None, *types)(address)
    gemm(101, 111, 111, 2, 4, 3, 1.0, a.ctypes.data, 3, b.ctypes.data, 4, 0.0, c.ctypes.data, 4)
    np.testing.assert_array_equal(c, a @ b)


def test_a_missing_wheel_is_named(monkeypatch) -> None:
    monkeypatch.setattr(blas, "find_spec", lambda name: None)
    blas.load_openblas.cache_clear()
    try:
        with pytest.raises(BackendError, match="pip install scipy-openblas32"):
            blas.load_openblas()
    finally:
        blas.load_openblas.cache_clear()
