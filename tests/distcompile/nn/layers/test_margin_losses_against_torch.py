"""Losses on margins, pairs, likelihoods and label sequences, judged by torch: values and gradients, also compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distcompile as dc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

RNG = np.random.default_rng(0)


def f(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


A, B, SIGNS = f(4, 5), f(4, 5), np.array([1, -1, 1, -1])
BITS, COUNTS = (f(4, 5) > 0).astype("f4"), np.abs(f(4, 5)) * 3
LABELS = np.array([[3, 0, -1, 1, 2], [-1, 0, 1, 2, 3], [4, 3, 2, 1, 0], [2, 2, -1, -1, -1]])
FRAMES, TARGETS = f(12, 4, 6), RNG.integers(1, 6, (4, 5))
Case = tuple[Callable[[Any], Any], tuple[Any, ...]]

CASES: dict[str, Case] = {
    "cosine_embedding": (lambda nn: nn.CosineEmbeddingLoss(0.2), (A, B, SIGNS)),
    "hinge_embedding": (lambda nn: nn.HingeEmbeddingLoss(0.7, reduction="sum"), (A, np.sign(B))),
    "margin_ranking": (lambda nn: nn.MarginRankingLoss(0.3), (A, B, np.sign(f(4, 5)))),
    "soft_margin": (lambda nn: nn.SoftMarginLoss(), (A, np.sign(B))),
    "multilabel_soft_margin": (lambda nn: nn.MultiLabelSoftMarginLoss(reduction="none"), (A, BITS)),
    "multi_margin": (lambda nn: nn.MultiMarginLoss(margin=0.6), (A, np.array([0, 4, 2, 2]))),
    "multi_margin_2": (lambda nn: nn.MultiMarginLoss(p=2, reduction="none"), (A, np.array([0, 4, 2, 2]))),
    "multi_margin_1d": (lambda nn: nn.MultiMarginLoss(), (A[0], np.array(1))),
    "multilabel_margin": (lambda nn: nn.MultiLabelMarginLoss(reduction="none"), (A, LABELS)),
    "multilabel_margin_1d": (lambda nn: nn.MultiLabelMarginLoss(), (A[0], LABELS[0])),
    "poisson": (lambda nn: nn.PoissonNLLLoss(full=True), (A, COUNTS)),
    "poisson_rates": (lambda nn: nn.PoissonNLLLoss(log_input=False, reduction="sum"), (COUNTS + 0.1, COUNTS)),
    "gaussian": (lambda nn: nn.GaussianNLLLoss(full=True), (A, B, COUNTS)),
    "gaussian_shared": (lambda nn: nn.GaussianNLLLoss(eps=0.5), (A, B, COUNTS[:, :1])),
    "triplet": (lambda nn: nn.TripletMarginLoss(2.0), (A, B, f(4, 5))),
    "triplet_swap": (lambda nn: nn.TripletMarginLoss(2.0, p=1, swap=True, reduction="none"), (A, B, f(4, 5))),
    "triplet_distance": (lambda nn: nn.TripletMarginWithDistanceLoss(swap=True), (A, B, f(4, 5))),
    "pairwise_distance": (lambda nn: nn.PairwiseDistance(p=1.5, keepdim=True), (A, B)),
    "cosine_similarity": (lambda nn: nn.CosineSimilarity(dim=0), (A, B)),
    "bilinear": (lambda nn: nn.Bilinear(5, 5, 3), (A, B)),
    "softmax2d": (lambda nn: nn.Softmax2d(), (f(2, 3, 4, 4),)),
    "rrelu": (lambda nn: nn.RReLU().eval(), (A,)),
    "linear_cross_entropy": (lambda nn: nn.LinearCrossEntropyLoss(5, 7, bias=True), (A, np.array([0, 6, 2, 2]))),
    "adaptive": (lambda nn: nn.AdaptiveLogSoftmaxWithLoss(5, 9, [3, 6], div_value=1.5), (A, np.array([0, 8, 4, 3]))),
    "kl_div": (lambda nn: nn.KLDivLoss(reduction="batchmean"), (A, BITS)),
}


def pair(make: Callable[[Any], Any]) -> tuple[Any, Any]:
    want = make(torch.nn)
    mine = make(dc.nn)
    mine.load_state_dict(want.state_dict())
    assert repr(mine) == repr(want)
    return mine, want


def run(package: Any, call: Any, inputs: tuple[Any, ...]) -> list[Any]:
    """Value, and gradients of all floating inputs but signs and bits: those are targets."""
    tensors = [package.tensor(np.array(x)) for x in inputs]
    are_targets = [set(np.unique(x)) <= {-1, 0, 1} for x in inputs]
    leaves = [t.requires_grad_() for t, is_target in zip(tensors, are_targets, strict=True)
              if t.is_floating_point() and not is_target]  # fmt: skip
    out = call(*tensors)
    out = out if hasattr(out, "sum") and not isinstance(out, tuple) else sum(part.sum() for part in out)
    (out * out).sum().backward()
    return [out.detach().numpy(), *(t.grad.numpy() for t in leaves)]


@pytest.mark.parametrize("backend", ["tape", "codegen"])
@pytest.mark.parametrize("name", CASES)
def test_value_and_gradients_are_torchs(name: str, backend: str) -> None:
    make, inputs = CASES[name]
    mine, want = pair(make)
    call = mine if backend == "tape" else dc.compile(mine, fullgraph=True)
    for a, b in zip(run(dc, call, inputs), run(torch, want, inputs), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


CTC: dict[str, tuple[dict[str, Any], Any, Any, Any]] = {
    "mean": ({}, TARGETS, [12, 12, 12, 12], [5, 4, 3, 1]),
    "none": ({"reduction": "none"}, TARGETS, [12, 9, 7, 12], [5, 4, 0, 2]),
    "end-to-end": ({"reduction": "sum"}, TARGETS.reshape(-1)[:13], [12, 11, 12, 9], [5, 4, 3, 1]),
    "too-long": ({"zero_infinity": True}, TARGETS, [12, 3, 12, 2], [5, 5, 3, 4]),
    "other-blank": ({"blank": 5, "reduction": "none"}, TARGETS - 1, [12, 12, 10, 12], [5, 4, 3, 1]),
    "repeats": ({"reduction": "none"}, np.ones((4, 5), np.int64), [12, 12, 9, 12], [5, 4, 3, 1]),
}


@pytest.mark.parametrize("backend", ["tape", "codegen"])
@pytest.mark.parametrize("name", CTC)
def test_ctc_is_torchs(name: str, backend: str) -> None:
    options, targets, frames, labels = CTC[name]
    found = []
    for package in (dc, torch):
        loss = package.nn.CTCLoss(**options)
        x = package.tensor(FRAMES, requires_grad=True)
        lengths = [package.tensor(frames), package.tensor(labels)]
        if backend == "codegen" and package is dc:
            loss = dc.compile(loss, fullgraph=name != "end-to-end")  # laying those out reads their lengths
        out = loss(package.log_softmax(x, dim=2), package.tensor(targets), *lengths)
        out.sum().backward()
        found.append((out.detach().numpy(), x.grad.numpy()))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5)


def test_ctc_of_one_sequence_and_a_length_out_of_range() -> None:
    x, y = (p.log_softmax(p.tensor(FRAMES[:, 0]), dim=1) for p in (dc, torch))
    mine = dc.nn.functional.ctc_loss(x, dc.tensor(TARGETS[0]), dc.tensor(12), dc.tensor(5))
    want = torch.nn.functional.ctc_loss(y, torch.tensor(TARGETS[0]), torch.tensor(12), torch.tensor(5))
    assert float(mine) == pytest.approx(float(want), rel=1e-5)
    with pytest.raises(IndexError, match="13"):
        dc.nn.functional.ctc_loss(x, dc.tensor(TARGETS[0]), dc.tensor(13), dc.tensor(5))


def test_pdist_predict_and_refusals() -> None:
    np.testing.assert_allclose(
        dc.nn.functional.pdist(dc.tensor(A), 3.0).numpy(), torch.pdist(torch.tensor(A), 3.0).numpy(), rtol=1e-5
    )
    mine, want = pair(lambda nn: nn.AdaptiveLogSoftmaxWithLoss(5, 9, [3, 6]))
    np.testing.assert_array_equal(mine.predict(dc.tensor(A)).numpy(), want.predict(torch.tensor(A)).numpy())
    with pytest.raises(ValueError, match="negative"):
        dc.nn.functional.gaussian_nll_loss(dc.tensor(A), dc.tensor(B), dc.tensor(-COUNTS))
    with pytest.raises(ValueError, match="margin"):
        dc.nn.TripletMarginLoss(margin=0.0)
    with pytest.raises(ValueError, match="cutoffs"):
        dc.nn.AdaptiveLogSoftmaxWithLoss(5, 9, [6, 3])


def test_alpha_dropout_keeps_mean_and_variance_and_is_the_identity_when_evaluating() -> None:
    dc.manual_seed(0)
    x = dc.selu(dc.randn(200, 50, 20))
    for layer, values in ((dc.nn.AlphaDropout(0.3), 10_000), (dc.nn.FeatureAlphaDropout(0.3), 1_000)):
        out = layer(x)
        assert abs(float(out.mean() - x.mean())) < 0.05
        assert abs(float(out.std() - x.std())) < 0.05
        assert len(np.unique(out.numpy())) > values
        np.testing.assert_array_equal(layer.eval()(x).numpy(), x.numpy())
