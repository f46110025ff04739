"""Each op compiled alone for a CUDA device and run there by the launcher that users' programs run by: eager's numbers.

Skipped where there is no device. Complex numbers are left out: Triton has none.
"""

from __future__ import annotations

import numpy as np
import pytest
from cases import SUMS, Case, all_cases, assert_near, assert_same
from one_op_graphs import graph_of

from compiler_core import cuda
from compiler_core import dtype as dt
from compiler_core.codegen.cuda_backend import CudaBackend
from compiler_core.ops.registry import meta_of

pytest.importorskip("triton")
pytestmark = pytest.mark.gpu


def _has_complex(case: Case) -> bool:
    return any(meta.dtype.is_complex for meta in (*map(meta_of, case.arrays), case.meta()))


CASES = tuple(c for c in all_cases() if c.variant in ("plain", "special") and not _has_complex(c))
QUOTIENT = 2.0**24  # a GPU's remainder has no digits left where the quotient exceeds this: triton/helpers.py
FREE = {"eigh", "svd", "qr", "eig"}  # of these the device's result is another one that is right: signs of vectors
DTYPES = tuple(d for d in dt.ALL if any(c.dtype is d for c in CASES))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.short)
def test_compiled_for_a_gpu_is_eager(dtype: dt.DType) -> None:
    wrong = []
    cases = [c for c in CASES if c.dtype is dtype]
    executables = CudaBackend().compile([graph_of(c) for c in cases], f"gpu_{dtype.short}")
    for case, executable in zip(cases, executables, strict=True):
        with np.errstate(all="ignore"):
            expected = case.eager()
        (made,) = executable([cuda.put(array, 0) for array in case.arrays])
        result = cuda.fetch(made)
        if case.op.name == "remainder" and dtype.is_floating_point:
            digits = np.abs(case.arrays[0].astype(np.float64) / case.arrays[1].astype(np.float64)) < QUOTIENT
            result, expected = result[digits], expected[digits]
        try:
            if case.op.name in FREE:
                assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
            elif case.op.name.startswith(SUMS) and dtype in (dt.float16, dt.bfloat16):
                assert_near(result, expected)
            else:
                assert_same(result, expected, dt.of(expected))
        except AssertionError as error:
            wrong.append(f"{case.name}: {error}")
    assert not wrong, f"{len(wrong)} of {len(cases)} cases\n" + "\n".join(wrong)
