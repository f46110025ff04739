"""torch.distributions, in part: what policies and variational models use. Others of its names are AttributeErrors.

In: parameters, as Tensors or numbers that broadcast. Out: draws, log densities, entropies, divergences, as Tensors with
gradients. Draws come from distcompile's generator, so their numbers are not torch's.
"""

from distcompile.distributions.distribution import Distribution, Independent
from distcompile.distributions.divergence import kl_divergence
from distcompile.distributions.families import Bernoulli, Categorical, Normal, Uniform

__all__ = ["Bernoulli", "Categorical", "Distribution", "Independent", "Normal", "Uniform", "kl_divergence"]
