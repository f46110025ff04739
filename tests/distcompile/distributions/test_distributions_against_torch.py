"""torch.distributions: densities, moments, divergences, gradients, shapes and errors are torch's; draws by their
moments.

Draws themselves are not comparable: the generators differ. Every class of torch's is in MAKERS.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from compiler_core.errors import GraphBreak
from distcompile import distributions
from distcompile.distributions import constraints, transforms

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

RNG = np.random.default_rng(0)
A, B = RNG.uniform(-1, 1, (3, 4)), RNG.uniform(-1, 1, (3, 4))
REAL, BITS = RNG.standard_normal((2, 3, 4)), RNG.integers(0, 2, (2, 3, 4)).astype("f8")
UNIT, CLASSES, COUNTS = (
    RNG.uniform(0.05, 0.95, (2, 3, 4)),
    RNG.integers(0, 4, (2, 3)),
    RNG.integers(0, 5, (2, 3, 4)) * 1.0,
)
POSITIVE, SIMPLEX = RNG.uniform(0.2, 3, (2, 3, 4)), RNG.dirichlet(np.ones(4), (2, 3))
ONE_HOT, MATRIX = np.eye(4)[CLASSES], np.eye(3) * 2 + 0.3
FACTOR = np.linalg.cholesky(np.array([[1.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 1.0]]))


def factor(a: Any) -> Any:
    """A batch of Cholesky factors f[3, 4, 4] from f[3, 4]."""
    return a.exp().diag_embed() + (a.unsqueeze(-1) * a.unsqueeze(-2)).tril(-1)


Maker = Callable[[Any, Any], Any]
MAKERS: dict[str, tuple[Maker, np.ndarray[Any, Any]]] = {
    "Normal": (lambda d, a: d.Normal(a, a.exp()), REAL),
    "Normal of a number": (lambda d, a: d.Normal(a, 2.0), REAL),
    "Laplace": (lambda d, a: d.Laplace(a, a.exp()), REAL),
    "Cauchy": (lambda d, a: d.Cauchy(a, a.exp()), REAL),
    "Gumbel": (lambda d, a: d.Gumbel(a, a.exp()), REAL),
    "HalfNormal": (lambda d, a: d.HalfNormal(a.exp()), POSITIVE),
    "HalfCauchy": (lambda d, a: d.HalfCauchy(a.exp()), POSITIVE),
    "Uniform": (lambda d, a: d.Uniform(a * 0 - 1, 1 + a.abs()), UNIT),
    "StudentT": (lambda d, a: d.StudentT(2 + a, a, a.exp()), REAL),
    "VonMises": (lambda d, a: d.VonMises(a, a.exp()), REAL),
    "Exponential": (lambda d, a: d.Exponential(a.exp()), POSITIVE),
    "Gamma": (lambda d, a: d.Gamma(a.exp() + 0.5, a.exp()), POSITIVE),
    "Chi2": (lambda d, a: d.Chi2(a.exp() + 1), POSITIVE),
    "InverseGamma": (lambda d, a: d.InverseGamma(a + 2, a.exp()), POSITIVE),
    "Beta": (lambda d, a: d.Beta(a.exp() + 0.5, a.abs() + 0.6), UNIT),
    "Dirichlet": (lambda d, a: d.Dirichlet(a.exp() + 0.5), SIMPLEX),
    "FisherSnedecor": (lambda d, a: d.FisherSnedecor(a + 3, 4 + 2 * a), POSITIVE),
    "Poisson": (lambda d, a: d.Poisson(a.exp()), COUNTS),
    "Geometric": (lambda d, a: d.Geometric(a.sigmoid()), COUNTS),
    "Geometric of logits": (lambda d, a: d.Geometric(logits=a), COUNTS),
    "Binomial": (lambda d, a: d.Binomial(5, a.sigmoid()), COUNTS),
    "Binomial of logits": (lambda d, a: d.Binomial(5, logits=a), COUNTS),
    "NegativeBinomial": (lambda d, a: d.NegativeBinomial(a.exp(), a.sigmoid()), COUNTS),
    "NegativeBinomial of logits": (lambda d, a: d.NegativeBinomial(3, logits=a), COUNTS),
    "Multinomial": (lambda d, a: d.Multinomial(7, a.exp()), np.array(np.tile([1.0, 4, 0, 2], (2, 3, 1)))),
    "Bernoulli": (lambda d, a: d.Bernoulli(a.sigmoid()), BITS),
    "Bernoulli of logits": (lambda d, a: d.Bernoulli(logits=a), BITS),
    "ContinuousBernoulli": (lambda d, a: d.ContinuousBernoulli(a.sigmoid()), UNIT),
    "ContinuousBernoulli in the middle": (lambda d, a: d.ContinuousBernoulli(0.5 + a / 2000), UNIT),
    "Categorical": (lambda d, a: d.Categorical(a.exp()), CLASSES),
    "Categorical of logits": (lambda d, a: d.Categorical(logits=a), CLASSES),
    "OneHotCategorical": (lambda d, a: d.OneHotCategorical(a.exp()), ONE_HOT),
    "OneHotCategoricalStraightThrough": (lambda d, a: d.OneHotCategoricalStraightThrough(logits=a), ONE_HOT),
    "RelaxedBernoulli": (lambda d, a: d.RelaxedBernoulli(a.exp().mean(), logits=a), UNIT),
    "RelaxedOneHotCategorical": (lambda d, a: d.RelaxedOneHotCategorical(a.exp().mean(), a.exp()), SIMPLEX),
    "LogNormal": (lambda d, a: d.LogNormal(a, a.exp()), POSITIVE),
    "LogisticNormal": (lambda d, a: d.LogisticNormal(a[:, :3], a[:, 1:].exp()), SIMPLEX),
    "Pareto": (lambda d, a: d.Pareto(a.exp() / 20, a + 2), POSITIVE),
    "GeneralizedPareto": (lambda d, a: d.GeneralizedPareto(a - 1, a.exp(), a.abs()), POSITIVE),
    "Weibull": (lambda d, a: d.Weibull(a.exp(), a + 2), POSITIVE),
    "Kumaraswamy": (lambda d, a: d.Kumaraswamy(a + 2, a.exp()), UNIT),
    "MultivariateNormal": (lambda d, a: d.MultivariateNormal(a, scale_tril=factor(a)), REAL),
    "MultivariateNormal of covariance": (lambda d, a: d.MultivariateNormal(a, factor(a) @ factor(a).mT), REAL),
    "MultivariateNormal of precision": (
        lambda d, a: d.MultivariateNormal(a, precision_matrix=factor(a) @ factor(a).mT), REAL),
    "LowRankMultivariateNormal": (
        lambda d, a: d.LowRankMultivariateNormal(a, (a * 2).unsqueeze(-1) + factor(a)[..., :2], a.exp()), REAL),
    "Wishart": (lambda d, a: d.Wishart(a[:, 0] + 5, scale_tril=factor(a[:, :3])), np.tile(MATRIX, (2, 3, 1, 1))),
    "Wishart of covariance": (
        lambda d, a: d.Wishart(a[:, 0] + 5, factor(a[:, :3]) @ factor(a[:, :3]).mT), np.tile(MATRIX, (2, 3, 1, 1))),
    "LKJCholesky": (lambda d, a: d.LKJCholesky(3, a.exp()), np.tile(FACTOR, (2, 3, 4, 1, 1))),
    "Independent": (lambda d, a: d.Independent(d.Normal(a, a.exp()), 1), REAL),
    "MixtureSameFamily": (
        lambda d, a: d.MixtureSameFamily(d.Categorical(logits=a), d.Normal(a, a.exp())), REAL[:, :, 0]),
    "MixtureSameFamily of vectors": (
        lambda d, a: d.MixtureSameFamily(d.Categorical(logits=a[:, 0]), d.Independent(d.Normal(a, a.exp()), 1)),
        REAL[:, 0]),
    "TransformedDistribution": (
        lambda d, a: d.TransformedDistribution(
            d.Normal(a, a.exp()), [d.AffineTransform(1.0, -2 * a.exp()), d.TanhTransform(), d.ExpTransform()]),
        np.exp(UNIT)),
}  # fmt: skip
QUANTITIES = ("mean", "mode", "variance", "stddev", "log_prob", "cdf", "icdf", "entropy", "perplexity")


def quantity(package: Any, made: Any, name: str, value: Any) -> Any:
    """One of QUANTITIES; "not given" where there is none."""
    argument = {"log_prob": value, "cdf": value, "icdf": package.tensor(UNIT)}
    try:
        found = getattr(made, name)
        return found(argument[name]) if name in argument else found() if callable(found) else found
    except (NotImplementedError, RuntimeError):  # of torch's: GeneralizedPareto's, in float64
        assert package is torch or isinstance(made, MISSING)
        return "not given"


MISSING = distributions.Distribution


def judged(package: Any, name: str) -> dict[str, Any]:
    """Every quantity and its gradient; shapes."""
    make, value = MAKERS[name]
    out: dict[str, Any] = {}
    for what in QUANTITIES:
        a = package.tensor(A).requires_grad_()
        made = make(package.distributions, a)
        found = quantity(package, made, what, package.tensor(value))
        if isinstance(found, str):
            out[what] = found
            continue
        out[what] = found.detach().numpy()
        if found.requires_grad:
            finite = found[found.isfinite()]
            try:
                grad = package.autograd.grad(finite.sum(), a, allow_unused=True)[0]
            except RuntimeError:  # igamma has no derivative for its first argument, in torch neither
                continue
            out[f"gradient of {what}"] = 0 * A if grad is None else grad.numpy()
    made = make(package.distributions, package.tensor(A))
    out["shapes"] = [
        tuple(s) for s in (made.batch_shape, made.event_shape, made.sample().shape, made.sample((5, 2)).shape)
    ]
    out["kinds"] = [made.has_rsample, made.has_enumerate_support]
    if made.has_rsample:
        out["rsample"] = tuple(made.rsample((2,)).shape)
    wide = made.expand((2, *made.batch_shape))
    out["expanded"] = [tuple(wide.batch_shape), tuple(wide.event_shape), tuple(wide.sample((3,)).shape)]
    out["expanded log_prob"] = wide.log_prob(package.tensor(value)).numpy()
    if made.has_enumerate_support and name != "Independent":
        out["support"] = made.enumerate_support().numpy()
        out["narrow support"] = made.enumerate_support(expand=False).numpy()
    return out


# what is more, or other, than torch's: it gives wrong or no numbers there
MORE = {("cdf", "InverseGamma"), ("mode", "Kumaraswamy"), ("gradient of mode", "Kumaraswamy"),
        ("gradient of variance", "FisherSnedecor"), ("gradient of variance", "Pareto"), ("gradient of stddev", "Pareto"),  # noqa: E501
        ("gradient of stddev", "FisherSnedecor")}  # fmt: skip
NOT_GIVEN_BY_TORCH = {"cdf", "icdf", "entropy", "perplexity", "mode"}


@pytest.mark.parametrize("name", sorted(MAKERS.keys() - {"GeneralizedPareto"}))  # torch's refuses float64
def test_each_is_torchs(name: str) -> None:
    import torch.distributions

    ours, theirs = judged(dc, name), judged(torch, name)
    for what, want in theirs.items():
        if (what, name) in MORE or (isinstance(want, str) and what in NOT_GIVEN_BY_TORCH):
            continue
        assert what in ours, what
        if isinstance(want, np.ndarray):
            assert not isinstance(ours[what], str), f"{what} is {ours[what]}"
            np.testing.assert_allclose(ours[what], want, rtol=1e-5, atol=1e-9, err_msg=what)
        else:
            assert ours[what] == want, what


def test_no_class_is_missing() -> None:
    import torch.distributions

    assert set(torch.distributions.__all__) <= set(distributions.__all__)
    kinds = {n for n in torch.distributions.__all__ if inspect.isclass(getattr(torch.distributions, n))}
    known = {name.split(" ")[0] for name in MAKERS} | {"Distribution", "ExponentialFamily"}
    assert {n for n in kinds if not n.endswith("Transform")} <= known


SINGLE = {
    "Normal", "Laplace", "Cauchy", "Gumbel", "HalfNormal", "Uniform", "Exponential", "Gamma", "Chi2", "Beta", "Dirichlet",  # noqa: E501
    "Poisson", "Geometric", "Binomial", "Bernoulli", "ContinuousBernoulli", "Categorical", "OneHotCategorical",
    "LogNormal", "Pareto", "MultivariateNormal", "LowRankMultivariateNormal", "Independent",
}  # fmt: skip


def test_divergences_are_torchs() -> None:
    import torch.distributions as td
    from torch.distributions.kl import _dispatch_kl

    inside = {"Uniform": lambda d, b: d.Uniform(b.sigmoid() / 4, 0.5 + b.sigmoid() / 4)}
    done = 0
    for first in SINGLE:
        for second in SINGLE:
            for make_p in (MAKERS[first][0], inside.get(first)):
                if make_p is None:
                    continue
                p = make_p(td, torch.tensor(A))
                q = MAKERS[second][0](td, torch.tensor(B))
                if _dispatch_kl(type(p), type(q)) is NotImplemented or first == second == "ExponentialFamily":
                    continue
                try:
                    want = td.kl_divergence(p, q)
                except NotImplementedError:
                    continue
                if _dispatch_kl(type(p), type(q)).__name__ == "_kl_expfamily_expfamily":
                    continue
                a, b = dc.tensor(A).requires_grad_(), dc.tensor(B).requires_grad_()
                got = distributions.kl_divergence(make_p(distributions, a), MAKERS[second][0](distributions, b))
                np.testing.assert_allclose(
                    got.detach().numpy(), want.numpy(), rtol=1e-5, atol=1e-7, err_msg=f"{first} {second}"
                )
                done += 1
    assert done > 60
    with pytest.raises(NotImplementedError, match="No KL"):
        distributions.kl_divergence(distributions.Normal(0.0, 1.0), distributions.Poisson(1.0))

    class Mine(distributions.Normal):
        pass

    distributions.register_kl(Mine, distributions.Normal)(lambda p, q: dc.tensor(7.0))
    assert distributions.kl_divergence(Mine(0.0, 1.0), distributions.Normal(0.0, 1.0)).item() == 7
    assert distributions.kl_divergence(distributions.Normal(0.0, 1.0), Mine(0.0, 1.0)).item() == 0


WIDE = {"LogNormal", "TransformedDistribution"}  # variances are those of rare draws; tanh is 1 in floats
HEAVY = {
    "Cauchy",
    "HalfCauchy",
    "StudentT",
    "InverseGamma",
    "FisherSnedecor",
    "Pareto",
    "GeneralizedPareto",
    "VonMises",
}


@pytest.mark.parametrize("name", [n for n in MAKERS if n not in HEAVY | WIDE and "of " not in n and "in the" not in n])
def test_draws_have_the_moments(name: str) -> None:
    dc.manual_seed(0)
    made = MAKERS[name][0](distributions, dc.tensor(A))
    drawn = made.sample((4000,)).numpy()
    try:
        mean, variance = np.asarray(made.mean.numpy()), np.asarray(made.variance.numpy())
    except NotImplementedError:
        mean, variance = drawn.mean(0), drawn.var(0)
        assert np.isfinite(np.asarray(made.log_prob(dc.tensor(drawn)).numpy())).all()
    if name == "Categorical":
        shares = np.stack([(drawn == k).mean(0) for k in range(4)], -1)
        np.testing.assert_allclose(shares, made.probs.numpy(), atol=0.05)
        return
    np.testing.assert_allclose(
        drawn.mean(0), np.broadcast_to(mean, drawn.shape[1:]), atol=0.001 + 6 * np.sqrt(variance.max() / 4000)
    )
    np.testing.assert_allclose(drawn.var(0), np.broadcast_to(variance, drawn.shape[1:]), rtol=0.6, atol=0.01)
    assert made.support.check(dc.tensor(drawn)).all()


@pytest.mark.parametrize(
    "name",
    [
        *sorted(HEAVY - {"VonMises"}),
        "Gamma",
        "Beta",
        "Gumbel",
        "Weibull",
        "Laplace",
        "Kumaraswamy",
    ],
)
def test_draws_follow_the_distribution_function(name: str) -> None:
    import torch.distributions

    dc.manual_seed(1)
    drawn = np.sort(MAKERS[name][0](distributions, dc.tensor(A)).sample((300,)).numpy(), axis=0)
    if name in ("StudentT", "FisherSnedecor", "Beta"):  # against torch's draws: there is no cdf
        torch.manual_seed(1)
        other = np.sort(MAKERS[name][0](torch.distributions, torch.tensor(A)).sample((300,)).numpy(), axis=0)
        for q in (30, 150, 270):
            share = (drawn < other[q]).mean(0)
            np.testing.assert_allclose(share, q / 300, atol=0.16)
        return
    made = MAKERS[name][0](distributions, dc.tensor(A))
    distance = np.abs(made.cdf(dc.tensor(drawn)).numpy() - (np.arange(300) / 300)[:, None, None]).max()
    assert distance < 0.13  # Kolmogorov and Smirnov: 0.113 has probability 0.001


def test_draws_on_the_circle() -> None:
    dc.manual_seed(0)
    made = distributions.VonMises(dc.tensor([0.5, -1.0]), dc.tensor([2.0, 8.0]))
    z = np.exp(1j * made.sample((4000,)).numpy()).mean(0)
    np.testing.assert_allclose(np.angle(z), [0.5, -1.0], atol=0.08)
    np.testing.assert_allclose(1 - np.abs(z), made.variance.numpy(), atol=0.03)


def test_gradients_of_draws_are_those_of_the_mean() -> None:
    dc.manual_seed(0)
    for make, mean in (
        (lambda a: distributions.Gamma(a, 2.0), lambda a: a / 2), (lambda a: distributions.Beta(a, 2.0), lambda a: a / (a + 2)),  # noqa: E501
        (lambda a: distributions.Chi2(a), lambda a: a), (lambda a: distributions.Normal(a, a), lambda a: a),
        (lambda a: distributions.Exponential(a), lambda a: 1 / a), (lambda a: distributions.Weibull(a, 2.0), lambda a: a * math.gamma(1.5)),  # noqa: E501
        (lambda a: distributions.Dirichlet(dc.stack([a, a + 1, a * 2])), lambda a: a / (4 * a + 1)),
    ):  # fmt: skip
        a = dc.tensor(1.5, dtype=dc.float64, requires_grad=True)
        drawn = make(a).rsample((150,))
        first = drawn[:, 0] if drawn.ndim == 2 else drawn
        (got,) = dc.autograd.grad(first.mean(), a)
        (want,) = dc.autograd.grad(mean(a), a)
        assert abs(got.item() - want.item()) < 0.2


def test_standard_gamma_and_counts() -> None:
    a = torch.tensor([0.05, 0.3, 1.0, 2.5, 10.0, 100.0], dtype=torch.float64)
    for factor in (0.3, 0.9, 1.5, 3.0):
        want = torch._standard_gamma_grad(a, a * factor).numpy()
        got = dc._standard_gamma_grad(dc.tensor(a.numpy()), dc.tensor((a * factor).numpy())).numpy()
        np.testing.assert_allclose(got, want, rtol=1e-3)
    dc.manual_seed(0)
    assert dc._standard_gamma(dc.full((3,), 1e-8)).min().item() > 0
    np.testing.assert_allclose(dc._sample_dirichlet(dc.ones(5, 3)).sum(-1).numpy(), 1, rtol=1e-6)
    assert abs(dc.poisson(dc.full((5000,), 3.5)).mean().item() - 3.5) < 0.15
    assert abs(dc.binomial(dc.full((5000,), 10.0), dc.tensor(0.3)).mean().item() - 3) < 0.15
    with pytest.raises(RuntimeError, match="rate to be non-negative"):
        dc.poisson(dc.tensor([-1.0]))
    with pytest.raises(GraphBreak, match="rejection"):
        dc.compile(lambda x: dc.poisson(x), fullgraph=True)(dc.ones(3))


TRANSFORMS: dict[str, tuple[Maker, np.ndarray[Any, Any]]] = {
    "exp": (lambda d, t: d.ExpTransform(), REAL), "power": (lambda d, t: d.PowerTransform(t.tensor(1.5)), POSITIVE),
    "sigmoid": (lambda d, t: d.SigmoidTransform(), REAL), "tanh": (lambda d, t: d.TanhTransform(), REAL),
    "softplus": (lambda d, t: d.SoftplusTransform(), REAL), "abs": (lambda d, t: d.AbsTransform(), REAL),
    "affine": (lambda d, t: d.AffineTransform(1.0, t.tensor(-2.0, dtype=t.float64)), REAL),
    "affine of numbers": (lambda d, t: d.AffineTransform(1.0, 3.0, event_dim=1), REAL),
    "softmax": (lambda d, t: d.SoftmaxTransform(), REAL), "sticks": (lambda d, t: d.StickBreakingTransform(), REAL),
    "cholesky": (lambda d, t: d.LowerCholeskyTransform(), RNG.standard_normal((2, 3, 3))),
    "positive definite": (lambda d, t: d.PositiveDefiniteTransform(), RNG.standard_normal((2, 3, 3))),
    "correlations": (lambda d, t: d.CorrCholeskyTransform(), RNG.standard_normal((2, 6))),
    "reshape": (lambda d, t: d.ReshapeTransform((3, 4), (2, 6)), REAL),
    "independent": (lambda d, t: d.IndependentTransform(d.ExpTransform(), 1), REAL),
    "cumulative": (lambda d, t: d.CumulativeDistributionTransform(d.Normal(0.0, 1.0)), REAL),
    "cat": (lambda d, t: d.CatTransform([d.ExpTransform(), d.TanhTransform()], -1, [1, 3]), REAL),
    "stack": (lambda d, t: d.StackTransform([d.ExpTransform(), d.TanhTransform()], 0), REAL),
    "composed": (lambda d, t: d.ComposeTransform([d.ExpTransform(), d.AffineTransform(0.0, 2.0)]), REAL),
    "composed of vectors": (lambda d, t: d.ComposeTransform([d.TanhTransform(), d.StickBreakingTransform()]), REAL),
    "inverse": (lambda d, t: d.ExpTransform().inv, POSITIVE),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_are_torchs(name: str) -> None:
    import torch.distributions

    make, value = TRANSFORMS[name]

    def told(t: Any) -> list[Any]:
        transform, x = make(t.distributions, t), t.tensor(value)
        y = transform(x)
        out = [y.numpy(), transform.inv(y).numpy(), transform.bijective, transform.domain.event_dim,
               transform.codomain.event_dim]  # fmt: skip
        try:
            out.append(transform.log_abs_det_jacobian(x, y).numpy())
            out.append(tuple(transform.forward_shape(tuple(x.shape))))
        except NotImplementedError:
            out.append("not given")
        return [*out, bool(transform.codomain.check(y).all())]

    for ours, theirs in zip(told(dc), told(torch), strict=True):
        if isinstance(theirs, np.ndarray):
            np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9)
        else:
            assert ours == theirs
    once = make(distributions, dc).with_cache()
    x = dc.tensor(value)
    if name not in ("cat", "stack", "independent"):
        y = once(x)
        assert once.inv(y) is x or name in ("composed", "composed of vectors", "affine of numbers", "inverse")


def test_registries_lead_onto_the_constraint() -> None:
    x = dc.tensor(RNG.standard_normal((5, 3)))
    for constraint in (constraints.real, constraints.positive, constraints.unit_interval, constraints.interval(2.0, 5.0),  # noqa: E501
                       constraints.greater_than(1.0), constraints.less_than(-1.0), constraints.simplex,
                       constraints.independent(constraints.positive, 1), constraints.corr_cholesky):  # fmt: skip
        assert constraint.check(distributions.biject_to(constraint)(x)).all()
        assert constraint.check(distributions.transform_to(constraint)(x)).all()
    square = dc.tensor(RNG.standard_normal((5, 3, 3)))
    for constraint in (constraints.lower_cholesky, constraints.positive_definite):
        assert constraint.check(distributions.transform_to(constraint)(square)).all()
    with pytest.raises(NotImplementedError, match="Cannot transform"):
        distributions.biject_to(constraints.boolean)


def test_wrong_arguments_are_refused_as_in_torch() -> None:
    for t in (dc, torch):
        d = t.distributions
        for attempt in (
            lambda d=d: d.Normal(0.0, -1.0), lambda d=d: d.Bernoulli(1.5), lambda d=d: d.Bernoulli(),
            lambda d=d, t=t: d.Bernoulli(t.tensor(0.5), t.tensor(0.1)), lambda d=d: d.Uniform(1.0, 0.0),
            lambda d=d, t=t: d.Categorical(t.tensor(0.5)), lambda d=d, t=t: d.Dirichlet(t.tensor([1.0, -1.0])),
            lambda d=d, t=t: d.Gamma(1.0, 1.0).log_prob(t.tensor(-1.0)),
            lambda d=d, t=t: d.Bernoulli(0.5).log_prob(t.tensor(0.5)), lambda d=d: d.Normal(0.0, 1.0).log_prob(0.5),
            lambda d=d, t=t: d.Normal(t.zeros(3), 1.0).log_prob(t.zeros(2)), lambda d=d: d.LKJCholesky(1),
            lambda d=d, t=t: d.MultivariateNormal(t.zeros(2), t.tensor([[1.0, 2.0], [2.0, 1.0]])),
            lambda d=d, t=t: d.MultivariateNormal(t.zeros(2)), lambda d=d: d.Independent(d.Normal(0.0, 1.0), 1),
            lambda d=d, t=t: d.MixtureSameFamily(d.Normal(0.0, 1.0), d.Normal(t.zeros(2), 1.0)),
            lambda d=d: d.Distribution.set_default_validate_args(3), lambda d=d, t=t: d.Geometric(t.tensor(0.0)),
        ):  # fmt: skip
            with pytest.raises(ValueError):  # noqa: PT011
                attempt()
        assert math.isnan(d.Normal(0.0, -1.0, validate_args=False).entropy().item())
        with pytest.raises(NotImplementedError):
            d.Poisson(1.0).rsample()
    assert repr(distributions.Normal(0.0, 1.0)) == repr(torch.distributions.Normal(0.0, 1.0))


def test_a_policys_loss_compiles_whole() -> None:
    def loss(logits: dc.Tensor, action: dc.Tensor) -> dc.Tensor:
        policy = distributions.Categorical(logits=logits)
        return policy.log_prob(action).mean() - 0.1 * policy.entropy().mean()

    x, action = dc.tensor(A), dc.tensor(CLASSES[0])
    np.testing.assert_allclose(dc.compile(loss, fullgraph=True)(x, action).numpy(), loss(x, action).numpy(), rtol=1e-9)


def test_a_variational_loss_compiles_whole(counter_draws: None) -> None:
    def loss(mean: dc.Tensor, spread: dc.Tensor) -> dc.Tensor:
        q = distributions.Normal(mean, spread.exp())
        z = q.rsample()
        prior = distributions.Normal(0.0, 1.0)
        return (distributions.kl_divergence(q, prior) + (z - 1) ** 2).mean()

    a, b = dc.tensor(A, requires_grad=True), dc.tensor(B, requires_grad=True)
    found = []
    for run in (loss, dc.compile(loss)):
        dc.manual_seed(4)
        made = run(a, b)
        found.append([made.item(), *(g.numpy() for g in dc.autograd.grad(made, [a, b]))])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_the_cache_forgets_nothing_it_needs() -> None:
    kept = transforms.TanhTransform(cache_size=1)
    x = dc.tensor([20.0])  # tanh is 1 there: only the kept pair leads back
    assert kept.inv(kept(x)) is x
    with pytest.raises(ValueError, match="cache_size"):
        transforms.ExpTransform(cache_size=2)
