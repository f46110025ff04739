"""Each op lowered alone and run by the loop-IR interpreter gives eager's numbers, NaN and infinity included."""

from __future__ import annotations

import numpy as np
import pytest
from cases import Case, all_cases, assert_same, by_op, check_each
from one_op_graphs import graph_of

from compiler_core.loop_ir.interpret import interpret_program
from compiler_core.schedule.from_graphs import lower_and_schedule

CASES = [c for c in all_cases() if c.variant != "strided"]


def interpreter_is_eager(case: Case) -> None:
    (program,) = lower_and_schedule([graph_of(case)])
    with np.errstate(all="ignore"):
        (result,) = interpret_program(program, list(case.arrays))
        assert_same(np.asarray(result).reshape(case.eager().shape), case.eager(), case.dtype)


@pytest.mark.parametrize("cases", by_op(CASES))
def test_loop_ir_interpreter_is_eager(cases: tuple[Case, ...]) -> None:
    check_each(interpreter_is_eager, cases)
