"""Each op on a stand-in for a CUDA device (tests/fake_cupy): the CPU's numbers, from rules that CuPy can run."""

from __future__ import annotations

import numpy as np
import pytest
from cases import Case, all_cases, assert_same, check_each

from compiler_core import cuda
from compiler_core import dtype as dt
from compiler_core.ops.registry import run_eager
from compiler_core.ops.rules import Pointwise
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


def numbers_of_the_host_may_stand_beside(case: Case) -> None:
    """Each operand in turn is one number of the host, repeated, which a pointwise kernel is handed as a number."""
    for place, array in enumerate(case.arrays):
        repeated = np.broadcast_to(array.reshape(-1)[:1], array.shape) if array.ndim else array
        operands = [repeated if number == place else a for number, a in enumerate(case.arrays)]
        with np.errstate(all="ignore"):
            expected = run_eager(case.op, list(map(np.array, operands)), case.sample.attrs)
            there = [a if number == place else cuda.put(a, 1) for number, a in enumerate(operands)]
            result = run_eager(case.op, there, case.sample.attrs)
        assert_same(cuda.fetch(result), expected, dt.of(expected))


@pytest.mark.filterwarnings("ignore:.*is computed on the CPU")
def test_numbers_of_the_host_beside_operands_of_a_device() -> None:
    pointwise = [c for c in CASES if isinstance(c.op.lower, Pointwise) and len(c.arrays) > 1 and c.arrays[0].size]
    assert len(pointwise) > 100
    with on_fake_device():
        check_each(numbers_of_the_host_may_stand_beside, pointwise)
