"""Every scalar function of the loop IR on every dtype it takes: C++ equals the interpreter, special values included."""

from __future__ import annotations

import math

import numpy as np
import pytest
from native_harness import I0, assert_close, compile_programs, pointwise, program_of

from compiler_core.codegen.cpp import complex as complex_numbers
from compiler_core.codegen.cpp.scalars import EMIT, Used, emit_scalar
from compiler_core.dtype import ALL, DType, bool_, complex64, float32, float64, uint32, uint64
from compiler_core.errors import LoweringError
from compiler_core.loop_ir.expr import SCALARS, Cast, Const, Load, ScalarCall
from compiler_core.loop_ir.interpret import interpret_program
from compiler_core.loop_ir.parse import parse_kernel
from compiler_core.ops.registry import Array

N = 100  # not a multiple of a vector's width
COMPUTE = [d for d in ALL if d.compute is d]
FLOAT_ONLY = {"exp", "log", "log1p", "expm1", "sin", "cos", "tanh", "sqrt", "rsqrt", "erf", "sigmoid"}
FLOAT_ONLY |= {"exp2", "log2", "log10"}
FLOAT_ONLY |= {"erfc", "asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2", "copysign"}
INTEGER_ONLY = {"bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right"}
NOT_ON_BOOL = {
    "neg", "abs", "sign", "sub", "div", "pow", "remainder", "floor_divide", "shift_left", "shift_right",
    "floor", "ceil", "round", "trunc",
}  # fmt: skip


def takes(name: str, dtype: DType) -> bool:
    if name == "philox" or name.startswith("normal"):
        return dtype is (uint64 if name == "philox" else uint32)
    if dtype.is_complex:
        return name in complex_numbers.EMIT
    if name in ("real", "imag", "conj"):
        return False
    if name == "complex":
        return dtype in (float32, float64)
    if name in FLOAT_ONLY:
        return dtype.is_floating_point
    if name in INTEGER_ONLY and dtype.is_floating_point:
        return False
    return not (dtype is bool_ and name in NOT_ON_BOOL)


def operand(rng: np.random.Generator, dtype: DType, name: str, position: int) -> Array:
    if dtype is bool_:
        return rng.integers(0, 2, N).astype(bool)
    if dtype.is_floating_point:
        values = rng.uniform(-4, 4, N)
        if name in ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "pow") and position == 0:
            values = np.abs(values) + 0.1
        values[:7] = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0] if position == 0 else [1, 2, 3, np.nan, 0, -1, 2]
        if position == 0:  # what is small has its digits too: expm1(x) is not exp(x) - 1
            values[7:12] = [1e-3, -1e-4, 1e-5, -1e-7, 1e-9]
        return values.astype(dtype.numpy)
    if dtype.is_complex:
        values = np.asarray(rng.uniform(-4, 4, N) + 1j * rng.uniform(-4, 4, N))
        values[:4] = [1, -1, 1j, -2.5] if position == 0 else [2, 3 - 1j, -2, 0.5j]
        return values.astype(dtype.numpy)
    low, high = (0, 100) if dtype.kind == "u" else (-100, 100)
    if name.startswith("normal"):
        low, high = 0, 2**32
    if name == "pow" and position == 1:
        low, high = 0, 6
    if name.startswith("shift") and position == 1:
        low, high = 0, 8 * dtype.itemsize + 3
    return rng.integers(low, high, N).astype(dtype.numpy)


def test_the_emission_table_covers_every_scalar() -> None:
    assert set(EMIT) | set(complex_numbers.EMIT) == set(SCALARS)


@pytest.mark.parametrize("dtype", COMPUTE, ids=str)
def test_scalars_equal_the_interpreter(dtype: DType, tmp_path, rng) -> None:
    names = [name for name in SCALARS if takes(name, dtype)]
    programs, inputs = [], []
    for name in names:
        scalar = SCALARS[name]
        loads = tuple(Load(f"p{k}", I0, dtype) for k in range(scalar.arity))
        kernel = pointwise([dtype] * scalar.arity, N, ScalarCall(name, loads, scalar.result_dtype(dtype)))
        programs.append(program_of(kernel, f"run_{name}"))
        inputs.append([operand(rng, dtype, name, k) for k in range(scalar.arity)])
    for name, program, native, arrays in zip(
        names, programs, compile_programs(programs, tmp_path), inputs, strict=True
    ):
        with np.errstate(all="ignore"):
            (expected,) = interpret_program(program, arrays)
        try:
            assert_close(native(arrays)[0], expected, ulp=16)
        except AssertionError as error:
            raise AssertionError(f"{name} on {dtype}: {error}") from error


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extremum_with_a_constant_propagates_nan(dtype: DType, name: str, tmp_path) -> None:
    load, zero = Load("p0", I0, dtype), Const(0.0, dtype)
    x = np.array([np.nan, -1, 0, 2, np.inf, -np.inf], dtype.numpy)
    programs = [
        program_of(pointwise([dtype], 6, ScalarCall(name, args, dtype)), f"run{k}")
        for k, args in enumerate([(load, zero), (zero, load)])
    ]
    for program, native in zip(programs, compile_programs(programs, tmp_path), strict=True):
        assert_close(native([x])[0], interpret_program(program, [x])[0], ulp=0)


CLAMPED = """
kernel clamped(p0: f32[6] in, p1: f32[6] out)
  for i0 in 6 vector
    t0 = neg(p0[i0])
    p1[i0] = {}
"""


@pytest.mark.parametrize("value", ["maximum(t0, f32(0.0))", "minimum(f32(0.5), t0)"])
def test_nan_in_a_variable_passes_a_clamp(value: str, tmp_path) -> None:
    """What stands in a variable is compared by one comparison, which says nothing of NaN."""
    program = program_of(parse_kernel(CLAMPED.format(value)), "run")
    x = np.array([np.nan, -1, 0, 2, np.inf, -np.inf], np.float32)
    (native,) = compile_programs([program], tmp_path)
    assert_close(native([x])[0], interpret_program(program, [x])[0], ulp=0)


@pytest.mark.parametrize("exponent", [-1.0, 1.0, 2.0, 3.0, 0.5, -2.0])
def test_constant_powers(exponent: float, tmp_path, rng) -> None:
    value = ScalarCall("pow", (Load("p0", I0, float32), Const(exponent, float32)), float32)
    x = rng.uniform(0.1, 3, N).astype(np.float32)
    (native,) = compile_programs([program_of(pointwise([float32], N, value))], tmp_path)
    assert_close(native([x])[0], x ** np.float32(exponent))


CAST_PAIRS = [(a, b) for a in ALL for b in ALL]


def test_casts_equal_numpy(tmp_path, rng) -> None:
    programs, inputs = [], []
    for k, (source, target) in enumerate(CAST_PAIRS):
        programs.append(program_of(pointwise([source], N, Cast(Load("p0", I0, source), target)), f"run{k}"))
        low = 0 if "u" in (source.kind, target.kind) else -100
        values = rng.integers(0, 2, N) if source is bool_ else rng.uniform(low, 100, N)
        inputs.append(values.astype(source.numpy))
    for (source, target), native, x in zip(CAST_PAIRS, compile_programs(programs, tmp_path), inputs, strict=True):
        got = native([x])[0]
        x = x.real if source.is_complex and not target.is_complex and target is not bool_ else x
        np.testing.assert_array_equal(got, x.astype(target.numpy), err_msg=f"{source} -> {target}")


@pytest.mark.parametrize("short", ["f16", "bf16"])
def test_half_conversions_are_exact_for_every_bit_pattern(short: str, tmp_path) -> None:
    """All 65536 patterns widen exactly; every float near a rounding boundary narrows as NumPy narrows it."""
    half = next(d for d in ALL if d.short == short)
    every = np.arange(65536, dtype=np.uint16).view(half.numpy)
    widened = np.unique(np.nan_to_num(every.astype(np.float32), nan=1, posinf=1e30, neginf=-1e30))
    middles = ((widened[1:].astype(np.float64) + widened[:-1]) / 2).astype(np.float32)
    near = np.concatenate(
        [middles, np.nextafter(middles, np.float32(np.inf)), np.nextafter(middles, np.float32(-np.inf))]
    )
    floats = np.concatenate(
        [near, np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 65504, 65519.99, 65520, 1e38], np.float32)]
    )
    wide = program_of(pointwise([half], 65536, Cast(Load("p0", I0, half), float32)), "widen")
    narrow = program_of(pointwise([float32], floats.size, Cast(Load("p0", I0, float32), half)), "narrow")
    widen, narrow_ = compile_programs([wide, narrow], tmp_path)
    np.testing.assert_array_equal(widen([every])[0], every.astype(np.float32))
    with np.errstate(all="ignore"):
        expected = floats.astype(half.numpy)
    got = narrow_([floats])[0]
    np.testing.assert_array_equal(got.astype(np.float32), expected.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(got.astype(np.float32)[:-9]), np.signbit(expected.astype(np.float32)[:-9]))


def test_exp_over_its_whole_range(tmp_path) -> None:
    """Against exp in double: 1.1 ulp, exact at the ends, one step among the subnormal numbers."""
    patterns = np.arange(0, 2**32, 997, dtype=np.uint64).astype(np.uint32)
    ends = np.array([0, -0.0, 88.72283, 88.72284, -87.3, -103.9, -1e38], np.float32)
    x = np.concatenate([patterns.view(np.float32), ends])
    x = x[~np.isnan(x)]
    (native,) = compile_programs(
        [program_of(pointwise([float32], x.size, ScalarCall("exp", (Load("p0", I0, float32),), float32)))], tmp_path
    )
    got = native([x])[0].astype(np.float64)
    with np.errstate(over="ignore"):
        exact = np.exp(x.astype(np.float64))
    normal = (exact >= 2.0**-126) & (exact < 3.4028235e38)
    ulp = np.exp2(np.floor(np.log2(exact[normal])) - 23)
    assert (np.abs(got[normal] - exact[normal]) / ulp).max() < 1.1
    assert (got[exact >= 3.4028236e38] == np.inf).all()
    tiny = exact < 2.0**-126
    assert (np.abs(got[tiny] - exact[tiny]) <= 2.0**-149).all()
    assert (got[x < -104] == 0).all()


def test_erf_over_its_whole_range(tmp_path) -> None:
    """Against erf in double: 1 ulp, subnormal numbers, infinities and signs included."""
    patterns = np.arange(0, 0x40A00000, 499, dtype=np.uint64).astype(np.uint32)  # to 5, from where on it is 1
    edges = np.array([0.921875, 0.92187506, 0.9467010498, 3.95, 6.0, 3e38], np.float32)
    x = np.concatenate([patterns.view(np.float32), edges])
    x = np.concatenate([x, -x, np.array([np.inf, -np.inf, np.nan], np.float32)])
    program = program_of(pointwise([float32], x.size, ScalarCall("erf", (Load("p0", I0, float32),), float32)))
    (native,) = compile_programs([program], tmp_path)
    got = native([x])[0]
    exact = np.array([math.erf(value) for value in x.tolist()])
    ulp = np.maximum(np.exp2(np.floor(np.log2(np.maximum(np.abs(exact[:-1]), 1e-300))) - 23), 2.0**-149)
    assert (np.abs(got[:-1] - exact[:-1]) / ulp).max() < 1.0
    np.testing.assert_array_equal(np.signbit(got[:-1]), np.signbit(x[:-1]))
    np.testing.assert_array_equal(got[-3:], np.array([1, -1, np.nan], np.float32))


def test_a_scalar_without_cpp_names_those_that_have_it_and_where_it_is_to_be_written() -> None:
    for dtype, table, path in ((float32, EMIT, "scalars.py"), (complex64, complex_numbers.EMIT, "complex.py")):
        with pytest.raises(LoweringError, match="no C\\+\\+ for the scalar function 'absent'") as caught:
            emit_scalar("absent", (), (), dtype, Used())
        assert caught.value.expected == ", ".join(table)
        assert f"compiler_core/codegen/cpp/{path}" in caught.value.remedy


def test_sine_and_cosine_of_one_number_stay_apart(tmp_path, rng) -> None:
    """GCC would make a sincos of the two, of which libmvec has no vector form."""
    x = Load("p0", I0, float32)
    value = ScalarCall("mul", (ScalarCall("sin", (x,), float32), ScalarCall("cos", (x,), float32)), float32)
    program = program_of(pointwise([float32], N, value))
    (native,) = compile_programs([program], tmp_path)
    (library,) = tmp_path.glob("*.so")
    assert b"sincos" not in library.read_bytes()
    numbers = rng.normal(size=N).astype(np.float32)
    assert_close(native([numbers])[0], interpret_program(program, [numbers])[0], ulp=16)
