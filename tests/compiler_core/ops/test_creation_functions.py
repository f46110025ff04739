"""Constants and ramps against NumPy; eager results belong to the caller."""

from __future__ import annotations

import numpy as np
import pytest

from compiler_core import dtype as dt
from compiler_core.errors import ShapeError
from compiler_core.ops import functional as F


def test_constants() -> None:
    assert F.zeros((2, 3)).dtype == np.float32
    np.testing.assert_array_equal(F.ones((2, 3), dtype=dt.int64), np.ones((2, 3), np.int64))
    np.testing.assert_array_equal(F.full((2,), 7), np.array([7, 7]))
    assert F.full((2,), True).dtype == np.bool_
    assert F.full((2,), 1.5).dtype == np.float32
    like = F.zeros_like(np.ones((2, 2), np.float16))
    assert (like.dtype, like.shape) == (np.float16, (2, 2))
    assert F.full_like(like, 3, dtype=dt.int32).dtype == np.int32


def test_eager_constants_can_be_written() -> None:
    for x in (F.zeros((2, 3)), F.ones_like(np.zeros(3)), F.full((2,), 1.0), F.arange(3)):
        assert x.flags.writeable
        assert x.flags.c_contiguous
        x[...] = 5


@pytest.mark.parametrize("args", [(5,), (2, 7), (2, 9, 3), (7, 2, -2), (0,), (0.5, 3.0), (0, 1, 0.25), (3, 3)])
def test_arange(args: tuple[float, ...]) -> None:
    result = F.arange(*args)
    np.testing.assert_allclose(result, np.arange(*args), rtol=1e-6)
    whole = all(isinstance(a, int) for a in args)
    assert result.dtype == (np.int64 if whole else np.float32)


def test_arange_that_leads_away_is_an_error() -> None:
    with pytest.raises(ShapeError):
        F.arange(0, 5, -1)


def test_linspace_and_eye() -> None:
    np.testing.assert_allclose(F.linspace(-1.0, 2.0, 7), np.linspace(-1, 2, 7, dtype=np.float32), rtol=1e-6)
    np.testing.assert_array_equal(F.linspace(3.0, 4.0, 1), np.array([3.0]))
    np.testing.assert_array_equal(F.eye(3), np.eye(3, dtype=np.float32))
    np.testing.assert_array_equal(F.eye(2, 4, dtype=dt.int64), np.eye(2, 4, dtype=np.int64))
