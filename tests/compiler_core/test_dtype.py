"""Promotion: torch's own answer is the oracle, for tensors with and without dims and for numbers."""

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

from compiler_core import dtype
from compiler_core.errors import DTypeError
from compiler_core.meta import TensorMeta

WIDE = (dtype.uint16, dtype.uint32, dtype.uint64)


@pytest.mark.torch
@pytest.mark.parametrize("a", dtype.ALL, ids=str)
@pytest.mark.parametrize("b", dtype.ALL, ids=str)
def test_tensors_promote_as_torchs(a, b):
    torch = pytest.importorskip("torch")
    for shapes in (((2,), (2,)), ((2,), ()), ((), (2,)), ((), ())):
        tensors = [torch.ones(shape, dtype=getattr(torch, d.name)) for shape, d in zip(shapes, (a, b))]
        try:
            expected = str(torch.result_type(*tensors)).removeprefix("torch.")
        except RuntimeError:  # wide unsigned integers beside others; beside bools ours stay
            if dtype.bool_ not in (a, b):
                with pytest.raises(DTypeError, match="no common dtype"):
                    dtype.promote(*map(TensorMeta, shapes, (a, b)))
            continue
        if expected == "complex32":
            with pytest.raises(DTypeError, match="complex32"):
                dtype.promote(*map(TensorMeta, shapes, (a, b)))
            continue
        assert dtype.promote(*map(TensorMeta, shapes, (a, b))).name == expected


@pytest.mark.torch
@pytest.mark.parametrize("a", dtype.ALL, ids=str)
@pytest.mark.parametrize(
    "number", [True, 3, 0.5, np.float64(0.5), np.float32(2), np.int32(3), np.uint8(3), 1j], ids=repr
)
def test_numbers_are_weak(a, number):
    torch = pytest.importorskip("torch")
    for shape in ((2,), ()):
        expected = torch.result_type(torch.ones(shape, dtype=getattr(torch, a.name)), number)
        if expected is torch.complex32:
            with pytest.raises(DTypeError, match="complex32"):
                dtype.promote(TensorMeta(shape, a), number)
            continue
        assert dtype.promote(TensorMeta(shape, a), number).name == str(expected).removeprefix("torch.")


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
        dtype.of(np.longdouble)
    with pytest.raises(DTypeError, match="unknown dtype"):
        dtype.by_name("f128")


def test_interned_through_pickle_and_copy():
    assert pickle.loads(pickle.dumps(dtype.float16)) is dtype.float16
    assert copy.deepcopy(dtype.int8) is dtype.int8


def test_half_floats_compute_in_float32():
    assert dtype.bfloat16.compute is dtype.float16.compute is dtype.float32
    assert dtype.float64.compute is dtype.float64
