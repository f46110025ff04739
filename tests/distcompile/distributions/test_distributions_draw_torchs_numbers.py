"""torch.distributions: from torch's seed every distribution draws torch's samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.same_draws import assert_same_draws

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:Singular sample")]
PROBABILITIES = [0.2, 0.5, 0.7]
Made = Callable[[Any, Any], Any]
DISTRIBUTIONS: dict[str, Made] = {
    "Bernoulli": lambda t, d: d.Bernoulli(t.tensor(PROBABILITIES)),
    "BernoulliOfLogits": lambda t, d: d.Bernoulli(logits=t.randn(3)),
    "Beta": lambda t, d: d.Beta(t.rand(3) * 3, t.rand(3)),
    "Binomial": lambda t, d: d.Binomial(20, t.tensor(PROBABILITIES)),
    "Categorical": lambda t, d: d.Categorical(t.rand(4, 5)),
    "CategoricalOfLogits": lambda t, d: d.Categorical(logits=t.randn(4, 5)),
    "Cauchy": lambda t, d: d.Cauchy(t.zeros(3), t.ones(3)),
    "Chi2": lambda t, d: d.Chi2(t.rand(3) * 5),
    "ContinuousBernoulli": lambda t, d: d.ContinuousBernoulli(t.tensor([0.2, 0.4, 0.7])),
    "Dirichlet": lambda t, d: d.Dirichlet(t.rand(2, 3) * 3),
    "Exponential": lambda t, d: d.Exponential(t.ones(3) * 2),
    "FisherSnedecor": lambda t, d: d.FisherSnedecor(t.rand(3) * 5 + 1, t.rand(3) * 5 + 1),
    "Gamma": lambda t, d: d.Gamma(t.rand(3) * 3, t.ones(3)),
    "GeneralizedPareto": lambda t, d: d.GeneralizedPareto(t.zeros(3), t.ones(3), t.ones(3) * 0.3),
    "Geometric": lambda t, d: d.Geometric(t.tensor(PROBABILITIES)),
    "Gumbel": lambda t, d: d.Gumbel(t.zeros(3), t.ones(3)),
    "HalfCauchy": lambda t, d: d.HalfCauchy(t.ones(3)),
    "HalfNormal": lambda t, d: d.HalfNormal(t.ones(3)),
    "Independent": lambda t, d: d.Independent(d.Normal(t.zeros(2, 3), t.ones(2, 3)), 1),
    "InverseGamma": lambda t, d: d.InverseGamma(t.rand(3) * 3, t.ones(3)),
    "Kumaraswamy": lambda t, d: d.Kumaraswamy(t.ones(3) * 2, t.ones(3) * 3),
    "LKJCholesky": lambda t, d: d.LKJCholesky(3, 1.5),
    "Laplace": lambda t, d: d.Laplace(t.zeros(3), t.ones(3)),
    "LogNormal": lambda t, d: d.LogNormal(t.zeros(3), t.ones(3)),
    "LogisticNormal": lambda t, d: d.LogisticNormal(t.zeros(3), t.ones(3)),
    "LowRankMultivariateNormal": lambda t, d: d.LowRankMultivariateNormal(t.zeros(3), t.rand(3, 2), t.ones(3)),
    "MixtureSameFamily": lambda t, d: d.MixtureSameFamily(d.Categorical(t.ones(4)), d.Normal(t.randn(4), t.rand(4))),
    "Multinomial": lambda t, d: d.Multinomial(10, t.rand(4, 5)),
    "MultivariateNormal": lambda t, d: d.MultivariateNormal(t.zeros(3), t.eye(3) * 2),
    "NegativeBinomial": lambda t, d: d.NegativeBinomial(5, t.tensor(PROBABILITIES)),
    "Normal": lambda t, d: d.Normal(t.zeros(3), t.ones(3) * 2),
    "NormalOfNumbers": lambda t, d: d.Normal(0.0, 1.0),
    "OneHotCategorical": lambda t, d: d.OneHotCategorical(t.rand(4, 5)),
    "OneHotCategoricalStraightThrough": lambda t, d: d.OneHotCategoricalStraightThrough(t.rand(4, 5)),
    "Pareto": lambda t, d: d.Pareto(t.ones(3), t.ones(3) * 2),
    "Poisson": lambda t, d: d.Poisson(t.rand(3) * 20),
    "RelaxedBernoulli": lambda t, d: d.RelaxedBernoulli(t.tensor(0.5), t.tensor(PROBABILITIES)),
    "RelaxedOneHotCategorical": lambda t, d: d.RelaxedOneHotCategorical(t.tensor(0.5), t.rand(4, 5)),
    "StudentT": lambda t, d: d.StudentT(t.rand(3) * 5 + 1),
    "TransformedDistribution": lambda t, d: d.TransformedDistribution(
        d.Normal(t.zeros(3), t.ones(3)), [d.ExpTransform(), d.AffineTransform(1.0, 2.0)]
    ),
    "Uniform": lambda t, d: d.Uniform(t.zeros(3), t.ones(3) * 2),
    "VonMises": lambda t, d: d.VonMises(t.zeros(3), t.tensor([0.5, 2.0, 10.0])),
    "Weibull": lambda t, d: d.Weibull(t.ones(3), t.ones(3) * 2),
    "Wishart": lambda t, d: d.Wishart(t.tensor([5.0]), covariance_matrix=t.eye(2)),
    "WishartOfNoBatch": lambda t, d: d.Wishart(t.tensor(5.0), covariance_matrix=t.eye(3)),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_samples_are_torchs(name: str) -> None:
    def samples(t: Any) -> Iterator[Any]:
        made = DISTRIBUTIONS[name](t, t.distributions)
        for shape in ((), (2,), (20,), (3, 4)):
            yield made.sample(shape)
        if made.has_rsample:
            yield made.rsample((5,))

    assert_same_draws(samples, rtol=2e-5)
