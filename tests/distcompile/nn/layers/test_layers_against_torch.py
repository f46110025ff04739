"""Layers, functions and losses, judged by torch: value, input gradient and parameter gradients, and printed form."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from distcompile.nn.foreign import as_tensor_like

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

RNG = np.random.default_rng(0)


def f(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


X, POSITIVE, UNIT = f(4, 6), np.abs(f(4, 6)) + 0.1, np.abs(np.tanh(f(4, 6))) * 0.9 + 0.05
CLASSES = np.array([0, 5, -100, 2])
SOFT = np.exp(f(4, 6)) / np.exp(f(4, 6)).sum()

LAYERS: dict[str, tuple[Callable[[Any], Any], tuple[Any, ...]]] = {
    "identity": (lambda nn: nn.Identity(3, a=1), (X,)),
    "linear": (lambda nn: nn.Linear(6, 3), (f(2, 5, 6),)),
    "linear_no_bias": (lambda nn: nn.Linear(6, 3, bias=False), (f(6),)),
    "flatten": (lambda nn: nn.Flatten(1, 2), (f(2, 3, 4, 5),)),
    "unflatten": (lambda nn: nn.Unflatten(1, (2, 3)), (X,)),
    "layer_norm": (lambda nn: nn.LayerNorm((3, 6)), (f(2, 3, 6),)),
    "layer_norm_no_bias": (lambda nn: nn.LayerNorm(6, eps=1e-3, bias=False), (X,)),
    "layer_norm_plain": (lambda nn: nn.LayerNorm(6, elementwise_affine=False), (X,)),
    "rms_norm": (lambda nn: nn.RMSNorm(6), (X,)),
    "group_norm": (lambda nn: nn.GroupNorm(3, 6), (f(2, 6, 4),)),
    "batch_norm_eval": (lambda nn: nn.BatchNorm1d(6).eval(), (X,)),
    "batch_norm_train": (lambda nn: nn.BatchNorm2d(3, momentum=0.3), (f(2, 3, 4, 5),)),
    "batch_norm_cumulative": (lambda nn: nn.BatchNorm1d(3, momentum=None, affine=False), (f(2, 3, 4),)),
    "batch_norm_untracked": (lambda nn: nn.BatchNorm1d(6, track_running_stats=False).eval(), (X,)),
    "dropout_eval": (lambda nn: nn.Dropout(0.3).eval(), (X,)),
    "dropout_zero": (lambda nn: nn.Dropout(0.0), (X,)),
    "dropout_all": (lambda nn: nn.Dropout(1.0), (X,)),
    "relu": (lambda nn: nn.ReLU(), (X,)),
    "relu_inplace": (lambda nn: nn.Sequential(nn.Identity(), nn.Linear(6, 6), nn.ReLU(inplace=True)), (X,)),
    "relu6": (lambda nn: nn.ReLU6(), (X * 5,)),
    "silu": (lambda nn: nn.SiLU(), (X,)),
    "mish": (lambda nn: nn.Mish(), (X,)),
    "selu": (lambda nn: nn.SELU(), (X,)),
    "elu": (lambda nn: nn.ELU(0.7), (X,)),
    "celu": (lambda nn: nn.CELU(0.7), (X,)),
    "gelu": (lambda nn: nn.GELU(), (X,)),
    "gelu_tanh": (lambda nn: nn.GELU(approximate="tanh"), (X,)),
    "sigmoid": (lambda nn: nn.Sigmoid(), (X,)),
    "tanh": (lambda nn: nn.Tanh(), (X,)),
    "log_sigmoid": (lambda nn: nn.LogSigmoid(), (X * 30,)),
    "softsign": (lambda nn: nn.Softsign(), (X,)),
    "tanhshrink": (lambda nn: nn.Tanhshrink(), (X,)),
    "softshrink": (lambda nn: nn.Softshrink(0.4), (X,)),
    "hardshrink": (lambda nn: nn.Hardshrink(0.4), (X,)),
    "hardtanh": (lambda nn: nn.Hardtanh(-0.5, 0.7), (X,)),
    "hardswish": (lambda nn: nn.Hardswish(), (X * 3,)),
    "hardsigmoid": (lambda nn: nn.Hardsigmoid(), (X * 3,)),
    "threshold": (lambda nn: nn.Threshold(0.1, 20.0), (X,)),
    "softplus": (lambda nn: nn.Softplus(2.0, 3.0), (X * 5,)),
    "leaky_relu": (lambda nn: nn.LeakyReLU(0.2), (X,)),
    "prelu": (lambda nn: nn.PReLU(), (X,)),
    "prelu_channels": (lambda nn: nn.PReLU(3), (f(2, 3, 4),)),
    "glu": (lambda nn: nn.GLU(1), (X,)),
    "softmax": (lambda nn: nn.Softmax(dim=0), (X,)),
    "softmin": (lambda nn: nn.Softmin(dim=-1), (X,)),
    "log_softmax": (lambda nn: nn.LogSoftmax(dim=1), (X * 20,)),
    "l1": (lambda nn: nn.L1Loss(), (X, f(4, 6))),
    "mse": (lambda nn: nn.MSELoss(reduction="sum"), (X, f(4, 6))),
    "mse_legacy": (lambda nn: nn.MSELoss(reduce=False), (X, f(4, 6))),
    "smooth_l1": (lambda nn: nn.SmoothL1Loss(beta=0.5), (X, f(4, 6))),
    "huber": (lambda nn: nn.HuberLoss(delta=0.5, reduction="none"), (X, f(4, 6))),
    "cross_entropy": (lambda nn: nn.CrossEntropyLoss(), (X, CLASSES)),
    "cross_entropy_smooth": (lambda nn: nn.CrossEntropyLoss(label_smoothing=0.2, reduction="sum"), (X, CLASSES)),
    "cross_entropy_ignore": (lambda nn: nn.CrossEntropyLoss(ignore_index=5, reduction="none"), (X, CLASSES % 6)),
    "cross_entropy_soft": (lambda nn: nn.CrossEntropyLoss(), (X, SOFT)),
    "cross_entropy_2d": (lambda nn: nn.CrossEntropyLoss(), (f(2, 3, 4), RNG.integers(0, 3, (2, 4)))),
    "nll": (lambda nn: nn.NLLLoss(), (X, CLASSES)),
    "bce": (lambda nn: nn.BCELoss(), (UNIT, (X > 0).astype(np.float32))),
    "bce_logits": (lambda nn: nn.BCEWithLogitsLoss(), (X * 30, UNIT)),
    "kl": (lambda nn: nn.KLDivLoss(reduction="batchmean"), (X, SOFT)),
    "kl_log": (lambda nn: nn.KLDivLoss(log_target=True), (X, f(4, 6))),
    "attention": (lambda nn: nn.MultiheadAttention(8, 2), (f(5, 2, 8), f(7, 2, 8), f(7, 2, 8))),
    "attention_first": (lambda nn: nn.MultiheadAttention(8, 2, batch_first=True, bias=False), (f(2, 5, 8),) * 3),
    "attention_dims": (lambda nn: nn.MultiheadAttention(8, 2, kdim=3, vdim=5), (f(5, 8), f(7, 3), f(7, 5))),
    "attention_extra": (
        lambda nn: nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True),
        (f(5, 2, 8), f(7, 2, 8), f(7, 2, 8)),
    ),
    "encoder_layer": (lambda nn: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, norm_first=True), (f(5, 2, 8),)),
    "decoder_layer": (lambda nn: nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0), (f(5, 2, 8), f(6, 2, 8))),
    "transformer": (
        lambda nn: nn.Transformer(8, 2, 1, 2, 16, dropout=0.0, batch_first=True),
        (f(2, 5, 8), f(2, 6, 8)),
    ),
}  # fmt: skip

FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "normalize": (lambda p, x: p.nn.functional.normalize(x, p=3.0, dim=0), (X,)),
    "cosine_similarity": (lambda p, x, y: p.nn.functional.cosine_similarity(x, y, dim=1), (X, f(4, 6))),
    "pairwise_distance": (lambda p, x, y: p.nn.functional.pairwise_distance(x, y), (X, f(4, 6))),
    "pad": (lambda p, x: p.nn.functional.pad(x, (1, 2, -1, 0), value=3.0), (X,)),
    "bilinear": (lambda p, x, y, w: p.nn.functional.bilinear(x, y, w), (X, f(4, 3), f(2, 6, 3))),
    "weighted_mse": (lambda p, x, y, w: p.nn.functional.mse_loss(x, y, weight=w), (X, f(4, 6), POSITIVE)),
    "weighted_cross_entropy": (
        lambda p, x, w: p.nn.functional.cross_entropy(
            x, p.tensor([1, 2, 3, 3]), weight=w.detach(), label_smoothing=0.1
        ),
        (X, POSITIVE[0]),
    ),
    "pos_weight": (
        lambda p, x, y, w: p.nn.functional.binary_cross_entropy_with_logits(x, y.detach(), pos_weight=w.detach()),
        (X, UNIT, POSITIVE[0]),
    ),
    "attention_mask": (
        lambda p, q, k, v, m: p.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=m),
        (f(2, 3, 4, 8), f(2, 3, 5, 8), f(2, 3, 5, 6), f(4, 5)),
    ),
    "attention_scale": (
        lambda p, q, k, v: p.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3),
        (f(2, 4, 8), f(2, 4, 8), f(2, 4, 8)),
    ),
    "attention_bool_mask": (
        lambda p, q, k, v: p.nn.functional.scaled_dot_product_attention(q, k, v, p.ones(4, 5, dtype=p.bool).tril(1)),
        (f(2, 4, 8), f(2, 5, 8), f(2, 5, 8)),
    ),
    "grouped_attention": (
        lambda p, q, k, v: p.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        (f(1, 4, 3, 8), f(1, 2, 5, 8), f(1, 2, 5, 8)),
    ),
    "embedding_padding": (
        lambda p, w: p.nn.functional.embedding(p.tensor([[0, 2], [2, 1]]), w, padding_idx=-1),
        (f(3, 4),),
    ),
}


def check(
    run: Callable[[Any, list[Any]], Any], arrays: tuple[Any, ...], parameters: tuple[list[Any], list[Any]]
) -> None:
    """run(package, tensors) gives equal values and gradients in both packages."""
    inputs: list[list[Any]] = [[], []]
    for p, given in zip((dc, torch), inputs, strict=True):
        for a in arrays:
            given.append(p.tensor(a.copy(), requires_grad=a.dtype == np.float32))
    ours, theirs = (run(p, given) for p, given in zip((dc, torch), inputs, strict=True))
    close(ours, theirs, "value")
    weight = np.random.default_rng(1).standard_normal(tuple(theirs.shape)).astype(np.float32)
    if theirs.requires_grad:
        ours.backward(dc.tensor(weight))
        theirs.backward(torch.tensor(weight))
    for i, (a, b) in enumerate(zip(inputs[0] + parameters[0], inputs[1] + parameters[1], strict=True)):
        assert (a.grad is None) == (b.grad is None), f"gradient {i}"
        if b.grad is not None:
            close(a.grad, b.grad, f"gradient {i}")


def close(ours: Any, theirs: Any, what: str) -> None:
    a, b = ours.detach().numpy(), theirs.detach().numpy()
    assert (a.shape, a.dtype) == (b.shape, b.dtype), what
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=3e-6 * max(1.0, float(np.abs(b).max(initial=0))), err_msg=what)


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name: str) -> None:
    make, arrays = LAYERS[name]
    torch.manual_seed(0)
    ours, theirs = make(dc.nn), make(torch.nn)
    ours.load_state_dict(theirs.state_dict())
    assert repr(ours) == repr(theirs).replace("NonDynamicallyQuantizableLinear", "Linear")

    def run(p: Any, inputs: list[Any]) -> Any:
        out = (ours if p is dc else theirs)(*inputs)
        return p.cat([out[0].reshape(-1), out[1].reshape(-1)]) if isinstance(out, tuple) else out

    check(run, arrays, (list(ours.parameters()), list(theirs.parameters())))
    for a, b in zip(ours.buffers(), theirs.buffers(), strict=True):
        close(a, b, "buffer")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name: str) -> None:
    function, arrays = FUNCTIONS[name]
    check(lambda p, inputs: function(p, *inputs), arrays, ([], []))


@pytest.mark.parametrize("kind", ["bool", "float", "per_head", "causal"])
@pytest.mark.parametrize("need_weights", [True, False])
def test_attention_masks(kind: str, need_weights: bool) -> None:
    torch.manual_seed(0)
    ours, theirs = dc.nn.MultiheadAttention(8, 2, batch_first=True), torch.nn.MultiheadAttention(8, 2, batch_first=True)
    ours.load_state_dict(theirs.state_dict())

    def run(p: Any, inputs: list[Any]) -> Any:
        upper = p.ones(5, 5).triu(1)
        masks = {
            "bool": {"attn_mask": upper.bool()},
            "float": {"attn_mask": upper * -3.0},
            "per_head": {"attn_mask": p.stack([upper.bool()] * 4)},
            "causal": {"attn_mask": upper.bool(), "is_causal": True},
        }[kind]
        if kind == "bool":
            masks["key_padding_mask"] = p.tensor([[False] * 5, [False, False, False, True, True]])
        x = inputs[0]
        out, weights = (ours if p is dc else theirs)(
            x, x, x, need_weights=need_weights, average_attn_weights=False, **masks
        )
        return out if weights is None else p.cat([out.reshape(-1), weights.reshape(-1)])

    check(run, (f(2, 5, 8),), (list(ours.parameters()), list(theirs.parameters())))


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0, float("inf")])
@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clip_grad_norm(norm_type: float, max_norm: float) -> None:
    grads = [f(3, 4), f(5), f(1, 1)]
    totals, clipped = [], []
    for p in (dc, torch):
        params = [p.nn.Parameter(p.zeros(*g.shape)) for g in [*grads, f(2)]]
        for param, g in zip(params, grads, strict=False):
            param.grad = p.tensor(g)
        totals.append(float(p.nn.utils.clip_grad_norm_(params, max_norm, norm_type)))
        clipped.append([q.grad.numpy() for q in params[:3]])
    assert totals[0] == pytest.approx(totals[1], rel=1e-5)
    for a, b in zip(*clipped, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize("names", [*product(["float32", "float64", "bfloat16"], repeat=2)], ids="-".join)
def test_a_norm_of_gradients_has_their_common_dtype(names: tuple[str, str]) -> None:
    found = []
    for p in (dc, torch):
        params = [p.nn.Parameter(p.ones(4, dtype=getattr(p, name))) for name in names]
        for param in params:
            param.grad = p.ones_like(param)
        run = [p.nn.utils.clip_grad_norm_, p.nn.utils.get_total_norm]
        norms = [run[0](params, 10.0), run[1]([param.grad for param in params])]
        found.append([(str(norm.dtype).rpartition(".")[2], float(norm)) for norm in norms])
    assert [dtype for dtype, _ in found[0]] == [dtype for dtype, _ in found[1]]
    np.testing.assert_allclose([x for _, x in found[0]], [x for _, x in found[1]], rtol=1e-2)


def test_clip_grad_value_and_vectors() -> None:
    for p in (dc, torch):
        params = [p.nn.Parameter(p.arange(3.0)), p.nn.Parameter(p.ones(2, 2))]
        params[0].grad = p.tensor([-5.0, 0.5, 5.0])
        p.nn.utils.clip_grad_value_(params, 1.0)
        assert params[0].grad.tolist() == [-1.0, 0.5, 1.0]
        vector = p.nn.utils.parameters_to_vector(params)
        assert vector.tolist() == [0.0, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0]
        p.nn.utils.vector_to_parameters(vector.detach() * 2, params)
        assert params[0].tolist() == [0.0, 2.0, 4.0]


def test_parameters_lie_in_the_vector_that_they_are_made_of() -> None:
    for p in (dc, torch):
        net = p.nn.Linear(2, 1)
        weight, vector = net.weight, p.tensor([1.0, 2.0, 3.0])
        p.nn.utils.vector_to_parameters(vector, net.parameters())
        p.optim.SGD(net.parameters(), lr=1.0).zero_grad()
        net(p.ones(1, 2)).sum().backward()
        p.optim.SGD(net.parameters(), lr=1.0).step()
        assert vector.tolist() == [0.0, 1.0, 2.0]
        vector.mul_(3)
        assert net.weight is weight
        assert weight.requires_grad
        assert weight.tolist() == [[0.0, 3.0]]
        half = p.nn.Linear(2, 1, dtype=p.bfloat16)
        p.nn.utils.vector_to_parameters(vector, half.parameters())
        assert half.weight.dtype == p.float32


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "int64", "bool"])
def test_torchs_tensors_of_every_dtype_can_be_loaded(dtype: str) -> None:
    theirs = torch.tensor([0.0, 1.0, 3.0]).to(getattr(torch, dtype))
    ours = as_tensor_like(theirs)
    assert ours.dtype is getattr(dc, dtype)
    assert ours.tolist() == theirs.tolist()


def test_cumulative_batch_norm_compiles_whole() -> None:
    ours, theirs = dc.nn.BatchNorm1d(3, momentum=None), torch.nn.BatchNorm1d(3, momentum=None)
    compiled = dc.compile(ours, fullgraph=True)
    for batch in (f(4, 3), f(4, 3) * 3, f(4, 3) + 1):
        np.testing.assert_allclose(
            compiled(dc.tensor(batch)).detach().numpy(), theirs(torch.tensor(batch)).detach().numpy(), atol=1e-5
        )
    for key, value in theirs.state_dict().items():
        np.testing.assert_allclose(ours.state_dict()[key].numpy(), value.numpy(), rtol=1e-5)
