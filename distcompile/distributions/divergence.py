"""kl_divergence: the mean under p of log p - log q, in closed form.

In: two distributions of one family. Out: a Tensor of their batch shape. Others raise NotSupportedError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import distcompile as dc
import distcompile.nn.functional as F
from distcompile.distributions.distribution import Distribution, Independent
from distcompile.distributions.families import Bernoulli, Categorical, Normal, Uniform
from distcompile.errors import ArgumentError, NotSupportedError


def kl_divergence(p: Distribution, q: Distribution) -> dc.Tensor:
    """KL(p ‖ q). Raises NotSupportedError (a NotImplementedError) for a pair without a closed form here."""
    if type(p) is not type(q) or type(p) not in _RULES:
        raise NotSupportedError(
            f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}"
        )
    return _RULES[type(p)](p, q)


def _normal(p: Normal, q: Normal) -> dc.Tensor:
    ratio = (p.scale / q.scale) ** 2
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale) ** 2 - 1 - ratio.log())


def _uniform(p: Uniform, q: Uniform) -> dc.Tensor:
    result = ((q.high - q.low) / (p.high - p.low)).log()
    return dc.where((q.low > p.low) | (q.high < p.high), float("inf"), result)


def _categorical(p: Categorical, q: Categorical) -> dc.Tensor:
    terms = p.probs * (p.logits - q.logits)
    terms = dc.where((q.probs == 0).expand_as(terms), float("inf"), terms)
    return dc.where((p.probs == 0).expand_as(terms), 0.0, terms).sum(-1)


def _bernoulli(p: Bernoulli, q: Bernoulli) -> dc.Tensor:
    ones = p.probs * (F.softplus(-q.logits) - F.softplus(-p.logits))
    zeros = (1 - p.probs) * (F.softplus(q.logits) - F.softplus(p.logits))
    ones = dc.where(p.probs == 0, 0.0, dc.where((q.probs == 0).expand_as(ones), float("inf"), ones))
    return ones + dc.where(p.probs == 1, 0.0, dc.where((q.probs == 1).expand_as(zeros), float("inf"), zeros))


def _independent(p: Independent, q: Independent) -> dc.Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise ArgumentError("Independents of as many event dims, please")
    return p.summed(kl_divergence(p.base_dist, q.base_dist))


_RULES: dict[type, Callable[[Any, Any], dc.Tensor]] = {
    Normal: _normal,
    Uniform: _uniform,
    Categorical: _categorical,
    Bernoulli: _bernoulli,
    Independent: _independent,
}
