"""Tensors without an element that require a gradient, among others: the result requires one, as in torch."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from beside_torch import verdict

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

NOWHERE = "m.zeros(0, dtype=m.int64)"
RESULTS = (
    "m.cat([e, m.ones(2)])",
    "m.cat([m.ones(2), e, e])",
    "m.cat([m.ones(2, dtype=m.float64), e])",
    "m.cat([e, m.ones(2, 3)], 1)",
    "m.cat([e, e])",
    "m.cat([e, m.ones(2, dtype=m.int64)])",
    "m.hstack([e, m.ones(2)])",
    f"m.ones(3).scatter(0, {NOWHERE}, e)",
    f"m.ones(3).scatter_add(0, {NOWHERE}, e)",
    f"m.ones(3).scatter_reduce(0, {NOWHERE}, e, 'sum')",
    f"m.ones(3).scatter_reduce(0, {NOWHERE}, e, 'amax')",
    f"m.ones(3).index_add(0, {NOWHERE}, e)",
    "m.ones(3).masked_scatter(m.zeros(3, dtype=m.bool), e)",
)


@pytest.mark.parametrize("text", RESULTS)
def test_what_is_made_of_nothing_too_requires_a_gradient(text: str) -> None:
    for asks in ("True", "False"):
        made = f"e = m.zeros(0, requires_grad={asks}); y = {text}"
        assert verdict(f"{made}; y.requires_grad, y.detach()") == []
    assert verdict(f"e = m.zeros(0, requires_grad=True); y = {text}; m.autograd.grad(y.sum(), e)[0]") == []


def test_powers_are_made_in_the_dtype_of_what_they_are_put_into() -> None:
    assert verdict("m.logspace(0, 0.3, 4, out=m.empty(4, dtype=m.float64))", 2) == []
    assert verdict("m.logspace(0, 0.3, 4, dtype=m.float32, out=m.empty(4, dtype=m.float64))") == []
