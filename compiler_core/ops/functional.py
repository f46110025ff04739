"""Every function over Values in one namespace: what Tensor methods, nn.functional and the user's namespace are made of.

In: nothing. Out: the names of the tables below, each with torch's name, arguments and defaults, taking NumPy's
names of arguments too.
Random ones take `rng=(key, stream)`, or `key` and `stream`, where torch takes a generator. None works in place.
"""

from __future__ import annotations

from compiler_core.namespaces import named_in
from compiler_core.ops.attention import composite as attention
from compiler_core.ops.casting import in_float32_on_cuda
from compiler_core.ops.composites import (
    activation,
    arithmetic,
    creation,
    logic,
    loss,
    movement,
    padding,
    reduction,
    unary,
)
from compiler_core.ops.composites import norm as norms
from compiler_core.ops.indexing import composite as indexing
from compiler_core.ops.linear_algebra import products
from compiler_core.ops.numpy_names import numpy_names
from compiler_core.ops.random import composite as random

_NAMES = {
    activation: """
        dropout elu gelu glu hardsigmoid hardswish hardtanh keep_mask leaky_relu log1p_exp log_softmax logsigmoid mish
        relu relu6 selu silu softmax softmin softplus softsign
    """,
    arithmetic: """
        add addcdiv addcmul clamp clip div float_power floor_divide fmod lerp maximum minimum mul pow reciprocal
        remainder rsub square sub true_divide
    """,
    attention: "scaled_dot_product_attention",
    creation: "arange eye full full_like linspace ones ones_like zeros zeros_like",
    indexing: """
        diag diagonal_mask embedding gather getitem index_add index_copy index_put index_select masked_select scatter
        scatter_add setitem take_along_dim wrap_negative
    """,
    logic: """
        bitwise_and bitwise_not bitwise_or bitwise_xor eq ge gt isclose isfinite isinf isnan le logical_and logical_not
        logical_or logical_xor lt masked_fill nan_to_num ne where
    """,
    loss: """
        binary_cross_entropy binary_cross_entropy_with_logits cross_entropy huber_loss kl_div l1_loss mse_loss nll_loss
        smooth_l1_loss
    """,
    movement: """
        below_diagonal broadcast_tensors cat chunk concat concatenate contiguous expand expand_as flatten flip moveaxis
        movedim narrow one_hot permute ravel repeat repeat_interleave reshape reshape_as roll select split squeeze
        stack swapaxes swapdims t tile transpose tril triu unbind unflatten unsqueeze view view_as
    """,
    norms: "batch_norm batch_statistics cosine_similarity group_norm layer_norm normalize rms_norm",
    padding: "pad",
    products: "addmm baddbmm bilinear bmm dot einsum linear matmul mm mv outer",
    random: "bernoulli rand randint randn",
    reduction: """
        ValuesAndIndices all amax amin any argmax argmin count_nonzero cumsum logsumexp max mean min norm prod
        sqrt_flat_at_zero std sum var var_mean
    """,
    unary: """
        abs ceil cos cosh detach erf erfc exp exp2 expm1 floor frac log log10 log1p log2 neg positive round rsqrt
        sigmoid sign sin sinh sqrt tan tanh trunc
    """,
}
__all__ = sorted(" ".join(_NAMES.values()).split())

# what autocast computes in float32 on GPUs alone, where programs call it; what calls it in here computes as it is given
_IN_FLOAT32_ON_CUDA = (
    "cosh", "cumsum", "exp", "expm1", "group_norm", "layer_norm", "log", "log10", "log1p",
    "log2", "log_softmax", "logsumexp", "norm", "pow", "prod", "reciprocal", "rsqrt", "sinh", "square", "softmax",
    "softmin", "softplus", "sum", "tan",
)  # fmt: skip

for _name, _function in named_in(_NAMES).items():
    globals()[_name] = numpy_names(in_float32_on_cuda(_function) if _name in _IN_FLOAT32_ON_CUDA else _function)
