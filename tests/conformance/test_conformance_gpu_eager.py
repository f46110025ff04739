"""Each op run by CuPy on a CUDA device: the CPU's numbers. Skipped where there is none."""

from __future__ import annotations

import numpy as np
import pytest
from cases import SUMS, Case, all_cases, assert_near, assert_same, by_op, check_each

from compiler_core import cuda
from compiler_core import dtype as dt
from compiler_core.ops.random import on_device as random_there
from compiler_core.ops.registry import run_eager

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:.*is computed on the CPU"),
]
CASES = [c for c in all_cases() if c.arrays and not c.op.random]
# of these CuPy's result is another one that is right: signs and phases of vectors are free; a product's factors
FREE = {"eigh", "svd", "qr", "eig"}
DIGITS = 2.0**24  # a GPU's remainder has none left where the quotient exceeds this


def a_gpu_gives_the_cpus_numbers(case: Case) -> None:
    with np.errstate(all="ignore"):
        expected = case.eager()
        result = cuda.fetch(run_eager(case.op, [cuda.put(a, 0) for a in case.arrays], case.sample.attrs))
        if case.op.name in FREE:
            assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
            return
        if case.op.name in ("remainder", "floor_divide") and case.dtype.is_floating_point:
            quotient = np.abs(case.arrays[0].astype(np.float64) / case.arrays[1].astype(np.float64))
            result, expected = result[quotient < DIGITS], expected[quotient < DIGITS]
    if case.op.name.startswith(SUMS) and case.dtype in (dt.float16, dt.bfloat16):
        assert_near(result, expected)
    else:
        assert_same(result, expected, dt.of(expected))


@pytest.mark.parametrize("cases", by_op(CASES))
def test_a_gpu_gives_the_cpus_numbers(cases: tuple[Case, ...]) -> None:
    check_each(a_gpu_gives_the_cpus_numbers, cases)


@pytest.mark.parametrize("shape", [(), (7,), (1000, 1001)])
def test_a_gpu_draws_the_cpus_bits(shape: tuple[int, ...]) -> None:
    for numbers in ((5, 2, 1), (2**63 + 12345678901, 2**40 + 3, 0), (2**64 - 1, 2**64 - 1, 7)):
        key = np.array(numbers, np.uint64)
        for name in random_there.KERNELS:
            assert random_there._kernel(name) is not None, name
            there = cuda.fetch(random_there._made_there(name, key, shape, 4, 0))
            np.testing.assert_array_equal(there, random_there.on_host(name, key, shape, 4))
