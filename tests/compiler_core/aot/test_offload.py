"""Which saved values wait in the host's memory, what graphs say of them, and where a program copies them."""

from __future__ import annotations

import pytest

from compiler_core.aot import offload
from compiler_core.config import config
from compiler_core.errors import GraphError
from compiler_core.graph.parse import parse_graph
from compiler_core.graph.print import print_graph
from compiler_core.graph.verify import verify
from compiler_core.loop_ir import ir
from compiler_core.lowering.target import GPU
from compiler_core.ops.host_copies import BEGINS, ENDS
from compiler_core.schedule.from_graphs import lower_and_schedule

FORWARD = """graph f(%x: f32[1024, 1024] input 'x', %w: f32[1024, 1024] parameter 'w') on cuda:0 {
  %a: f32[1024, 1024] = matmul(%x, %w)
  %b: f32[1024, 1024] = tanh(%a)
  %c: f32[1024, 1024] = matmul(%b, %w)
  %d: f32[1024, 1024] = tanh(%c)
  %e: f32[1024, 1024] = matmul(%d, %w)
  %f: f32[1024, 1024] = tanh(%e)
  %y: f32[1024, 1024] = matmul(%f, %w)
  host: outputs 1, 2, 3
  return %y, %b, %d, %f
}
"""
BACKWARD = """graph b(%p: f32[1024, 1024] hosted 'p', %q: f32[1024, 1024] hosted 'q', %t: f32[1024, 1024] tangent 't') on cuda:0 {
  %a: f32[1024, 1024] = matmul(%t, %t)
  %b: f32[1024, 1024] = matmul(%a, %p)
  %c: f32[1024, 1024] = matmul(%b, %b)
  %d: f32[1024, 1024] = matmul(%c, %q)
  return %d
}
"""  # noqa: E501


def program(text: str) -> ir.Program:
    with config.patch(verify=True):
        return lower_and_schedule([parse_graph(text)], "p", GPU)[0]


def touches(step: ir.Step, name: str) -> bool:
    return any(slot.buffer == name for slot in ir.slots_of(step))


@pytest.mark.parametrize("text", [FORWARD, BACKWARD])
def test_a_graphs_text_says_what_waits_in_the_host(text: str) -> None:
    graph = verify(parse_graph(text))
    assert print_graph(graph) == text
    assert graph.hosted == ((1, 2, 3) if text is FORWARD else ())


def test_a_place_that_is_not_there_is_an_error() -> None:
    with pytest.raises(GraphError, match="host lines name a place twice"):
        verify(parse_graph(FORWARD.replace("outputs 1, 2, 3", "outputs 1, 9")))


@pytest.mark.parametrize("text", [FORWARD, BACKWARD])
def test_copies_begin_where_they_may_and_end_where_they_must(text: str) -> None:
    found = program(text)
    steps = list(found.steps)
    kinds = {buffer.name: buffer.kind for buffer in found.buffers}
    values = {name.removesuffix("_in_host") for name in kinds if name.endswith("_in_host")}
    assert values == ({"b", "d", "f"} if text is FORWARD else {"p", "q"})
    for value in values:
        assert kinds[value] == "temp"
        assert kinds[f"{value}_in_host"] == ("output" if text is FORWARD else "input")
        mine = [k for k, step in enumerate(steps) if touches(step, value)]
        begin, end = (
            next(k for k in mine if isinstance(s := steps[k], ir.RoutineCall) and s.routine is routine)
            for routine in (BEGINS, ENDS)
        )
        others = [k for k in mine if k not in (begin, end)]
        assert begin < end
        if text is FORWARD:
            assert min(others) < begin  # its maker
        else:
            assert end < min(others)  # its reader


def test_memory_of_what_was_sent_is_the_programs_again() -> None:
    stays = program(FORWARD.replace("  host: outputs 1, 2, 3\n", ""))
    assert sum(b.nbytes for b in stays.buffers if b.kind == "output") == 4 * 4 << 20
    goes = program(FORWARD)
    assert goes.arena_nbytes < 4 * 4 << 20  # of a, b, c, d, e and f


def test_on_the_cpu_the_host_line_says_nothing() -> None:
    from compiler_core.lowering.target import CPU

    (made,) = lower_and_schedule([parse_graph(FORWARD.replace(" on cuda:0", ""))], "p", CPU)
    assert made.outputs == ("y", "b", "d", "f")


def test_what_goes_is_spread_over_the_forward() -> None:
    sizes = [4] * 16
    assert [*offload._spread(range(16), sizes, 14.0)] == [3, 7, 11]  # 14 of the 56 bytes that are early
    assert [*offload._spread(range(16), sizes, 28.0)] == [1, 3, 5, 7, 9, 11, 13]
    assert [*offload._spread(range(16), sizes, 1000.0)] == [*range(14)]
    assert [*offload._spread(range(16), sizes, 3.0)] == []
