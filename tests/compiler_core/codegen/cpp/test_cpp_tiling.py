"""Nests that read across lines go tile by tile, where and only where the order of iterations is free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from native_harness import I0, I1, I2, bound, check, compile_programs, kernel_of, over, program_of

from compiler_core.codegen.cpp.statements import KernelPrinter
from compiler_core.codegen.cpp.tiling import Tiling, find_tiling
from compiler_core.dtype import ALL, DType, bool_, float32
from compiler_core.loop_ir.expr import Const, Expr, IndexCompare, Load, ScalarCall, Where
from compiler_core.loop_ir.ir import Accumulate, Accumulator, Kernel, Let, Loop, Stmt, Store, StoreMode
from compiler_core.symbolic.index import Index, named_axis


def nest(extents: Sequence[int], body: Sequence[Stmt], kinds: Sequence[str] = ("serial", "serial", "vector")) -> Loop:
    inner = tuple(body)
    for axis, extent, kind in reversed(list(zip(("i0", "i1", "i2"), extents, kinds[-len(extents) :]))):
        inner = (over(axis, extent, kind, inner),)
    (loop,) = inner
    assert isinstance(loop, Loop)
    return loop


def transposition(rows: int, columns: int, dtype: DType = float32, value: Expr | None = None) -> Kernel:
    """out[i0, i1] = p0[i1, i0]; out has `rows` rows."""
    value = value or Load("p0", rows * I1 + I0, dtype)
    loop = nest((rows, columns), [Store("out", columns * I0 + I1, value)])
    return kernel_of([dtype], [rows * columns], dtype, rows * columns, [loop])


def tiling_of(kernel: Kernel) -> Tiling | None:
    (loop,) = kernel.body
    assert isinstance(loop, Loop)
    return find_tiling(loop, {p.name: p for p in kernel.params})


@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (64, 48), (17, 16), (16, 31), (50, 45), (16, 1000)])
def test_transposed_copies(rows: int, columns: int, tmp_path, rng) -> None:
    kernel = transposition(rows, columns)
    assert tiling_of(kernel) is not None
    check(program_of(kernel), [rng.normal(size=rows * columns).astype(np.float32)], tmp_path, ulp=0)


def test_transposed_copies_of_every_dtype(tmp_path, rng) -> None:
    programs = [replace(program_of(transposition(20, 33, d)), name=f"run_{d.short}") for d in ALL]
    for dtype, native in zip(ALL, compile_programs(programs, tmp_path), strict=True):
        x = rng.integers(0, 2 if dtype is bool_ else 99, (33, 20)).astype(dtype.numpy)
        np.testing.assert_array_equal(native([x.ravel()])[0].reshape(20, 33), x.T)


def test_threads(tmp_path, rng) -> None:
    kernel, x = transposition(300, 200), rng.normal(size=60000).astype(np.float32)
    assert "dc_parallel(" in KernelPrinter(kernel, lambda message: 0).text("k")
    (native,) = compile_programs([program_of(kernel)], tmp_path, threads=2)
    np.testing.assert_array_equal(native([x])[0].reshape(300, 200), x.reshape(200, 300).T)


def test_only_the_crossing_loads_of_a_sum_are_tiled(tmp_path, rng) -> None:
    straight, crossing, bias = (
        Load("p0", 32 * I0 + I1, float32),
        Load("p0", 32 * I1 + I0, float32),
        Load("p1", I1, float32),
    )
    value = ScalarCall("add", (ScalarCall("add", (straight, crossing), float32), bias), float32)
    kernel = kernel_of(
        [float32, float32],
        [1024, 32],
        float32,
        1024,
        [nest((32, 32), [Let("t0", crossing), Store("out", 32 * I0 + I1, value)])],
    )
    found = tiling_of(kernel)
    assert found is not None
    assert found.loads == (bound(bound(crossing, named_axis("i0", 32)), named_axis("i1", 32)),)
    check(program_of(kernel), [rng.normal(size=n).astype(np.float32) for n in (1024, 32)], tmp_path, ulp=2)


def test_outer_loops_stay(tmp_path, rng) -> None:
    """A batch of permutations (b, m, n) -> (b, n, m), and the middle axis as the contiguous one."""
    loop = nest((3, 18, 16), [Store("out", 288 * I0 + 16 * I1 + I2, Load("p0", 288 * I0 + 18 * I2 + I1, float32))])
    kernel = kernel_of([float32], [864], float32, 864, [loop])
    found = tiling_of(kernel)
    assert found is not None
    assert ([stage.axis.name for stage in found.outer], found.rows.axis.name) == (["i0"], "i1")
    check(program_of(kernel), [rng.normal(size=864).astype(np.float32)], tmp_path, ulp=0)


def load(index: Index) -> Load:
    return Load("p0", index, float32)


def square(place: Index, source: Load, mode: StoreMode = "set") -> Kernel:
    """A nest of 32 x 32 that stores `source`."""
    return kernel_of([float32], [2048], float32, 2048, [nest((32, 32), [Store("out", place, source, mode)])])


UNTILED: dict[str, Kernel] = {
    "contiguous": square(32 * I0 + I1, load(32 * I0 + I1)),
    "too small": transposition(8, 32),
    "no axis is contiguous": square(32 * I0 + I1, load(64 * I1 + 2 * I0)),
    "quotients": square(32 * I0 + I1, load(32 * I1 + I0 % 16)),
    "two iterations store to one place": square(I0 + I1, load(32 * I1 + I0)),
    "adds": square(32 * I0 + I1, load(32 * I1 + I0), "add"),
    "reads what it stores": square(32 * I0 + I1, Load("out", 32 * I1 + I0 + 1024, float32)),
    "behind a where": transposition(
        32, 32, value=Where(IndexCompare("lt", I0, I1), load(32 * I1 + I0), Const(0.0, float32))
    ),
}


@pytest.mark.parametrize("kernel", UNTILED.values(), ids=UNTILED)
def test_what_is_left_as_it_is(kernel: Kernel) -> None:
    assert tiling_of(kernel) is None


def test_nests_that_accumulate_are_left_as_they_are() -> None:
    inner = over("i1", 32, "vector", (Accumulate("a0", load(32 * I1 + I0)),))
    loop = over("i0", 32, "parallel", (Accumulator("a0", float32, "sum"), inner))
    assert find_tiling(loop, {}) is None


def test_text_of_a_transposition(golden) -> None:
    golden("cpp_transposition.cpp", KernelPrinter(transposition(32, 50), lambda message: 0).text("k_transpose"))
