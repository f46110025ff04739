"""Written by tests/test_stubs.py from what the namespace holds: see there."""

# ruff: noqa
# fmt: off

from distcompile.distributions import constraints as constraints
from distcompile.distributions import transforms as transforms
from distcompile.distributions.by_inverse import GeneralizedPareto as GeneralizedPareto
from distcompile.distributions.by_inverse import Kumaraswamy as Kumaraswamy
from distcompile.distributions.by_inverse import Pareto as Pareto
from distcompile.distributions.by_inverse import Weibull as Weibull
from distcompile.distributions.categorical import Bernoulli as Bernoulli
from distcompile.distributions.categorical import Categorical as Categorical
from distcompile.distributions.categorical import ContinuousBernoulli as ContinuousBernoulli
from distcompile.distributions.categorical import OneHotCategorical as OneHotCategorical
from distcompile.distributions.categorical import OneHotCategoricalStraightThrough as OneHotCategoricalStraightThrough
from distcompile.distributions.composed import Independent as Independent
from distcompile.distributions.composed import LogNormal as LogNormal
from distcompile.distributions.composed import LogisticNormal as LogisticNormal
from distcompile.distributions.composed import MixtureSameFamily as MixtureSameFamily
from distcompile.distributions.composed import RelaxedBernoulli as RelaxedBernoulli
from distcompile.distributions.composed import RelaxedOneHotCategorical as RelaxedOneHotCategorical
from distcompile.distributions.composed import TransformedDistribution as TransformedDistribution
from distcompile.distributions.constraint_registry import biject_to as biject_to
from distcompile.distributions.constraint_registry import transform_to as transform_to
from distcompile.distributions.counts import Binomial as Binomial
from distcompile.distributions.counts import Geometric as Geometric
from distcompile.distributions.counts import Multinomial as Multinomial
from distcompile.distributions.counts import NegativeBinomial as NegativeBinomial
from distcompile.distributions.counts import Poisson as Poisson
from distcompile.distributions.distribution import Distribution as Distribution
from distcompile.distributions.distribution import ExponentialFamily as ExponentialFamily
from distcompile.distributions.divergence import kl_divergence as kl_divergence
from distcompile.distributions.divergence import register_kl as register_kl
from distcompile.distributions.gammas import Beta as Beta
from distcompile.distributions.gammas import Chi2 as Chi2
from distcompile.distributions.gammas import Dirichlet as Dirichlet
from distcompile.distributions.gammas import Exponential as Exponential
from distcompile.distributions.gammas import FisherSnedecor as FisherSnedecor
from distcompile.distributions.gammas import Gamma as Gamma
from distcompile.distributions.gammas import InverseGamma as InverseGamma
from distcompile.distributions.location_scale import Cauchy as Cauchy
from distcompile.distributions.location_scale import Gumbel as Gumbel
from distcompile.distributions.location_scale import HalfCauchy as HalfCauchy
from distcompile.distributions.location_scale import HalfNormal as HalfNormal
from distcompile.distributions.location_scale import Laplace as Laplace
from distcompile.distributions.location_scale import Normal as Normal
from distcompile.distributions.location_scale import StudentT as StudentT
from distcompile.distributions.location_scale import Uniform as Uniform
from distcompile.distributions.location_scale import VonMises as VonMises
from distcompile.distributions.multivariate import LKJCholesky as LKJCholesky
from distcompile.distributions.multivariate import LowRankMultivariateNormal as LowRankMultivariateNormal
from distcompile.distributions.multivariate import MultivariateNormal as MultivariateNormal
from distcompile.distributions.multivariate import Wishart as Wishart
from distcompile.distributions.transform import AbsTransform as AbsTransform
from distcompile.distributions.transform import AffineTransform as AffineTransform
from distcompile.distributions.transform import ExpTransform as ExpTransform
from distcompile.distributions.transform import PowerTransform as PowerTransform
from distcompile.distributions.transform import SigmoidTransform as SigmoidTransform
from distcompile.distributions.transform import SoftplusTransform as SoftplusTransform
from distcompile.distributions.transform import TanhTransform as TanhTransform
from distcompile.distributions.transform import Transform as Transform
from distcompile.distributions.transforms import CatTransform as CatTransform
from distcompile.distributions.transforms import ComposeTransform as ComposeTransform
from distcompile.distributions.transforms import CumulativeDistributionTransform as CumulativeDistributionTransform
from distcompile.distributions.transforms import IndependentTransform as IndependentTransform
from distcompile.distributions.transforms import StackTransform as StackTransform
from distcompile.distributions.transforms import identity_transform as identity_transform
from distcompile.distributions.vector_transforms import CorrCholeskyTransform as CorrCholeskyTransform
from distcompile.distributions.vector_transforms import LowerCholeskyTransform as LowerCholeskyTransform
from distcompile.distributions.vector_transforms import PositiveDefiniteTransform as PositiveDefiniteTransform
from distcompile.distributions.vector_transforms import ReshapeTransform as ReshapeTransform
from distcompile.distributions.vector_transforms import SoftmaxTransform as SoftmaxTransform
from distcompile.distributions.vector_transforms import StickBreakingTransform as StickBreakingTransform

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "CatTransform",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ComposeTransform",
    "ContinuousBernoulli",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "Dirichlet",
    "Distribution",
    "ExpTransform",
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
    "IndependentTransform",
    "InverseGamma",
    "Kumaraswamy",
    "LKJCholesky",
    "Laplace",
    "LogNormal",
    "LogisticNormal",
    "LowRankMultivariateNormal",
    "LowerCholeskyTransform",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "StudentT",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "VonMises",
    "Weibull",
    "Wishart",
    "biject_to",
    "constraints",
    "identity_transform",
    "kl_divergence",
    "register_kl",
    "transform_to",
    "transforms",
]
