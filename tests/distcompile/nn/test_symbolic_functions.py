"""nn.functional and modules with sizes that are symbols: right at other sizes, and what they assume.

ALLOWED: the guards of those functions that may have any. FIXED: the first ones of those that need a number.
"""

from __future__ import annotations

from typing import Any

import pytest
from symbolic_sizes import symbolically

import distcompile as torch
from distcompile import nn
from distcompile.nn import functional as F

X, Y, IM = "f32[b, 4]", "f32[b, t, 8]", "f32[b, 3, 8, 8]"
IHW, Q, K = "f32[b, 3, h, w]", "f32[b, 2, t, 4]", "f32[b, 2, s, 4]"


torch.manual_seed(0)
lin, emb, ln = nn.Linear(8, 4), nn.Embedding(10, 8), nn.LayerNorm(8)
bn, bn2, gn = nn.BatchNorm1d(4), nn.BatchNorm2d(3), nn.GroupNorm(2, 4)
conv, conv1 = nn.Conv2d(3, 4, 3, padding=1), nn.Conv1d(8, 4, 3, padding=1)
lstm, gru, rnn = nn.LSTM(8, 6, batch_first=True), nn.GRU(8, 6, batch_first=True), nn.RNN(8, 6)
cell, mha = nn.LSTMCell(8, 6), nn.MultiheadAttention(8, 2, batch_first=True)
tel = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
teld = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)


def attn(q: Any, k: Any, v: Any) -> Any:
    s = q @ k.transpose(-2, -1) / (q.shape[-1] ** 0.5)
    return s.softmax(-1) @ v


def causal(x: Any) -> Any:
    n = x.shape[1]
    s = x @ x.transpose(1, 2)
    m = torch.tril(torch.ones(n, n)).view(1, n, n)
    return s.masked_fill(m == 0, float("-inf")).softmax(-1) @ x


def ip(x: Any, i: Any) -> Any:
    y = x.clone()
    y[i] = 0.0
    y[:, 1] = 2.0
    return y


def inplace(x: Any) -> Any:
    y = x.clone()
    y += 1
    y.mul_(2)
    y[0].add_(1)
    y.clamp_(min=0)
    return y, y.clone().copy_(x), x.clone().zero_(), x.clone().fill_(3)


def rotary(x: Any) -> Any:
    t = torch.arange(x.shape[-2]).float()
    f = torch.outer(t, 1.0 / (10000 ** (torch.arange(0, 4, 2).float() / 4)))
    e = torch.cat((f, f), -1)
    x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return x * e.cos() + torch.cat((-x2, x1), -1) * e.sin()


def kv(c: Any, x: Any) -> Any:
    k = torch.cat([c, x], dim=2)
    length, both = x.shape[2], k.shape[2]
    s = x @ k.transpose(-2, -1)
    m = torch.arange(both)[None, :] <= torch.arange(both - length, both)[:, None]
    return s.masked_fill(~m, float("-inf")).softmax(-1) @ k


CASES: dict[str, tuple[Any, ...]] = {
    "sum": (lambda x: (x.sum(), x.sum(0), x.sum(-1, keepdim=True)), Y),
    "mean": (lambda x: (x.mean(), x.mean(0), x.mean(1), x.mean(-1), x.mean((0, 1))), Y),
    "mean keep": (lambda x: x - x.mean(1, keepdim=True), Y),
    "var": (lambda x: (x.var(), x.var(0), x.var(-1), x.var(0, unbiased=False), x.var((0, 1))), Y),
    "std": (lambda x: (x.std(), x.std(0), x.std(0, correction=0)), Y),
    "var_mean": (lambda x: torch.var_mean(x, 0), Y),
    "std corr .5": (lambda x: x.std(0, correction=0.5), Y),
    "max": (lambda x: (x.max(), x.max(1), x.amax(0), x.min(-1)), Y),
    "argmax": (lambda x: (x.argmax(), x.argmax(-1), x.argmax(0), x.argmin(1)), Y),
    "prod": (lambda x: x.prod(0), X),
    "any all": (lambda x: ((x > 0).any(), (x > 0).all(0)), X),
    "count_nonzero": (lambda x: torch.count_nonzero(x), X),
    "mean bf16": (lambda x: x.mean(0), "bf16[b, 4]"),
    "bf16 / n": (lambda x: x / x.shape[0], "bf16[b, 4]"),
    "median": (lambda x: x.median(-1), "f32[b, 5]"),
    "logsumexp": (lambda x: x.logsumexp(0), X),
    "softmax": (lambda x: (x.softmax(-1), x.softmax(0), F.log_softmax(x, 1)), Y),
    "layer_norm": (lambda x: F.layer_norm(x, (8,)), Y),
    "layer_norm xs": (lambda x: F.layer_norm(x, x.shape[-1:]), Y),
    "layer_norm xs1": (lambda x: F.layer_norm(x, x.shape[1:]), Y),
    "ln": (ln, Y),
    "rms_norm": (lambda x: F.rms_norm(x, (8,)), Y),
    "rms hand": (lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5), Y),
    "group_norm": (gn, "f32[b, 4, 6]"),
    "group_norm t": (gn, "f32[b, 4, t]"),
    "instance_norm": (lambda x: F.instance_norm(x), "f32[b, 4, t]"),
    "batch_norm eval": (lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4)), X),
    "bn train": (bn, X),
    "bn train 3d": (bn, "f32[b, 4, t]"),
    "bn2 train": (bn2, IM),
    "bn F train": (lambda x: F.batch_norm(x, None, None, training=True), X),
    "normalize": (lambda x: F.normalize(x, dim=-1), Y),
    "cosine": (lambda x, y: F.cosine_similarity(x, y), X, X),
    "matmul": (lambda x, y: x @ y, "f32[b, t, 8]", "f32[8, 4]"),
    "matmul bb": (lambda x, y: x @ y, "f32[b, t, 8]", "f32[b, 8, t]"),
    "matmul 4d": (lambda x, y: x @ y.transpose(-2, -1), Q, K),
    "matmul bc": (lambda x, y: x @ y, "f32[b, 1, t, 8]", "f32[c, 8, 3]"),
    "matmul vec": (lambda x, y: x @ y, "f32[b, 4]", "f32[4]"),
    "mm": (lambda x, y: x.mm(y), "f32[b, 4]", "f32[4, c]"),
    "xTx": (lambda x: x.t() @ x, X),
    "bmm": (lambda x, y: torch.bmm(x, y), "f32[b, t, 8]", "f32[b, 8, 4]"),
    "dot": (lambda x, y: torch.dot(x, y), "f32[b]", "f32[b]"),
    "mv": (lambda x, y: x.mv(y), X, "f32[4]"),
    "outer": (lambda x, y: torch.outer(x, y), "f32[b]", "f32[t]"),
    "einsum": (lambda x, y: torch.einsum("bqd,bkd->bqk", x, y), "f32[b, t, 8]", "f32[b, s, 8]"),
    "einsum hd": (lambda x, y: torch.einsum("bthd,hde->bte", x, y), "f32[b, t, 2, 4]", "f32[2, 4, 6]"),
    "einsum diag": (lambda x: torch.einsum("bii->bi", x), "f32[b, t, t]"),
    "linear": (lin, Y),
    "linear 2d": (lin, "f32[b, 8]"),
    "linear F": (lambda x, w: F.linear(x, w), Y, "f32[3, 8]"),
    "bilinear": (lambda x, y, w: F.bilinear(x, y, w), "f32[b, 4]", "f32[b, 3]", "f32[5, 4, 3]"),
    "addmm": (lambda c, x, y: torch.addmm(c, x, y), "f32[3]", X, "f32[4, 3]"),
    "baddbmm": (lambda c, x, y: torch.baddbmm(c, x, y), "f32[b, t, s]", "f32[b, t, 8]", "f32[b, 8, s]"),
    "addbmm": (lambda c, x, y: torch.addbmm(c, x, y), "f32[3, 4]", "f32[b, 3, 8]", "f32[b, 8, 4]"),
    "tensordot": (lambda x, y: torch.tensordot(x, y, 1), Y, "f32[8, 3]"),
    "kron": (lambda x, y: torch.kron(x, y), X, "f32[2, 2]"),
    "cdist": (lambda x, y: torch.cdist(x, y), X, "f32[c, 4]"),
    "embedding": (emb, "i64[b, t] < 10"),
    "embedding pad": (lambda i, w: F.embedding(i, w, padding_idx=0), "i64[b, t] < 10", "f32[10, 4]"),
    "embedding V": (lambda i, w: F.embedding(i, w), "i64[b, t] < 2", "f32[v, 4]"),
    "pos emb": (lambda i: emb(torch.arange(i.shape[1]).unsqueeze(0).clamp(max=9)), "i64[b, t] < 10"),
    "gather": (lambda x, i: x.gather(1, i), X, "i64[b, 3] < 4"),
    "gather t": (lambda x, i: x.gather(1, i.unsqueeze(-1).expand(-1, -1, x.shape[-1])), Y, "i64[b, k] < 2"),
    "scatter": (lambda x, i: torch.zeros_like(x).scatter(1, i, 1.0), X, "i64[b, 3] < 4"),
    "scatter_add": (lambda x, i: torch.zeros(x.shape[0], 4).scatter_add(1, i, x), X, "i64[b, 4] < 4"),
    "scatter_": (lambda x, i: torch.zeros(x.shape[0], 10).scatter_(1, i, 1), X, "i64[b, 1] < 10"),
    "index_select": (lambda x, i: (x.index_select(0, i), x.index_select(1, i)), X, "i64[k] < 2"),
    "index_add": (lambda x, i, s: x.index_add(0, i, s), X, "i64[k] < 2", "f32[k, 4]"),
    "index_put": (lambda x, i: ip(x, i), X, "i64[k] < 2"),
    "take_along_dim": (lambda x, i: torch.take_along_dim(x, i, 1), X, "i64[b, 3] < 4"),
    "masked_fill": (lambda x: x.masked_fill(x > 0, -1e9), Y),
    "masked_fill col": (lambda x, m: x.masked_fill(m[:, :, None] == 0, 0.0), Y, "i64[b, t]"),
    "where": (lambda x: torch.where(x > 0, x, 0.0), Y),
    "where b": (lambda x, y: torch.where(x > 0, x, y), X, "f32[4]"),
    "mask mean": (lambda x, m: (x * m.unsqueeze(-1)).sum(1) / m.sum(1, keepdim=True).clamp(min=1), Y, "f32[b, t]"),
    "causal": (causal, Y),
    "attn": (attn, Y, Y, Y),
    "sdpa": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), Q, K, K),
    "sdpa causal": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), Q),
    "sdpa causal ts": (lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True), Q, K),
    "sdpa mask": (lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m), Q, "f32[t, t]"),
    "sdpa bool mask": (
        lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m[:, None, None, :] > 0),
        Q,
        "i64[b, t]",
    ),
    "sdpa d": (lambda q: F.scaled_dot_product_attention(q, q, q), "f32[b, 2, t, d]"),
    "sdpa gqa": (lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True), "f32[b, 4, t, 4]", K),
    "mha": (lambda x: mha(x, x, x, need_weights=False)[0], Y),
    "mha w": (lambda x: mha(x, x, x), Y),
    "mha mask": (
        lambda x: mha(
            x,
            x,
            x,
            attn_mask=nn.Transformer.generate_square_subsequent_mask(x.shape[1]),
            is_causal=True,
            need_weights=False,
        )[0],
        Y,
    ),
    "mha kpm": (lambda x, m: mha(x, x, x, key_padding_mask=m == 5)[0], Y, "i64[b, t]"),
    "tel": (tel, Y),
    "tel dropout": (teld, Y),
    "cross_entropy": (lambda x, y: F.cross_entropy(x, y), "f32[b, 10]", "i64[b] < 10"),
    "cross_entropy flat": (
        lambda x, y: F.cross_entropy(x.view(-1, x.size(-1)), y.view(-1)),
        "f32[b, t, 10]",
        "i64[b, t] < 10",
    ),
    "cross_entropy V": (lambda x, y: F.cross_entropy(x, y), "f32[b, v]", "i64[b] < 2"),
    "cross_entropy ls": (lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), "f32[b, 10]", "i64[b] < 10"),
    "cross_entropy ls V": (lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), "f32[b, v]", "i64[b] < 2"),
    "cross_entropy soft": (lambda x, y: F.cross_entropy(x, y.softmax(-1)), "f32[b, 10]", "f32[b, 10]"),
    "cross_entropy ign": (lambda x, y: F.cross_entropy(x, y, ignore_index=0), "f32[b, 10, t]", "i64[b, t] < 10"),
    "cross_entropy shift": (
        lambda x, y: F.cross_entropy(x[:, :-1].reshape(-1, x.size(-1)), y[:, 1:].reshape(-1)),
        "f32[b, t, 10]",
        "i64[b, t] < 10",
    ),
    "nll": (lambda x, y: F.nll_loss(F.log_softmax(x, -1), y), "f32[b, 10]", "i64[b] < 10"),
    "mse": (lambda x, y: F.mse_loss(x, y), X, X),
    "l1": (lambda x, y: (F.l1_loss(x, y), F.smooth_l1_loss(x, y), F.huber_loss(x, y)), X, X),
    "bce": (lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()), X, X),
    "bcel": (lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), X, X),
    "kl": (lambda x, y: F.kl_div(F.log_softmax(x, -1), y.softmax(-1), reduction="batchmean"), X, X),
    "cel": (lambda x, y: F.cosine_embedding_loss(x, y, torch.ones(x.shape[0])), X, X),
    "triplet": (lambda x, y, z: F.triplet_margin_loss(x, y, z), X, X, X),
    "margin": (lambda x, y: F.margin_ranking_loss(x, y, torch.ones_like(x)), X, X),
    "multi_margin": (lambda x, y: F.multi_margin_loss(x, y), "f32[b, 10]", "i64[b] < 10"),
    "dropout": (lambda x: F.dropout(x, 0.3), Y),
    "dropout2d": (lambda x: F.dropout2d(x, 0.3), IM),
    "nn dropout": (nn.Dropout(0.1), Y),
    "acts": (
        lambda x: [
            F.gelu(x),
            F.gelu(x, approximate="tanh"),
            F.silu(x),
            F.relu(x),
            x.sigmoid(),
            x.tanh(),
            F.softplus(x),
            F.elu(x),
            F.leaky_relu(x),
            F.hardswish(x),
            F.mish(x),
            F.glu(x),
            F.selu(x),
            F.relu6(x),
            F.logsigmoid(x),
        ],
        Y,
    ),
    "unary": (
        lambda x: [
            x.exp(),
            x.abs().log(),
            x.abs().sqrt(),
            x.sin(),
            x.pow(3),
            x.round(),
            x.neg(),
            x.clamp(-1, 1),
            x.erf(),
            x.abs().rsqrt(),
            x.isnan(),
            x.sign(),
        ],
        Y,
    ),
    "prelu": (nn.PReLU(), Y),
    "conv2d": (conv, IM),
    "conv2d hw": (conv, IHW),
    "conv2d s2": (nn.Conv2d(3, 4, 3, stride=2, padding=1), IM),
    "conv2d s2 hw": (nn.Conv2d(3, 4, 3, stride=2, padding=1), IHW),
    "conv2d same": (nn.Conv2d(3, 4, 3, padding="same"), IM),
    "conv2d groups": (nn.Conv2d(4, 4, 3, groups=2), "f32[b, 4, 8, 8]"),
    "conv1d": (lambda x: conv1(x.transpose(1, 2)), Y),
    "conv1d causal": (lambda x: nn.functional.conv1d(F.pad(x.transpose(1, 2), (2, 0)), conv1.weight), Y),
    "convT": (nn.ConvTranspose2d(3, 4, 2, stride=2), IM),
    "patch": (lambda x: nn.functional.conv2d(x, conv.weight[:, :, :2, :2], stride=2).flatten(2).transpose(1, 2), IM),
    "max_pool": (lambda x: F.max_pool2d(x, 2), IM),
    "max_pool hw": (lambda x: F.max_pool2d(x, 2), IHW),
    "max_pool 3 2 1": (lambda x: F.max_pool2d(x, 3, 2, 1), IM),
    "max_pool ind": (lambda x: F.max_pool2d(x, 2, return_indices=True), IM),
    "avg_pool": (lambda x: F.avg_pool2d(x, 2), IM),
    "avg_pool pad": (lambda x: F.avg_pool2d(x, 3, 2, 1), IM),
    "avg_pool hw": (lambda x: F.avg_pool2d(x, 2), IHW),
    "max_pool pad hw": (lambda x: F.max_pool2d(x, 3, 2, 1), IHW),
    "max_pool ind hw": (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), IHW),
    "avg_pool pad hw": (lambda x: F.avg_pool2d(x, 3, 2, 1), IHW),
    "avg_pool ceil hw": (lambda x: F.avg_pool2d(x, 2, ceil_mode=True, count_include_pad=False), IHW),
    "adaptive 3 hw": (lambda x: F.adaptive_avg_pool2d(x, 3), IHW),
    "adaptive max 3 hw": (lambda x: F.adaptive_max_pool2d(x, (None, 4)), IHW),
    "adaptive 1": (lambda x: F.adaptive_avg_pool2d(x, 1), IM),
    "adaptive 1 hw": (lambda x: F.adaptive_avg_pool2d(x, (1, 1)), IHW),
    "adaptive 3": (lambda x: F.adaptive_avg_pool2d(x, 3), IM),
    "adaptive max": (lambda x: F.adaptive_max_pool2d(x, 1), IM),
    "interp": (lambda x: F.interpolate(x, scale_factor=2), IM),
    "interp bil": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), IM),
    "interp size": (lambda x: F.interpolate(x, size=(12, 12), mode="bilinear", align_corners=True), IM),
    "interp hw": (lambda x: F.interpolate(x, scale_factor=2), IHW),
    "interp like": (lambda x, y: F.interpolate(x, size=y.shape[2:]), IM, "f32[b, 3, 16, 16]"),
    "interp bil hw": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), IHW),
    "interp half hw": (lambda x: F.interpolate(x, scale_factor=1.5, mode="bicubic"), IHW),
    "interp like hw": (lambda x, y: F.interpolate(x, size=y.shape[2:], mode="bilinear"), IM, "f32[b, 3, h, w]"),
    "interp corners hw": (lambda x: F.interpolate(x, scale_factor=3, mode="bilinear", align_corners=True), IHW),
    "interp smooth hw": (lambda x: F.interpolate(x, size=(3, 4), mode="bicubic", antialias=True), IHW),
    "interp smooth corners": (
        lambda x: F.interpolate(x, size=(3, 4), mode="bilinear", align_corners=True, antialias=True),
        IHW,
    ),
    "interp nearest hw": (lambda x: F.interpolate(x, scale_factor=1.5, mode="nearest-exact"), IHW),
    "pad": (lambda x: F.pad(x, (1, 2)), Y),
    "pad to a multiple": (lambda x: F.pad(x, (0, 0, 0, -x.shape[1] % 4)), Y),
    "chunk t": (lambda x: x.chunk(3, 1), Y),
    "pad t": (lambda x: F.pad(x, (0, 0, 2, 0)), Y),
    "pad to": (lambda x: F.pad(x, (0, 0, 0, 64 - x.shape[1])), Y),
    "pad reflect": (lambda x: F.pad(x, (1, 1), mode="reflect"), "f32[b, 3, 8]"),
    "pad reflect t": (lambda x: F.pad(x, (1, 1), mode="reflect"), "f32[b, 3, t]"),
    "pad replicate": (lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"), IM),
    "pad circular": (lambda x: F.pad(x, (1, 1), mode="circular"), "f32[b, 3, 8]"),
    "unfold im2col": (lambda x: F.unfold(x, 2), IM),
    "fold": (lambda x: F.fold(x, (4, 4), 2, stride=2), "f32[b, 12, 4]"),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), "f32[b, 4, 3, 3]"),
    "pixel_shuffle hw": (lambda x: F.pixel_shuffle(x, 2), "f32[b, 4, h, w]"),
    "grid_sample": (lambda x, g: F.grid_sample(x, g), IM, "f32[b, 4, 4, 2]"),
    "cumsum": (lambda x: (x.cumsum(0), x.cumsum(-1)), Y),
    "cumprod": (lambda x: x.cumprod(1), X),
    "cummax": (lambda x: x.cummax(1), X),
    "one_hot": (lambda x: F.one_hot(x, 10), "i64[b, t] < 10"),
    "topk": (lambda x: x.topk(2, -1), Y),
    "topk t": (lambda x: x.topk(2, 1), Y),
    "sort": (lambda x: (x.sort(-1), x.argsort(0)), X),
    "kthvalue": (lambda x: x.kthvalue(2, -1), X),
    "repeat": (lambda x: (x.repeat(1, 2), x.tile(2, 1)), X),
    "repeat_interleave": (lambda x: x.repeat_interleave(2, dim=1), Y),
    "roll": (lambda x: (x.roll(1, 1), x.roll(-2, 0), torch.roll(x, (1, 2), (0, 1))), Y),
    "flip": (lambda x: x.flip(1), Y),
    "diff": (lambda x: (torch.diff(x), torch.diff(x, dim=0)), X),
    "norm": (lambda x: (x.norm(), x.norm(dim=-1), torch.linalg.norm(x), torch.linalg.vector_norm(x, 3)), X),
    "searchsorted": (lambda x, y: torch.searchsorted(y, x), X, "f32[16]"),
    "bucketize": (lambda x, y: torch.bucketize(x, y), X, "f32[16]"),
    "lstm": (lambda x: lstm(x), "f32[b, 5, 8]"),
    "lstm h0": (lambda x: lstm(x, (torch.zeros(1, x.shape[0], 6), torch.zeros(1, x.shape[0], 6))), "f32[b, 5, 8]"),
    "gru": (lambda x: gru(x), "f32[b, 5, 8]"),
    "rnn": (lambda x: rnn(x), "f32[5, b, 8]"),
    "lstm bt": (lambda x: lstm(x), "f32[b, t, 8]"),
    "lstm cell": (lambda x: cell(x), "f32[b, 8]"),
    "rotary": (lambda x: rotary(x), Q),
    "alibi": (
        lambda x: x.softmax(-1) + (torch.arange(x.shape[-1])[None, :] - torch.arange(x.shape[-1])[:, None]),
        "f32[b, t, t]",
    ),
    "sinus": (
        lambda x: (
            x
            + torch.sin(torch.arange(x.shape[1]).unsqueeze(1) * torch.exp(torch.arange(0, 8).float() * -0.1)).unsqueeze(
                0
            )
        ),
        Y,
    ),
    "kv cache": (lambda c, x: kv(c, x), K, Q),
    "scaled by sqrt n": (lambda x: x.sum(0) / x.shape[0], X),
    "fft": (lambda x: torch.fft.rfft(x, dim=-1).real, X),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.3), X, X),
    "addcmul": (lambda x, y: torch.addcmul(x, x, y, value=0.5), X, X),
    "baddbmm t": (lambda x, y: torch.baddbmm(x, y, y.transpose(1, 2), alpha=0.3), "f32[b, t, t]", "f32[b, t, 8]"),
    "meshgrid": (lambda x: torch.meshgrid(torch.arange(x.shape[0]), torch.arange(x.shape[1]), indexing="ij"), Y),
    "logical": (lambda x: (x > 0) & (x < 1) | ~(x > 2), X),
    "softmax mask bias": (
        lambda x, m: (x + (1.0 - m[:, None, None, :]) * -10000.0).softmax(-1),
        "f32[b, 2, t, t]",
        "f32[b, t]",
    ),
    "isin": (lambda x: torch.isin(x, torch.tensor([1, 2])), "i64[b] < 4"),
    "bincount minlength": (lambda x: torch.nn.functional.one_hot(x, 4).sum(0), "i64[b] < 4"),
    "cosine hw": (lambda x: F.cosine_similarity(x[:, None], x[None], dim=-1), X),
    "trapz": (lambda x: torch.trapezoid(x, dim=1), X),
    "quantile": (lambda x: torch.quantile(x, 0.5, dim=0), X),
    "cov": (lambda x: torch.cov(x), X),
    "cov t": (lambda x: torch.cov(x.T), X),
    "corrcoef": (lambda x: torch.corrcoef(x.T), X),
    "vmap-like outer": (lambda x: x.unsqueeze(1) - x.unsqueeze(0), X),
    "pairwise": (lambda x, y: F.pairwise_distance(x, y), X, X),
    "channel shuffle": (lambda x: F.channel_shuffle(x, 2), "f32[b, 4, 3, 3]"),
    "gumbel": (lambda x: F.gumbel_softmax(x), X),
    "multinomial": (lambda x: torch.multinomial(x.softmax(-1), 2), X),
    "inplace": (lambda x: inplace(x), X),
    "addcdiv": (lambda x: x.add(x, alpha=2).div_(2).mul_(x.shape[0]), X),
    "index slice n": (lambda x, n: x[:n], "f32[64, 4]", "n"),
    "arange n": (lambda n: torch.arange(n) * 2, "n"),
    "zeros n": (lambda n: torch.zeros(n, n + 1), "n"),
    "view n": (lambda x: x.view(x.shape[0] // 2, 2, -1) if x.shape[0] % 2 == 0 else x, "f32[b, 4]"),
    "merge even": (lambda x: x.view(x.shape[0], x.shape[1] * 2, 4), Y),
    "unflatten t//2": (lambda x: x[:, : x.shape[1] // 2 * 2].reshape(x.shape[0], -1, 16), Y),
}


PADDED = ("max_pool pad", "max_pool ind", "avg_pool pad")
ALLOWED = {
    **{f"{name} hw": ["0 <= 2*((h + 1) // 2) - h", "0 <= 2*((w + 1) // 2) - w"] for name in PADDED},
    "avg_pool ceil hw": [
        "not h <= 2*((h + 1) // 2) - 2",
        "0 <= 2*((h + 1) // 2) - h",
        "not w <= 2*((w + 1) // 2) - 2",
        "0 <= 2*((w + 1) // 2) - w",
    ],
    "interp smooth hw": ["3 < h", "4 < w"],
    "interp smooth corners": ["2 < h - 1", "3 < w - 1"],
    "adaptive 3 hw": ["3 <= h", "not (h % 3) == 0"],
    "adaptive max 3 hw": ["4 <= w", "not (w % 4) == 0"],
    "cross_entropy shift": ["not t - 1 == 1", "not ((t - 1) % (b*t - b)) == 0"],
    "pad to": ["0 <= -t + 64"],
    "roll": ["2 < b", "not t - 2 == 0"],
    "index slice n": ["n <= 64"],
    "view n": ["not (b % 2) == 0"],
    "unflatten t//2": ["2*(t // 2) <= t", "not 8*t == 16*(t // 2)", "not (t // 2) == 1"],
}
FIXED = {"sdpa d": ["d == 11"], "chunk t": ["-(t // ((-t) // 3)) == 3"]}


@pytest.mark.parametrize("name", CASES)
def test_what_is_assumed(name: str) -> None:
    function, *operands = CASES[name]
    guards = symbolically(function, *operands, fixes=name in FIXED)
    if name in FIXED:
        assert guards[: len(FIXED[name])] == FIXED[name]
    else:
        assert guards == ALLOWED.get(name, [])
