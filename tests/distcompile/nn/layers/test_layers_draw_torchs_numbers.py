"""Layers that draw: from torch's seed each has torch's weights, bit for bit, and drops what torch's drops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.same_draws import assert_same_draws

pytestmark = pytest.mark.torch

LAYERS: dict[str, Callable[[Any], Any]] = {
    "linear": lambda nn: nn.Linear(5, 7),
    "without_bias": lambda nn: nn.Linear(5, 70, bias=False),
    "bilinear": lambda nn: nn.Bilinear(3, 4, 5),
    "embedding": lambda nn: nn.Embedding(10, 4, padding_idx=2),
    "bag": lambda nn: nn.EmbeddingBag(10, 4),
    "conv1d": lambda nn: nn.Conv1d(3, 6, 3),
    "conv2d": lambda nn: nn.Conv2d(4, 8, 3, groups=2),
    "conv3d": lambda nn: nn.Conv3d(3, 6, 3, bias=False),
    "transposed": lambda nn: nn.Sequential(
        nn.ConvTranspose1d(3, 6, 3), nn.ConvTranspose2d(3, 6, 3), nn.ConvTranspose3d(3, 6, 3)
    ),
    "rnn": lambda nn: nn.RNN(4, 5, 2, bidirectional=True),
    "lstm": lambda nn: nn.LSTM(4, 5, 3, dropout=0.1, proj_size=3),
    "gru": lambda nn: nn.GRU(4, 5, 2, bias=False),
    "cells": lambda nn: nn.ModuleList([nn.RNNCell(3, 4), nn.LSTMCell(3, 4), nn.GRUCell(3, 4)]),
    "attention": lambda nn: nn.MultiheadAttention(8, 2, add_bias_kv=True),
    "attention_of_other_widths": lambda nn: nn.MultiheadAttention(8, 2, kdim=5, vdim=6),
    "transformer": lambda nn: nn.Transformer(8, 2, 2, 2, 16),
    "encoder": lambda nn: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 3),
    "classes": lambda nn: nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10]),
    "network": lambda nn: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.PReLU(3), nn.Linear(4, 2)),
    "weight_norm": lambda nn: nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)),
}  # fmt: skip
ROUNDED: dict[str, Callable[[Any], Any]] = {
    "spectral_norm": lambda nn: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 5)),
    "older_spectral_norm": lambda nn: nn.utils.spectral_norm(nn.Linear(4, 5)),
    "orthogonal": lambda nn: nn.utils.parametrizations.orthogonal(nn.Linear(4, 5)),
}


@pytest.mark.parametrize("name", [*LAYERS, *ROUNDED])
def test_weights_are_torchs(name: str) -> None:
    make, rtol = (LAYERS[name], 0.0) if name in LAYERS else (ROUNDED[name], 1e-5)
    assert_same_draws(lambda t: make(t.nn).state_dict(), rtol=rtol)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_weights_of_other_dtypes_are_torchs(dtype: str) -> None:
    assert_same_draws(lambda t: t.nn.Linear(6, 70, dtype=getattr(t, dtype)).state_dict())


def fills(t: Any) -> Iterator[Any]:
    init = t.nn.init
    for shape in ((10, 20), (20, 10), (3, 4, 3, 3)):
        w = t.empty(*shape)
        for fill in (init.uniform_, init.normal_, init.xavier_uniform_, init.xavier_normal_):
            yield fill(w).clone()
        for fill in (init.kaiming_uniform_, init.kaiming_normal_, init.trunc_normal_):
            yield fill(w).clone()
        yield init.trunc_normal_(w, std=0.02).clone(), init.uniform_(w, -3, 2).clone()
        for x in (w, w.double()):  # few normal numbers lie there
            yield init.trunc_normal_(x, mean=1.0, std=3.0, a=-0.5, b=0.5).clone()
        yield init.kaiming_uniform_(w, generator=t.Generator().manual_seed(3)).clone()
    yield init.sparse_(t.empty(10, 6), 0.3)


def test_fills_are_torchs() -> None:
    assert_same_draws(fills)


@pytest.mark.parametrize("shape", [(5, 5), (3, 7), (7, 3), (4, 2, 3)])
def test_orthogonal_matrices_are_torchs(shape: tuple[int, ...]) -> None:
    assert_same_draws(lambda t: t.nn.init.orthogonal_(t.empty(*shape)), rtol=1e-5)


def dropouts(t: Any) -> Iterator[Any]:
    F, x = t.nn.functional, t.randn(4, 6, 5, requires_grad=True)
    for p in (0.1, 0.5, 0.9, 0.0, 1.0):
        for drop in (F.dropout, F.dropout1d, F.alpha_dropout, F.feature_alpha_dropout):
            yield drop(x, p, True)
        yield F.dropout2d(t.ones(2, 3, 4, 4), p), F.dropout3d(t.ones(2, 3, 4, 4, 2), p), t.dropout(x, p, True)
        yield F.dropout(x.transpose(0, 1), p), F.dropout(x.transpose(1, 2) * 2, p), F.dropout(t.ones(3, 0), p)
        yield [F.dropout(x.detach().to(dtype), p) for dtype in (t.float64, t.bfloat16, t.float16)]
        yield F.dropout(F.gelu(x.permute(2, 0, 1)), p)
    F.dropout(x, 0.3).pow(2).sum().backward()
    yield x.grad
    y = t.ones(3, 4)
    F.dropout(y, 0.5, inplace=True)
    yield y


def activations(t: Any) -> Iterator[Any]:
    F, x = t.nn.functional, t.randn(5, 7)
    yield F.gumbel_softmax(x), F.gumbel_softmax(x, hard=True), F.rrelu(x, training=True)
    yield F.rrelu(x.double(), training=True), F.fractional_max_pool2d(t.randn(2, 3, 8, 8), 2, output_size=3)


def attention(t: Any) -> Iterator[Any]:
    F = t.nn.functional
    q, k, v = (t.randn(2, 3, 5, 8) for _ in range(3))
    yield F.scaled_dot_product_attention(q, k, v, dropout_p=0.3)
    yield F.scaled_dot_product_attention(q, k, v, dropout_p=0.3, is_causal=True)
    for first in (True, False):
        layer = t.nn.MultiheadAttention(8, 2, dropout=0.3, batch_first=first)
        yield layer(q[0], k[0], v[0]), layer(q[0], k[0], v[0], need_weights=False)[0]


def recurrent(t: Any) -> Iterator[Any]:
    for first in (True, False):
        for kind in ("LSTM", "GRU", "RNN"):
            layer = getattr(t.nn, kind)(4, 5, 3, dropout=0.3, batch_first=first, bidirectional=kind == "GRU")
            out, _ = layer(t.randn(3, 6, 4))
            out.sum().backward()
            yield out, [p.grad for p in layer.parameters()]
    packed = t.nn.utils.rnn.pack_padded_sequence(t.randn(6, 3, 4), [6, 4, 2])
    yield t.nn.LSTM(4, 5, 2, dropout=0.3)(packed)[0].data


def transformers(t: Any) -> Iterator[Any]:
    """What attention gives lies in memory with the sequence's dim the slowest: so its dropout draws."""
    for first in (True, False):
        for norm_first in (True, False):
            layer = t.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=first, norm_first=norm_first)
            yield t.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)(t.randn(3, 5, 8))
        net, source, target = t.nn.Transformer(8, 2, 2, 2, 16, dropout=0.2, batch_first=first), t.randn(5, 5, 8), t.randn(5, 4, 8)  # fmt: skip  # noqa: E501
        source, target = (x if first else x.transpose(0, 1).contiguous() for x in (source, target))
        out = net(source, target, tgt_mask=t.nn.Transformer.generate_square_subsequent_mask(4))
        out.sum().backward()
        yield out, [p.grad for p in net.parameters()]


@pytest.mark.parametrize(
    "program", [dropouts, activations, attention, recurrent, transformers], ids=lambda program: program.__name__
)
def test_what_is_dropped_is_what_torch_drops(program: Any) -> None:
    assert_same_draws(program, rtol=2e-5)
