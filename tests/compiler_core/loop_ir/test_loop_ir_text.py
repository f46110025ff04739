"""Loop IR round-trips through its text, and text that does not fit is refused with the line that does not."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_core.dtype import bool_, float32, int64
from compiler_core.errors import GraphError
from compiler_core.loop_ir import expr as x
from compiler_core.loop_ir import ir
from compiler_core.loop_ir.parse import parse_kernel, parse_program
from compiler_core.loop_ir.print import print_kernel, print_program
from compiler_core.loop_ir.verify import verify_kernel
from compiler_core.ops.routine import ROUTINES, Strided
from compiler_core.symbolic.index import named_axis, of_axis

SOFTMAX = """\
kernel softmax(p0: f32[4096] in, p1: f32[4096] out)
  for i0 in 32 parallel
    acc a0: f32 max
    for i1 in 128 vector
      a0 <- p0[128*i0 + i1]
    local s0: f32[128]
    acc a1: f32 sum
    for i1 in 128 vector
      t0 = exp(sub(p0[128*i0 + i1], a0))
      s0[i1] = t0
      a1 <- t0
    for i1 in 128 vector
      p1[128*i0 + i1] = div(s0[i1], a1)
"""

EVERYTHING = """\
kernel everything(p0: f32[8] in, p1: i64[4] in, p2: f32[8] out, p3: f32[1] inout)
  acc a0: f32 argmax
  for i0 in 4 serial
    t0 = p1[i0]
    check index_ge(t0, 0), 'take: index out of range'
    t1 = where(index_lt(i0, 3), p0[t0], f32(-inf))
    a0 <- t1 at i0
    p2[2*i0 + (i0 + 1)//4 + i0%2] = cast(index_value(i0 + 1, i64), f32)
    p3[0] += t1
    p3[0] max= f32(nan)
  p2[0] = cast(a0, f32)
"""


@pytest.mark.parametrize("text", [SOFTMAX, EVERYTHING])
def test_kernel_text_round_trips(text: str) -> None:
    kernel = parse_kernel(text)
    assert print_kernel(kernel) == text
    verify_kernel(kernel)


def test_the_example_in_the_docstring_is_the_language() -> None:
    assert ir.__doc__ is not None
    assert "\n".join(f"    {line}" for line in SOFTMAX.splitlines()) in ir.__doc__


def test_program_text_round_trips() -> None:
    kernel = parse_kernel(SOFTMAX)
    buffers = (
        ir.Buffer("x", float32, 4096, "input"),
        ir.Buffer("y", float32, 4096, "output"),
        ir.Buffer("w", float32, 3, "constant", array=np.array([1.0, 2.5, -3.0], np.float32)),
        ir.Buffer("mask", bool_, 40, "constant", array=np.arange(40) % 3 == 0),
        ir.Buffer("t", float32, 4096, "temp", 64),
    )
    layout = Strided(float32, (4, 32, 32), (1024, 32, 1))
    matrix, scale = ir.View(ir.Slot("x", 64), layout), ir.View(ir.Slot("w", 2), Strided(float32, (), ()))
    attrs = (("alpha", 0.125), ("beta", 1.0))
    gemm = ir.RoutineCall(ROUTINES["gemm"], (matrix, matrix, scale), ir.View(ir.Slot("t"), layout), attrs)
    call = ir.KernelCall(kernel, (ir.Slot("t"), ir.Slot("y")), "%y = softmax")
    program = ir.Program("main", buffers, (gemm, call), ("x",), ("y",), 64 + 4 * 4096)
    again = parse_program(print_program(program))
    assert print_program(again) == print_program(program)
    assert again.kernels == program.kernels
    assert again.steps[0] == gemm
    mask = again.buffer("mask").array
    assert mask is not None
    np.testing.assert_array_equal(mask, buffers[3].array)
    assert "%y = softmax" in print_program(program, notes=True)


def test_an_index_prints_in_python_syntax() -> None:
    i, j = of_axis(named_axis("i0", 8)), of_axis(named_axis("i1", 8))
    kernel = ir.Kernel(
        "k",
        (ir.Param("p0", int64, 99, "out"),),
        (ir.Store("p0", (3 * i - j) // 4 % 5, x.Const(1, int64)),),
    )
    assert "p0[((3*i0 - i1)//4)%5] = i64(1)" in print_kernel(kernel)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("p1[0] = frob(p0[0])", "unknown dtype name"),
        ("p1[0] = q[0]", "undeclared"),
        ("p1[0] = add(p0[0], )(", "not an expression"),
        ("p1[1.5] = p0[0]", "not an index"),
        ("whatever", "not a statement"),
    ],
)
def test_text_that_does_not_fit_is_refused(line: str, complaint: str) -> None:
    with pytest.raises((GraphError, TypeError), match=complaint):
        parse_kernel(f"kernel k(p0: f32[1] in, p1: f32[1] out)\n  {line}\n")


@pytest.mark.parametrize("text", ["", "program p\n  fly away\n", "program p\n  call k(x)\n"])
def test_programs_that_do_not_fit_are_refused(text: str) -> None:
    with pytest.raises(GraphError):
        parse_program(text)
