"""torch.fft's frequencies and shifts against torch, eager and compiled; the transforms are absent, by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile as dc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.mark.parametrize("n", [1, 4, 5])
@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
def test_frequencies(name: str, n: int) -> None:
    got, want = (getattr(t.fft, name)(n, 0.5, dtype=t.float64).numpy() for t in (dc, torch))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dim", [None, 1, (0, 2)])
@pytest.mark.parametrize("name", ["fftshift", "ifftshift"])
def test_shifts(name: str, dim: Any) -> None:
    x = np.arange(60.0).reshape(3, 4, 5)
    compiled = dc.compile(lambda x: getattr(dc.fft, name)(x, dim), fullgraph=True)
    want = getattr(torch.fft, name)(torch.tensor(x), dim).numpy()
    np.testing.assert_array_equal(getattr(dc.fft, name)(dc.tensor(x), dim).numpy(), want)
    np.testing.assert_array_equal(compiled(dc.tensor(x)).numpy(), want)


def test_what_needs_complex_numbers_is_not_there() -> None:
    with pytest.raises(AttributeError, match="fft"):
        dc.fft.rfft(dc.zeros(4))
    with pytest.raises(TypeError, match="complex"):
        dc.tensor(np.zeros(2, np.complex64))
