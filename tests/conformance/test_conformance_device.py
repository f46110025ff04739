"""Each op on a stand-in for a CUDA device (tests/fake_cupy): the CPU's numbers, from rules that CuPy can run."""

from __future__ import annotations

import numpy as np
import pytest
from cases import Case, all_cases, assert_same, check_each

from compiler_core import cuda
from compiler_core import dtype as dt
from compiler_core.ops.registry import run_eager
from tests.fake_cupy import on_fake_device

CASES = [c for c in all_cases() if c.arrays]


def on_device_is_as_on_the_cpu(case: Case) -> None:
    with np.errstate(all="ignore"):
        expected = case.eager()
        operands = [cuda.put(a, 1) if number or not case.op.random else a for number, a in enumerate(case.arrays)]
        if case.op.random:
            return
        result = run_eager(case.op, operands, case.sample.attrs)
    assert cuda.is_array(result)
    assert result.device.id == 1
    assert_same(cuda.fetch(result), expected, dt.of(expected))


@pytest.mark.filterwarnings("ignore:.*is computed on the CPU")
def test_every_op_gives_on_a_device_what_it_gives_on_the_cpu() -> None:
    with on_fake_device():
        check_each(on_device_is_as_on_the_cpu, CASES)
