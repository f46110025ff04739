"""Dropout and initialisation: the right distribution, the same bits for the same seed, nothing when evaluating."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from distcompile import nn
from distcompile.errors import ArgumentError, GradientNormError, RegistrationTypeError
from distcompile.nn import functional as F
from distcompile.nn import init


def test_dropout_keeps_the_mean_and_scales_what_it_keeps() -> None:
    dc.manual_seed(0)
    out = nn.Dropout(0.25)(dc.ones(200, 500)).numpy()
    assert set(np.unique(out)) == {0.0, np.float32(1 / 0.75)}
    assert abs((out == 0).mean() - 0.25) < 0.005


def test_dropout_has_the_same_bits_for_the_same_seed_and_other_ones_at_every_draw() -> None:
    x = dc.ones(64)
    dc.manual_seed(3)
    first, second = F.dropout(x).numpy(), F.dropout(x).numpy()
    dc.manual_seed(3)
    np.testing.assert_array_equal(F.dropout(x).numpy(), first)
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("backend", ["", "eager", "codegen"])
def test_what_is_no_number_is_none_also_where_it_is_dropped(backend: str) -> None:
    """As in torch, which multiplies: a loss that has gone wrong is not hidden by chance."""
    call: Any = dc.compile(F.dropout, backend=backend) if backend else F.dropout
    x = dc.full((64,), math.nan, requires_grad=True)
    out = call(x)
    out.backward(dc.full((64,), math.nan))
    assert bool(out.isnan().all())
    assert bool(x.grad.isnan().all())
    assert bool(call(dc.full((64,), math.inf)).isnan().any())


def test_the_gradient_passes_through_the_same_mask() -> None:
    x = dc.ones(100, requires_grad=True)
    out = F.dropout(x, 0.5)
    out.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), out.detach().numpy())


@pytest.mark.parametrize(
    ("layer", "shape", "spatial"), [(nn.Dropout1d, (8, 50, 6), 1), (nn.Dropout2d, (8, 50, 3, 4), 2)]
)
def test_channel_dropout_drops_whole_channels(layer: Any, shape: tuple[int, ...], spatial: int) -> None:
    out = layer(0.4)(dc.ones(*shape)).numpy().reshape(8, 50, -1)
    assert (out == out[..., :1]).all()
    assert 0.25 < (out[..., 0] == 0).mean() < 0.55
    assert layer(0.4).eval()(dc.ones(*shape)).numpy().min() == 1.0


@pytest.mark.parametrize(
    ("fill", "low", "high", "std"),
    [
        (lambda w: init.uniform_(w, -2, 3), -2, 3, 5 / math.sqrt(12)),
        (lambda w: init.normal_(w, 1.0, 0.5), -math.inf, math.inf, 0.5),
        (lambda w: init.trunc_normal_(w, std=1.0, a=-1, b=2), -1, 2, 0.7197),
        (
            lambda w: init.xavier_uniform_(w, 2.0),
            -2 * math.sqrt(6 / 300),
            2 * math.sqrt(6 / 300),
            2 * math.sqrt(2 / 300),
        ),
        (lambda w: init.xavier_normal_(w), -math.inf, math.inf, math.sqrt(2 / 300)),
        (
            lambda w: init.kaiming_uniform_(w, a=math.sqrt(5)),
            -1 / math.sqrt(200),
            1 / math.sqrt(200),
            1 / math.sqrt(600),
        ),
        (
            lambda w: init.kaiming_normal_(w, mode="fan_out", nonlinearity="relu"),
            -math.inf,
            math.inf,
            math.sqrt(2 / 100),
        ),
    ],
)
def test_initialisers_have_their_bounds_and_spread(fill: Any, low: float, high: float, std: float) -> None:
    dc.manual_seed(0)
    weight = nn.Parameter(dc.empty(100, 200))
    assert fill(weight) is weight
    values = weight.detach().numpy()
    assert low <= values.min()
    assert values.max() <= high
    assert values.std() == pytest.approx(std, rel=0.03)
    assert weight.is_leaf
    assert weight.requires_grad


def test_structured_initialisers() -> None:
    q = init.orthogonal_(dc.empty(6, 4), gain=2.0).numpy()
    np.testing.assert_allclose(q.T @ q, 4 * np.eye(4), atol=1e-5)
    wide = init.orthogonal_(dc.empty(3, 5)).numpy()
    np.testing.assert_allclose(wide @ wide.T, np.eye(3), atol=1e-5)
    np.testing.assert_array_equal(init.eye_(dc.empty(2, 3)).numpy(), np.eye(2, 3))
    sparse = init.sparse_(dc.empty(10, 8), sparsity=0.3).numpy()
    assert ((sparse == 0).sum(0) == 3).all()
    assert init.constant_(dc.empty(2), 7.0).tolist() == [7.0, 7.0]


def test_gains_are_torchs() -> None:
    torch = pytest.importorskip("torch")
    for name in ("linear", "sigmoid", "tanh", "relu", "leaky_relu", "selu", "conv2d"):
        assert init.calculate_gain(name) == pytest.approx(torch.nn.init.calculate_gain(name))
    assert init.calculate_gain("leaky_relu", 0.3) == pytest.approx(torch.nn.init.calculate_gain("leaky_relu", 0.3))


@pytest.mark.parametrize(
    ("misuse", "error"),
    [
        (lambda: nn.Dropout(1.5), ArgumentError),
        (lambda: F.dropout(dc.ones(1), -0.1), ArgumentError),
        (lambda: nn.MultiheadAttention(5, 2), ArgumentError),
        (lambda: nn.MultiheadAttention(4, 2)(*[dc.ones(1, 1, 4)] * 3, is_causal=True), ArgumentError),
        (lambda: nn.GroupNorm(2, 3), ArgumentError),
        (lambda: nn.Embedding(3, 2, padding_idx=3), ArgumentError),
        (lambda: nn.Embedding(3, 2, _weight=dc.ones(2, 2)), ArgumentError),
        (lambda: nn.MSELoss(reduction="median"), ArgumentError),
        (lambda: F.huber_loss(dc.ones(1), dc.ones(1), delta=0.0), ArgumentError),
        (lambda: F.hardtanh(dc.ones(1), 1.0, 0.0), ArgumentError),
        (lambda: nn.TransformerEncoderLayer(4, 2, activation="tanh"), ArgumentError),
        (lambda: init.calculate_gain("sinc"), ArgumentError),
        (lambda: init.xavier_uniform_(dc.empty(3)), ArgumentError),
        (lambda: init.kaiming_normal_(dc.empty(3, 3), mode="fan"), ArgumentError),
        (lambda: nn.utils.vector_to_parameters(dc.ones(1), [nn.Parameter(dc.ones(2))]), ArgumentError),
        (lambda: nn.utils.vector_to_parameters([1.0], []), RegistrationTypeError),  # type: ignore[arg-type]
        (lambda: F.scaled_dot_product_attention(*[dc.ones(2, 2)] * 4, is_causal=True), ArgumentError),
    ],
)
def test_misuse_is_a_named_error(misuse: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        misuse()


def test_a_non_finite_norm_is_an_error_only_if_asked() -> None:
    weight = nn.Parameter(dc.ones(2))
    weight.grad = dc.tensor([float("inf"), 1.0])
    with pytest.raises(GradientNormError, match="non-finite"):
        nn.utils.clip_grad_norm_([weight], 1.0, error_if_nonfinite=True)
    assert float(nn.utils.clip_grad_norm_(weight, 1.0)) == math.inf


def test_embedding_from_a_table() -> None:
    table = dc.arange(6.0).reshape(3, 2)
    layer = nn.Embedding.from_pretrained(table)
    assert layer(dc.tensor([2, 0])).tolist() == [[4.0, 5.0], [0.0, 1.0]]
    assert not layer.weight.requires_grad
    padded = nn.Embedding(4, 3, padding_idx=-1)
    assert padded.weight[3].tolist() == [0.0, 0.0, 0.0]
    padded(dc.tensor([3, 1])).sum().backward()
    assert padded.weight.grad.sum(1).tolist() == [0.0, 3.0, 0.0, 0.0]


def test_softmax_without_a_dim_warns_and_takes_torchs() -> None:
    with pytest.warns(UserWarning, match="Implicit dimension"):
        out = F.softmax(dc.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]))  # of 2 dims: the second
    assert out.tolist() == [[0.5, 0.5]] * 3
