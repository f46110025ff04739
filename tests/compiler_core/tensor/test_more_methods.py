"""Less common Tensor methods, beside torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distcompile as dc
from tests.fake_cupy import on_fake_device

torch = pytest.importorskip("torch")


def both(function: Any) -> tuple[Any, Any]:
    found = []
    for t in (dc, torch):
        result = function(t)
        found.append(result.tolist() if hasattr(result, "tolist") else result)
    return found[0], found[1]


@pytest.mark.parametrize(
    "function",
    [
        lambda t: t.tensor([[1.0, 2.0], [3.0, 4.0]]).adjoint(),
        lambda t: t.adjoint(t.tensor([[1 + 2j, 3 - 1j]])).resolve_conj(),
        lambda t: t.arange(6.0).reshape(2, 3).swapaxes_(0, 1),
        lambda t: t.arange(4.0).greater_(1),
        lambda t: t.arange(4.0).less_equal_(1),
        lambda t: t.arange(4.0).not_equal_(1),
        lambda t: t.tensor([-1.0, 0.3, 0.5, 2.0]).hardshrink(),
        lambda t: t.tensor([[-1.0, 2.0], [-3.0, -4.0]]).prelu(t.tensor([0.5, 0.25])),
        lambda t: t.tensor([-1.0, 2.0]).prelu(t.tensor([0.5])),
        lambda t: t.arange(3.0).apply_(lambda v: v * v + 1),
        lambda t: t.zeros(2, 2).map_(t.tensor([1.0, 2.0]), lambda a, b: a + b),
        lambda t: t.empty_strided((2, 3), (1, 2)).stride(),
        lambda t: t.ones(2).new_empty_strided((2, 2), (1, 2), dtype=t.float64).zero_(),
        lambda t: t.ones(2, 3).dim_order(),
        lambda t: t.ones(2, 3).t().dim_order(),
        lambda t: t.arange(5.0).narrow_copy(0, 1, 2),
        lambda t: t.tensor([2.0], dtype=t.float64).float_power_(3),
        lambda t: (t.ones(2).name, t.ones(2).output_nr, t.ones(2).is_neg(), t.ones(2).is_quantized, t.ones(2).is_xpu),
        lambda t: (t.ones(2).is_same_size(t.zeros(2)), t.ones(2).is_set_to(t.ones(2)), t.get_device(t.ones(2))),
        lambda t: (t.ones(2, 2).dense_dim(), t.ones(2).to_dense()[0].item(), t.ones(2).retains_grad),
    ],
)
def test_as_torch(function: Any) -> None:
    mine, theirs = both(function)
    assert mine == theirs


def test_retained_gradients_and_sets() -> None:
    x = dc.ones(2, requires_grad=True)
    y = x * 2
    assert (x.retains_grad, y.retains_grad) == (False, False)
    y.retain_grad()
    assert y.retains_grad
    z = dc.arange(4.0)
    assert z.is_set_to(z.detach())
    assert not z[1:].is_set_to(z[:3])


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_draws_in_place(place: str) -> None:
    with on_fake_device():
        dc.manual_seed(3)
        n = 20000
        cauchy = dc.empty(n, device=place).cauchy_(2.0, 0.5).cpu().numpy()
        assert np.quantile(cauchy, [0.25, 0.5, 0.75]) == pytest.approx([1.5, 2.0, 2.5], abs=0.03)
        logs = np.log(dc.empty(n, device=place).log_normal_(1.0, 0.5).cpu().numpy())
        assert (logs.mean(), logs.std()) == pytest.approx((1.0, 0.5), abs=0.02)
        trials = dc.empty(n, device=place, dtype=dc.int64).geometric_(0.25).cpu().numpy()
        assert (trials.min(), trials.mean(), (trials == 1).mean()) == pytest.approx((1, 4, 0.25), abs=0.1)
        with pytest.raises(RuntimeError, match="geometric_"):
            dc.ones(2).geometric_(1.5)
        with pytest.raises(RuntimeError, match="float_power_ has dtype"):
            dc.ones(2).float_power_(2)
        with pytest.raises(TypeError, match="CPU tensors"):
            dc.ones(2, device="cuda").apply_(abs)
