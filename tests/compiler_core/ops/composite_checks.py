"""The table of composite-function checks: calls written once, for torch to judge and for the compiler to compile.

In: nothing. Out: `ALL`: name -> Check, a call on a library `F` with torch's functional names, and the operands' shapes;
`draw(check)` gives its operands, float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

CallF = Callable[..., Any]
Shape = tuple[int, ...]


class Check(NamedTuple):
    """`call` on normal floats of `shapes`; low, high: uniform ones in that range instead.

    smooth: has gradients, equal to torch's within rtol (torch's hardsigmoid multiplies by 1/6 in f32).
    """

    call: CallF
    shapes: tuple[Shape, ...]
    low: float | None = None
    high: float = 0.0
    smooth: bool = True
    rtol: float = 1e-9


def on(*shapes: Shape, **options: Any) -> Any:
    return lambda call: Check(call, shapes, **options)


A, B, V = (3, 4), (3, 4), (4,)
SMOOTH = [
    "abs",
    "neg",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "sqrt",
    "rsqrt",
    "erf",
    "erfc",
    "sigmoid",
    "square",
    "reciprocal",
]
RECTIFIERS = [
    "relu",
    "relu6",
    "hardtanh",
    "leaky_relu",
    "elu",
    "selu",
    "silu",
    "gelu",
    "softplus",
    "logsigmoid",
    "mish",
    "hardswish",
    "softsign",
    "glu",
]
POINTWISE: dict[str, Check] = {
    "add": on(A, V)(lambda F, x, y: F.add(x, y)),
    "add_alpha": on(A, B)(lambda F, x, y: F.add(x, y, alpha=2.5)),
    "sub_scalar": on(A)(lambda F, x: F.sub(x, 3)),
    "rsub": on(A)(lambda F, x: F.rsub(x, 3)),
    "mul_scalar": on(A)(lambda F, x: F.mul(x, 2.0)),
    "mul_broadcast": on((3, 1), (1, 4))(lambda F, x, y: F.mul(x, y)),
    "div": on(A, B, low=0.5, high=2.0)(lambda F, x, y: F.div(x, y)),
    "div_floor": on(A, B, low=0.5, high=2.0, smooth=False)(lambda F, x, y: F.div(x, y, rounding_mode="floor")),
    "div_trunc": on(A, B, smooth=False)(lambda F, x, y: F.div(x, y, rounding_mode="trunc")),
    "remainder": on(A)(lambda F, x: F.remainder(x, 0.7)),
    "fmod": on(A, smooth=False)(lambda F, x: F.fmod(x, 0.7)),
    "pow_tensor": on(A, B, low=0.3, high=2.0)(lambda F, x, y: F.pow(x, y)),
    **{f"pow_{p}": on(A, low=0.3, high=2.0)(lambda F, x, p=p: F.pow(x, p)) for p in (1, 2, 3, 4, 0.5, -0.5, -1, 2.5)},
    "pow_0": on(A, smooth=False)(lambda F, x: F.pow(x, 0)),
    "float_power": on(A, low=0.3, high=2.0)(lambda F, x: F.float_power(x, 3)),
    "maximum": on(A, B)(lambda F, x, y: F.maximum(x, y)),
    "minimum_ties": on(A)(lambda F, x: F.minimum(x, x)),
    "clamp": on(A)(lambda F, x: F.clamp(x, -0.5, 0.5)),
    "clamp_min": on(A)(lambda F, x: F.clamp(x, min=0.1)),
    "clamp_crossed": on(A)(lambda F, x: F.clamp(x, 0.5, -0.5)),
    "lerp": on(A, B)(lambda F, x, y: F.lerp(x, y, 0.3)),
    "addcmul": on(A, A, A)(lambda F, x, y, z: F.addcmul(x, y, z, value=0.5)),
    "addcdiv": on(A, A, A, low=0.5, high=2.0)(lambda F, x, y, z: F.addcdiv(x, y, z, value=0.5)),
    **{name: on(A, low=0.2, high=0.9)(lambda F, x, name=name: getattr(F, name)(x)) for name in SMOOTH},
    **{
        name: on(A, smooth=False)(lambda F, x, name=name: getattr(F, name)(x))
        for name in ["sign", "floor", "ceil", "trunc", "round", "isnan", "isinf", "isfinite", "logical_not"]
    },
    "frac": on(A)(lambda F, x: F.frac(x)),
    "round_decimals": on(A, smooth=False)(lambda F, x: F.round(x, decimals=2)),
    **{
        name: on(A, B, smooth=False)(lambda F, x, y, name=name: getattr(F, name)(x, y))
        for name in ["eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "isclose"]
    },
    "where": on(A, B)(lambda F, x, y: F.where(F.gt(x, 0), x, y)),
    "masked_fill": on(A)(lambda F, x: F.masked_fill(x, F.gt(x, 0), -1.5)),
    "nan_to_num": on(A)(lambda F, x: F.nan_to_num(F.log(x))),
}

ACTIVATIONS: dict[str, Check] = {
    **{name: on(A)(lambda F, x, name=name: getattr(F, name)(F.mul(x, 3.0))) for name in RECTIFIERS},
    "hardsigmoid": on(A, rtol=1e-7)(lambda F, x: F.hardsigmoid(F.mul(x, 3.0))),
    "relu_at_zero": on(A)(lambda F, x: F.relu(F.mul(x, 0.0))),
    "gelu_tanh": on(A)(lambda F, x: F.gelu(x, approximate="tanh")),
    "softplus_beta": on(A)(lambda F, x: F.softplus(x, 3.0, 2.0)),
    "softplus_large": on(A)(lambda F, x: F.softplus(F.mul(x, 100.0))),
    "softmax": on((2, 3, 5))(lambda F, x: F.softmax(x, -1)),
    "softmax_dim0": on((2, 3, 5))(lambda F, x: F.softmax(x, 0)),
    "softmax_large": on((3, 5))(lambda F, x: F.softmax(F.mul(x, 1000.0), -1)),
    "softmax_masked": on((3, 5))(lambda F, x: F.softmax(F.masked_fill(x, F.gt(x, 0.5), -math.inf), -1)),
    "softmax_0d": on((), smooth=False)(lambda F, x: F.softmax(x, 0)),
    "softmin": on(A)(lambda F, x: F.softmin(x, dim=1)),
    "log_softmax": on((2, 3, 5))(lambda F, x: F.log_softmax(x, 1)),
    "logsumexp": on((2, 3, 5))(lambda F, x: F.logsumexp(x, (0, 2), keepdim=True)),
}

M = (2, 3, 4)
REDUCTIONS: dict[str, Check] = {
    **{
        name: on(M)(lambda F, x, name=name: getattr(F, name)(x))
        for name in ["sum", "mean", "var", "std", "amax", "amin", "prod", "norm"]
    },
    **{
        f"{name}_dim": on(M)(lambda F, x, name=name: getattr(F, name)(x, 1))
        for name in ["sum", "mean", "var", "std", "amax", "amin", "prod"]
    },
    **{
        f"{name}_dims_keep": on(M)(lambda F, x, name=name: getattr(F, name)(x, (0, -1), keepdim=True))
        for name in ["sum", "mean", "var", "std", "amax", "amin"]
    },
    "var_correction": on(M)(lambda F, x: F.var(x, 1, correction=0)),
    "std_biased": on(M)(lambda F, x: F.std(x, 1, unbiased=False)),
    "var_mean": on(M)(lambda F, x: F.var_mean(x, 1, keepdim=True)),
    "prod_zeros": on(M)(lambda F, x: F.prod(F.masked_fill(x, F.gt(x, 0.8), 0.0), 2)),
    "amax_ties": on(M)(lambda F, x: F.amax(F.clamp(x, max=0.0), 2)),
    "max_dim": on(M)(lambda F, x: F.max(x, 1)),
    "max_dim_ties": on(M)(lambda F, x: F.max(F.clamp(x, max=0.0), 2)[0]),
    "min_dim_keep": on(M)(lambda F, x: F.min(x, -1, keepdim=True)),
    "max_all": on(M)(lambda F, x: F.max(x)),
    "max_pair": on(A, B)(lambda F, x, y: F.max(x, y)),
    "argmax": on(M, smooth=False)(lambda F, x: F.argmax(x)),
    "argmin_dim": on(M, smooth=False)(lambda F, x: F.argmin(x, 1, keepdim=True)),
    "any": on(M, smooth=False)(lambda F, x: F.any(F.gt(x, 1.0), 1)),
    "all": on(M, smooth=False)(lambda F, x: F.all(F.gt(x, -1.0), 2, keepdim=True)),
    "count_nonzero": on(M, smooth=False)(lambda F, x: F.count_nonzero(F.gt(x, 0.0), 1)),
    **{f"norm_{p}": on(M)(lambda F, x, p=p: F.norm(x, p, 1)) for p in (1, 2, 3, math.inf)},
    "norm_zero": on(M)(lambda F, x: F.norm(F.mul(x, 0.0))),
    "cumsum": on((2, 7, 3))(lambda F, x: F.cumsum(x, 1)),
}

MOVEMENT: dict[str, Check] = {
    "reshape": on(M)(lambda F, x: F.reshape(x, (4, -1))),
    "flatten": on(M)(lambda F, x: F.flatten(x, 1)),
    "unflatten": on(M)(lambda F, x: F.unflatten(x, 2, (2, -1))),
    "squeeze": on((1, 3, 1))(lambda F, x: F.squeeze(x)),
    "squeeze_dim": on((1, 3, 1))(lambda F, x: F.squeeze(x, 0)),
    "unsqueeze": on(A)(lambda F, x: F.unsqueeze(x, -1)),
    "permute": on(M)(lambda F, x: F.permute(x, (2, 0, -2))),
    "transpose": on(M)(lambda F, x: F.transpose(x, -1, 0)),
    "t": on(A)(lambda F, x: F.t(x)),
    "movedim": on(M)(lambda F, x: F.movedim(x, (0, 2), (1, 0))),
    "expand": on((3, 1))(lambda F, x: F.expand(x, (2, -1, 4))),
    "broadcast_tensors": on((3, 1), (4,))(lambda F, x, y: F.broadcast_tensors(x, y)),
    "repeat": on(A)(lambda F, x: F.repeat(x, (2, 1, 3))),
    "tile": on(A)(lambda F, x: F.tile(x, (2,))),
    "repeat_interleave": on(A)(lambda F, x: F.repeat_interleave(x, 2, 1)),
    "cat": on((2, 3), (1, 3))(lambda F, x, y: F.cat([x, y], 0)),
    "cat_empty": on((2, 3), (0,))(lambda F, x, y: F.cat([x, y], -1)),
    "stack": on(A, B)(lambda F, x, y: F.stack([x, y], -1)),
    "narrow": on(M)(lambda F, x: F.narrow(x, 1, 1, 2)),
    "split": on((7, 2))(lambda F, x: F.split(x, 3)),
    "split_sections": on((2, 7))(lambda F, x: F.split(x, [1, 4, 2], dim=1)),
    "chunk": on((2, 7))(lambda F, x: F.chunk(x, 3, dim=-1)),
    "unbind": on(M)(lambda F, x: F.unbind(x, 1)),
    "select": on(M)(lambda F, x: F.select(x, 1, -1)),
    "flip": on(M)(lambda F, x: F.flip(x, (0, -1))),
    "roll": on(M)(lambda F, x: F.roll(x, (1, -2), (0, 2))),
    "roll_flat": on(M)(lambda F, x: F.roll(x, 5)),
    "pad": on(M)(lambda F, x: F.pad(x, (1, 2, 0, 3), value=0.5)),
    "pad_crop": on(M)(lambda F, x: F.pad(x, (-1, 2))),
    "tril": on((2, 4, 5))(lambda F, x: F.tril(x)),
    "triu": on((4, 5))(lambda F, x: F.triu(x, -1)),
    "tril_up": on((4, 5))(lambda F, x: F.tril(x, 2)),
    "diag": on((4,))(lambda F, x: F.diag(x)),
}

LINALG: dict[str, Check] = {
    "matmul": on((3, 4), (4, 2))(lambda F, x, y: F.matmul(x, y)),
    "matmul_vectors": on((4,), (4,))(lambda F, x, y: F.matmul(x, y)),
    "matmul_row": on((4,), (2, 4, 3))(lambda F, x, y: F.matmul(x, y)),
    "matmul_column": on((2, 3, 4), (4,))(lambda F, x, y: F.matmul(x, y)),
    "matmul_flat": on((2, 3, 4), (4, 5))(lambda F, x, y: F.matmul(x, y)),
    "matmul_batch": on((2, 1, 3, 4), (5, 4, 2))(lambda F, x, y: F.matmul(x, y)),
    "mm": on((3, 4), (4, 2))(lambda F, x, y: F.mm(x, y)),
    "bmm": on((2, 3, 4), (2, 4, 5))(lambda F, x, y: F.bmm(x, y)),
    "mv": on((3, 4), (4,))(lambda F, x, y: F.mv(x, y)),
    "dot": on((4,), (4,))(lambda F, x, y: F.dot(x, y)),
    "outer": on((4,), (3,))(lambda F, x, y: F.outer(x, y)),
    "addmm": on((2,), (3, 4), (4, 2))(lambda F, x, y, z: F.addmm(x, y, z, beta=0.5, alpha=2)),
    "baddbmm": on((2, 3, 5), (2, 3, 4), (2, 4, 5))(lambda F, x, y, z: F.baddbmm(x, y, z)),
    "linear": on((2, 3, 4), (5, 4), (5,))(lambda F, x, w, b: F.linear(x, w, b)),
    "linear_1d": on((4,), (5, 4))(lambda F, x, w: F.linear(x, w)),
    "bilinear": on((2, 3), (2, 4), (5, 3, 4), (5,))(lambda F, x, y, w, b: F.bilinear(x, y, w, b)),
    **{
        f"einsum {equation}": on(*shapes)(lambda F, *xs, equation=equation: F.einsum(equation, *xs))
        for equation, shapes in {
            "ij,jk->ik": ((3, 4), (4, 2)),
            "ij,kj": ((3, 4), (2, 4)),
            "bij,bjk->bki": ((2, 3, 4), (2, 4, 5)),
            "bthd,bshd->bhts": ((2, 3, 2, 4), (2, 5, 2, 4)),
            "i,j->ij": ((3,), (4,)),
            "ij->ji": ((3, 4),),
            "ij->": ((3, 4),),
            "...ij,...jk->...ik": ((2, 1, 3, 4), (5, 4, 2)),
            "ij,ij,ij->i": ((3, 4), (3, 4), (3, 4)),
            "ijk,k->j": ((2, 3, 4), (4,)),
        }.items()
    },
    "attention": on((2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 7))(
        lambda F, q, k, v: F.scaled_dot_product_attention(q, k, v)
    ),
    "attention_causal": on((2, 3, 5, 4), (2, 3, 5, 4), (2, 3, 5, 4))(
        lambda F, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)
    ),
    "attention_bias": on((2, 5, 4), (2, 6, 4), (2, 6, 4), (5, 6))(
        lambda F, q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m)
    ),
    "attention_mask": on((2, 5, 4), (2, 6, 4), (2, 6, 4), (5, 6))(
        lambda F, q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=F.gt(m, -1.0))
    ),
    "attention_gqa": on((2, 4, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4))(
        lambda F, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    ),
}

NORMS: dict[str, Check] = {
    "layer_norm": on((2, 3, 4))(lambda F, x: F.layer_norm(x, (4,))),
    "layer_norm_affine": on((2, 3, 4), (4,), (4,))(lambda F, x, w, b: F.layer_norm(x, (4,), w, b)),
    "layer_norm_two_dims": on((2, 3, 4), (3, 4), (3, 4))(lambda F, x, w, b: F.layer_norm(x, (3, 4), w, b, 1e-3)),
    "layer_norm_shifted": on((2, 4))(lambda F, x: F.layer_norm(F.add(x, 100.0), (4,))),
    "rms_norm": on((2, 3, 4), (4,))(lambda F, x, w: F.rms_norm(x, (4,), w, 1e-5)),
    "group_norm": on((2, 6, 5), (6,), (6,))(lambda F, x, w, b: F.group_norm(x, 3, w, b)),
    "batch_norm": on((5, 3, 2), (3,), (3,))(lambda F, x, w, b: F.batch_norm(x, None, None, w, b, training=True)),
    "normalize": on((3, 4))(lambda F, x: F.normalize(x)),
    "cosine_similarity": on((3, 4), (3, 4))(lambda F, x, y: F.cosine_similarity(x, y, -1)),
}

LOSSES: dict[str, Check] = {
    **{
        f"{name}_{reduction}": on(A, B)(
            lambda F, x, y, name=name, reduction=reduction: getattr(F, name)(x, y, reduction=reduction)
        )
        for name in ("mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss")
        for reduction in ("none", "mean", "sum")
    },
    "bce_logits": on(A, B)(lambda F, x, y: F.binary_cross_entropy_with_logits(x, F.sigmoid(y))),
    "bce_logits_large": on(A, B)(lambda F, x, y: F.binary_cross_entropy_with_logits(F.mul(x, 200.0), F.sigmoid(y))),
    "bce_logits_weighted": on(A, B, V, V)(
        lambda F, x, y, w, p: F.binary_cross_entropy_with_logits(
            x, F.sigmoid(y), weight=F.exp(F.detach(w)), pos_weight=F.exp(F.detach(p)), reduction="sum"
        )
    ),
    "bce": on(A, B)(lambda F, x, y: F.binary_cross_entropy(F.sigmoid(x), F.sigmoid(y))),
    "kl_div": on(A, B)(lambda F, x, y: F.kl_div(F.log_softmax(x, 1), F.softmax(y, 1), reduction="batchmean")),
    "kl_div_log": on(A, B)(
        lambda F, x, y: F.kl_div(F.log_softmax(x, 1), F.log_softmax(y, 1), reduction="sum", log_target=True)
    ),
    "cross_entropy_soft": on(A, B)(lambda F, x, y: F.cross_entropy(x, F.softmax(y, 1), label_smoothing=0.1)),
}

ALL = {**POINTWISE, **ACTIVATIONS, **REDUCTIONS, **MOVEMENT, **LINALG, **NORMS, **LOSSES}


def draw(check: Check) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(11)
    if check.low is None:
        return [np.asarray(rng.standard_normal(s), np.float32) for s in check.shapes]
    return [np.asarray(rng.uniform(check.low, check.high, s), np.float32) for s in check.shapes]
