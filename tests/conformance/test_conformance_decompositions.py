"""Each op that decomposes, written with core ops alone: eager's numbers, on the samples of its block.

The composition may be a few units off where the op is exact to one (`SLACK`).
"""

from __future__ import annotations

import numpy as np
import pytest
from cases import Case, all_cases, assert_same, by_op, check_each, tolerance
from one_op_graphs import graph_of

from compiler_core import dtype as dt
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import Graph
from compiler_core.graph.passes import Decompose
from compiler_core.graph.verify import verify
from compiler_core.ops.registry import OPS
from compiler_core.ops.rules import Core, Decomposed, OwnCode

SLACK = 8  # times the tolerance of one op
DTYPES = (dt.float64, dt.float32, dt.bfloat16, dt.int64, dt.int32, dt.uint8, dt.bool_, dt.complex64)
CASES = [c for c in all_cases() if isinstance(c.op.engines, Decomposed) and c.dtype in DTYPES]


def leaves(graph: Graph) -> set[str]:
    """The ops of a graph that are not of the core set."""
    return {call.op.name for call in graph.calls if not isinstance(call.op.engines, Core)}


def check(case: Case) -> None:
    graph = graph_of(case)
    written = Decompose().apply(graph)
    verify(written)
    if case.dtype.is_complex and written is not graph and leaves(written) == {case.op.name}:
        return  # the composition is of real numbers
    assert leaves(written) <= {name for name, op in OPS.items() if isinstance(op.engines, OwnCode)}, leaves(written)
    with np.errstate(all="ignore"):
        (result,), expected = interpret(written, list(case.arrays)), case.eager()
    if expected.dtype.kind in "biu":
        assert_same(result, expected, case.dtype)
        return
    relative, absolute = (SLACK * t for t in tolerance(case.dtype))
    wide = [x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (result, expected)]
    assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
    largest = np.max(np.abs(wide[1]), initial=0.0, where=np.isfinite(wide[1])) if case.op.name.startswith("conv") else 0
    np.testing.assert_allclose(*wide, rtol=relative, atol=absolute + relative * largest, equal_nan=True)


@pytest.mark.parametrize("cases", by_op(CASES))
def test_a_decomposition_is_its_op(cases: tuple[Case, ...]) -> None:
    check_each(check, cases)


def test_the_core_set_is_small() -> None:
    assert 50 <= sum(isinstance(op.engines, Core) for op in OPS.values()) <= 64


def test_a_decomposition_that_an_engine_does_not_take_is_not_made() -> None:
    graph = graph_of(next(c for c in CASES if c.op.name == "log1p" and c.dtype is dt.float32))
    whole = Decompose(lambda call: call.op.name != "log").apply(graph)
    assert [call.op.name for call in whole.calls] == ["log1p"]
    kept = Decompose(lambda call: True).apply(graph)
    assert kept is graph
