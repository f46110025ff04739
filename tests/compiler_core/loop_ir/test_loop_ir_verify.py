"""Each invariant of the loop IR has a kernel or program that breaks it, and the verifier says how."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compiler_core.dtype import DType, float32, float64, int32
from compiler_core.errors import GraphError
from compiler_core.loop_ir import expr as x
from compiler_core.loop_ir import ir
from compiler_core.loop_ir.parse import parse_kernel
from compiler_core.loop_ir.verify import verify_kernel, verify_program
from compiler_core.ops.routine import ROUTINES, Strided
from compiler_core.symbolic.index import ZERO, Data, named_axis, of_axis, of_data

HEAD = "kernel k(p0: f32[8] in, p1: f32[8] out, p2: f64[8] in, p3: f16[8] in)\n"


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("  for i0 in 8 vector\n    p0[i0] = p0[i0]", "not a writable array"),
        ("  for i0 in 8 vector\n    p1[0] = p0[i0]", "store to one address"),
        ("  for i0 in 8 parallel\n    for i1 in 2 serial\n      p1[i1] = p0[i0]", "store to one address"),
        ("  for i0 in 8 vector\n    p1[i0] = p2[i0]", "a f64 value stored to f32"),
        ("  for i0 in 8 vector\n    p1[i0] = cast(add(p2[i0], cast(p0[i0], f32)), f32)", "argument dtypes differ"),
        ("  for i0 in 8 vector\n    p1[i0] = cast(neg(p3[i0]), f32)", "arithmetic on f16"),
        (
            "  for i0 in 8 vector\n    t0 = cast(p0[i0], i64)\n    check index_ge(t0, 0), 'no'\n    p1[i0] = p0[t0]",
            "not allowed in a vector loop: places depend on it",
        ),
        ("  for i0 in 8 vector\n    for i1 in 8 serial\n      p1[i0] = p0[i1]", "not allowed in a vector loop"),
        ("  for i0 in 8 serial\n    p1[i1] = p0[i0]", "neither an axis nor an integer"),
        ("  t0 = p0[0]\n  t0 = p0[1]", "declared twice"),
        ("  acc a0: f32 sum\n  for i0 in 8 vector\n    a0 <- p0[i0]\n    p1[i0] = a0", "can be read here"),
        ("  acc a0: f32 sum\n  for i0 in 8 serial\n    a0 <- p0[i0] at i0", "a place is for argmax"),
        ("  acc a0: f32 argmax_nan\n  for i0 in 8 vector\n    a0 <- p0[i0] at i0", "does not vectorise"),
        ("  t0 = p0[0]\n  for i0 in 8 serial\n    t0 <- p0[i0]", "not an accumulator"),
        ("  acc a0: f64 sum\n  for i0 in 8 serial\n    a0 <- p0[i0]", "a0 is f64"),
        ("  p1[0] = where(p0[0], p0[1], p0[2])", "where takes a bool"),
        ("  check p0[0], 'no'", "not bool"),
    ],
)
def test_a_broken_kernel_is_refused(body: str, complaint: str) -> None:
    with pytest.raises(GraphError, match=complaint):
        verify_kernel(parse_kernel(HEAD + body + "\n"))


def test_an_unknown_scalar_unnamed_data_and_the_axis_of_no_loop_are_refused() -> None:
    param, axis = ir.Param("p0", float32, 8, "inout"), named_axis("i0", 8)
    other = x.Load("p0", of_axis(named_axis("i0", 4)), float32)
    with pytest.raises(GraphError, match="neither an axis"):
        verify_kernel(ir.Kernel("k", (param,), (ir.Loop(axis, "serial", (ir.Store("p0", of_axis(axis), other),)),)))
    unnamed = of_data(Data(x.Const(1, int32)))
    with pytest.raises(GraphError, match="reads what has no name"):
        verify_kernel(ir.Kernel("k", (param,), (ir.Store("p0", unnamed, x.Const(1.0, float32)),)))
    call = x.ScalarCall("frobnicate", (x.Const(1.0, float32),), float32)
    with pytest.raises(GraphError, match="no scalar function"):
        verify_kernel(ir.Kernel("k", (param,), (ir.Store("p0", ZERO, call),)))


COPY = parse_kernel("kernel copy(p0: f32[8] in, p1: f32[8] out)\n  for i0 in 8 vector\n    p1[i0] = p0[i0]\n")
X, Y = ir.Buffer("x", float32, 8, "input"), ir.Buffer("y", float32, 8, "output")
GOOD = ir.Program("p", (X, Y), (ir.KernelCall(COPY, (ir.Slot("x"), ir.Slot("y"))),), ("x",), ("y",))


def test_a_vector_loop_may_check_values() -> None:
    body = "  for i0 in 8 vector\n    check gt(p0[i0], f32(0.0)), 'no'\n    p1[i0] = p0[i0]\n"
    verify_kernel(parse_kernel(f"{HEAD}{body}"))


def matrix(buffer: str, offset: int = 0, dtype: DType = float32, strides: tuple[int, int] = (2, 1)) -> ir.View:
    return ir.View(ir.Slot(buffer, offset), Strided(dtype, (2, 2), strides))


GEMM = ir.RoutineCall(ROUTINES["gemm"], (matrix("x"), matrix("x", 4)), matrix("y"), (("alpha", 1.0), ("beta", 0.0)))
WHOLE = replace(GEMM, operands=(matrix("x", dtype=int32),) * 2)


def test_good_programs_pass() -> None:
    verify_program(GOOD)
    verify_program(replace(GOOD, steps=(GEMM,)))


@pytest.mark.parametrize(
    ("program", "complaint"),
    [
        (replace(GOOD, buffers=(X, X, Y)), "two buffers of one name"),
        (replace(GOOD, outputs=("z",)), "no buffer"),
        (replace(GOOD, outputs=("x",)), "aliases"),
        (replace(GOOD, buffers=(X, Y, ir.Buffer("t", float32, 8, "temp", 8)), arena_nbytes=64), "outside the arena"),
        (replace(GOOD, steps=(ir.KernelCall(COPY, (ir.Slot("x"),)),)), "takes 2 slots"),
        (replace(GOOD, steps=(ir.KernelCall(COPY, (ir.Slot("x", 1), ir.Slot("y"))),)), "does not suit"),
        (replace(GOOD, steps=(ir.KernelCall(COPY, (ir.Slot("y"), ir.Slot("x"))),)), "does not suit"),
        (replace(GOOD, buffers=(replace(X, dtype=int32), Y), steps=(WHOLE,)), "does not accept"),
        (replace(GOOD, steps=(replace(GEMM, result=matrix("y", dtype=float64)),)), "leaves its buffer"),
        (replace(GOOD, steps=(replace(GEMM, operands=(matrix("x", strides=(2, 2)),) * 2),)), "does not accept"),
        (replace(GOOD, steps=(replace(GEMM, result=matrix("y", strides=(1, 2))),)), "does not accept"),
        (replace(GOOD, steps=(replace(GEMM, operands=(matrix("x", 6),) * 2),)), "leaves its buffer"),
    ],
)
def test_a_broken_program_is_refused(program: ir.Program, complaint: str) -> None:
    with pytest.raises(GraphError, match=complaint):
        verify_program(program)


def test_params_that_share_memory_unsafely_are_refused() -> None:
    flip = parse_kernel("kernel f(p0: f32[8] in, p1: f32[8] out)\n  for i0 in 8 vector\n    p1[i0] = p0[7 - i0]\n")
    buffers = (X, Y, ir.Buffer("t", float32, 8, "temp", 0), ir.Buffer("u", float32, 8, "temp", 0))
    steps = [ir.KernelCall(COPY, (ir.Slot(a), ir.Slot(b))) for a, b in ("xt", "tu", "uy")]
    verify_program(replace(GOOD, buffers=buffers, steps=tuple(steps), arena_nbytes=64))
    steps[1] = ir.KernelCall(flip, steps[1].slots)
    with pytest.raises(GraphError, match="share memory unsafely"):
        verify_program(replace(GOOD, buffers=buffers, steps=tuple(steps), arena_nbytes=64))
