"""Results in their operands' memory: when that is safe, and that it happens to temps only."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_core.dtype import float32
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import GraphBuilder
from compiler_core.loop_ir.aliasing import safe_pairs
from compiler_core.loop_ir.interpret import interpret_program
from compiler_core.loop_ir.ir import KernelCall
from compiler_core.loop_ir.parse import parse_kernel, parse_program
from compiler_core.loop_ir.print import print_program
from compiler_core.loop_ir.verify import verify_program
from compiler_core.lowering.target import GPU
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.registry import use_trace
from compiler_core.schedule.from_graphs import lower_and_schedule

HEAD = "kernel k(p0: f32[32] in, p1: f32[32] out)\n  for i0 in 4 parallel\n"


@pytest.mark.parametrize(
    ("body", "safe"),
    [
        ("    for i1 in 8 vector\n      p1[8*i0 + i1] = neg(p0[8*i0 + i1])", True),
        ("    for i1 in 8 vector\n      t0 = p0[8*i0 + i1]\n      p1[8*i0 + i1] = add(t0, p0[8*i0 + i1])", True),
        (
            "    acc a0: f32 sum\n    for i1 in 8 vector\n      a0 <- p0[8*i0 + i1]\n"
            "    for i1 in 8 vector\n      p1[8*i0 + i1] = div(p0[8*i0 + i1], a0)",
            True,
        ),
        ("    for i1 in 8 vector\n      p1[8*i0 + i1] = p0[i0 + 4*i1]", False),  # another element
        ("    for i1 in 8 vector\n      p1[8*i0 + i1] += p0[8*i0 + i1]", False),  # what stood there is needed
        (
            "    acc a0: f32 sum\n    for i1 in 8 vector\n      p1[8*i0 + i1] = neg(p0[8*i0 + i1])\n"
            "    for i1 in 8 vector\n      a0 <- p0[8*i0 + i1]",
            False,
        ),  # read again after the store
        ("    for i1 in 8 serial\n      p1[i1] = p0[i1]", False),  # stored in every row
        ("    for i1 in 8 vector\n      p1[8*i0 + i1] = p0[8*i0 + i1]\n    p1[8*i0] = f32(0.0)", False),  # twice
    ],
)
def test_which_pairs_are_safe(body: str, safe: bool) -> None:
    assert safe_pairs(parse_kernel(HEAD + body + "\n")) == ((("p1", "p0"),) if safe else ())


def test_nests_that_run_side_by_side_share_nothing() -> None:
    """The second's result in the first's operand would be written while that is read (schedule/batch.py)."""
    nest = "  for b0 in 1 serial\n    for i0 in 32 vector\n      {}[i0] = tanh({}[i0])\n"
    head = "kernel k(p0: f32[32] in, p1: f32[32] out, p2: f32[32] in, p3: f32[32] out)\n"
    kernel = parse_kernel(head + nest.format("p1", "p0") + nest.format("p3", "p2"))
    assert safe_pairs(kernel) == (("p1", "p0"), ("p3", "p2"))


def test_calls_made_one_launch_keep_their_operands_memory_apart() -> None:
    builder = GraphBuilder("g")
    x, w, y = (builder.placeholder(name, TensorMeta((128, 128), float32)) for name in "xwy")
    with use_trace(builder):  # the first operand dies where the second result is born
        graph = builder.build([prims.tanh(prims.matmul(x, w)), prims.matmul(prims.tanh(y), w)])
    (program,) = lower_and_schedule([graph], "g", GPU)
    assert [isinstance(step, KernelCall) for step in program.steps] == [False, True, False]
    operand, result = (buffer for buffer in program.buffers if buffer.kind == "temp")
    assert operand.offset != result.offset


def test_temps_take_over_memory_and_inputs_and_outputs_never_do() -> None:
    builder = GraphBuilder("g")
    x, w = (builder.placeholder(name, TensorMeta((32, 32), float32)) for name in "xw")
    with use_trace(builder):
        h = prims.tanh(F.matmul(x, w))  # overwrites the product
        g = F.softmax(F.matmul(h, w), 1)  # reads its product three times: no
        graph = builder.build([F.matmul(g, w), prims.neg(x)])
    (program,) = lower_and_schedule([graph])
    arrays = [np.random.default_rng(k).standard_normal((32, 32)).astype(np.float32) for k in range(2)]
    for result, wanted in zip(interpret_program(program, arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(result.reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-5)
    offsets = {buffer.name: buffer.offset for buffer in program.buffers if buffer.kind == "temp"}
    assert offsets["tanh"] == offsets["matmul"]
    assert program.arena_nbytes <= 3 * (32 * 32 * 4 + 4096)


def test_an_input_that_the_caller_gave_up_is_taken_over() -> None:
    builder = GraphBuilder("g")
    metas = TensorMeta((32, 32), float32)
    x, w = builder.placeholder("x", metas, role="spent"), builder.placeholder("w", metas)
    with use_trace(builder):
        graph = builder.build([F.matmul(prims.tanh(x), w), F.matmul(w, w)])
    (program,) = lower_and_schedule([graph])
    assert print_program(parse_program(print_program(program))) == print_program(program)
    verify_program(program)
    assert [buffer.kind for buffer in program.buffers[:2]] == ["spent", "input"]
    assert "tanh" not in {buffer.name for buffer in program.buffers}
    assert program.arena_nbytes == 0
    arrays = [np.random.default_rng(k).standard_normal((32, 32)).astype(np.float32) for k in range(2)]
    for result, wanted in zip(interpret_program(program, arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_allclose(result.reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-5)
