"""torch.nn.functional's functions, as far as they are offered: the same names, arguments and defaults.

In: tensors. Out: tensors.
"""

from __future__ import annotations

from compiler_core.namespaces import named_in
from compiler_core.ops.composites import grid, products, shuffle
from compiler_core.ops.composites import interpolate as interpolation
from compiler_core.ops.convolution import composite as convolution
from compiler_core.ops.pooling import adaptive
from compiler_core.ops.pooling import composite as windows
from compiler_core.overrides.functions import make_functions_overridable
from distcompile.nn.functional import (
    activations,
    attention,
    ctc,
    embeddings,
    layers,
    losses,
    margin_losses,
    multihead,
    pooling,
    sampling,
)

_NAMES = {
    activations: """
        celu celu_ elu elu_ gelu glu gumbel_softmax hardshrink hardsigmoid hardswish hardtanh hardtanh_ leaky_relu
        leaky_relu_ log_softmax logsigmoid mish prelu relu relu6 relu_ rrelu rrelu_ selu selu_ sigmoid silu softmax
        softmin softplus softshrink softsign tanh tanhshrink threshold threshold_
    """,
    adaptive: """
        adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
        adaptive_max_pool3d
    """,
    attention: "scaled_dot_product_attention",
    convolution: "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d fold unfold",
    ctc: "ctc_loss",
    embeddings: "embedding embedding_bag",
    grid: "affine_grid grid_sample",
    interpolation: "interpolate",
    layers: """
        alpha_dropout batch_norm bilinear conv_tbc dropout dropout1d dropout2d dropout3d feature_alpha_dropout
        group_norm instance_norm layer_norm linear local_response_norm normalize one_hot pad rms_norm
    """,
    losses: """
        binary_cross_entropy binary_cross_entropy_with_logits cosine_similarity cross_entropy huber_loss kl_div l1_loss
        linear_cross_entropy mse_loss nll_loss pairwise_distance smooth_l1_loss
    """,
    margin_losses: """
        cosine_embedding_loss gaussian_nll_loss hinge_embedding_loss margin_ranking_loss multi_margin_loss
        multilabel_margin_loss multilabel_soft_margin_loss poisson_nll_loss soft_margin_loss triplet_margin_loss
        triplet_margin_with_distance_loss
    """,
    multihead: "multi_head_attention_forward",
    pooling: """
        adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices
        max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices max_unpool1d max_unpool2d max_unpool3d
    """,
    products: "pdist",
    sampling: """
        fractional_max_pool2d fractional_max_pool2d_with_indices fractional_max_pool3d
        fractional_max_pool3d_with_indices upsample upsample_bilinear upsample_nearest
    """,
    shuffle: "channel_shuffle pixel_shuffle pixel_unshuffle",
    windows: "avg_pool1d avg_pool2d avg_pool3d lp_pool1d lp_pool2d lp_pool3d max_pool1d max_pool2d max_pool3d",
}

globals().update(named_in(_NAMES), native_channel_shuffle=shuffle.channel_shuffle)  # one implementation
__all__ = sorted([*named_in(_NAMES), "native_channel_shuffle"])
make_functions_overridable(globals(), __all__, "nn.functional")
