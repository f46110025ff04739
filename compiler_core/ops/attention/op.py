"""Attention of queries to keys as one op, and its backward as another: `attention`, `attention_backward`.

In: q f[B, H, L, E], k f[B, K, S, E], v f[B, K, S, V], H a multiple of K; perhaps a mask of the scores' shape
[B, H, L, S], added or (bool) True where a key is seen. attrs: scale; causal: query i sees keys 0..i; learned: whether a
mask that is added takes a gradient; strict: see below. With dropout: its probability, `dropout`, a `stream`, and as the
last operand the key u64[3] of the op philox, which then draws for each weight, [B, H, L, S], whether it is kept.
Out: one packed array f[*]: softmax(q k^T scale + mask) v as f[B, L, H, V], heads inside, where the next product wants
them; the logarithm of each softmax's denominator, f[B, H, L].
A query that sees nothing, or only scores of -inf, gives 0, as torch's attention on the CPU does; if strict, NaN, as a
softmax that is written out, and so do its gradients. Of 16-bit floats, which are attended in f32, a logarithm is two
numbers, a block of each, of which the sum counts (in f16 one beyond 65504 is NaN).

`attention_backward` takes the cotangents of both parts, the packed result and the operands, computes the weights again
from the logarithms, and gives those of q f[B, L, H, E], k f[B, S, K, E] and v f[B, S, K, V], packed; of 16-bit floats
heads beside heads, if the shapes let them (attention/sizes.py), and then, if `summed`, their sums over batch and
positions after them, which are the gradient of a bias (graph/passes/attention_sums.py). Only what is linear in the
number of positions is ever kept; the gradient of a learned mask, which has the scores' shape, is a composition, and so
are second derivatives.
Limits: whether a NaN or an infinity in a value (in the backward also in a key) that a mask hides from a query spreads
to it is not defined: the weight there is 0, and blocks that are hidden whole are not visited.
The backward of a query whose scores all are so large that the logarithm of their number vanishes beside them (a mask
of the least float for every key) takes weights of 1, as torch's flash attention does; a softmax that is written out
divides by their number.
Sources: Vaswani et al. 2017; Dao 2023 (attention/native.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from compiler_core.dtype import DType, float32
from compiler_core.errors import ShapeError
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.attention import by_numpy as attention_numpy
from compiler_core.ops.attention import composed
from compiler_core.ops.attention import kernels as attention_kernels
from compiler_core.ops.attention import native as attention_native
from compiler_core.ops.attention.mapped import attended
from compiler_core.ops.attention.sizes import DTYPES, NARROW, AttentionSizes, check
from compiler_core.ops.broadcasting import cast, dtype_of
from compiler_core.ops.checks import check_dtype, check_shape
from compiler_core.ops.differentiate import vjp_of
from compiler_core.ops.linear_algebra.packing import packed_shape, unpack
from compiler_core.ops.registry import Array, Op, Sample, Value, meta_of, register
from compiler_core.ops.routine import Native, Routine, TritonKernels, register_routine
from compiler_core.ops.rules import Decomposed

# ---- attention


def _infer(
    *operands: TensorMeta, scale: float, causal: bool, learned: bool, strict: bool, dropout: float = 0.0,
    stream: int = 0,
) -> TensorMeta:  # fmt: skip
    sizes = check("attention", operands, causal, dropout)
    return operands[0].with_shape(packed_shape((), sizes.packed(operands[0].dtype)))


def _eager(xp: Any, *operands: Array, causal: bool, learned: bool, **how: Any) -> Array:
    sizes = AttentionSizes.of([meta_of(x) for x in operands[:3]], causal)
    return attention_numpy.forward(xp, sizes, *operands, **how)


def _vjp(
    g: Value,
    out: Value,
    q: Value,
    k: Value,
    v: Value,
    *rest: Value,
    scale: float,
    causal: bool,
    learned: bool,
    strict: bool,
    **drawn: Any,
) -> tuple[Value | None, ...]:  # fmt: skip
    sizes = composed.sizes_of(q, k, v, causal)
    g_out, g_lse = unpack(g, sizes.packed(dtype_of(q)))[:2]  # the second of two numbers is how the first was rounded
    operands = (g_out, g_lse, out, q, k, v, *rest)
    back = prims.attention_backward(*operands, scale=scale, causal=causal, **drawn)
    grads = [composed.heads_in(part) for part in composed.gradients_of(sizes, back)]
    if rest and learned and dtype_of(rest[0]) is dtype_of(q):
        slopes = composed.slopes(*operands, scale=scale, causal=causal, **drawn)
        return (*grads, cast(slopes, dtype_of(q)), *(None for _ in rest[1:]))
    return (*grads, *(None for _ in rest))


# ---- attention_backward


def _infer_backward(
    *operands: TensorMeta, scale: float, causal: bool, summed: bool, dropout: float = 0.0, stream: int = 0
) -> TensorMeta:
    if len(operands) < 6:
        raise ShapeError("attention_backward: an operand is missing", got=str(len(operands)))
    g, g_lse, packed, *rest = operands
    sizes = check("attention_backward", rest, causal, dropout)
    shapes = (*sizes.result, packed_shape((), sizes.packed(rest[0].dtype)))
    for role, shape, meta in zip(("a cotangent", "a cotangent", "the packed result"), shapes, (g, g_lse, packed)):
        check_dtype("attention_backward", meta, (rest[0].dtype,), role)
        check_shape("attention_backward", shape, meta, role)
    if summed and not sizes.has_gradients_beside(rest[0].dtype):
        raise ShapeError("attention_backward: sums are of gradients beside each other", got=", ".join(map(str, rest)))
    return rest[0].with_shape((packed_shape((), sizes.gradients)[0] + (sizes.columns if summed else 0),))


def _eager_backward(xp: Any, *operands: Array, causal: bool, **how: Any) -> Array:
    sizes = AttentionSizes.of([meta_of(x) for x in operands[3:6]], causal)
    return attention_numpy.backward(xp, sizes, *operands, **how)


def _vjp_backward(g: Value, out: Value, *operands: Value, **attrs: Any) -> tuple[Value | None, ...]:
    return vjp_of(partial(composed.backward, **attrs), g, *operands)


# ---- samples


def _draw(
    rng: np.random.Generator, dtype: DType, shapes: tuple[Shape, ...], keys: int, test: bool, drops: bool
) -> list[Array]:
    """Operands of these shapes; test: the last is a mask of truth values. drops: and a key.

    In f32 one query of a head sees nothing; in f64 each sees the first key: the logarithm of an empty sum, -inf, has
    no finite differences, which f64 is held to.
    """
    bound = 2 / math.sqrt(keys)
    arrays = [rng.uniform(-bound, bound, shape).astype(dtype.numpy) for shape in shapes]
    if len(shapes) > 4:
        arrays[2] += dtype.numpy.type(math.log(keys))  # in size like logarithms of sums
    if test:
        arrays[-1] = rng.random(shapes[-1]) < 0.7
        if dtype is float32:
            arrays[-1][..., 0, :] = False
        else:
            arrays[-1][..., 0] = True
    return [*arrays, np.array([rng.integers(1 << 62), 5, 1], np.uint64)] if drops else arrays


def _shapes(sizes: AttentionSizes, kind: str) -> tuple[Shape, ...]:
    key = (sizes.batch, sizes.key_heads, sizes.keys)
    shapes = ((sizes.batch, sizes.heads, sizes.queries, sizes.width), (*key, sizes.width), (*key, sizes.value_width))
    return shapes if kind == "none" else (*shapes, sizes.scores)


def _sample(
    sizes: AttentionSizes, kind: str, first: bool, dtypes: tuple[DType, ...] = DTYPES, summed: bool = False,
    drops: bool = False,
) -> Sample:  # fmt: skip
    """kind: "none", "added" or "test"; first: of the forward; drops: with dropout."""
    shapes, attrs = _shapes(sizes, kind), dict[str, Any](scale=0.4, causal=sizes.causal)
    if first:
        attrs |= {"learned": kind == "added", "strict": sizes.queries == 290}
    else:
        attrs["summed"] = summed
        shapes = (*sizes.result, packed_shape((), sizes.packed(dtypes[0])), *shapes)
    make = partial(_draw, shapes=shapes, keys=sizes.keys, test=kind == "test", drops=drops)
    if drops:
        shapes, attrs = (*shapes, (3,)), {**attrs, "dropout": 0.3, "stream": 2}
    return Sample(shapes, attrs, dtypes=dtypes[:1] if math.prod(sizes.scores) > 100 else dtypes, make=make)


def _samples(first: bool) -> tuple[Sample, ...]:
    wide = [_sample(sizes, kind, first) for sizes, kind in _CASES]
    narrow = [_sample(sizes, kind, first, NARROW) for sizes, kind in _CASES[:6]]
    dropped = [_sample(sizes, kind, first, drops=True) for sizes, kind in _CASES[1:4]]
    joined = [sizes for sizes, kind in _CASES if kind == "none" and sizes.has_gradients_beside(NARROW[0])]
    summed = [_sample(sizes, "none", first, NARROW, summed=True) for sizes in joined if not first]
    return (*wide, *narrow, *dropped, *summed)


_CASES: tuple[tuple[AttentionSizes, str], ...] = (
    (AttentionSizes(1, 1, 1, 3, 4, 2, 3, False), "none"),
    (AttentionSizes(1, 2, 1, 4, 3, 2, 2, True), "none"),
    (AttentionSizes(2, 1, 1, 2, 3, 3, 1, False), "added"),
    (AttentionSizes(1, 2, 2, 3, 2, 1, 2, False), "test"),
    (AttentionSizes(1, 2, 1, 4, 4, 2, 2, True), "none"),
    (AttentionSizes(2, 6, 3, 70, 70, 20, 37, True), "none"),
    (AttentionSizes(1, 2, 2, 300, 150, 64, 64, True), "none"),
    (AttentionSizes(1, 2, 1, 33, 270, 40, 16, True), "none"),
    (AttentionSizes(1, 2, 2, 65, 131, 17, 33, False), "none"),
    (AttentionSizes(2, 2, 1, 40, 150, 16, 8, False), "added"),
    (AttentionSizes(1, 3, 3, 290, 129, 8, 24, False), "test"),
)


# ---- registration

_WHY = "16-bit floats are attended by kernels of a GPU"


def _flops(*metas: TensorMeta, scale: float, causal: bool, **_: Any) -> int:
    is_forward = metas[0].ndim == 4 and metas[2].ndim == 4
    sizes = AttentionSizes.of(metas if is_forward else metas[3:], causal)
    return sizes.flops if is_forward else 5 * sizes.flops // 2


def _routine(name: str, eager: Callable[..., Array], native: Native, kernels: TritonKernels) -> Routine:
    def define(out: Array, *operands: Array, **attrs: Any) -> None:
        out[...] = eager(np, *operands, **attrs)

    return register_routine(Routine(name, define, _WHY, native, flops=_flops, kernels=kernels))


def _composed_forward(*operands: Value, learned: bool, **how: Any) -> Value:
    return composed.forward(*operands, **how)


ATTENTION = register(
    Op(
        "attention",
        infer=_infer,
        eager=_eager,
        vjp=_vjp,
        vmap=attended,
        lower=_routine("attention", _eager, attention_native.FORWARD, attention_kernels.FORWARD),
        samples=_samples(True),
        dtypes=(*DTYPES, *NARROW),
        engines=Decomposed(_composed_forward),
    )
)
ATTENTION_BACKWARD = register(
    Op(
        "attention_backward",
        infer=_infer_backward,
        eager=_eager_backward,
        vjp=_vjp_backward,
        vmap=attended,
        lower=_routine("attention_backward", _eager_backward, attention_native.BACKWARD, attention_kernels.BACKWARD),
        samples=_samples(False),
        dtypes=(*DTYPES, *NARROW),
        engines=Decomposed(composed.backward),
    )
)
# the same, which take no `learned`
COMPOSED: dict[Op, Callable[..., Value]] = {ATTENTION: composed.forward, ATTENTION_BACKWARD: composed.backward}
