"""torch.distributions' classes that are offered: densities, entropies, divergences, moments, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from distcompile import distributions
from distcompile.errors import ArgumentError, NotSupportedError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((3, 4)), RNG.standard_normal((3, 4))
REAL, BITS = RNG.standard_normal((2, 3, 4)), RNG.integers(0, 2, (2, 3, 4)).astype("f8")
UNIT, CLASSES = RNG.random((2, 3, 4)), RNG.integers(0, 4, (2, 3))

MAKERS: dict[str, tuple[Callable[[Any, Any], Any], np.ndarray[Any, Any]]] = {
    "normal": (lambda d, a: d.Normal(a, a.exp()), REAL),
    "normal_number": (lambda d, a: d.Normal(a, 2.0), REAL),
    "uniform": (lambda d, a: d.Uniform(a * 0 - 1, 1 + a.abs()), UNIT),
    "categorical": (lambda d, a: d.Categorical(logits=a), CLASSES),
    "categorical_probs": (lambda d, a: d.Categorical(a.exp()), CLASSES),
    "bernoulli": (lambda d, a: d.Bernoulli(logits=a), BITS),
    "bernoulli_probs": (lambda d, a: d.Bernoulli(a.sigmoid()), BITS),
    "independent": (lambda d, a: d.Independent(d.Normal(a, a.exp()), 1), REAL),
}  # fmt: skip


def judged(package: Any, make: Callable[[Any, Any], Any], value: np.ndarray[Any, Any]) -> list[Any]:
    """log_prob, entropy, divergence, the gradients of their sum; variance where there is one; the shapes."""
    a, b = (package.tensor(v).requires_grad_() for v in (A, B))
    p, q = make(package.distributions, a), make(package.distributions, b)
    found = [p.log_prob(package.tensor(value)), p.entropy(), package.distributions.kl_divergence(p, q)]
    finite = [t[t.isfinite()].sum() for t in found]
    sum(finite).backward()
    if not hasattr(p, "mode") or (package is torch and type(p).__name__ != "Categorical"):
        found += [p.mean, p.variance, p.stddev]
    sizes = [tuple(s) for s in (p.batch_shape, p.event_shape, p.sample().shape, p.sample((5, 2)).shape)]
    grads = [None if v.grad is None else v.grad.numpy() for v in (a, b)]
    return [*(t.detach().numpy() for t in found), *grads, *sizes]


@pytest.mark.parametrize("name", MAKERS)
def test_values_and_gradients_are_torchs(name: str) -> None:
    import torch.distributions

    for ours, theirs in zip(judged(dc, *MAKERS[name]), judged(torch, *MAKERS[name]), strict=True):
        np.testing.assert_allclose(np.asarray(ours, "f8"), np.asarray(theirs, "f8"), rtol=1e-9, atol=1e-12)


def test_draws_have_the_moments_and_their_gradients() -> None:
    dc.manual_seed(0)
    loc, scale = dc.tensor(1.0, requires_grad=True), dc.tensor(2.0, requires_grad=True)
    drawn = distributions.Normal(loc, scale).rsample((20000,))
    drawn.mean().backward()
    assert loc.grad is not None
    assert (loc.grad.item(), abs(drawn.mean().item() - 1) < 0.1, abs(drawn.std().item() - 2) < 0.1) == (1.0, True, True)
    counts = distributions.Categorical(dc.tensor([1.0, 0.0, 3.0])).sample((4000,)).bincount(minlength=3).tolist()
    assert counts[1] == 0
    assert abs(counts[2] / 4000 - 0.75) < 0.05
    assert abs(distributions.Bernoulli(0.25).sample((4000,)).mean().item() - 0.25) < 0.05
    low, high = distributions.Uniform(2.0, 3.0).sample((100,)).aminmax()
    assert 2 <= low.item() < high.item() < 3


def test_a_policys_loss_compiles_whole() -> None:
    def loss(logits: dc.Tensor, action: dc.Tensor) -> dc.Tensor:
        policy = distributions.Categorical(logits=logits)
        return policy.log_prob(action).mean() - 0.1 * policy.entropy().mean()

    x, action = dc.tensor(A), dc.tensor(CLASSES[0])
    np.testing.assert_allclose(dc.compile(loss, fullgraph=True)(x, action).numpy(), loss(x, action).numpy(), rtol=1e-9)


def test_what_is_refused() -> None:
    with pytest.raises(ArgumentError, match="scale greater than zero"):
        distributions.Normal(0.0, -1.0)
    with pytest.raises(ArgumentError, match="low >= high"):
        distributions.Uniform(1.0, 1.0)
    with pytest.raises(ArgumentError, match="but not both"):
        distributions.Bernoulli()
    with pytest.raises(ArgumentError, match="from zero to one"):
        distributions.Bernoulli(1.5)
    with pytest.raises(ArgumentError, match="at least zero"):
        distributions.Categorical(dc.tensor([1.0, -1.0]))
    with pytest.raises(ArgumentError, match="reinterpreted_batch_ndims"):
        distributions.Independent(distributions.Normal(0.0, 1.0), 1)
    with pytest.raises(NotSupportedError, match="No KL"):
        distributions.kl_divergence(distributions.Normal(0.0, 1.0), distributions.Bernoulli(0.5))
    with pytest.raises(NotSupportedError, match="no draws with a gradient"):
        distributions.Bernoulli(0.5).rsample()
