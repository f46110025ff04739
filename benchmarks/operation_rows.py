"""What operations.py measures: one row an operation, written once for both frameworks.

In: nothing. Out: `ROWS`: name -> Row. An input is a NumPy array drawn from a seed, so both sides compute on the same
numbers, and what they computed can be compared. Floating-point inputs take gradients unless the row says otherwise.
Sizes: about a million elements where an operation streams, so that the memory of neither side's caches holds it all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from framework import F, nn, torch

Draw = Callable[[np.random.Generator], Any]


@dataclass(frozen=True)
class Row:
    """compute(*inputs) is compiled; its results (one, or a tuple) that are floating-point are differentiated.

    inputs: one Draw each. wanted: whether gradients are taken. dtype: of the floating-point inputs. layers: makes a
    module, which then is what is compiled.
    """

    compute: Callable[..., Any] | None
    inputs: tuple[Draw, ...] = ()
    wanted: bool = True
    dtype: str = "float32"
    layers: Callable[[], Any] | None = None


def normal(*shape: int) -> Draw:
    return lambda rng: rng.standard_normal(shape, np.float32)


def positive(*shape: int) -> Draw:
    return lambda rng: rng.random(shape, np.float32) + np.float32(0.5)


def integers(high: int, *shape: int) -> Draw:
    return lambda rng: rng.integers(0, high, shape)


def coins(*shape: int) -> Draw:
    return lambda rng: rng.random(shape) < 0.5


def ascending(*shape: int) -> Draw:
    return lambda rng: np.sort(rng.standard_normal(shape, np.float32), axis=-1)


def _of(function: Callable[..., Any], *inputs: Draw, **options: Any) -> Row:
    return Row(function, inputs, **options)


X = normal(256, 4096)
CUBE = normal(32, 128, 256)
IMAGE = normal(8, 64, 28, 28)


def _pointwise() -> dict[str, Row]:
    return {
        "sin(cos(x))": _of(lambda x: torch.sin(torch.cos(x)), X),
        "gelu, tanh form": _of(lambda x: F.gelu(x, approximate="tanh"), X),
        "gelu": _of(F.gelu, X),
        "silu(x) * y": _of(lambda x, y: F.silu(x) * y, X, X),
        "chain of 8": _of(
            lambda x, y: torch.tanh(x * y + 1.0) * torch.sigmoid(x) - torch.relu(y) / (x * x + 1.0), X, X
        ),
        "exp, log, pow": _of(lambda x: torch.log(torch.exp(x * 0.1) + x**3), positive(256, 4096)),
        "softplus, elu, leaky_relu": _of(lambda x: F.softplus(x) + F.elu(x) + F.leaky_relu(x), X),
        "where, clamp": _of(lambda x, y: torch.where(x > y, x.clamp(-1.0, 1.0), y), X, X),
        "masks as numbers": _of(lambda x, y: x * (x > y).float() + y * (y > 0.5).to(y.dtype), X, X),
        "x + bias": _of(lambda x, b: torch.relu(x + b), X, normal(4096)),
        "x * column": _of(lambda x, c: x * c + 1.0, X, normal(256, 1)),
        "x + x.T": _of(lambda x: x + x.t(), normal(1024, 1024)),
        "erf, sqrt, rsqrt": _of(lambda x: torch.erf(x) * torch.sqrt(x) + torch.rsqrt(x), positive(256, 4096)),
        "cast to bf16 and back": _of(lambda x: x.to(torch.bfloat16).to(torch.float32) * 2.0, X),
    }


def _reductions() -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for where, dim in (("last", -1), ("dim 0", 0)):
        rows |= {
            f"sum, {where}": _of(lambda x, d=dim: (x * x).sum(d), X),
            f"mean, {where}": _of(lambda x, d=dim: x.mean(d), X),
            f"var, {where}": _of(lambda x, d=dim: x.var(d), X),
            f"prod, {where}": _of(lambda x, d=dim: x.prod(d), positive(4096, 16) if dim else positive(16, 4096)),
            f"amax, {where}": _of(lambda x, d=dim: x.amax(d), X),
            f"max with places, {where}": _of(lambda x, d=dim: tuple(x.max(d)), X),
            f"min with places, {where}": _of(lambda x, d=dim: tuple(x.min(d)), X),
            f"argmax, {where}": _of(lambda x, d=dim: x.argmax(d), X, wanted=False),
            f"argmin, {where}": _of(lambda x, d=dim: x.argmin(d), X, wanted=False),
            f"logsumexp, {where}": _of(lambda x, d=dim: torch.logsumexp(x, d), X),
            f"norm, {where}": _of(lambda x, d=dim: torch.linalg.vector_norm(x, dim=d), X),
            f"softmax, {where}": _of(lambda x, d=dim: torch.softmax(x, d), X),
            f"log_softmax, {where}": _of(lambda x, d=dim: torch.log_softmax(x, d), X),
            f"any, {where}": _of(lambda x, d=dim: (x > 3.0).any(d), X, wanted=False),
        }
    return rows | {
        "sum of all": _of(lambda x: (x * x).sum(), X),
        "sum, middle": _of(lambda x: (x * x).sum(1), CUBE),
        "sum, first and last": _of(lambda x: (x * x).sum((0, 2)), CUBE),
        "var, first and last": _of(lambda x: x.var((0, 2)), CUBE),
        "softmax, middle": _of(lambda x: torch.softmax(x, 1), CUBE),
        "argmax of all": _of(lambda x: x.argmax(), X, wanted=False),
        "max with places, middle": _of(lambda x: tuple(x.max(1)), CUBE),
        "std and mean": _of(lambda x: (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True), X),
    }


def _scans() -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for where, dim in (("last", -1), ("dim 0", 0), ("middle", 1)):
        draw = CUBE if where == "middle" else X
        small = positive(1024, 64) if dim == -1 else positive(64, 1024)
        rows[f"cumsum, {where}"] = _of(lambda x, d=dim: torch.cumsum(x, d), draw)
        if where != "middle":
            rows[f"cumsum of a product, {where}"] = _of(lambda x, y, d=dim: torch.cumsum(x * y, d) * y, draw, draw)
            rows[f"cumprod, {where}"] = _of(lambda x, d=dim: torch.cumprod(x, d), small)
            rows[f"logcumsumexp, {where}"] = _of(lambda x, d=dim: torch.logcumsumexp(x, d), draw)
            rows[f"cummax, {where}"] = _of(lambda x, d=dim: tuple(torch.cummax(x, d)), draw)
    rows["cumsum of i64"] = _of(lambda x: torch.cumsum(x, -1), integers(9, 256, 4096), wanted=False)
    return rows


def _orders() -> dict[str, Row]:
    return {
        "sort, last": _of(lambda x: tuple(torch.sort(x, -1)), normal(256, 1024)),
        "sort, dim 0": _of(lambda x: tuple(torch.sort(x, 0)), normal(1024, 256)),
        "argsort": _of(lambda x: torch.argsort(x, -1), normal(256, 1024), wanted=False),
        "sort of i64": _of(lambda x: tuple(torch.sort(x, -1)), integers(1 << 30, 256, 1024), wanted=False),
        "topk 8 of 1024": _of(lambda x: tuple(torch.topk(x, 8, -1)), normal(256, 1024)),
        "topk 50 of 32000": _of(lambda x: tuple(torch.topk(x, 50, -1)), normal(16, 32000)),
        "topk 8, dim 0": _of(lambda x: tuple(torch.topk(x, 8, 0)), normal(1024, 256)),
        "kthvalue": _of(lambda x: tuple(torch.kthvalue(x, 100, -1)), normal(256, 1024)),
        "median": _of(lambda x: tuple(torch.median(x, -1)), normal(256, 1024)),
        "searchsorted": _of(torch.searchsorted, ascending(4096), normal(65536), wanted=False),
        "bucketize": _of(torch.bucketize, normal(65536), ascending(256), wanted=False),
    }


def _indexing() -> dict[str, Row]:
    return {
        "gather": _of(lambda x, i: torch.gather(x, 1, i), X, integers(4096, 256, 1024)),
        "scatter_add": _of(lambda x, i, s: x.scatter_add(1, i, s), X, integers(4096, 256, 1024), normal(256, 1024)),
        "index_select": _of(lambda x, i: x.index_select(0, i), normal(1024, 512), integers(1024, 2048)),
        "index_add": _of(
            lambda x, i, s: x.index_add(0, i, s), normal(1024, 512), integers(1024, 2048), normal(2048, 512)
        ),
        "x[i]": _of(lambda x, i: x[i], normal(1024, 512), integers(1024, 2048)),
        "x[:, i] = y": _of(lambda x, i, y: x.index_put((i,), y), normal(1024, 512), _places, normal(512, 512)),
        "embedding": _of(lambda i, w: F.embedding(i, w), integers(8192, 16, 128), normal(8192, 256)),
        "masked_fill": _of(lambda x, m: x.masked_fill(m, -1e9), X, coins(256, 4096)),
        "take_along_dim": _of(lambda x, i: torch.take_along_dim(x, i, 0), X, integers(256, 64, 4096)),
        "one_hot": _of(lambda i: F.one_hot(i, 512), integers(512, 2048), wanted=False),
        "tril": _of(torch.tril, normal(1024, 1024)),
        "roll": _of(lambda x: torch.roll(x, (3, 5), (0, 1)), X),
        "flip": _of(lambda x: torch.flip(x, (1,)), X),
    }


def _places(rng: np.random.Generator) -> Any:
    return rng.permutation(1024)[:512]


def _norms() -> dict[str, Row]:
    channels = (normal(64), normal(64))
    line = normal(16, 64, 1024)
    return {
        "layer_norm": _of(lambda x, w, b: F.layer_norm(x, (4096,), w, b), X, normal(4096), normal(4096)),
        "layer_norm, 256": _of(lambda x, w, b: F.layer_norm(x, (256,), w, b), CUBE, normal(256), normal(256)),
        "rms_norm": _of(lambda x, w: F.rms_norm(x, (4096,), w, 1e-6), X, normal(4096)),
        "group_norm": _of(lambda x, w, b: F.group_norm(x, 8, w, b), IMAGE, *channels),
        "group_norm, silu": _of(lambda x, w, b: F.silu(F.group_norm(x, 8, w, b)), IMAGE, *channels),
        "group_norm of 3-d": _of(lambda x, w, b: F.group_norm(x, 8, w, b), line, *channels),
        "instance_norm": _of(lambda x, w, b: F.instance_norm(x, weight=w, bias=b), IMAGE, *channels),
        "batch_norm of 2-d": _of(_batch_norm, normal(1024, 512), normal(512), normal(512)),
        "batch_norm of 3-d": _of(_batch_norm, line, *channels),
        "batch_norm of 4-d": _of(_batch_norm, IMAGE, *channels),
        "batch_norm of 4-d, relu": _of(lambda x, w, b: torch.relu(_batch_norm(x, w, b)), IMAGE, *channels),
        "batch_norm of 3-d, 32 long": _of(_batch_norm, normal(128, 256, 32), normal(256), normal(256)),
        "normalize": _of(lambda x: F.normalize(x, dim=-1), X),
        "normalize, dim 1 of 3": _of(lambda x: F.normalize(x, dim=1), CUBE),
        "batch_norm, evaluated": _of(
            lambda x, m, v, w, b: F.batch_norm(x, m.detach(), v.detach(), w, b),
            IMAGE,
            normal(64),
            positive(64),
            *channels,
        ),
    }


def _batch_norm(x: Any, weight: Any, bias: Any) -> Any:
    return F.batch_norm(x, None, None, weight, bias, training=True)


def _windows() -> dict[str, Row]:
    return {
        "conv1d": _of(lambda x, w: F.conv1d(x, w, padding=1), normal(16, 64, 256), normal(64, 64, 3)),
        "conv2d": _of(lambda x, w: F.conv2d(x, w, padding=1), IMAGE, normal(64, 64, 3, 3)),
        "conv2d, 1 x 1": _of(F.conv2d, IMAGE, normal(128, 64, 1, 1)),
        "conv2d, bias, relu": _of(
            lambda x, w, b: torch.relu(F.conv2d(x, w, b, padding=1)), IMAGE, normal(64, 64, 3, 3), normal(64)
        ),
        "conv2d, depthwise": _of(lambda x, w: F.conv2d(x, w, padding=1, groups=64), IMAGE, normal(64, 1, 3, 3)),
        "conv2d, stride 2": _of(lambda x, w: F.conv2d(x, w, stride=2, padding=1), IMAGE, normal(128, 64, 3, 3)),
        "conv_transpose2d": _of(
            lambda x, w: F.conv_transpose2d(x, w, stride=2), normal(4, 64, 14, 14), normal(64, 32, 2, 2)
        ),
        "conv3d": _of(lambda x, w: F.conv3d(x, w, padding=1), normal(2, 16, 8, 14, 14), normal(16, 16, 3, 3, 3)),
        "max_pool2d": _of(lambda x: F.max_pool2d(x, 2), IMAGE),
        "max_pool2d, 3 stride 2": _of(lambda x: F.max_pool2d(x, 3, 2, 1), IMAGE),
        "avg_pool2d": _of(lambda x: F.avg_pool2d(x, 2), IMAGE),
        "adaptive_avg_pool2d": _of(lambda x: F.adaptive_avg_pool2d(x, 1), IMAGE),
        "interpolate, nearest": _of(lambda x: F.interpolate(x, scale_factor=2.0), normal(4, 32, 28, 28)),
        "interpolate, bilinear": _of(
            lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), normal(4, 32, 28, 28)
        ),
        "unfold": _of(lambda x: F.unfold(x, 3), normal(4, 32, 28, 28)),
        "pixel_shuffle": _of(lambda x: F.pixel_shuffle(x, 2), IMAGE),
    }


def _losses() -> dict[str, Row]:
    return {
        "cross_entropy": _of(F.cross_entropy, normal(512, 8192), integers(8192, 512)),
        "cross_entropy, 10 classes": _of(F.cross_entropy, normal(65536, 10), integers(10, 65536)),
        "cross_entropy, smoothed": _of(
            lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), normal(512, 8192), integers(8192, 512)
        ),
        "nll_loss": _of(lambda x, y: F.nll_loss(x, y), normal(512, 8192), integers(8192, 512)),
        "mse_loss": _of(F.mse_loss, X, X),
        "l1_loss": _of(F.l1_loss, X, X),
        "smooth_l1_loss": _of(F.smooth_l1_loss, X, X),
        "huber_loss": _of(F.huber_loss, X, X),
        "bce_with_logits": _of(F.binary_cross_entropy_with_logits, X, X),
        "kl_div": _of(lambda x, y: F.kl_div(x, y, reduction="batchmean"), X, positive(256, 4096)),
        "cosine_similarity": _of(F.cosine_similarity, X, X),
    }


def _movement() -> dict[str, Row]:
    return {
        "cat, last": _of(lambda x, y: torch.cat([x, y], -1) * 2.0, X, X),
        "cat, dim 0": _of(lambda x, y: torch.cat([x, y], 0) * 2.0, X, X),
        "stack": _of(lambda x, y, z: torch.stack([x, y, z], 1), X, X, X),
        "pad": _of(lambda x: F.pad(x, (2, 2, 2, 2)), IMAGE),
        "pad, reflect": _of(lambda x: F.pad(x, (2, 2, 2, 2), mode="reflect"), IMAGE),
        "permute, contiguous": _of(lambda x: x.permute(0, 2, 1).contiguous(), CUBE),
        "split, product": _of(lambda x: torch.mul(*x.chunk(2, -1)), X),
        "repeat": _of(lambda x: x.repeat(2, 2), normal(256, 1024)),
        "repeat_interleave": _of(lambda x: x.repeat_interleave(4, 1), normal(256, 1024)),
        "expand, sum": _of(lambda x: x.expand(64, 256, 256) * 2.0, normal(256, 1)),
        "slices": _of(lambda x: x[:, ::2] + x[:, 1::2], X),
    }


def _products() -> dict[str, Row]:
    return {
        "matmul": _of(torch.matmul, normal(512, 512), normal(512, 512)),
        "bmm": _of(torch.bmm, normal(16, 128, 128), normal(16, 128, 128)),
        "matrix and vector": _of(torch.mv, normal(1024, 1024), normal(1024)),
        "addmm": _of(torch.addmm, normal(512), normal(256, 512), normal(512, 512)),
        "linear, gelu": _of(
            lambda x, w, b: F.gelu(F.linear(x, w, b)), normal(256, 512), normal(1024, 512), normal(1024)
        ),
        "einsum bij,bkj->bik": _of(
            lambda x, y: torch.einsum("bij,bkj->bik", x, y), normal(16, 128, 64), normal(16, 96, 64)
        ),
        "outer": _of(torch.outer, normal(1024), normal(1024)),
        "attention, 256": _of(_attention, *[normal(4, 8, 256, 64)] * 3),
        "causal attention, 256": _of(_causal, *[normal(4, 8, 256, 64)] * 3),
        "causal attention, 1024": _of(_causal, *[normal(1, 8, 1024, 64)] * 3),
        "causal attention, 4096": _of(_causal, *[normal(1, 2, 4096, 64)] * 3),
        "causal attention written out, 512": _of(_written_out, *[normal(1, 8, 512, 64)] * 3),
        "MLP": Row(None, (normal(256, 512),), layers=_mlp),
        "MLP of bf16": Row(None, (normal(256, 512),), layers=_mlp, dtype="bfloat16"),
        "cdist": _of(torch.cdist, normal(256, 64), normal(256, 64)),
    }


def _attention(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v)


def _causal(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _written_out(q: Any, k: Any, v: Any) -> Any:
    scores = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
    hidden = torch.triu(torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool), 1)
    return torch.softmax(scores.masked_fill(hidden, float("-inf")), -1) @ v


def _mlp() -> Any:
    return nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 512))


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-3),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-3),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=1e-3),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-3),
}
OPTIMIZED_SHAPES = ((1024, 512), (1024,), (512, 1024), (512,))

ROWS: dict[str, Row] = {
    **_pointwise(),
    **_reductions(),
    **_scans(),
    **_orders(),
    **_indexing(),
    **_norms(),
    **_windows(),
    **_losses(),
    **_movement(),
    **_products(),
}
