"""Special functions in float64 against torch's: ordinary points, poles, zeros, infinities, NaN; and torch's own forms.

The points are where the methods change over: series to expansion, reflection, small to large.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import distcompile as dc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

POINTS = np.array([-30.5, -8.1, -7.9, -2.5, -1.0, -0.3, -0.0, 0.0, 1e-8, 0.3, 0.5, 0.999999, 1.0, 1.5, 2.0, 2.1, 7.9,
                   9.9, 10.1, 19.9, 20.1, 24.9, 25.1, 60.0, np.inf, -np.inf, np.nan])  # fmt: skip
NAMES = (
    "erfinv lgamma digamma i0 sinc asinh acosh atanh special.i0e special.i1 special.i1e special.bessel_j0 "
    "special.bessel_j1 special.bessel_y0 special.bessel_y1 special.modified_bessel_k0 special.modified_bessel_k1 "
    "special.entr special.erfcx special.scaled_modified_bessel_k0 special.scaled_modified_bessel_k1 "
    "special.spherical_bessel_j0 special.ndtr special.log_ndtr special.ndtri special.airy_ai"
)
LOOSE = {"special.airy_ai": 1e-5} | dict.fromkeys(("special.bessel_j0", "special.bessel_j1"), 1e-7)  # torch's own error
LOOSE |= dict.fromkeys(("special.bessel_y0", "special.bessel_y1"), 1e-7)
NO_LIMIT = "special.bessel special.airy i0 special.i1"  # where torch has NaN at infinity, and we the limit


def named(package: Any, name: str) -> Any:
    for part in name.split("."):
        package = getattr(package, part)
    return package


@pytest.mark.parametrize("name", NAMES.split())
def test_a_special_function_is_torchs(name: str) -> None:
    points = POINTS[~np.isinf(POINTS)] if name.startswith(tuple(NO_LIMIT.split())) else POINTS
    with np.errstate(all="ignore"):
        got = named(dc, name)(dc.tensor(points)).numpy()
    want = named(torch, name)(torch.tensor(points)).numpy()
    np.testing.assert_allclose(got, want, rtol=LOOSE.get(name, 1e-9), atol=LOOSE.get(name, 1e-13) / 10)


def test_out_is_written_and_returned() -> None:
    out = dc.zeros(2, 2)
    assert dc.hstack([dc.ones(2, 1), dc.ones(2, 1)], out=out) is out
    assert out.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    with pytest.raises(ValueError, match="out="):
        dc.hstack([dc.ones(3, 1), dc.ones(3, 1)], out=out)


def test_methods_and_in_place_forms_come_from_the_table() -> None:
    x = dc.tensor([0.0, 0.5])
    assert x.asin_() is x
    np.testing.assert_allclose(x.numpy(), np.arcsin([0.0, 0.5]).astype(np.float32), rtol=1e-6)
    assert dc.tensor([[1.0, 2.0]]).fliplr().tolist() == [[2.0, 1.0]]


def test_creations_take_torchs_options() -> None:
    window = dc.hann_window(8, device="cpu", requires_grad=True)
    assert window.requires_grad
    np.testing.assert_allclose(window.detach().numpy(), torch.hann_window(8).numpy(), atol=1e-6)


def test_the_old_tensor_types_make_and_name_tensors() -> None:
    assert dc.LongTensor([1, 2]).dtype is dc.int64
    assert tuple(dc.FloatTensor(2, 3).shape) == (2, 3)
    assert isinstance(dc.zeros(1), dc.FloatTensor)
    assert not isinstance(dc.zeros(1), dc.LongTensor)
    assert dc.zeros(1).type(dc.IntTensor).dtype is dc.int32


@pytest.mark.parametrize("backend", ["", "eager", "codegen"])
@pytest.mark.parametrize(("name", "least"), [("erfinv", 1e-16), ("special.ndtri", 1e-300)])
def test_inverses_are_right_up_to_the_last_numbers_before_their_ends(name: str, least: float, backend: str) -> None:
    from_end = np.logspace(np.log10(least), -0.31, 2000)
    values = 1 - from_end if name == "erfinv" else from_end
    ours: Any = named(dc, name)
    ours = dc.compile(lambda x: named(dc, name)(x), backend=backend) if backend else ours
    theirs = named(torch, name)(torch.from_numpy(values)).numpy()
    np.testing.assert_allclose(ours(dc.from_numpy(values)).numpy(), theirs, rtol=2e-15)


SECOND = {
    "erfinv": ([-0.999, -0.7, -0.2, 0.0, 0.3, 0.5, 0.9, 0.99999], None),
    "special.ndtri": ([1e-6, 0.1, 0.4, 0.5, 0.7, 0.999], None),
    "igamma": ([0.1, 0.5, 1.5, 3.0, 8.0], [0.7, 1.0, 2.5, 3.0, 6.0]),
    "igammac": ([0.1, 0.5, 1.5, 3.0, 8.0], [0.7, 1.0, 2.5, 3.0, 6.0]),
}


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives_are_torchs(name: str) -> None:
    values, first = SECOND[name]

    def derivatives(library: Any) -> list[Any]:
        function = functools.reduce(getattr, name.split("."), library)
        x = library.tensor(values, dtype=library.float64).requires_grad_()
        before = [] if first is None else [library.tensor(first, dtype=library.float64)]
        y = function(*before, x)
        (slope,) = library.autograd.grad(y.sum(), x, create_graph=True)
        (second,) = library.autograd.grad(slope.sum(), x)
        return [part.detach().numpy() for part in (y, slope, second)]

    for mine, want in zip(derivatives(dc), derivatives(torch), strict=True):
        np.testing.assert_allclose(mine, want, rtol=1e-11, atol=1e-13)
