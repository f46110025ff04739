"""Written by tests/test_stubs.py from what the namespace holds: see there."""

# ruff: noqa
# fmt: off

from compiler_core.ops.composites.grid import affine_grid as affine_grid
from compiler_core.ops.composites.grid import grid_sample as grid_sample
from compiler_core.ops.composites.interpolate import interpolate as interpolate
from compiler_core.ops.composites.products import pdist as pdist
from compiler_core.ops.composites.shuffle import channel_shuffle as channel_shuffle
from compiler_core.ops.composites.shuffle import channel_shuffle as native_channel_shuffle
from compiler_core.ops.composites.shuffle import pixel_shuffle as pixel_shuffle
from compiler_core.ops.composites.shuffle import pixel_unshuffle as pixel_unshuffle
from compiler_core.ops.convolution.composite import conv1d as conv1d
from compiler_core.ops.convolution.composite import conv2d as conv2d
from compiler_core.ops.convolution.composite import conv3d as conv3d
from compiler_core.ops.convolution.composite import conv_transpose1d as conv_transpose1d
from compiler_core.ops.convolution.composite import conv_transpose2d as conv_transpose2d
from compiler_core.ops.convolution.composite import conv_transpose3d as conv_transpose3d
from compiler_core.ops.convolution.composite import fold as fold
from compiler_core.ops.convolution.composite import unfold as unfold
from compiler_core.ops.pooling.adaptive import adaptive_avg_pool1d as adaptive_avg_pool1d
from compiler_core.ops.pooling.adaptive import adaptive_avg_pool2d as adaptive_avg_pool2d
from compiler_core.ops.pooling.adaptive import adaptive_avg_pool3d as adaptive_avg_pool3d
from compiler_core.ops.pooling.adaptive import adaptive_max_pool1d as adaptive_max_pool1d
from compiler_core.ops.pooling.adaptive import adaptive_max_pool2d as adaptive_max_pool2d
from compiler_core.ops.pooling.adaptive import adaptive_max_pool3d as adaptive_max_pool3d
from compiler_core.ops.pooling.composite import avg_pool1d as avg_pool1d
from compiler_core.ops.pooling.composite import avg_pool2d as avg_pool2d
from compiler_core.ops.pooling.composite import avg_pool3d as avg_pool3d
from compiler_core.ops.pooling.composite import lp_pool1d as lp_pool1d
from compiler_core.ops.pooling.composite import lp_pool2d as lp_pool2d
from compiler_core.ops.pooling.composite import lp_pool3d as lp_pool3d
from compiler_core.ops.pooling.composite import max_pool1d as max_pool1d
from compiler_core.ops.pooling.composite import max_pool2d as max_pool2d
from compiler_core.ops.pooling.composite import max_pool3d as max_pool3d
from distcompile.nn.functional.activations import celu as celu
from distcompile.nn.functional.activations import celu_ as celu_
from distcompile.nn.functional.activations import elu as elu
from distcompile.nn.functional.activations import elu_ as elu_
from distcompile.nn.functional.activations import gelu as gelu
from distcompile.nn.functional.activations import glu as glu
from distcompile.nn.functional.activations import gumbel_softmax as gumbel_softmax
from distcompile.nn.functional.activations import hardshrink as hardshrink
from distcompile.nn.functional.activations import hardsigmoid as hardsigmoid
from distcompile.nn.functional.activations import hardswish as hardswish
from distcompile.nn.functional.activations import hardtanh as hardtanh
from distcompile.nn.functional.activations import hardtanh_ as hardtanh_
from distcompile.nn.functional.activations import leaky_relu as leaky_relu
from distcompile.nn.functional.activations import leaky_relu_ as leaky_relu_
from distcompile.nn.functional.activations import log_softmax as log_softmax
from distcompile.nn.functional.activations import logsigmoid as logsigmoid
from distcompile.nn.functional.activations import mish as mish
from distcompile.nn.functional.activations import prelu as prelu
from distcompile.nn.functional.activations import relu as relu
from distcompile.nn.functional.activations import relu6 as relu6
from distcompile.nn.functional.activations import relu_ as relu_
from distcompile.nn.functional.activations import rrelu as rrelu
from distcompile.nn.functional.activations import rrelu_ as rrelu_
from distcompile.nn.functional.activations import selu as selu
from distcompile.nn.functional.activations import selu_ as selu_
from distcompile.nn.functional.activations import sigmoid as sigmoid
from distcompile.nn.functional.activations import silu as silu
from distcompile.nn.functional.activations import softmax as softmax
from distcompile.nn.functional.activations import softmin as softmin
from distcompile.nn.functional.activations import softplus as softplus
from distcompile.nn.functional.activations import softshrink as softshrink
from distcompile.nn.functional.activations import softsign as softsign
from distcompile.nn.functional.activations import tanh as tanh
from distcompile.nn.functional.activations import tanhshrink as tanhshrink
from distcompile.nn.functional.activations import threshold as threshold
from distcompile.nn.functional.activations import threshold_ as threshold_
from distcompile.nn.functional.attention import scaled_dot_product_attention as scaled_dot_product_attention
from distcompile.nn.functional.ctc import ctc_loss as ctc_loss
from distcompile.nn.functional.embeddings import embedding as embedding
from distcompile.nn.functional.embeddings import embedding_bag as embedding_bag
from distcompile.nn.functional.layers import alpha_dropout as alpha_dropout
from distcompile.nn.functional.layers import batch_norm as batch_norm
from distcompile.nn.functional.layers import bilinear as bilinear
from distcompile.nn.functional.layers import conv_tbc as conv_tbc
from distcompile.nn.functional.layers import dropout as dropout
from distcompile.nn.functional.layers import dropout1d as dropout1d
from distcompile.nn.functional.layers import dropout2d as dropout2d
from distcompile.nn.functional.layers import dropout3d as dropout3d
from distcompile.nn.functional.layers import feature_alpha_dropout as feature_alpha_dropout
from distcompile.nn.functional.layers import group_norm as group_norm
from distcompile.nn.functional.layers import instance_norm as instance_norm
from distcompile.nn.functional.layers import layer_norm as layer_norm
from distcompile.nn.functional.layers import linear as linear
from distcompile.nn.functional.layers import local_response_norm as local_response_norm
from distcompile.nn.functional.layers import normalize as normalize
from distcompile.nn.functional.layers import one_hot as one_hot
from distcompile.nn.functional.layers import pad as pad
from distcompile.nn.functional.layers import rms_norm as rms_norm
from distcompile.nn.functional.losses import binary_cross_entropy as binary_cross_entropy
from distcompile.nn.functional.losses import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits
from distcompile.nn.functional.losses import cosine_similarity as cosine_similarity
from distcompile.nn.functional.losses import cross_entropy as cross_entropy
from distcompile.nn.functional.losses import huber_loss as huber_loss
from distcompile.nn.functional.losses import kl_div as kl_div
from distcompile.nn.functional.losses import l1_loss as l1_loss
from distcompile.nn.functional.losses import linear_cross_entropy as linear_cross_entropy
from distcompile.nn.functional.losses import mse_loss as mse_loss
from distcompile.nn.functional.losses import nll_loss as nll_loss
from distcompile.nn.functional.losses import pairwise_distance as pairwise_distance
from distcompile.nn.functional.losses import smooth_l1_loss as smooth_l1_loss
from distcompile.nn.functional.margin_losses import cosine_embedding_loss as cosine_embedding_loss
from distcompile.nn.functional.margin_losses import gaussian_nll_loss as gaussian_nll_loss
from distcompile.nn.functional.margin_losses import hinge_embedding_loss as hinge_embedding_loss
from distcompile.nn.functional.margin_losses import margin_ranking_loss as margin_ranking_loss
from distcompile.nn.functional.margin_losses import multi_margin_loss as multi_margin_loss
from distcompile.nn.functional.margin_losses import multilabel_margin_loss as multilabel_margin_loss
from distcompile.nn.functional.margin_losses import multilabel_soft_margin_loss as multilabel_soft_margin_loss
from distcompile.nn.functional.margin_losses import poisson_nll_loss as poisson_nll_loss
from distcompile.nn.functional.margin_losses import soft_margin_loss as soft_margin_loss
from distcompile.nn.functional.margin_losses import triplet_margin_loss as triplet_margin_loss
from distcompile.nn.functional.margin_losses import triplet_margin_with_distance_loss as triplet_margin_with_distance_loss
from distcompile.nn.functional.multihead import multi_head_attention_forward as multi_head_attention_forward
from distcompile.nn.functional.pooling import adaptive_max_pool1d_with_indices as adaptive_max_pool1d_with_indices
from distcompile.nn.functional.pooling import adaptive_max_pool2d_with_indices as adaptive_max_pool2d_with_indices
from distcompile.nn.functional.pooling import adaptive_max_pool3d_with_indices as adaptive_max_pool3d_with_indices
from distcompile.nn.functional.pooling import max_pool1d_with_indices as max_pool1d_with_indices
from distcompile.nn.functional.pooling import max_pool2d_with_indices as max_pool2d_with_indices
from distcompile.nn.functional.pooling import max_pool3d_with_indices as max_pool3d_with_indices
from distcompile.nn.functional.pooling import max_unpool1d as max_unpool1d
from distcompile.nn.functional.pooling import max_unpool2d as max_unpool2d
from distcompile.nn.functional.pooling import max_unpool3d as max_unpool3d
from distcompile.nn.functional.sampling import fractional_max_pool2d as fractional_max_pool2d
from distcompile.nn.functional.sampling import fractional_max_pool2d_with_indices as fractional_max_pool2d_with_indices
from distcompile.nn.functional.sampling import fractional_max_pool3d as fractional_max_pool3d
from distcompile.nn.functional.sampling import fractional_max_pool3d_with_indices as fractional_max_pool3d_with_indices
from distcompile.nn.functional.sampling import upsample as upsample
from distcompile.nn.functional.sampling import upsample_bilinear as upsample_bilinear
from distcompile.nn.functional.sampling import upsample_nearest as upsample_nearest

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool2d",
    "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d",
    "adaptive_max_pool3d_with_indices",
    "affine_grid",
    "alpha_dropout",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_norm",
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "celu_",
    "channel_shuffle",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_tbc",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "ctc_loss",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "elu",
    "elu_",
    "embedding",
    "embedding_bag",
    "feature_alpha_dropout",
    "fold",
    "fractional_max_pool2d",
    "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices",
    "gaussian_nll_loss",
    "gelu",
    "glu",
    "grid_sample",
    "group_norm",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hardtanh_",
    "hinge_embedding_loss",
    "huber_loss",
    "instance_norm",
    "interpolate",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "leaky_relu_",
    "linear",
    "linear_cross_entropy",
    "local_response_norm",
    "log_softmax",
    "logsigmoid",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "margin_ranking_loss",
    "max_pool1d",
    "max_pool1d_with_indices",
    "max_pool2d",
    "max_pool2d_with_indices",
    "max_pool3d",
    "max_pool3d_with_indices",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "mish",
    "mse_loss",
    "multi_head_attention_forward",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "native_channel_shuffle",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pairwise_distance",
    "pdist",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll_loss",
    "prelu",
    "relu",
    "relu6",
    "relu_",
    "rms_norm",
    "rrelu",
    "rrelu_",
    "scaled_dot_product_attention",
    "selu",
    "selu_",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
    "threshold_",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
    "unfold",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]
