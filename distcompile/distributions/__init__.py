"""torch.distributions: all its distributions, with constraints, transforms and divergences.

In: parameters, as Tensors or numbers that broadcast. Out: draws, log densities, entropies, divergences, as Tensors with
gradients. Draws come from distcompile's generator, so their numbers are not torch's.
"""

from distcompile.distributions import constraints, transforms
from distcompile.distributions.by_inverse import GeneralizedPareto, Kumaraswamy, Pareto, Weibull
from distcompile.distributions.categorical import (
    Bernoulli,
    Categorical,
    ContinuousBernoulli,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
)
from distcompile.distributions.composed import (
    Independent,
    LogisticNormal,
    LogNormal,
    MixtureSameFamily,
    RelaxedBernoulli,
    RelaxedOneHotCategorical,
    TransformedDistribution,
)
from distcompile.distributions.constraint_registry import biject_to, transform_to
from distcompile.distributions.counts import Binomial, Geometric, Multinomial, NegativeBinomial, Poisson
from distcompile.distributions.distribution import Distribution, ExponentialFamily
from distcompile.distributions.divergence import kl_divergence, register_kl
from distcompile.distributions.gammas import (
    Beta,
    Chi2,
    Dirichlet,
    Exponential,
    FisherSnedecor,
    Gamma,
    InverseGamma,
)
from distcompile.distributions.location_scale import (
    Cauchy,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    Laplace,
    Normal,
    StudentT,
    Uniform,
    VonMises,
)
from distcompile.distributions.multivariate import (
    LKJCholesky,
    LowRankMultivariateNormal,
    MultivariateNormal,
    Wishart,
)
from distcompile.distributions.transforms import *  # noqa: F403
from distcompile.distributions.transforms import __all__ as _transforms
from distcompile.surface.laid_out import lay_out

__all__ = [
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ContinuousBernoulli",
    "Dirichlet",
    "Distribution",
    "Exponential",
    "ExponentialFamily",
    "FisherSnedecor",
    "Gamma",
    "GeneralizedPareto",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "InverseGamma",
    "Kumaraswamy",
    "LKJCholesky",
    "Laplace",
    "LogNormal",
    "LogisticNormal",
    "LowRankMultivariateNormal",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "StudentT",
    "TransformedDistribution",
    "Uniform",
    "VonMises",
    "Weibull",
    "Wishart",
    "biject_to",
    "constraints",
    "kl_divergence",
    "register_kl",
    "transform_to",
    "transforms",
]
__all__ += _transforms

_FILES = {
    "categorical": "bernoulli continuous_bernoulli one_hot_categorical",
    "by_inverse": "generalized_pareto kumaraswamy pareto weibull",
    "composed": "independent log_normal logistic_normal mixture_same_family relaxed_bernoulli relaxed_categorical "
    "transformed_distribution",
    "counts": "binomial geometric multinomial negative_binomial poisson",
    "distribution": "exp_family",
    "divergence": "kl",
    "forms": "utils",
    "gammas": "beta chi2 dirichlet exponential fishersnedecor gamma inverse_gamma",
    "location_scale": "cauchy gumbel half_cauchy half_normal laplace normal studentT uniform von_mises",
    "multivariate": "lkj_cholesky lowrank_multivariate_normal multivariate_normal wishart",
}
globals().update(lay_out(__name__, __name__, {file: ours for ours, files in _FILES.items() for file in files.split()}))
