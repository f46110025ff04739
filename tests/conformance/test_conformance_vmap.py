"""Every op's vmap rule against the op on each example by itself, for every choice of operands that have the batch."""

from __future__ import annotations

import itertools
import zlib

import numpy as np
import pytest
from cases import Case, all_cases, assert_near, by_op, check_each, operands

from compiler_core.dtype import bool_, complex64, float32, int64
from compiler_core.errors import GraphBreak
from compiler_core.ops.batching.running import one_by_one, run_batched
from compiler_core.ops.batching.value import Batched, Level
from compiler_core.ops.registry import OPS

SIZE = 3
# ops that run once for each example: they have no operand, are put into graphs by passes alone, draw by a key, or are
# a program's own
WITHOUT_RULE = """
full iota philox convolution_last convolution_last_input convolution_last_weight
convolution_inner convolution_inner_input convolution_inner_weight pool_max_inner pool_max_put_inner
gradient_boundary opaque_backward program_operator
"""
REFUSED = {"send", "receive"}  # a message of each example
DTYPES = (float32, int64, bool_, complex64)
CASES = [c for c in all_cases() if c.variant == "plain" and c.arrays and (c.dtype in DTYPES or len(c.op.dtypes) < 3)]


def by_rule_is_one_by_one(case: Case) -> None:
    if case.op.vmap is None:
        return
    if case.op.name in REFUSED:
        with pytest.raises(GraphBreak, match="each example"):
            run_batched(case.op, [Batched(case.arrays[0][None], Level(1))], case.sample.attrs)
        return
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    rows = [case.arrays, *(operands(rng, case.sample, case.dtype) for _ in range(SIZE - 1))]
    stacked = [np.stack(column) for column in zip(*rows, strict=True)]
    places = range(len(stacked))
    chosen = [set(places), *({k} for k in places), *(set(places) - {k} for k in places)]
    for which in [c for c, _ in itertools.groupby(chosen) if c]:
        level = Level(SIZE)
        flags = [k in which for k in places]
        values = [x if flag else x[0] for x, flag in zip(stacked, flags, strict=True)]
        given = [Batched(x, level) if flag else x for x, flag in zip(values, flags, strict=True)]
        got = run_batched(case.op, given, case.sample.attrs)
        expected = one_by_one(case.op, SIZE, flags, values, case.sample.attrs)
        assert got.level is level
        assert_near(got.value, expected)


@pytest.mark.filterwarnings("ignore:vmap")
@pytest.mark.parametrize("cases", by_op(CASES))
def test_a_rule_is_the_op_on_each_example(cases: tuple[Case, ...]) -> None:
    check_each(by_rule_is_one_by_one, cases)


def test_which_ops_have_no_rule() -> None:
    registered = {name for name, op in OPS.items() if op.vmap is None}
    assert registered == set(WITHOUT_RULE.split())
