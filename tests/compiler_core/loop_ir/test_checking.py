"""Checks of values, behind which a loop may go on, are told from checks of places, which guard what is read there."""

from __future__ import annotations

import pytest

from compiler_core.loop_ir import ir
from compiler_core.loop_ir.checking import is_of_values
from compiler_core.loop_ir.parse import parse_kernel

HEAD = "kernel k(p0: f32[70] in, p1: i64[70] in, p2: f32[70] out)\n  for i0 in 70 serial\n    t0 = p1[i0]\n"
CHECK = "    check index_ge(t0, 0), 'too far'\n"


@pytest.mark.parametrize(
    ("behind", "is_free"),
    [
        ("p2[i0] = where(index_eq(t0, 3), p0[i0], f32(0.0))", True),
        ("p2[i0] = cast(t0, f32)", True),
        ("p2[i0] = cast(index_value(2*t0, i64), f32)", True),
        ("p2[i0] = p0[t0]", False),
        ("p2[t0] = p0[i0]", False),
        ("p2[i0] = where(index_ge(t0, 0), p0[t0//2], f32(0.0))", False),
        ("check gt(p0[t0], f32(0.0)), 'not above'\n    p2[i0] = p0[i0]", False),
        ("t1 = add(t0, i64(1))\n    p2[i0] = p0[t1]", False),
        ("t1 = index_value(3*t0 + i0, i64)\n    p2[t1%70] = p0[i0]", False),
    ],
)
def test_places_make_the_difference(behind: str, is_free: bool) -> None:
    kernel = parse_kernel(f"{HEAD}{CHECK}    {behind}\n")
    (loop,) = kernel.body
    assert isinstance(loop, ir.Loop)
    check = next(stmt for stmt in loop.body if isinstance(stmt, ir.Check))
    assert is_of_values(check, loop.body) is is_free


def test_a_check_of_the_loops_own_axis_guards_places() -> None:
    kernel = parse_kernel(f"{HEAD}    check index_lt(i0, 50), 'no more'\n    p2[i0] = p0[i0]\n")
    (loop,) = kernel.body
    assert isinstance(loop, ir.Loop)
    assert not is_of_values(loop.body[1], loop.body)  # type: ignore[arg-type]
