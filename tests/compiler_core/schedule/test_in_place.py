"""Results in their operands' memory: when that is safe, and that it happens to temps only."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_core.dtype import float32
from compiler_core.graph.interpret import interpret
from compiler_core.graph.ir import GraphBuilder
from compiler_core.loop_ir.aliasing import safe_pairs
from compiler_core.loop_ir.interpret import interpret_program
from compiler_core.loop_ir.parse import parse_kernel
from compiler_core.lowering.lower import lower_and_schedule
from compiler_core.meta import TensorMeta
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.registry import use_trace

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
