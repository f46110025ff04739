"""Rows that a loop adds to again and again are held meanwhile, where nothing else of it reads or writes them."""

from __future__ import annotations

import numpy as np
import pytest
from native_harness import I0, I1, I2, check, kernel_of, over, program_of

from compiler_core.codegen.cpp.held import find_held
from compiler_core.codegen.cpp.statements import KernelPrinter
from compiler_core.dtype import DType, bfloat16, float32, float64, int64
from compiler_core.loop_ir.expr import Cast, Const, Expr, Load, ScalarCall
from compiler_core.loop_ir.ir import Kernel, Let, Local, Loop, Store
from compiler_core.symbolic.index import Index, Scalar

ROWS, GROUPS = 40, 3


def column_sums(
    columns: int, dtype: DType = float32, *, rows: int = ROWS, to: Index | None = None, also: Expr | None = None
) -> Kernel:
    """out[i0, i2] = sum over i1 of p0[i0, i1, i2]; to: where else it is added; also: added to what is added."""
    load: Expr = Load("p0", rows * columns * I0 + columns * I1 + I2, dtype)
    value = load if also is None else ScalarCall("add", (load, also), dtype)
    place = columns * I0 + I2 if to is None else to
    adding = over("i1", rows, "serial", [over("i2", columns, "vector", [Store("out", place, value, "add")])])
    empty = over("i2", columns, "vector", [Store("out", columns * I0 + I2, Const(0.0, dtype))])
    body = over("i0", GROUPS, "serial", [empty, adding])
    return kernel_of([dtype], [GROUPS * rows * columns], dtype, GROUPS * columns, [body])


def is_held(kernel: Kernel) -> bool:
    (outer,) = kernel.body
    assert isinstance(outer, Loop)
    inner = outer.body[-1]
    assert isinstance(inner, Loop)
    found = find_held(inner, {p.name: p.dtype for p in kernel.params})
    assert bool(found) is ("_held_" in KernelPrinter(kernel, lambda message: 0).text("k"))
    return bool(found)


@pytest.mark.parametrize(
    ("columns", "dtype"), [(1, float32), (7, float32), (64, float32), (128, float32), (64, float64)]
)
def test_short_rows_are_held_and_have_the_same_bits(columns: int, dtype: DType, tmp_path, rng) -> None:
    kernel = column_sums(columns, dtype)
    assert is_held(kernel)
    given = rng.normal(size=GROUPS * ROWS * columns).astype(dtype.numpy)
    check(program_of(kernel), [given], tmp_path, ulp=0)


def test_others_are_not(tmp_path, rng) -> None:
    half = column_sums(8, bfloat16, also=Cast(Const(1.0, float32), bfloat16))
    others = {
        "long rows": column_sums(129),
        "few iterations": column_sums(8, rows=7),
        "a row that moves": column_sums(8, to=I1 % 3 * 8 + I2),
        "a row that is read": column_sums(8, also=Load("out", 8 * I0 + I2, float32)),
        "one element": column_sums(8, to=8 * I0),
        "every other element": column_sums(8, to=2 * I2),
        "16-bit floats": half,
    }
    for what, kernel in others.items():
        assert not is_held(kernel), what
    chosen = over("i2", 8, "vector", [Store("s0", Index({Scalar("t0"): 8}, 0) + I2, Const(1.0, float32), "add")])
    choosing = over("i1", ROWS, "serial", [Let("t0", Load("p1", I1, int64)), chosen])
    assert not find_held(choosing, {"s0": float32, "p1": int64}), "a row that data choose"
    adding = over("i2", 8, "vector", [Store("s0", I2, Const(1.0, float32), "add")])
    own = over("i1", ROWS, "serial", [Local("s0", float32, 8), adding])
    assert not find_held(own, {"s0": float32}), "an array of the loop's own"
    moving = others["a row that moves"]
    check(program_of(moving), [rng.normal(size=GROUPS * ROWS * 8).astype(np.float32)], tmp_path, ulp=0)
