"""erf of float32: within 1 ulp of math.erf, never beyond 1; eager code has the bits of compiled code."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.eager.native import kernels
from compiler_core.ops.primitives.erf import erf_in_float32

Array = Any
X = np.concatenate([
    np.linspace(-6, 6, 60001), np.geomspace(1e-45, 1, 20001), [0.0, -0.0, 3e38, -3e38, -1e-45, 0.921875, 3.95],
]).astype(np.float32)  # fmt: skip
EXACT = np.array([math.erf(v) for v in X.tolist()])


def ulps(made: Array) -> float:
    unit = np.spacing(np.abs(EXACT).astype(np.float32)).astype(np.float64)
    return float((np.abs(made.astype(np.float64) - EXACT) / unit).max())


def test_eager_erf_is_exact_to_an_ulp_and_never_beyond_one() -> None:
    x = dc.tensor(X)
    made = dc.erf(x)
    assert ulps(made.numpy()) < (1.0 if kernels() else 1.5)
    assert bool((made.abs() <= 1).all())
    assert not bool(dc.isnan(dc.log(1 - made)).any())
    assert dc.erf(dc.tensor([1e-45, -1e-45])).tolist() == dc.tensor([1e-45, -1e-45]).tolist()
    special = dc.erf(dc.tensor([math.inf, -math.inf, math.nan, -0.0])).tolist()
    assert special[:2] == [1, -1]
    assert math.isnan(special[2])
    assert math.copysign(1, special[3]) == -1


@pytest.mark.skipif(kernels() is None, reason="no compiler")
@pytest.mark.parametrize("n", [1, 3, 17, X.size])
def test_eager_and_compiled_have_the_same_bits(n: int) -> None:
    x = dc.tensor(X[:n])
    assert dc.compile(dc.erf)(x).numpy().tobytes() == dc.erf(x).numpy().tobytes()


@pytest.mark.parametrize("dtype", [dc.bfloat16, dc.float16])
def test_narrow_floats_are_rounded_once(dtype: Any) -> None:
    x = dc.tensor(X).to(dtype)
    exact = dc.tensor([math.erf(v) for v in x.double().tolist()], dtype=dc.float64)
    assert dc.equal(dc.erf(x), exact.float().to(dtype))


def test_arrays_that_lie_otherwise() -> None:
    x = X[:12000].reshape(100, 120)
    whole, t = dc.erf(dc.tensor(x)).numpy(), dc.tensor(x)
    assert (dc.erf(t.T).numpy() == whole.T).all()
    assert (dc.erf(t[::3, 1::2]).numpy() == whole[::3, 1::2]).all()
    assert (dc.erf(t[:1].expand(4, 120)).numpy() == whole[:1]).all()
    assert dc.erf(t[0, 0]).item() == whole[0, 0]
    assert dc.erf(t[:0]).shape == (0, 120)


def test_without_a_compiler_numpy_takes_the_same_steps() -> None:
    made = erf_in_float32(np, X)
    assert ulps(made) < 1.5
    assert np.abs(made).max() == 1
    assert np.signbit(erf_in_float32(np, np.float32([-0.0])))[0]
    assert np.isnan(erf_in_float32(np, np.float32([np.nan])))[0]


def test_gelu_and_its_gradient_follow_it() -> None:
    x = np.linspace(-6, 6, 4001)
    phi = np.array([0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x.tolist()])
    slope = phi + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    ours = dc.tensor(x, dtype=dc.float32, requires_grad=True)
    made = dc.nn.functional.gelu(ours)
    made.sum().backward()
    np.testing.assert_allclose(made.detach().numpy(), x * phi, rtol=0, atol=6e-7)
    np.testing.assert_allclose(ours.grad.numpy(), slope, rtol=0, atol=6e-7)
