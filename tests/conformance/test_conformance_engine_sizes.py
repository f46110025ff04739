"""Each op with sizes that the call decides, through engines that take such graphs: the numbers of the interpreter.

One program serves the sample's sizes and others. What an engine takes at constant sizes alone is compiled for each;
of the core set that is named (`LEFT`), so that it cannot pass by refusing.
"""

from __future__ import annotations

import numpy as np
import pytest
from cases import Case, all_cases, by_op, check_each
from test_conformance_engines import CORE, PLACES, assert_equal, engine
from test_conformance_sizes import Symbolic, _arrays

from compiler_core.backend import Run
from compiler_core.dtype import float32
from compiler_core.graph.interpret import interpret

MADE = {"full", "expand", "iota"}  # alone, their size is no dim of an input
BITS = {"bitwise_and", "bitwise_or", "bitwise_xor"}  # their samples are of i64
LEFT = {
    "onnxrt": {"complex", "iota"},
    "openvino": {"complex", *MADE, *BITS, *PLACES, "remainder", "floor_divide", "convolution"},  # the kernels change
}


def _first_of_each_sample() -> list[Case]:
    """Of f32, where there is such."""
    found: dict[tuple[str, str], Case] = {}
    for case in all_cases():
        key = (case.op.name, case.name.split("-")[1])
        if case.variant == "plain" and (key not in found or case.dtype is float32):
            found[key] = case
    return list(found.values())


CASES = _first_of_each_sample()


def program(name: str, case: Case) -> tuple[Symbolic, Run | None]:
    made = Symbolic(case)
    graph = made.graph()
    made.sizes.close()
    return made, engine(name).for_all_sizes(graph)


def check(name: str, case: Case) -> None:
    made, run = program(name, case)
    if run is None:
        return
    for numbers in [made.hints, *made.others()]:
        sized = made.graph_at(numbers)
        arrays = _arrays(case, sized, numbers == made.hints)
        if arrays is None:
            continue
        with np.errstate(all="ignore"):
            expected = interpret(sized, arrays)
        for result, right in zip(run(*arrays), expected, strict=True):
            assert_equal(np.asarray(result), np.asarray(right))


@pytest.mark.filterwarnings("ignore:.*is run by our own code")
@pytest.mark.parametrize("cases", by_op(CASES))
@pytest.mark.parametrize("name", LEFT)
def test_one_program_serves_all_sizes(name: str, cases: tuple[Case, ...]) -> None:
    engine(name)
    check_each(lambda case: check(name, case), cases)


@pytest.mark.parametrize("name", LEFT)
def test_an_engine_takes_symbols_of_the_core_set(name: str) -> None:
    engine(name)
    taken = {case.op.name for case in CASES if case.op.name in CORE and program(name, case)[1] is not None}
    assert CORE - taken == LEFT[name]
