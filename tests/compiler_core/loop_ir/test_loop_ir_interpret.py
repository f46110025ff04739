"""The interpreter's meaning of each statement, on kernels small enough to check by hand or with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_core.errors import IndexError_
from compiler_core.loop_ir.interpret import run_kernel
from compiler_core.loop_ir.parse import parse_kernel
from compiler_core.loop_ir.scalars import TABLE, philox
from compiler_core.ops.registry import Array


def run(body: str, *arrays: Array, access: str = "inout") -> tuple[Array, ...]:
    names = {"float32": "f32", "int64": "i64", "bool": "bool", "float16": "f16"}
    params = ", ".join(f"p{k}: {names[str(a.dtype)]}[{a.size}] {access}" for k, a in enumerate(arrays))
    run_kernel(parse_kernel(f"kernel k({params})\n{body}\n"), arrays)
    return arrays


def test_softmax_from_the_docstring() -> None:
    from test_loop_ir_text import SOFTMAX

    values = np.random.default_rng(0).standard_normal((32, 128)).astype(np.float32)
    result = np.zeros(4096, np.float32)
    run_kernel(parse_kernel(SOFTMAX), [values.ravel(), result])
    e = np.exp(values - values.max(1, keepdims=True))
    np.testing.assert_allclose(result.reshape(32, 128), e / e.sum(1, keepdims=True), rtol=1e-5)


def test_where_does_not_load_on_the_side_not_taken() -> None:
    x, y = np.arange(4, dtype=np.float32), np.zeros(6, np.float32)
    run("  for i0 in 6 vector\n    p1[i0] = where(index_lt(i0, 4), p0[i0], f32(-1.0))", x, y)
    np.testing.assert_array_equal(y, [0, 1, 2, 3, -1, -1])
    run("  for i0 in 6 serial\n    p1[i0] = where(index_ge(i0, 2), p0[i0 - 2], f32(7.0))", x, y)
    np.testing.assert_array_equal(y, [7, 7, 0, 1, 2, 3])


@pytest.mark.parametrize("body", ["  p1[0] = p0[4]", "  p1[0] = p0[-1]", "  p1[9] = p0[0]"])
def test_leaving_a_buffer_is_an_error(body: str) -> None:
    with pytest.raises(IndexError_, match="outside its"):
        run(body, np.zeros(4, np.float32), np.zeros(4, np.float32))


def test_a_failed_check_raises_its_message() -> None:
    with pytest.raises(IndexError_, match="gather: no such row"):
        run("  t0 = p0[0]\n  check index_lt(t0, 3), 'gather: no such row'", np.array([3]))


@pytest.mark.parametrize(
    ("kind", "values", "place"),
    [
        ("argmax", [1, 5, 5, 2], 1),
        ("argmin", [3, 1, 2, 1], 1),
        ("argmax", [1, np.nan, 9, np.nan], 1),
        ("argmin", [np.inf, np.inf], 0),
    ],
)
@pytest.mark.parametrize("loop", ["serial", "vector"])
def test_places_prefer_the_first_and_nan(loop: str, kind: str, values: list[float], place: int) -> None:
    x, y = np.array(values, np.float32), np.zeros(1, np.int64)
    body = f"  acc a0: f32 {kind}\n  for i0 in {len(values)} {loop}\n    a0 <- p0[i0] at i0\n  p1[0] = a0"
    assert run(body, x, y)[1][0] == place == getattr(np, kind)(x)


@pytest.mark.parametrize(("mode", "expected"), [("+=", 5), ("*=", 6), ("max=", 3), ("min=", 2), ("=", 3)])
def test_store_modes_combine_with_what_stands_there(mode: str, expected: float) -> None:
    x = np.array([2.0], np.float32)
    assert run(f"  p0[0] {mode} f32(3.0)", x)[0][0] == expected


def test_scratch_starts_as_garbage() -> None:
    (x,) = run("  local s0: f32[4]\n  p0[0] = s0[1]", np.zeros(1, np.float32))
    assert abs(x[0]) > 1e6


def test_philox_known_answers() -> None:
    """Vectors of the reference implementation (Random123's kat_vectors, philox4x32 10)."""
    ones = np.uint64(0xFFFFFFFFFFFFFFFF)
    assert philox(0, 0, 0) == 0x6627E8D5
    assert philox(ones, ones, ones) == 0x408F276D
    seed, low, high = 0x299F31D0A4093822, 0x85A308D3243F6A88, 0x0370734413198A2E
    assert philox(np.uint64(seed), np.uint64(high), np.uint64(low)) == 0xD16CFE09


def test_scalar_names_are_unique_and_of_the_stated_arity() -> None:
    assert len({name for name, *_ in TABLE}) == len(TABLE)
    for name, arity, _, function, _ in TABLE:
        is_bits = name.startswith(("bitwise", "shift", "philox"))
        dtype = np.uint64 if name == "philox" else np.int64 if is_bits else np.float64
        arguments = [np.ones(3, np.uint32 if name.startswith("normal") else dtype)] * arity
        assert np.shape(function(*arguments)) == (3,)
