"""Attention of many scores in eager code on a CUDA device, whole: by the kernels of the ops `attention*`.

In: CuPy's arrays (batch, heads, positions, width), alike, perhaps a mask of truth values. Out: see ops/whole.py; None
where there are no such kernels (codegen/cuda/eager_attention.py): the composition then finds what takes them. Kept is
the op's packed result, of which what is attended is a part. Gradients lie where the kernels leave them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler_core import cuda
from compiler_core.dtype import of
from compiler_core.eager.device.define import Grads
from compiler_core.ops.attention.sizes import AttentionSizes
from compiler_core.ops.on_device import ATTENTION
from compiler_core.ops.registry import OPS, Array, meta_of
from compiler_core.ops.whole import Made


def attended_in_blocks(q: Array, key: Array, value: Array, mask: Array | None, causal: bool, scale: float) -> Made:
    if q.ndim != 4 or (mask is not None and mask.dtype != np.bool_):
        return None
    attrs = {"scale": scale, "causal": causal, "learned": False, "strict": False}
    operands = _operands(q, key, value, mask)
    packed = ATTENTION.get()(cuda.module(), OPS["attention"], operands, attrs)
    if packed is None:
        return None
    shape = _sizes(operands, causal).result[0]
    return packed[: int(np.prod(shape))].reshape(shape).transpose(0, 2, 1, 3), (packed,)


def blocks_backward(
    needs: Sequence[bool], g: Array, packed: Array, q: Array, key: Array, value: Array, mask: Array | None,
    causal: bool, scale: float,
) -> Grads | None:  # fmt: skip
    cupy, operands = cuda.module(), _operands(q, key, value, mask)
    sizes, dtype = _sizes(operands, causal), of(q.dtype)
    of_sums = cupy.broadcast_to(cupy.zeros((1, 1, 1), q.dtype), sizes.result[1])
    attrs = {"scale": scale, "causal": causal, "summed": False}
    given = (g.transpose(0, 2, 1, 3), of_sums, packed, *operands)
    made = ATTENTION.get()(cupy, OPS["attention_backward"], given, attrs)
    if made is None:
        return None
    if sizes.has_gradients_beside(dtype):
        beside, ends = made.reshape(sizes.beside), (sizes.heads, sizes.heads + sizes.key_heads)
        parts = [beside[:, :, : ends[0]], beside[:, :, ends[0] : ends[1]], beside[:, :, ends[1] :]]
    else:
        first, second = (int(n) for n in np.cumsum([np.prod(shape) for shape in sizes.gradients])[:2])
        pieces = (made[:first], made[first:second], made[second:])
        parts = [piece.reshape(shape) for piece, shape in zip(pieces, sizes.gradients)]
    return [*(part.transpose(0, 2, 1, 3) if need else None for part, need in zip(parts, needs)), None]


def _operands(q: Array, key: Array, value: Array, mask: Array | None) -> list[Array]:
    if mask is None:
        return [q, key, value]
    return [q, key, value, cuda.module().broadcast_to(mask, (*q.shape[:3], key.shape[2]))]


def _sizes(operands: Sequence[Array], causal: bool) -> AttentionSizes:
    return AttentionSizes.of([meta_of(x) for x in operands], causal)
