"""Random graphs: the interpreted Program gives the interpreted Graph's numbers, fused and one kernel a node."""

from __future__ import annotations

import numpy as np
import pytest
from schedule_graphs import random_graph

from compiler_core.config import config
from compiler_core.graph.interpret import interpret
from compiler_core.loop_ir.interpret import interpret_program
from compiler_core.loop_ir.parse import parse_program
from compiler_core.loop_ir.print import print_program
from compiler_core.loop_ir.verify import verify_program
from compiler_core.schedule.from_graphs import lower_and_schedule


@pytest.mark.parametrize("fusion", [True, False])
@pytest.mark.parametrize("seed", range(100))
def test_random_graph(seed: int, fusion: bool) -> None:
    graph, arrays = random_graph(seed)
    with config.patch(fusion=fusion):
        (program,) = lower_and_schedule([graph])
    verify_program(program)
    assert print_program(parse_program(print_program(program))) == print_program(program)
    for result, wanted in zip(interpret_program(program, arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(result.reshape(wanted.shape), wanted, rtol=2e-4, atol=2e-5, err_msg=str(graph))
