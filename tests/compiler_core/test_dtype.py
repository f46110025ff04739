"""Promotion: between arrays NumPy's own answer is the oracle; weak scalars follow NEP 50 with our default float."""

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

from compiler_core import dtype
from compiler_core.errors import DTypeError


@pytest.mark.parametrize("a", dtype.ALL, ids=str)
@pytest.mark.parametrize("b", dtype.ALL, ids=str)
def test_arrays_promote_as_numpy(a, b):
    try:
        expected = np.promote_types(a.numpy, b.numpy)
    except TypeError:  # NumPy's own promotion of bfloat16 beside float16 and wide integers
        like_float16 = [dtype.float16.numpy if d is dtype.bfloat16 else d.numpy for d in (a, b)]
        expected = np.float32 if dtype.float16 in (a, b) else np.promote_types(*like_float16)
    assert dtype.promote(a, b).numpy == expected


@pytest.mark.parametrize("a", dtype.ALL, ids=str)
@pytest.mark.parametrize("scalar", [True, 3, 0.5])
def test_scalars_are_weak(a, scalar):
    result = dtype.promote(a, scalar)
    if isinstance(scalar, float) and not a.is_floating_point:
        assert result is dtype.float32
    elif a is dtype.bfloat16:
        assert result is a  # NumPy's own promotion does not know that a Python scalar is weak beside an extension type
    else:
        expected = np.result_type(np.empty(0, a.numpy), scalar)
        assert result.numpy == expected


def test_scalars_alone_take_the_highest_kind():
    assert dtype.promote(True, 2) is dtype.int64
    assert dtype.promote(1, 2.0) is dtype.float32


def test_default_float_is_settable():
    dtype.set_default_dtype(dtype.float64)
    try:
        assert dtype.promote(dtype.int32, 0.5) is dtype.float64
    finally:
        dtype.set_default_dtype(dtype.float32)
    with pytest.raises(DTypeError, match="must be floating"):
        dtype.set_default_dtype(dtype.int32)


def test_lookups():
    assert dtype.of(np.float32) is dtype.float32
    assert dtype.of(np.zeros(1, ml_dtypes.bfloat16)) is dtype.bfloat16
    assert dtype.by_name("bf16") is dtype.by_name("bfloat16") is dtype.bfloat16
    with pytest.raises(DTypeError, match="not supported"):
        dtype.of(np.complex64)
    with pytest.raises(DTypeError, match="unknown dtype"):
        dtype.by_name("f128")


def test_interned_through_pickle_and_copy():
    assert pickle.loads(pickle.dumps(dtype.float16)) is dtype.float16
    assert copy.deepcopy(dtype.int8) is dtype.int8


def test_half_floats_compute_in_float32():
    assert dtype.bfloat16.compute is dtype.float16.compute is dtype.float32
    assert dtype.float64.compute is dtype.float64
