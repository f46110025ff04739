"""Where `not_ours.py` says that torch's own result is off: differences, and float64, say so too."""

from __future__ import annotations

import numpy as np
import pytest

import distcompile as dc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_what_as_strided_scatter_overwrites_has_no_gradient() -> None:
    weights, source = np.arange(1.0, 7.0), np.ones((2, 2))

    def loss(x: dc.Tensor) -> dc.Tensor:
        return (dc.as_strided_scatter(x, dc.tensor(source), (2, 2), (2, 1), 1) * dc.tensor(weights)).sum()

    x = dc.tensor(np.arange(6.0)).requires_grad_()
    loss(x).backward()
    steps = 1e-6 * np.eye(6)
    start = np.arange(6.0)
    slopes = [float(loss(dc.tensor(start + d)) - loss(dc.tensor(start - d))) / 2e-6 for d in steps]
    np.testing.assert_allclose(x.grad.numpy(), slopes, atol=1e-6)


def test_logcumsumexp_in_float32_has_float64s_gradient() -> None:
    values = np.random.default_rng(0).uniform(-9, 9, (5, 20))
    mine = dc.tensor(values.astype(np.float32)).requires_grad_()
    dc.logcumsumexp(mine, 1).sum().backward()
    want = torch.tensor(values.astype(np.float32).astype(np.float64)).requires_grad_()
    torch.logcumsumexp(want, 1).sum().backward()
    np.testing.assert_allclose(mine.grad.numpy(), want.grad.numpy(), rtol=1e-5, atol=1e-5)
