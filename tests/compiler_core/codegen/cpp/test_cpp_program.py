"""Whole programs as C++: buffers, library calls, shared kernels, units; equal to the interpreter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from native_harness import I0, I1, assert_close, check, compile_programs, kernel_of, over, pointwise, program_of

from compiler_core.codegen.cpp import program as cpp_program
from compiler_core.codegen.cpp.program import print_source
from compiler_core.dtype import DType, float32, float64, int32
from compiler_core.errors import GraphError
from compiler_core.loop_ir.expr import Const, Load, ScalarCall
from compiler_core.loop_ir.ir import Buffer, KernelCall, Program, RoutineCall, Slot, Store, View
from compiler_core.loop_ir.verify import verify_program
from compiler_core.ops.routine import ROUTINES, Strided

EXP = pointwise([float32], 6, ScalarCall("exp", (Load("p0", I0, float32),), float32))


def gemm_program(
    dtype: DType,
    batch: tuple[int, ...],
    sizes: tuple[int, int, int],
    layout: str,
    alpha: float = 1.0,
    beta: float = 0.0,
    scale: Slot | None = None,
) -> Program:
    """out = A @ B; layout: two letters, n or t, for how A and B lie in memory."""
    m, n, k = sizes
    count = int(np.prod(batch, dtype=int))
    steps = tuple(int(np.prod(batch[axis + 1 :], dtype=int)) for axis in range(len(batch)))

    def matrix(name: str, rows: int, columns: int, transposed: bool) -> View:
        strides = (1, rows) if transposed else (columns, 1)
        whole = (*(s * rows * columns for s in steps), *strides)
        return View(Slot(name), Strided(dtype, (*batch, rows, columns), whole))

    operands = [matrix("a", m, k, layout[0] == "t"), matrix("b", k, n, layout[1] == "t")]
    if scale is not None:
        operands.append(View(scale, Strided(dtype, (), ())))
    attrs = (("alpha", alpha), ("beta", beta))
    call = RoutineCall(ROUTINES["gemm"], tuple(operands), matrix("c", m, n, False), attrs)
    buffers = [Buffer("a", dtype, count * m * k, "input"), Buffer("b", dtype, count * k * n, "input")]
    inputs = ["a", "b"]
    if scale is not None:
        buffers.append(Buffer("s", dtype, 2, "input"))
        inputs.append("s")
    buffers.append(Buffer("c", dtype, count * m * n, "output"))
    return Program("product", tuple(buffers), (call,), tuple(inputs), ("c",))


def gemm_inputs(program: Program, rng: np.random.Generator) -> list[np.ndarray]:
    return [
        rng.normal(size=program.buffer(name).numel).astype(program.buffer(name).dtype.numpy) for name in program.inputs
    ]


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@pytest.mark.parametrize("sizes", [(2, 3, 5), (1, 3, 5), (3, 1, 5), (3, 4, 1), (1, 1, 1), (33, 17, 9)], ids=str)
def test_gemm_of_every_layout(layout: str, dtype: DType, sizes: tuple[int, int, int], tmp_path, rng) -> None:
    program = gemm_program(dtype, (), sizes, layout)
    check(program, gemm_inputs(program, rng), tmp_path, ulp=5000)


def test_gemm_batches_alpha_and_scale(tmp_path, rng) -> None:
    program = gemm_program(float32, (2, 3), (4, 5, 6), "nt", alpha=0.5, scale=Slot("s", 1))
    check(program, gemm_inputs(program, rng), tmp_path, ulp=5000)


def test_gemm_adds_to_what_a_kernel_wrote(tmp_path, rng) -> None:
    product = gemm_program(float32, (), (2, 3, 4), "nn", beta=1.0)
    fill = kernel_of([], [], float32, 6, [over("i0", 6, "vector", (Store("out", I0, Const(1.5, float32)),))])
    program = replace(product, steps=(KernelCall(fill, (Slot("c"),)), *product.steps))
    check(program, gemm_inputs(program, rng), tmp_path, ulp=5000)


def test_gemm_needs_a_float_dtype() -> None:
    with pytest.raises(GraphError, match="does not accept"):
        verify_program(gemm_program(int32, (), (2, 2, 2), "nn"))


def test_gemm_of_one_shared_matrix_and_no_elements(tmp_path, rng) -> None:
    program = gemm_program(float32, (3,), (4, 5, 6), "nn")
    (call,) = program.steps
    assert isinstance(call, RoutineCall)
    a, b = call.operands
    b = replace(b, layout=replace(b.layout, strides=(0, 5, 1)))
    shared = replace(program, steps=(replace(call, operands=(a, b)),))
    check(shared, gemm_inputs(shared, rng), tmp_path, ulp=5000)
    empty = gemm_program(float32, (0,), (4, 5, 6), "nn")
    (native,) = compile_programs([empty], tmp_path)
    assert native(gemm_inputs(empty, rng))[0].size == 0


def two_step_program() -> Program:
    """y = exp(exp(x)) * c through a temp in the arena and slots with offsets."""
    scale = pointwise(
        [float32, float32], 6, ScalarCall("mul", (Load("p0", I0, float32), Load("p1", I0, float32)), float32)
    )
    buffers = (
        Buffer("x", float32, 8, "input"),
        Buffer("t", float32, 8, "temp", offset=64),
        Buffer("u", float32, 6, "temp", offset=128),
        Buffer("c", float32, 6, "constant", array=np.arange(6, dtype=np.float32)),
        Buffer("y", float32, 6, "output"),
    )
    steps = (
        KernelCall(EXP, (Slot("x", 2), Slot("t", 1)), "exp  model.py:7"),
        KernelCall(EXP, (Slot("t", 1), Slot("u")), "exp  model.py:8"),
        KernelCall(scale, (Slot("u"), Slot("c"), Slot("y")), "mul  model.py:9"),
    )
    return Program("two_step", buffers, steps, ("x",), ("y",), arena_nbytes=192)


def test_temps_constants_and_offsets(tmp_path) -> None:
    check(two_step_program(), [np.linspace(-1, 1, 8).astype(np.float32)], tmp_path, ulp=16)


def test_text_of_a_program(golden) -> None:
    program = two_step_program()
    golden("cpp_program.cpp", "\n".join(cpp_program.SourcePrinter.of([program]).entry(program)))


def test_programs_share_kernels_and_keep_the_users_line(tmp_path) -> None:
    programs = [replace(two_step_program(), name=name) for name in ("first", "second")]
    programs[1] = replace(programs[1], steps=programs[0].steps)
    text = print_source(programs).units["main"]
    assert text.count("void k_k(") == 1
    assert text.count("// exp  model.py:8") == 2  # at the call in each entry
    x = np.linspace(-1, 1, 8).astype(np.float32)
    first, second = compile_programs(programs, tmp_path)
    assert_close(first([x])[0], second([x])[0], ulp=0)


def test_many_kernels_go_to_two_units_that_link(tmp_path, rng, monkeypatch) -> None:
    monkeypatch.setattr(cpp_program, "SPLIT_LINES", 10)
    kernels = [
        replace(pointwise([float32], 5, ScalarCall("add", (Load("p0", I0, float32), Const(k, float32)), float32)))
        for k in range(6)
    ]
    programs = [replace(program_of(kernel), name=f"run{k}") for k, kernel in enumerate(kernels)]
    assert list(print_source(programs).units) == ["main", "more"]
    x = rng.normal(size=5).astype(np.float32)
    for k, native in enumerate(compile_programs(programs, tmp_path)):
        np.testing.assert_array_equal(native([x])[0], x + np.float32(k))


def test_equal_programs_give_equal_source() -> None:
    assert print_source([two_step_program()]) == print_source([two_step_program()])


def test_copy_of_a_matrix_block(tmp_path, rng) -> None:
    body = over(
        "i0", 3, "parallel", (over("i1", 4, "vector", (Store("out", 4 * I0 + I1, Load("p0", 9 * I0 + I1, float32)),)),)
    )
    check(
        program_of(kernel_of([float32], [27], float32, 12, [body])),
        [rng.normal(size=27).astype(np.float32)],
        tmp_path,
        ulp=0,
    )
