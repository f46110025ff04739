"""kl_divergence: the mean under p of log p - log q, in closed form.

In: two distributions. Out: a Tensor of their batch shape; infinite where p lies outside of q's support. Others raise
NotSupportedError. Method: within one family, a formula each; between families -H(p) - E_p[log q], where log q needs a
few expectations of p: of x, x², log x, log(1 - x), exp(t x). `register_kl` adds a rule; the most special one is used.
"""

# mypy: disable-error-code="no-any-return"
# The core's functions take and return any Value: array, graph node or Tensor.
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import distcompile as dc
import distcompile.nn.functional as F
from compiler_core.tensor.tensor import Tensor
from distcompile.distributions import by_inverse, composed, counts, multivariate
from distcompile.distributions import categorical as cat
from distcompile.distributions import gammas as gm
from distcompile.distributions import location_scale as ls
from distcompile.distributions.composed import Independent
from distcompile.distributions.distribution import HALF_LOG_TAU, Distribution
from distcompile.distributions.forms import euler_constant, sum_rightmost
from distcompile.errors import ArgumentError, NotSupportedError, RegistrationTypeError

Rule = Callable[[Any, Any], Tensor]
_RULES: dict[tuple[type, type], Rule] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Rule], Rule]:
    """A decorator: use the function for p of type_p and q of type_q."""
    if not (isinstance(type_p, type) and isinstance(type_q, type)):
        raise RegistrationTypeError("register_kl takes two classes", got=f"{type_p!r}, {type_q!r}")

    def keep(rule: Rule) -> Rule:
        _RULES[type_p, type_q] = rule
        return rule

    return keep


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """KL(p ‖ q). Raises NotSupportedError (a NotImplementedError) for a pair without a closed form here."""
    for kind_p in type(p).__mro__:
        for kind_q in type(q).__mro__:
            if (kind_p, kind_q) in _RULES:
                return _RULES[kind_p, kind_q](p, q)
    raise NotSupportedError(f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}")


# -- between families: expectations under p


def _log_mean(p: Any) -> Tensor:
    """E[log x]."""
    match p:
        case gm.Beta():
            return p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
        case gm.Gamma():
            return p.concentration.digamma() - p.rate.log()
        case gm.Exponential():
            return -euler_constant - p.rate.log()
        case by_inverse.Pareto():
            return p.scale.log() + p.alpha.reciprocal()
        case _:
            return _log_over(p.low, p.high)


def _log_over(low: Tensor, high: Tensor) -> Tensor:
    """The mean of log x over an interval."""
    return (dc.xlogy(high, high) - dc.xlogy(low, low)) / (high - low) - 1


def _log_rest(p: Any) -> Tensor:
    """E[log(1 - x)]."""
    if isinstance(p, gm.Beta):
        return p.concentration0.digamma() - (p.concentration1 + p.concentration0).digamma()
    return _log_over(1 - p.high, 1 - p.low)


def _exp_mean(p: Any, t: Tensor) -> Tensor:
    """E[exp(t x)], for t < 0."""
    match p:
        case ls.Normal():
            return (t * p.loc + (t * p.scale) ** 2 / 2).exp()
        case gm.Gamma():
            return (1 - t / p.rate) ** -p.concentration
        case gm.Exponential():
            return p.rate / (p.rate - t)
        case ls.Gumbel():
            return (t * p.loc).exp() * (1 - t * p.scale).lgamma().exp()
        case _:
            return ((t * p.high).exp() - (t * p.low).exp()) / (t * (p.high - p.low))


def _ends(p: Any) -> tuple[Any, Any]:
    """Where p's support begins and ends."""
    match p:
        case gm.Beta() | cat.ContinuousBernoulli():
            return 0.0, 1.0
        case gm.Gamma() | gm.Exponential():
            return 0.0, math.inf
        case by_inverse.Pareto():
            return p.scale, math.inf
        case ls.Uniform():
            return p.low, p.high
        case _:
            return -math.inf, math.inf


# -- E_p[log q], by q


def _normal(p: Any, q: Any) -> Tensor:
    return -q.scale.log() - HALF_LOG_TAU - (p.variance + (p.mean - q.loc) ** 2) / (2 * q.scale**2)


def _exponential(p: Any, q: Any) -> Tensor:
    return q.rate.log() - q.rate * p.mean


def _gamma(p: Any, q: Any) -> Tensor:
    a = q.concentration
    return a * q.rate.log() - a.lgamma() + (a - 1) * _log_mean(p) - q.rate * p.mean


def _beta(p: Any, q: Any) -> Tensor:
    a, b = q.concentration1, q.concentration0
    norm = (a + b).lgamma() - a.lgamma() - b.lgamma()
    return norm + (a - 1) * _log_mean(p) + (b - 1) * _log_rest(p)


def _continuous_bernoulli(p: Any, q: Any) -> Tensor:
    return p.mean * q.logits + (-q.probs).log1p() + q._log_norm()


def _uniform(p: Any, q: Any) -> Tensor:
    return -(q.high - q.low).log()


def _gumbel(p: Any, q: Any) -> Tensor:
    lifted = (q.loc / q.scale).exp() * _exp_mean(p, -1 / q.scale)
    return -q.scale.log() - (p.mean - q.loc) / q.scale - lifted


def _pareto(p: Any, q: Any) -> Tensor:
    return q.alpha.log() + q.alpha * q.scale.log() - (q.alpha + 1) * _log_mean(p)


_LOG_Q: dict[type, Callable[[Any, Any], Tensor]] = {
    ls.Normal: _normal, gm.Exponential: _exponential, gm.Gamma: _gamma, gm.Beta: _beta, ls.Uniform: _uniform,
    cat.ContinuousBernoulli: _continuous_bernoulli, ls.Gumbel: _gumbel, by_inverse.Pareto: _pareto,
}  # fmt: skip


def _between(p: Any, q: Any) -> Tensor:
    """-H(p) - E_p[log q], infinite where p reaches outside of q's support."""
    (low, high), (start, end) = _ends(p), _ends(q)
    if (not hasattr(low, "shape") and not hasattr(start, "shape") and low < start) or (
        not hasattr(high, "shape") and not hasattr(end, "shape") and high > end
    ):
        return _infinite(p, q)
    outside = dc.as_tensor(low < start) | dc.as_tensor(high > end)
    if bool(outside.all()):
        return _infinite(p, q)
    rule = next(_LOG_Q[kind] for kind in type(q).__mro__ if kind in _LOG_Q)
    return dc.where(outside, math.inf, -p.entropy() - rule(p, q))


def _infinite(p: Distribution, q: Distribution) -> Tensor:
    shape = dc.broadcast_shapes(tuple(p.batch_shape), tuple(q.batch_shape))
    like = p.entropy()
    return dc.full(tuple(shape), math.inf, dtype=like.dtype, device=like.device)


_KINDS: dict[str, type] = {
    "beta": gm.Beta, "cb": cat.ContinuousBernoulli, "exponential": gm.Exponential, "gamma": gm.Gamma,
    "gumbel": ls.Gumbel, "laplace": ls.Laplace, "normal": ls.Normal, "pareto": by_inverse.Pareto, "uniform": ls.Uniform,
}  # fmt: skip
_PAIRS = """
beta: beta cb pareto exponential gamma normal uniform
cb: cb pareto exponential normal uniform
exponential: exponential beta cb pareto uniform gamma gumbel normal
gamma: gamma beta cb pareto uniform exponential gumbel normal
gumbel: gumbel beta cb exponential gamma pareto uniform normal
laplace: beta cb exponential gamma pareto uniform normal
normal: normal beta cb exponential gamma pareto uniform gumbel
pareto: pareto beta cb uniform exponential gamma normal
uniform: uniform beta cb exponential gamma gumbel normal pareto
"""
for _line in _PAIRS.strip().splitlines():
    _p, _, _qs = _line.partition(":")
    for _q in _qs.split():
        register_kl(_KINDS[_p], _KINDS[_q])(_between)


# -- within a family


def _one_laplace(p: Any, q: Any) -> Tensor:
    distance = (p.loc - q.loc).abs()
    ratio = p.scale / q.scale
    return -ratio.log() + distance / q.scale + ratio * (-distance / p.scale).exp() - 1


def _normal_laplace(p: Any, q: Any) -> Tensor:
    z = (p.loc - q.loc) / p.scale
    distance = math.sqrt(2 / math.pi) * p.scale * (-(z**2) / 2).exp() + (p.loc - q.loc) * (z / math.sqrt(2)).erf()
    return -p.entropy() + (2 * q.scale).log() + distance / q.scale


def _one_cauchy(p: Any, q: Any) -> Tensor:
    return ((p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2).log() - (4 * p.scale * q.scale).log()


def _one_categorical(p: Any, q: Any) -> Tensor:
    terms = p.probs * (p.logits - q.logits)
    terms = dc.where((q.probs == 0).expand_as(terms), math.inf, terms)
    return dc.where((p.probs == 0).expand_as(terms), 0.0, terms).sum(-1)


def _one_bernoulli(p: Any, q: Any) -> Tensor:
    ones = p.probs * (F.softplus(-q.logits) - F.softplus(-p.logits))
    zeros = (1 - p.probs) * (F.softplus(q.logits) - F.softplus(p.logits))
    ones = dc.where(p.probs == 0, 0.0, dc.where((q.probs == 0).expand_as(ones), math.inf, ones))
    zeros = dc.where(p.probs == 1, 0.0, dc.where((q.probs == 1).expand_as(zeros), math.inf, zeros))
    return ones + zeros


def _one_binomial(p: Any, q: Any) -> Tensor:
    n = p.total_count
    each = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return dc.where((n > q.total_count).expand_as(each), math.inf, n * each)


def _one_poisson(p: Any, q: Any) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


def _bernoulli_poisson(p: Any, q: Any) -> Tensor:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


def _one_geometric(p: Any, q: Any) -> Tensor:
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


def _one_dirichlet(p: Any, q: Any) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    norms = total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return norms + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


def _half_normal(p: Any, q: Any) -> Tensor:
    return kl_divergence(p.base_dist, q.base_dist)


def _one_hot(p: Any, q: Any) -> Tensor:
    return _one_categorical(p._categorical, q._categorical)


def _transformed(p: Any, q: Any) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotSupportedError("No KL(p || q) is implemented for distributions of different transforms")
    return kl_divergence(p.base_dist, q.base_dist)


def _independent(p: Any, q: Any) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotSupportedError("No KL(p || q) is implemented for Independents of different event dims")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


def _multivariate(p: Any, q: Any) -> Tensor:
    """Of Normal vectors: by the factors of both covariances."""
    if tuple(p.event_shape) != tuple(q.event_shape):
        raise ArgumentError(
            "KL-divergence between two Multivariate Normals with different event shapes cannot be computed"
        )
    mine, theirs = p.scale_tril, q.scale_tril
    batch = tuple(dc.broadcast_shapes(tuple(p.batch_shape), tuple(q.batch_shape)))
    size = p.event_shape[0]
    mine, theirs = (m.expand((*batch, size, size)) for m in (mine, theirs))
    logs = multivariate.log_diagonal(theirs) - multivariate.log_diagonal(mine)
    trace = dc.linalg.solve_triangular(theirs, mine, upper=False).square().sum((-2, -1))
    return logs + 0.5 * (trace + multivariate.whitened(theirs, q.loc - p.loc) - size)


_VECTORS = (multivariate.MultivariateNormal, multivariate.LowRankMultivariateNormal)
for _a, _b, _rule in [
    (ls.Laplace, ls.Laplace, _one_laplace), (ls.Normal, ls.Laplace, _normal_laplace),
    (ls.Cauchy, ls.Cauchy, _one_cauchy), (ls.HalfNormal, ls.HalfNormal, _half_normal),
    (cat.Bernoulli, cat.Bernoulli, _one_bernoulli), (cat.Bernoulli, counts.Poisson, _bernoulli_poisson),
    (cat.Categorical, cat.Categorical, _one_categorical), (cat.OneHotCategorical, cat.OneHotCategorical, _one_hot),
    (counts.Binomial, counts.Binomial, _one_binomial), (counts.Poisson, counts.Poisson, _one_poisson),
    (counts.Poisson, cat.Bernoulli, lambda p, q: dc.full_like(p.rate, math.inf)),
    (counts.Poisson, counts.Binomial, lambda p, q: dc.full_like(p.rate, math.inf)),
    (counts.Geometric, counts.Geometric, _one_geometric), (gm.Dirichlet, gm.Dirichlet, _one_dirichlet),
    (composed.TransformedDistribution, composed.TransformedDistribution, _transformed),
    (Independent, Independent, _independent), *((a, b, _multivariate) for a in _VECTORS for b in _VECTORS),
]:  # fmt: skip
    register_kl(_a, _b)(_rule)
