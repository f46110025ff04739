"""Loops over short rows go by several rows side by side, where and only where the rows may be taken so."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from native_harness import I0, I1, assert_close, check, compile_programs, kernel_of, over, program_of

from compiler_core.codegen.cpp.side_by_side import SideBySide, find_side_by_side
from compiler_core.codegen.cpp.statements import KernelPrinter
from compiler_core.dtype import DType, bfloat16, bool_, float16, float32, float64, int64
from compiler_core.errors import IndexError_
from compiler_core.loop_ir.expr import Cast, Const, Expr, IndexCompare, IndexValue, Load, ScalarCall, Var, Where
from compiler_core.loop_ir.interpret import interpret_program
from compiler_core.loop_ir.ir import Accumulate, Accumulator, Check, Kernel, Let, Local, Loop, LoopKind, Stmt, Store
from compiler_core.symbolic.index import Scalar, constant, of_scalar


def call(name: str, *args: Expr) -> Expr:
    return ScalarCall(name, args, args[0].dtype)


def softmax(rows: int, n: int, dtype: DType = float32, kind: LoopKind = "parallel") -> Kernel:
    """out[i0, i1] = softmax(p0[i0])[i1], by a scratch array; 16-bit floats through float32."""
    wide = float32 if dtype.itemsize == 2 else dtype

    def as_wide(value: Expr) -> Expr:
        return value if wide is dtype else Cast(value, wide)

    place = n * I0 + I1
    ratio = call("div", Load("s0", I1, wide), Var("a1", wide))
    body = [
        Accumulator("a0", dtype, "max"),
        over("i1", n, "vector", (Accumulate("a0", Load("p0", place, dtype)),)),
        Local("s0", wide, n),
        Accumulator("a1", wide, "sum"),
        over("i1", n, "vector", (
            Let("t0", call("exp", call("sub", as_wide(Load("p0", place, dtype)), as_wide(Var("a0", dtype))))),
            Store("s0", I1, Var("t0", wide)),
            Accumulate("a1", Var("t0", wide)),
        )),
        over("i1", n, "vector", (Store("out", place, ratio if wide is dtype else Cast(ratio, dtype)),)),
    ]  # fmt: skip
    return kernel_of([dtype], [rows * n], dtype, rows * n, [over("i0", rows, kind, body)])


def found_in(kernel: Kernel) -> SideBySide | None:
    (loop,) = kernel.body
    assert isinstance(loop, Loop)
    return find_side_by_side(loop, {p.name: p for p in kernel.params})


@pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16], ids=lambda d: d.short)
@pytest.mark.parametrize(("rows", "n"), [(32, 10), (37, 3), (100, 16), (47, 1)])
def test_softmax_of_short_rows(rows: int, n: int, dtype: DType, tmp_path, rng) -> None:
    kernel = softmax(rows, n, dtype)
    assert found_in(kernel) is not None
    x = rng.normal(size=rows * n)
    x[3] = np.nan
    check(program_of(kernel), [x.astype(dtype.numpy)], tmp_path, ulp=16)


def test_threads_give_the_same_bits(tmp_path, rng) -> None:
    kernel, x = softmax(5003, 10), rng.normal(size=50030).astype(np.float32)
    assert "dc_parallel(313, 1" in KernelPrinter(kernel, lambda message: 0).text("k")
    one, two = (compile_programs([program_of(kernel)], tmp_path, threads=n)[0]([x])[0] for n in (1, 2))
    np.testing.assert_array_equal(one, two)
    assert_close(one, interpret_program(program_of(kernel), [x])[0], ulp=16)


def chosen(rows: int, classes: int) -> Kernel:
    """out[0] = the sum of p0[i0, p1[i0]] less the row's maximum, as cross entropy has it; p1 is checked."""
    label = Load("p1", I0, int64)
    holds = [IndexCompare(op, of_scalar(Scalar("t0")), constant(end)) for op, end in (("ge", 0), ("lt", classes))]
    is_it = call("eq", IndexValue(I1, int64), Var("t0", int64))
    one = Where(is_it, Load("p0", classes * I0 + I1, float32), Const(0.0, float32))
    body = [
        Let("t0", label),
        *(Check(condition, "no such class") for condition in holds),
        Accumulator("a0", float32, "max"),
        Accumulator("a1", float32, "sum"),
        over(
            "i1",
            classes,
            "vector",
            (Accumulate("a0", Load("p0", classes * I0 + I1, float32)), Accumulate("a1", one)),
        ),
        Store("out", constant(0), call("sub", Var("a1", float32), Var("a0", float32)), "add"),
    ]
    start = Store("out", constant(0), Const(0.0, float32))
    kernel = kernel_of([float32, int64], [rows * classes, rows], float32, 1, [over("i0", rows, "serial", body)])
    return Kernel(kernel.name, kernel.params, (start, *kernel.body))


def test_what_rows_combine_is_combined_in_order(tmp_path, rng) -> None:
    kernel = chosen(70, 7)
    assert "_tile" in KernelPrinter(kernel, lambda message: 0).text("k")
    x, labels = rng.normal(size=490).astype(np.float32), rng.integers(0, 7, 70)
    check(program_of(kernel), [x, labels], tmp_path, ulp=0)


@pytest.mark.parametrize("place", [0, 20, 69])
def test_failed_checks(place: int, tmp_path, rng) -> None:
    (native,) = compile_programs([program_of(chosen(70, 7))], tmp_path)
    labels = rng.integers(0, 7, 70)
    labels[place] = 7
    with pytest.raises(IndexError_, match="no such class"):
        native([rng.normal(size=490).astype(np.float32), labels])


def rows_of(statements: Sequence[Stmt], rows: int = 64, n: int = 10, kind: LoopKind = "serial") -> Kernel:
    """A loop over rows that exponentiates p0 into out and does `statements`."""
    row = over("i1", n, "vector", (Store("out", n * I0 + I1, call("exp", Load("p0", n * I0 + I1, float32))),))
    loop = over("i0", rows, kind, (row, *statements))
    return kernel_of([float32, int64], [4096] * 2, float32, 4096, [loop])


X = Load("p0", 10 * I0 + I1, float32)
LEFT: dict[str, Kernel] = {
    "few rows": rows_of([], rows=31),
    "long rows": rows_of([], n=17),
    "rows that read what they store": rows_of([Let("t0", Load("out", I0, float32))]),
    "rows that store to one place": rows_of([Store("out", constant(0), Load("p0", I0, float32))]),
    "columns": rows_of([over("i1", 10, "vector", (Store("out", I1, X, "add"),))]),
    "an accumulator around": rows_of([over("i1", 10, "vector", (Accumulate("a9", X),))]),
    "places": rows_of([Accumulator("a0", float32, "argmax"), over("i1", 10, "vector", (Accumulate("a0", X, I1),))]),
    "loops in loops": rows_of([over("i1", 4, "serial", (over("i2", 4, "vector", (Let("t0", X),)),))]),
}


def test_what_they_add_to_is_side_by_side() -> None:
    assert found_in(rows_of([])) is not None


@pytest.mark.parametrize("kernel", LEFT.values(), ids=LEFT)
def test_what_is_left_as_it_is(kernel: Kernel) -> None:
    assert found_in(kernel) is None


def test_sums_alone_are_left_unless_rows_turn_by_shuffles() -> None:
    def sums(n: int) -> Kernel:
        row = over("i1", n, "vector", (Accumulate("a0", Load("p0", n * I0 + I1, float32)),))
        body = (Accumulator("a0", float32, "sum"), row, Store("out", I0, Var("a0", float32)))
        return kernel_of([float32], [64 * n], float32, 64, [over("i0", 64, "parallel", body)])

    assert [n for n in range(2, 17) if found_in(sums(n)) is not None] == [4, 8, 16]


def test_loads_at_places_of_the_row_are_not_read_ahead(tmp_path, rng) -> None:
    """p0[10 * p1[i0] + i1]: known only when p1 has been read, and checked."""
    at = of_scalar(Scalar("t0", 0, 63))
    moved = Load("p0", 10 * at + I1, float32)
    body = [
        Let("t0", Load("p1", I0, int64)),
        Check(IndexCompare("lt", at, constant(64)), "too far"),
        over("i1", 10, "vector", (Store("out", 10 * I0 + I1, call("add", call("exp", moved), X)),)),
    ]
    kernel = kernel_of([float32, int64], [640, 64], float32, 640, [over("i0", 64, "serial", body)])
    found = found_in(kernel)
    assert found is not None
    assert [load.index.names for load in found.loads] == [{"i0", "i1"}]
    check(program_of(kernel), [rng.random(640).astype(np.float32), rng.permutation(64)], tmp_path, ulp=4)


def test_truth_values(tmp_path, rng) -> None:
    row = over("i1", 6, "vector", (Accumulate("a0", Load("p0", 6 * I0 + I1, bool_)),))
    body = (Accumulator("a0", bool_, "max"), row, Store("out", I0, Var("a0", bool_)))
    kernel = kernel_of([bool_], [300], bool_, 50, [over("i0", 50, "parallel", body)])
    assert found_in(kernel) is not None
    check(program_of(kernel), [rng.random(300) < 0.2], tmp_path)


def test_text_of_a_softmax(golden) -> None:
    golden("cpp_side_by_side.cpp", KernelPrinter(softmax(40, 10), lambda message: 0).text("k_softmax"))
