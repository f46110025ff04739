"""Weak scalars, promotion, 16-bit floats, integers: dtypes of results, and no node that is not needed."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from against_torch import assert_values
from traced_calls import trace

from compiler_core import dtype as dt
from compiler_core.errors import DTypeError, ShapeError
from compiler_core.ops import functional as F

F32 = np.array([[1.0, -2.0, 3.5]], np.float32)
I64, U8, BOOL = np.array([3, -4, 5]), np.array([3, 4, 5], np.uint8), np.array([True, False, True])
F16, BF16 = F32.astype(np.float16), F32.astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("array", [F32, F16, BF16, F32.astype(np.float64)])
@pytest.mark.parametrize("scalar", [2, 2.5, True])
def test_a_scalar_takes_the_floating_arrays_dtype(array: Any, scalar: Any) -> None:
    more = () if scalar is True else (F.sub,)
    for call in (F.add, F.mul, F.true_divide, F.pow, F.maximum, *more):
        assert call(array, scalar).dtype == array.dtype
        assert call(scalar, array).dtype == array.dtype


def test_integers_meet_floats_in_the_default_dtype() -> None:
    assert F.mul(I64, 2).dtype == np.int64
    assert F.mul(I64, 2.0).dtype == np.float32
    assert F.true_divide(I64, 2).dtype == np.float32
    assert F.exp(I64).dtype == np.float32
    assert F.mean(I64, dtype=dt.float32).dtype == np.float32
    assert F.add(BOOL, 1).dtype == np.int64
    assert F.mul(U8, 2).dtype == np.uint8


def test_arrays_promote_as_torch_does() -> None:
    torch = pytest.importorskip("torch")
    for a in (F32, F16, I64, U8, BOOL, F32[0, 0], I64[0], np.array(2.0)):
        for b in (F32, F16, I64, U8, BOOL, F32[0, 0], I64[0], np.array(2.0)):
            a, b = np.asarray(a), np.asarray(b)
            theirs = torch.from_numpy(a) + torch.from_numpy(b)
            assert F.add(a, b).dtype == theirs.numpy().dtype


def test_sums_of_bools_and_integers_are_int64() -> None:
    for array in (BOOL, U8, I64):
        assert F.sum(array).dtype == np.int64
        assert F.cumsum(array, 0).dtype == np.int64
    assert F.sum(U8, dtype=dt.float32).dtype == np.float32


@pytest.mark.torch
def test_integer_arithmetic_is_torchs() -> None:
    a, b = np.array([7, -7, 7, -7, 0]), np.array([2, 2, -2, -2, 3])
    for mode in ("floor", "trunc"):
        assert_values(lambda F, x, y, mode=mode: F.div(x, y, rounding_mode=mode), [a, b])
    for name in ("remainder", "fmod", "bitwise_and", "bitwise_or", "bitwise_xor"):
        assert_values(lambda F, x, y, name=name: getattr(F, name)(x, y), [a, b])
    for name in ("abs", "neg", "sign", "floor", "bitwise_not", "logical_not", "argmax", "prod", "any"):
        assert_values(lambda F, x, name=name: getattr(F, name)(x), [a])
    assert_values(lambda F, x, y: F.pow(x, F.abs(y)), [a, b])
    assert_values(lambda F, x: F.pow(x, 3), [a])
    assert_values(lambda F, x, y: F.matmul(x, y), [np.arange(6).reshape(2, 3), np.arange(6).reshape(3, 2)])


def test_integers_refuse_negative_powers() -> None:
    with pytest.raises(DTypeError):
        F.pow(I64, -1)


def ops_of(call: Any, *arrays: Any) -> list[str]:
    return [c.op.name for c in trace(call, arrays).calls]


def test_fitting_operands_add_no_nodes() -> None:
    assert ops_of(lambda F, x: F.add(x, x), F32) == ["add"]
    assert ops_of(lambda F, x: F.mul(x, 2.0), F32) == ["full", "mul"]
    assert ops_of(lambda F, x, y: F.add(x, y), F32, F32[0]) == ["expand", "add"]
    assert ops_of(lambda F, x: F.reshape(F.permute(F.expand(x, (1, 3)), (0, 1)), (1, 3)), F32) == []
    assert ops_of(lambda F, x: F.pow(x, 2), F32) == ["mul"]
    assert ops_of(lambda F, x: F.cat([x]), F32) == ["cast"]  # no alias of its operand


def test_the_usual_layers_are_few_nodes() -> None:
    """The numbers are budgets: fusion starts from what is recorded here."""
    x, w, b = np.zeros((4, 8, 16), np.float32), np.zeros((32, 16), np.float32), np.zeros(32, np.float32)
    linear = ops_of(lambda F, x, w, b: F.linear(x, w, b), x, w, b)
    assert linear == ["reshape", "permute", "matmul", "expand", "add", "reshape"]
    assert len(ops_of(lambda F, x: F.gelu(x), x)) <= 8
    softmax = ops_of(lambda F, x: F.softmax(x, -1), x)
    assert softmax == ["max", "detach", "reshape", "expand", "sub", "exp", "sum", "reshape", "expand", "div"]
    assert len(ops_of(lambda F, x, w: F.layer_norm(x, (16,), w, w), x, np.zeros(16, np.float32))) <= 20
    q = np.zeros((2, 4, 8, 16), np.float32)
    assert len(ops_of(lambda F, q: F.scaled_dot_product_attention(q, q, q, is_causal=True), q)) <= 20
    assert len(ops_of(lambda F, x, t: F.cross_entropy(x, t), x[0], np.zeros(8, np.int64))) <= 36


@pytest.mark.parametrize("narrow", [F16, BF16])
def test_16_bit_results_are_the_float32_ones_rounded_once(narrow: Any) -> None:
    wide = narrow.astype(np.float32)
    for call in (
        lambda x: F.softmax(x, -1),
        lambda x: F.log_softmax(x, -1),
        lambda x: F.logsumexp(x, -1),
        lambda x: F.layer_norm(x, 3),
        lambda x: F.rms_norm(x, 3, eps=1e-5),
        lambda x: F.mean(x, 1),
        lambda x: F.var(x, 1),
        lambda x: F.norm(x),
    ):
        result = call(narrow)
        assert result.dtype == narrow.dtype
        np.testing.assert_array_equal(result.astype(np.float32), call(wide).astype(narrow.dtype).astype(np.float32))


def test_a_long_16_bit_sum_does_not_stall() -> None:
    ones = np.ones(4096, ml_dtypes.bfloat16)
    assert float(F.sum(ones)) == 4096.0  # summing in bfloat16 stops at 256


def test_shapes_that_do_not_broadcast_are_errors() -> None:
    with pytest.raises(ShapeError):
        F.add(np.zeros(3), np.zeros(4))
    with pytest.raises(ShapeError):
        F.expand(np.zeros(3), 4)
