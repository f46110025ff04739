"""Each statement of the loop IR: C++ equals the interpreter, and its text is what a reader expects."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from native_harness import (
    I0,
    I1,
    I2,
    assert_close,
    bound,
    check,
    compile_programs,
    kernel_of,
    over,
    pointwise,
    program_of,
)

from compiler_core.codegen.cpp.index import CppIndexPrinter
from compiler_core.codegen.cpp.statements import PLACE_BLOCK, SUM_BLOCK, KernelPrinter
from compiler_core.dtype import ALL, DType, bfloat16, bool_, float16, float32, float64, int32, int64, uint8
from compiler_core.errors import DomainError, IndexError_
from compiler_core.loop_ir import expr as x
from compiler_core.loop_ir.expr import Cast, Const, IndexCompare, IndexValue, Load, ScalarCall, Var, Where
from compiler_core.loop_ir.interpret import interpret_program
from compiler_core.loop_ir.ir import (
    Accumulate,
    Accumulator,
    Check,
    Kernel,
    Let,
    Local,
    Loop,
    Program,
    Stmt,
    Store,
)
from compiler_core.ops.registry import Array
from compiler_core.symbolic.index import Div, Index, Mod, Scalar, constant, named_axis, of_axis, of_scalar

RIDS = ["sum", "prod", "max", "min"]


def values(rng: np.random.Generator, dtype: DType, n: int) -> Array:
    if dtype is bool_:
        return rng.integers(0, 2, n).astype(bool)
    if dtype.is_floating_point:
        return rng.uniform(0.7, 1.3, n).astype(dtype.numpy)
    if dtype.is_complex:
        return (rng.uniform(0.7, 1.0, n) + 1j * rng.uniform(-0.4, 0.4, n)).astype(dtype.numpy)
    return rng.integers(0 if dtype.kind == "u" else -50, 50, n).astype(dtype.numpy)


def rows_reduction(dtype: DType, kind: str, rows: int, columns: int, loop: str) -> Program:
    load = Load("p0", columns * I0 + I1, dtype)
    at = I1 if kind.startswith("arg") else None
    result = int64 if at is not None else dtype
    body: tuple[Stmt, ...] = (
        Accumulator("a0", dtype, kind),
        over("i1", columns, loop, (Accumulate("a0", load, at),)),
        Store("out", I0, Var("a0", result)),
    )
    return program_of(kernel_of([dtype], [rows * columns], result, rows, [over("i0", rows, "parallel", body)]))


def relative(program: Program, name: str) -> Program:
    return replace(program, name=name)


@pytest.mark.parametrize("loop", ["serial", "vector"])
@pytest.mark.parametrize("kind", RIDS)
def test_reductions_of_every_dtype(kind: str, loop: str, tmp_path, rng) -> None:
    is_sum = kind in ("sum", "prod")
    dtypes = [
        d for d in ALL if not (d.itemsize == 2 and d.is_floating_point and is_sum) and (is_sum or not d.is_complex)
    ]
    programs = [relative(rows_reduction(d, kind, 5, 37, loop), f"run_{d.short}") for d in dtypes]
    for dtype, program, native in zip(dtypes, programs, compile_programs(programs, tmp_path), strict=True):
        arrays = [values(rng, dtype, 5 * 37)]
        assert_close(native(arrays)[0], interpret_program(program, arrays)[0], ulp=64)


@pytest.mark.parametrize("loop", ["serial", "vector"])
@pytest.mark.parametrize("kind", ["max", "min"])
def test_max_and_min_propagate_nan_from_every_lane(kind: str, loop: str, tmp_path) -> None:
    program = rows_reduction(float32, kind, 40, 40, loop)
    data = np.where(np.eye(40), np.nan, np.arange(1600).reshape(40, 40)).astype(np.float32)
    got = check(program, [data.ravel()], tmp_path)
    assert np.isnan(got[0]).all()


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", [float32, float64, int32, uint8, bool_, float16], ids=str)
def test_places_of_long_rows_are_found_block_by_block(kind: str, dtype: DType, tmp_path, rng) -> None:
    length = 2 * PLACE_BLOCK + 7
    data = rng.integers(0, 100, (5, length)).astype(dtype.numpy)
    if dtype.is_floating_point:
        data[1, 300] = data[1, 5] = data[2, PLACE_BLOCK] = data[2, -1] = np.nan
        data[3] = np.inf if kind == "argmin" else -np.inf
    (got,) = check(rows_reduction(dtype, kind, 5, length, "vector"), [data.ravel()], tmp_path)
    wide = data.astype(np.float32) if dtype is float16 else data
    np.testing.assert_array_equal(got, getattr(np, kind)(wide, axis=1))


@pytest.mark.parametrize("kind", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", [float32, int32, uint8, bool_, float16], ids=str)
def test_arg_reductions_take_the_first(kind: str, dtype: DType, tmp_path, rng) -> None:
    data = rng.integers(0, 2, 6 * 9).astype(dtype.numpy)
    if dtype.is_floating_point:
        data[3] = data[5] = data[40] = np.nan
        data[45:] = -np.inf
    check(rows_reduction(dtype, kind, 6, 9, "serial"), [data], tmp_path)


def test_a_long_f32_sum_keeps_its_precision(tmp_path, rng) -> None:
    n = 3 * SUM_BLOCK * 16 + 5
    data = rng.uniform(0, 1, n).astype(np.float32)
    body = (
        Accumulator("a0", float32, "sum"),
        Accumulator("a1", float32, "max"),
        over("i0", n, "vector", (Accumulate("a0", Load("p0", I0, float32)), Accumulate("a1", Load("p0", I0, float32)))),
        Store("out", constant(0), Var("a0", float32)),
        Store("out", constant(1), Var("a1", float32)),
    )
    program = program_of(kernel_of([float32], [n], float32, 2, body))
    (native,) = compile_programs([program], tmp_path)
    total, largest = native([data])[0]
    assert abs(total - data.sum(dtype=np.float64)) < 2e-6 * total  # 16 plain lanes are ten times worse
    assert largest == data.max()


def softmax_kernel(rows: int, columns: int) -> Kernel:
    def call(name: str, *args: x.Expr) -> ScalarCall:
        return ScalarCall(name, args, float32)

    load = Load("p0", columns * I0 + I1, float32)
    body = (
        Accumulator("a0", float32, "max"),
        over("i1", columns, "vector", (Accumulate("a0", load),)),
        Local("s0", float32, columns),
        Accumulator("a1", float32, "sum"),
        over(
            "i1",
            columns,
            "vector",
            (
                Let("t0", call("exp", call("sub", load, Var("a0", float32)))),
                Store("s0", I1, Var("t0", float32)),
                Accumulate("a1", Var("t0", float32)),
            ),
        ),
        over(
            "i1",
            columns,
            "vector",
            (Store("out", columns * I0 + I1, call("div", Load("s0", I1, float32), Var("a1", float32))),),
        ),
    )
    return kernel_of([float32], [rows * columns], float32, rows * columns, [over("i0", rows, "parallel", body)])


@pytest.mark.parametrize(("rows", "columns"), [(3, 1), (4, 77), (2, 40000)])
def test_softmax_rows(rows: int, columns: int, tmp_path, rng) -> None:
    data = rng.normal(size=rows * columns).astype(np.float32)
    got = check(program_of(softmax_kernel(rows, columns)), [data], tmp_path, ulp=64)
    np.testing.assert_allclose(got[0].reshape(rows, columns).sum(1), 1, rtol=1e-5)


def test_text_of_softmax(golden) -> None:
    golden("cpp_softmax.cpp", KernelPrinter(softmax_kernel(32, 128), lambda message: 0).text("k_softmax"))


@pytest.mark.parametrize("mode", ["set", "add", "mul", "max", "min"])
def test_store_modes_of_every_dtype(mode: str, tmp_path, rng) -> None:
    """out starts as p0, then p1 is stored into it."""
    programs, inputs = [], []
    for dtype in (d for d in ALL if not (d.is_complex and mode in ("max", "min"))):
        first = over("i0", 21, "vector", (Store("out", I0, Load("p0", I0, dtype)),))
        second = over("i0", 21, "vector", (Store("out", I0, Load("p1", I0, dtype), mode),))
        kernel = kernel_of([dtype, dtype], [21, 21], dtype, 21, [first, second])
        params = (*kernel.params[:-1], replace(kernel.params[-1], access="inout"))
        programs.append(relative(program_of(replace(kernel, params=params)), f"run_{dtype.short}"))
        inputs.append([values(rng, dtype, 21), values(rng, dtype, 21)])
    for program, native, arrays in zip(programs, compile_programs(programs, tmp_path), inputs, strict=True):
        assert_close(native(arrays)[0], interpret_program(program, arrays)[0])


def test_column_sums_by_adding_rows(tmp_path, rng) -> None:
    zero = over("i0", 19, "vector", (Store("out", I0, Const(0.0, float32)),))
    add = over(
        "i1", 8, "serial", (over("i0", 19, "vector", (Store("out", I0, Load("p0", 19 * I1 + I0, float32), "add"),)),)
    )
    check(program_of(kernel_of([float32], [152], float32, 19, [zero, add])), [values(rng, float32, 152)], tmp_path)


@pytest.mark.parametrize("rows", [1, 5, 8, 9, 40, 67])
@pytest.mark.parametrize("opened", [False, True])
def test_rows_in_parts_of_which_the_last_are_smaller_or_empty(rows: int, opened: bool, tmp_path, rng) -> None:
    parts, row = named_axis("i0", 8), named_axis("i1", rows)
    add = over("i2", 16, "vector", (Store("out", 16 * of_axis(parts) + I2, Load("p0", 16 * of_axis(row) + I2, float64), "add"),))  # fmt: skip  # noqa: E501
    zero = over("i3", 16, "vector", (Store("out", 16 * of_axis(parts) + of_axis(named_axis("i3", 16)), Const(0.0, float64)),))  # fmt: skip  # noqa: E501
    body = (zero, Loop(row, "serial", (add,), part_of=parts))
    program = program_of(kernel_of([float64], [16 * rows], float64, 128, [Loop(parts, "parallel", body)]))
    x = values(rng, float64, 16 * rows)
    (got,) = check(program, [x], tmp_path, ulp=0)
    share = -(-rows // 8)
    expected = [x.reshape(rows, 16)[k * share : (k + 1) * share].sum(0) for k in range(8)]
    np.testing.assert_allclose(got.reshape(8, 16), expected, rtol=1e-12, atol=0)


INDICES = {
    "transposed": I0 % 5 * 7 + I0 // 5,
    "reversed": 34 - I0,
    "negative dividend": (I0 - 40) % 35,
    "floor of negative": (I0 - 34) // 7 + 5,
    "nested": (3 * I0 + 1) // 2 % 11,
    "beyond 32 bits": Index({Div(I0 * 2**33, 2**33): 1}, 0),
    "constant": constant(3),
}


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
def test_index_expressions(index: Index, tmp_path, rng) -> None:
    kernel = pointwise([float32], 35, Load("p0", index, float32))
    check(program_of(kernel), [values(rng, float32, 35)], tmp_path, ulp=0)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_index_as_data(dtype: DType, tmp_path) -> None:
    check(program_of(pointwise([], 9, IndexValue(3 * I0 + 1, dtype))), [], tmp_path, ulp=0)


@pytest.mark.parametrize("op", ["lt", "le", "gt", "ge", "eq", "ne"])
def test_where_on_an_index_does_not_load_the_other_side(op: str, tmp_path, rng) -> None:
    """Lanes that the condition turns off would load far outside of the array."""
    near = IndexCompare(op, I0, constant(3))
    inside, outside = Load("p0", I0, float32), Load("p0", I0 + 10**9, float32)
    hit = Const(-1.0, float32)
    value = Where(near, Where(near, inside, outside), hit)
    check(program_of(pointwise([float32], 8, value)), [values(rng, float32, 8)], tmp_path, ulp=0)


def compared(op: str, left: Index, right: Index) -> str:
    for name, extent in (("i0", 12), ("i1", 64), ("i2", 65)):
        left, right = bound((left, right), named_axis(name, extent))
    return CppIndexPrinter(set()).compare(op, left, right)


def test_text_of_comparisons_that_a_stride_decides() -> None:
    number = constant
    assert compared("lt", 64 * I0 + I1, number(256)) == "(i0 < 4)"
    assert compared("ge", 64 * I0 + I1, number(512)) == "(i0 >= 8)"
    assert compared("lt", 128 * I0 + I1 + 64, 64 * I2) == "(2*i0 + 1 < i2)"
    assert compared("lt", 64 * I0 + I2, number(256)) == "(64*i0 + i2 < 256)"  # i2 reaches 64
    assert compared("lt", 64 * I0 + I1, number(250)) == "(64*i0 + i1 < 250)"
    assert compared("le", 64 * I0 + I1, number(256)) == "(64*i0 + i1 <= 256)"


@pytest.mark.parametrize("op", ["lt", "ge"])
@pytest.mark.parametrize("bound", [0, 4, 8, 9, -4, 100])
def test_reduced_comparisons_decide_as_before(op: str, bound: int, tmp_path) -> None:
    near = IndexCompare(op, Index({Div(I0, 4): 4, Mod(I0, 4): 1}, 0), constant(bound))
    outer = over("i1", 5, "parallel", (over("i0", 4, "vector", (Store("out", 4 * I1 + I0, _flag(op, bound)),)),))
    check(program_of(pointwise([], 20, Where(near, Const(1.0, float32), Const(0.0, float32)))), [], tmp_path, ulp=0)
    check(program_of(kernel_of([], [], float32, 20, [outer])), [], tmp_path, ulp=0)


def _flag(op: str, bound: int) -> x.Expr:
    near = IndexCompare(op, 4 * I1 + I0, constant(bound))
    return Where(near, Const(1.0, float32), Const(0.0, float32))


def test_libm_inside_where(tmp_path, rng) -> None:
    load = Load("p0", I0, float32)
    positive = ScalarCall("gt", (load, Const(0.0, float32)), bool_)
    value = Where(positive, load, ScalarCall("expm1", (load,), float32))
    check(program_of(pointwise([float32], 50, value)), [rng.normal(size=50).astype(np.float32)], tmp_path)


def gather_program(rows: int) -> Program:
    """out[i0, i1] = p0[p1[i0], i1], with the index checked and wrapped like Python's."""
    row = of_scalar(Scalar("t0"))
    inside = ScalarCall(
        "bitwise_and",
        (IndexCompare("ge", row, constant(0)), IndexCompare("lt", row, constant(rows))),
        bool_,
    )
    copy = over("i1", 4, "vector", (Store("out", 4 * I0 + I1, Load("p0", 4 * row + I1, float32)),))
    body = (Let("t0", Load("p1", I0, int64)), Check(inside, "index out of range in take"), copy)
    kernel = kernel_of([float32, int64], [4 * rows, 6], float32, 24, [over("i0", 6, "parallel", body)])
    return program_of(kernel)


def test_gather_by_data(tmp_path, rng) -> None:
    check(gather_program(5), [values(rng, float32, 20), rng.integers(0, 5, 6)], tmp_path, ulp=0)


def test_a_failed_check_raises_its_message(tmp_path, rng) -> None:
    (native,) = compile_programs([gather_program(5)], tmp_path)
    with pytest.raises(IndexError_, match="index out of range in take"):
        native([values(rng, float32, 20), np.array([0, 1, 5, 2, -1, 0])])
    native([values(rng, float32, 20), np.array([0, 1, 4, 2, 1, 0])])  # and the next call is fine


def test_checks_of_values_in_a_vector_loop(tmp_path, rng) -> None:
    """The loop stays one of vectors; the first check that fails is told, wherever the element is."""
    load = Load("p0", I0, float32)
    above = Check(ScalarCall("gt", (load, Const(0.0, float32)), bool_), "value!not above 0")
    below = Check(ScalarCall("lt", (load, Const(9.0, float32)), bool_), "value!not below 9")
    body = (above, below, Store("out", I0, ScalarCall("sqrt", (load,), float32)))
    kernel = kernel_of([float32], [37], float32, 37, [over("i0", 37, "vector", body)])
    text = KernelPrinter(kernel, lambda message: 0).text("k")
    assert "continue" not in text
    assert "reduction(|:i0_wrong0) reduction(|:i0_wrong1)" in text
    given = rng.uniform(0.5, 8.5, 37).astype(np.float32)
    check(program_of(kernel), [given], tmp_path)
    (native,) = compile_programs([program_of(kernel)], tmp_path)
    for place, value, told in ((36, -1.0, "not above 0"), (0, 9.5, "not below 9"), (5, np.nan, "not above 0")):
        wrong = given.copy()
        wrong[20], wrong[place] = 9.5 if value < 0 else wrong[20], value
        with pytest.raises(DomainError, match=told):
            native([wrong])
    native([given])


def test_check_outside_of_loops(tmp_path) -> None:
    body = (
        Let("t0", Load("p0", constant(0), int64)),
        Check(ScalarCall("eq", (Var("t0", int64), Const(7, int64)), bool_), "not seven"),
        Store("out", constant(0), Var("t0", int64)),
    )
    (native,) = compile_programs([program_of(kernel_of([int64], [1], int64, 1, body))], tmp_path)
    assert native([np.array([7])])[0].item() == 7
    with pytest.raises(IndexError_, match="not seven"):
        native([np.array([8])])


@pytest.mark.parametrize("half", [float16, bfloat16], ids=str)
def test_half_arithmetic_rounds_where_the_casts_stand(half: DType, tmp_path, rng) -> None:
    load = [Cast(Load(f"p{k}", I0, half), float32) for k in range(2)]
    value = Cast(ScalarCall("mul", (ScalarCall("add", tuple(load), float32), load[0]), float32), half)
    program = program_of(pointwise([half, half], 60, value))
    check(program, [values(rng, half, 60), values(rng, half, 60)], tmp_path, ulp=0)


def test_threads_give_the_same_bits(tmp_path, rng) -> None:
    program, data = program_of(softmax_kernel(300, 200)), rng.normal(size=60000).astype(np.float32)
    (one,) = compile_programs([program], tmp_path)
    (two,) = compile_programs([program], tmp_path, threads=2)
    np.testing.assert_array_equal(one([data])[0], two([data])[0])


def test_only_outermost_loops_with_enough_work_get_threads() -> None:
    def text(rows: int) -> str:
        return KernelPrinter(softmax_kernel(rows, 200), lambda message: 0).text("k")

    assert text(300).count("dc_parallel(") == 1
    assert "dc_parallel(" not in text(3)


def test_wrapping_integer_arithmetic(tmp_path) -> None:
    data = np.array([2**31 - 1, -(2**31), 5], np.int32)
    load = Load("p0", I0, int32)
    value = ScalarCall("mul", (ScalarCall("add", (load, load), int32), load), int32)
    check(program_of(pointwise([int32], 3, value)), [data], tmp_path)


@pytest.mark.parametrize("value", [0.1, -0.0, 1e-45, 3.4e38, 1e39, np.inf, -np.inf, np.nan, 2.0**-149, 16777217.0])
@pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16], ids=str)
def test_float_literals_read_back(value: float, dtype: DType, tmp_path) -> None:
    (native,) = compile_programs([program_of(pointwise([], 1, Const(value, dtype)))], tmp_path)
    with np.errstate(all="ignore"):
        expected = np.array([value]).astype(dtype.numpy)
    got, wanted = native([])[0].astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(got, wanted)
    assert np.signbit(got) == np.signbit(wanted) or np.isnan(value)


@pytest.mark.parametrize("dtype", [d for d in ALL if d.kind in "iu"], ids=str)
def test_extreme_integer_literals(dtype: DType, tmp_path) -> None:
    info = np.iinfo(dtype.numpy)
    programs = [
        program_of(pointwise([], 1, Const(int(v), dtype)), f"run{k}") for k, v in enumerate((info.min, info.max))
    ]
    low, high = compile_programs(programs, tmp_path)
    assert (low([])[0].item(), high([])[0].item()) == (info.min, info.max)


@pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16], ids=str)
def test_a_mask_becomes_a_number_by_a_choice(dtype: DType, tmp_path, rng) -> None:
    """A conversion from bool is what GCC makes no vectors of: the loop took 16 times as long."""
    is_more = ScalarCall("gt", (Load("p0", I0, float32), Const(0.5, float32)), bool_)
    kernel = pointwise([float32], 21, Cast(is_more, dtype))
    text = KernelPrinter(kernel, lambda message: 0).text("k")
    assert "? 1.0" in text
    assert "(float)(p0" not in text
    data = rng.uniform(size=21).astype(np.float32)
    (got,) = check(program_of(kernel), [data], tmp_path)
    np.testing.assert_array_equal(got.astype(np.float32), data > 0.5)
