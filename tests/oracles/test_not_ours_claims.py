"""Where `not_ours.py` says that torch's own result is off: differences, and float64, say so too."""

from __future__ import annotations

import numpy as np
import pytest

import distcompile as dc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_what_as_strided_scatter_overwrites_has_no_gradient() -> None:
    weights, source = np.arange(1.0, 7.0), np.ones((2, 2))

    def loss(x: dc.Tensor) -> dc.Tensor:
        return (dc.as_strided_scatter(x, dc.tensor(source), (2, 2), (2, 1), 1) * dc.tensor(weights)).sum()

    x = dc.tensor(np.arange(6.0)).requires_grad_()
    loss(x).backward()
    steps = 1e-6 * np.eye(6)
    start = np.arange(6.0)
    slopes = [float(loss(dc.tensor(start + d)) - loss(dc.tensor(start - d))) / 2e-6 for d in steps]
    np.testing.assert_allclose(x.grad.numpy(), slopes, atol=1e-6)


def test_logcumsumexp_in_float32_has_float64s_gradient() -> None:
    values = np.random.default_rng(0).uniform(-9, 9, (5, 20))
    mine = dc.tensor(values.astype(np.float32)).requires_grad_()
    dc.logcumsumexp(mine, 1).sum().backward()
    want = torch.tensor(values.astype(np.float32).astype(np.float64)).requires_grad_()
    torch.logcumsumexp(want, 1).sum().backward()
    np.testing.assert_allclose(mine.grad.numpy(), want.grad.numpy(), rtol=1e-5, atol=1e-5)


def test_ctc_loss_in_float32_has_float64s_gradient_nearer_than_torchs() -> None:
    rng = np.random.default_rng(0)
    scores = torch.tensor(rng.standard_normal((50, 16, 20)), dtype=torch.float32).log_softmax(-1)
    labels, lengths = rng.integers(1, 20, (16, 30)), rng.integers(12, 31, 16)

    def theirs(dtype: torch.dtype) -> np.ndarray:
        x = scores.to(dtype).requires_grad_()
        arguments = (torch.tensor(labels), torch.full((16,), 50), torch.tensor(lengths))
        torch.nn.functional.ctc_loss(x, *arguments, reduction="sum").backward()
        return x.grad.double().numpy()

    mine = dc.tensor(scores.numpy()).requires_grad_()
    arguments = (dc.tensor(labels), dc.full((16,), 50), dc.tensor(lengths))
    dc.nn.functional.ctc_loss(mine, *arguments, reduction="sum").backward()
    exact = theirs(torch.float64)
    off = np.abs(mine.grad.numpy() - exact).max()
    assert off < 2e-5
    assert off < np.abs(theirs(torch.float32) - exact).max()


def test_the_gradient_of_a_symmetric_matrix_pseudo_inverse_is_torchs() -> None:
    rng = np.random.default_rng(0)
    half = rng.standard_normal((5, 3))
    matrix, weights = half @ half.T, rng.standard_normal((5, 5))
    mine, theirs = dc.tensor(matrix).requires_grad_(), torch.tensor(matrix).requires_grad_()
    (dc.linalg.pinv(mine, hermitian=True, rtol=1e-6) * dc.tensor(weights)).sum().backward()
    (torch.linalg.pinv(theirs, hermitian=True, rtol=1e-6) * torch.tensor(weights)).sum().backward()
    np.testing.assert_allclose(mine.grad.numpy(), theirs.grad.numpy(), atol=1e-8 * np.abs(theirs.grad.numpy()).max())


def test_without_dropout_multi_head_attention_forward_is_torchs() -> None:
    rng = np.random.default_rng(0)
    x, static = rng.standard_normal((5, 2, 8)), rng.standard_normal((4, 7, 4))
    weights = [rng.standard_normal(shape) for shape in ((24, 8), (24,), (1, 1, 8), (1, 1, 8), (8, 8), (8,))]
    for bias, kept in ((True, {}), (False, {"static_k": static, "static_v": static + 1})):
        results = []
        for lib in (dc, torch):
            w = [lib.tensor(v) for v in weights]
            extra = (w[2], w[3]) if bias else (None, None)
            options = {name: lib.tensor(value) for name, value in kept.items()}
            results.append(
                lib.nn.functional.multi_head_attention_forward(
                    *[lib.tensor(x)] * 3, 8, 2, w[0], w[1], *extra, True, 0.0, w[4], w[5], training=False, **options
                )
            )
        for got, want in zip(*results, strict=True):
            np.testing.assert_allclose(got.numpy(), want.numpy(), atol=1e-12)


def test_svd_lowrank_of_what_has_that_rank_is_the_matrix() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((7, 2)) @ rng.standard_normal((2, 5))
    for given in (matrix, matrix.T):
        u, s, v = dc.svd_lowrank(dc.tensor(given), q=2)
        np.testing.assert_allclose((u * s @ v.mT).numpy(), given, atol=1e-10)
        np.testing.assert_allclose(s.numpy(), np.linalg.svd(given, compute_uv=False)[:2], rtol=1e-10)
