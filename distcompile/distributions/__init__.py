"""torch.distributions: all its distributions, with constraints, transforms and divergences.

In: parameters, as Tensors or numbers that broadcast. Out: draws, log densities, entropies, divergences, as Tensors with
gradients. Draws come from distcompile's generator, so their numbers are not torch's.
"""

from compiler_core.names.namespaces import named_in
from distcompile.distributions import (
    by_inverse,
    categorical,
    composed,
    constraint_registry,
    constraints,
    counts,
    distribution,
    divergence,
    gammas,
    location_scale,
    multivariate,
    transforms,
)
from distcompile.surface.laid_out import lay_out

_NAMES = {
    by_inverse: "GeneralizedPareto Kumaraswamy Pareto Weibull",
    categorical: "Bernoulli Categorical ContinuousBernoulli OneHotCategorical OneHotCategoricalStraightThrough",
    composed: """
        Independent LogisticNormal LogNormal MixtureSameFamily RelaxedBernoulli RelaxedOneHotCategorical
        TransformedDistribution
    """,
    constraint_registry: "biject_to transform_to",
    counts: "Binomial Geometric Multinomial NegativeBinomial Poisson",
    distribution: "Distribution ExponentialFamily",
    divergence: "kl_divergence register_kl",
    gammas: "Beta Chi2 Dirichlet Exponential FisherSnedecor Gamma InverseGamma",
    location_scale: "Cauchy Gumbel HalfCauchy HalfNormal Laplace Normal StudentT Uniform VonMises",
    multivariate: "LKJCholesky LowRankMultivariateNormal MultivariateNormal Wishart",
}

globals().update(named_in(_NAMES | {transforms: " ".join(transforms.__all__)}))
__all__ = ["constraints", "transforms"]
__all__ += sorted([*named_in(_NAMES), *transforms.__all__])

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
