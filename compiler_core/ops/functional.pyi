"""Written by tests/test_stubs.py from what the namespace holds: see there."""

# ruff: noqa
# fmt: off

from compiler_core.ops.attention.composite import scaled_dot_product_attention as scaled_dot_product_attention
from compiler_core.ops.composites.activation import dropout as dropout
from compiler_core.ops.composites.activation import elu as elu
from compiler_core.ops.composites.activation import gelu as gelu
from compiler_core.ops.composites.activation import glu as glu
from compiler_core.ops.composites.activation import hardsigmoid as hardsigmoid
from compiler_core.ops.composites.activation import hardswish as hardswish
from compiler_core.ops.composites.activation import hardtanh as hardtanh
from compiler_core.ops.composites.activation import keep_mask as keep_mask
from compiler_core.ops.composites.activation import leaky_relu as leaky_relu
from compiler_core.ops.composites.activation import log1p_exp as log1p_exp
from compiler_core.ops.composites.activation import log_softmax as log_softmax
from compiler_core.ops.composites.activation import logsigmoid as logsigmoid
from compiler_core.ops.composites.activation import mish as mish
from compiler_core.ops.composites.activation import relu as relu
from compiler_core.ops.composites.activation import relu6 as relu6
from compiler_core.ops.composites.activation import selu as selu
from compiler_core.ops.composites.activation import silu as silu
from compiler_core.ops.composites.activation import softmax as softmax
from compiler_core.ops.composites.activation import softmin as softmin
from compiler_core.ops.composites.activation import softplus as softplus
from compiler_core.ops.composites.activation import softsign as softsign
from compiler_core.ops.composites.arithmetic import add as add
from compiler_core.ops.composites.arithmetic import addcdiv as addcdiv
from compiler_core.ops.composites.arithmetic import addcmul as addcmul
from compiler_core.ops.composites.arithmetic import clamp as clamp
from compiler_core.ops.composites.arithmetic import clamp as clip
from compiler_core.ops.composites.arithmetic import div as div
from compiler_core.ops.composites.arithmetic import div as divide
from compiler_core.ops.composites.arithmetic import float_power as float_power
from compiler_core.ops.composites.arithmetic import floor_divide as floor_divide
from compiler_core.ops.composites.arithmetic import fmod as fmod
from compiler_core.ops.composites.arithmetic import lerp as lerp
from compiler_core.ops.composites.arithmetic import maximum as maximum
from compiler_core.ops.composites.arithmetic import minimum as minimum
from compiler_core.ops.composites.arithmetic import mul as mul
from compiler_core.ops.composites.arithmetic import mul as multiply
from compiler_core.ops.composites.arithmetic import pow as pow
from compiler_core.ops.composites.arithmetic import reciprocal as reciprocal
from compiler_core.ops.composites.arithmetic import remainder as remainder
from compiler_core.ops.composites.arithmetic import rsub as rsub
from compiler_core.ops.composites.arithmetic import square as square
from compiler_core.ops.composites.arithmetic import sub as sub
from compiler_core.ops.composites.arithmetic import sub as subtract
from compiler_core.ops.composites.arithmetic import true_divide as true_divide
from compiler_core.ops.composites.creation import arange as arange
from compiler_core.ops.composites.creation import eye as eye
from compiler_core.ops.composites.creation import full as full
from compiler_core.ops.composites.creation import full_like as full_like
from compiler_core.ops.composites.creation import linspace as linspace
from compiler_core.ops.composites.creation import ones as ones
from compiler_core.ops.composites.creation import ones_like as ones_like
from compiler_core.ops.composites.creation import zeros as zeros
from compiler_core.ops.composites.creation import zeros_like as zeros_like
from compiler_core.ops.composites.logic import bitwise_and as bitwise_and
from compiler_core.ops.composites.logic import bitwise_not as bitwise_not
from compiler_core.ops.composites.logic import bitwise_or as bitwise_or
from compiler_core.ops.composites.logic import bitwise_xor as bitwise_xor
from compiler_core.ops.composites.logic import eq as eq
from compiler_core.ops.composites.logic import ge as ge
from compiler_core.ops.composites.logic import ge as greater_equal
from compiler_core.ops.composites.logic import gt as greater
from compiler_core.ops.composites.logic import gt as gt
from compiler_core.ops.composites.logic import isclose as isclose
from compiler_core.ops.composites.logic import isfinite as isfinite
from compiler_core.ops.composites.logic import isinf as isinf
from compiler_core.ops.composites.logic import isnan as isnan
from compiler_core.ops.composites.logic import le as le
from compiler_core.ops.composites.logic import le as less_equal
from compiler_core.ops.composites.logic import logical_and as logical_and
from compiler_core.ops.composites.logic import logical_not as logical_not
from compiler_core.ops.composites.logic import logical_or as logical_or
from compiler_core.ops.composites.logic import logical_xor as logical_xor
from compiler_core.ops.composites.logic import lt as less
from compiler_core.ops.composites.logic import lt as lt
from compiler_core.ops.composites.logic import masked_fill as masked_fill
from compiler_core.ops.composites.logic import nan_to_num as nan_to_num
from compiler_core.ops.composites.logic import ne as ne
from compiler_core.ops.composites.logic import ne as not_equal
from compiler_core.ops.composites.logic import where as where
from compiler_core.ops.composites.loss import binary_cross_entropy as binary_cross_entropy
from compiler_core.ops.composites.loss import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits
from compiler_core.ops.composites.loss import cross_entropy as cross_entropy
from compiler_core.ops.composites.loss import huber_loss as huber_loss
from compiler_core.ops.composites.loss import kl_div as kl_div
from compiler_core.ops.composites.loss import l1_loss as l1_loss
from compiler_core.ops.composites.loss import mse_loss as mse_loss
from compiler_core.ops.composites.loss import nll_loss as nll_loss
from compiler_core.ops.composites.loss import smooth_l1_loss as smooth_l1_loss
from compiler_core.ops.composites.movement import below_diagonal as below_diagonal
from compiler_core.ops.composites.movement import broadcast_tensors as broadcast_tensors
from compiler_core.ops.composites.movement import cat as cat
from compiler_core.ops.composites.movement import cat as concat
from compiler_core.ops.composites.movement import cat as concatenate
from compiler_core.ops.composites.movement import chunk as chunk
from compiler_core.ops.composites.movement import contiguous as contiguous
from compiler_core.ops.composites.movement import diagonal_mask as diagonal_mask
from compiler_core.ops.composites.movement import expand as expand
from compiler_core.ops.composites.movement import expand_as as expand_as
from compiler_core.ops.composites.movement import flatten as flatten
from compiler_core.ops.composites.movement import flip as flip
from compiler_core.ops.composites.movement import movedim as moveaxis
from compiler_core.ops.composites.movement import movedim as movedim
from compiler_core.ops.composites.movement import narrow as narrow
from compiler_core.ops.composites.movement import one_hot as one_hot
from compiler_core.ops.composites.movement import permute as permute
from compiler_core.ops.composites.movement import ravel as ravel
from compiler_core.ops.composites.movement import repeat as repeat
from compiler_core.ops.composites.movement import repeat_interleave as repeat_interleave
from compiler_core.ops.composites.movement import reshape as reshape
from compiler_core.ops.composites.movement import roll as roll
from compiler_core.ops.composites.movement import select as select
from compiler_core.ops.composites.movement import split as split
from compiler_core.ops.composites.movement import squeeze as squeeze
from compiler_core.ops.composites.movement import stack as stack
from compiler_core.ops.composites.movement import t as t
from compiler_core.ops.composites.movement import tile as tile
from compiler_core.ops.composites.movement import transpose as swapaxes
from compiler_core.ops.composites.movement import transpose as swapdims
from compiler_core.ops.composites.movement import transpose as transpose
from compiler_core.ops.composites.movement import tril as tril
from compiler_core.ops.composites.movement import triu as triu
from compiler_core.ops.composites.movement import unbind as unbind
from compiler_core.ops.composites.movement import unflatten as unflatten
from compiler_core.ops.composites.movement import unsqueeze as unsqueeze
from compiler_core.ops.composites.movement import view as view
from compiler_core.ops.composites.movement import view_as as reshape_as
from compiler_core.ops.composites.movement import view_as as view_as
from compiler_core.ops.composites.norm import batch_norm as batch_norm
from compiler_core.ops.composites.norm import batch_statistics as batch_statistics
from compiler_core.ops.composites.norm import cosine_similarity as cosine_similarity
from compiler_core.ops.composites.norm import group_norm as group_norm
from compiler_core.ops.composites.norm import layer_norm as layer_norm
from compiler_core.ops.composites.norm import normalize as normalize
from compiler_core.ops.composites.norm import rms_norm as rms_norm
from compiler_core.ops.composites.padding import pad as pad
from compiler_core.ops.composites.reduction import ValuesAndIndices as ValuesAndIndices
from compiler_core.ops.composites.reduction import all as all
from compiler_core.ops.composites.reduction import amax as amax
from compiler_core.ops.composites.reduction import amin as amin
from compiler_core.ops.composites.reduction import any as any
from compiler_core.ops.composites.reduction import argmax as argmax
from compiler_core.ops.composites.reduction import argmin as argmin
from compiler_core.ops.composites.reduction import count_nonzero as count_nonzero
from compiler_core.ops.composites.reduction import cumsum as cumsum
from compiler_core.ops.composites.reduction import logsumexp as logsumexp
from compiler_core.ops.composites.reduction import max as max
from compiler_core.ops.composites.reduction import mean as mean
from compiler_core.ops.composites.reduction import min as min
from compiler_core.ops.composites.reduction import norm as norm
from compiler_core.ops.composites.reduction import prod as prod
from compiler_core.ops.composites.reduction import sqrt_flat_at_zero as sqrt_flat_at_zero
from compiler_core.ops.composites.reduction import std as std
from compiler_core.ops.composites.reduction import sum as sum
from compiler_core.ops.composites.reduction import var as var
from compiler_core.ops.composites.reduction import var_mean as var_mean
from compiler_core.ops.composites.unary import abs as abs
from compiler_core.ops.composites.unary import abs as absolute
from compiler_core.ops.composites.unary import ceil as ceil
from compiler_core.ops.composites.unary import cos as cos
from compiler_core.ops.composites.unary import cosh as cosh
from compiler_core.ops.composites.unary import detach as detach
from compiler_core.ops.composites.unary import erf as erf
from compiler_core.ops.composites.unary import erfc as erfc
from compiler_core.ops.composites.unary import exp as exp
from compiler_core.ops.composites.unary import exp2 as exp2
from compiler_core.ops.composites.unary import expm1 as expm1
from compiler_core.ops.composites.unary import floor as floor
from compiler_core.ops.composites.unary import frac as frac
from compiler_core.ops.composites.unary import log as log
from compiler_core.ops.composites.unary import log10 as log10
from compiler_core.ops.composites.unary import log1p as log1p
from compiler_core.ops.composites.unary import log2 as log2
from compiler_core.ops.composites.unary import neg as neg
from compiler_core.ops.composites.unary import neg as negative
from compiler_core.ops.composites.unary import positive as positive
from compiler_core.ops.composites.unary import round as round
from compiler_core.ops.composites.unary import rsqrt as rsqrt
from compiler_core.ops.composites.unary import sigmoid as sigmoid
from compiler_core.ops.composites.unary import sign as sign
from compiler_core.ops.composites.unary import sin as sin
from compiler_core.ops.composites.unary import sinh as sinh
from compiler_core.ops.composites.unary import sqrt as sqrt
from compiler_core.ops.composites.unary import tan as tan
from compiler_core.ops.composites.unary import tanh as tanh
from compiler_core.ops.composites.unary import trunc as fix
from compiler_core.ops.composites.unary import trunc as trunc
from compiler_core.ops.indexing.composite import diag as diag
from compiler_core.ops.indexing.composite import embedding as embedding
from compiler_core.ops.indexing.composite import gather as gather
from compiler_core.ops.indexing.composite import getitem as getitem
from compiler_core.ops.indexing.composite import index_add as index_add
from compiler_core.ops.indexing.composite import index_copy as index_copy
from compiler_core.ops.indexing.composite import index_put as index_put
from compiler_core.ops.indexing.composite import index_select as index_select
from compiler_core.ops.indexing.composite import masked_select as masked_select
from compiler_core.ops.indexing.composite import scatter as scatter
from compiler_core.ops.indexing.composite import scatter_add as scatter_add
from compiler_core.ops.indexing.composite import setitem as setitem
from compiler_core.ops.indexing.composite import take_along_dim as take_along_dim
from compiler_core.ops.indexing.composite import wrap_negative as wrap_negative
from compiler_core.ops.linear_algebra.products import addmm as addmm
from compiler_core.ops.linear_algebra.products import baddbmm as baddbmm
from compiler_core.ops.linear_algebra.products import bilinear as bilinear
from compiler_core.ops.linear_algebra.products import bmm as bmm
from compiler_core.ops.linear_algebra.products import dot as dot
from compiler_core.ops.linear_algebra.products import einsum as einsum
from compiler_core.ops.linear_algebra.products import linear as linear
from compiler_core.ops.linear_algebra.products import matmul as matmul
from compiler_core.ops.linear_algebra.products import mm as mm
from compiler_core.ops.linear_algebra.products import mv as mv
from compiler_core.ops.linear_algebra.products import outer as outer
from compiler_core.ops.random.composite import bernoulli as bernoulli
from compiler_core.ops.random.composite import rand as rand
from compiler_core.ops.random.composite import randint as randint
from compiler_core.ops.random.composite import randn as randn

__all__ = [
    "ValuesAndIndices",
    "abs",
    "absolute",
    "add",
    "addcdiv",
    "addcmul",
    "addmm",
    "all",
    "amax",
    "amin",
    "any",
    "arange",
    "argmax",
    "argmin",
    "baddbmm",
    "batch_norm",
    "batch_statistics",
    "below_diagonal",
    "bernoulli",
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "bmm",
    "broadcast_tensors",
    "cat",
    "ceil",
    "chunk",
    "clamp",
    "clip",
    "concat",
    "concatenate",
    "contiguous",
    "cos",
    "cosh",
    "cosine_similarity",
    "count_nonzero",
    "cross_entropy",
    "cumsum",
    "detach",
    "diag",
    "diagonal_mask",
    "div",
    "divide",
    "dot",
    "dropout",
    "einsum",
    "elu",
    "embedding",
    "eq",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expand",
    "expand_as",
    "expm1",
    "eye",
    "fix",
    "flatten",
    "flip",
    "float_power",
    "floor",
    "floor_divide",
    "fmod",
    "frac",
    "full",
    "full_like",
    "gather",
    "ge",
    "gelu",
    "getitem",
    "glu",
    "greater",
    "greater_equal",
    "group_norm",
    "gt",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "huber_loss",
    "index_add",
    "index_copy",
    "index_put",
    "index_select",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "keep_mask",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "le",
    "leaky_relu",
    "lerp",
    "less",
    "less_equal",
    "linear",
    "linspace",
    "log",
    "log10",
    "log1p",
    "log1p_exp",
    "log2",
    "log_softmax",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logsigmoid",
    "logsumexp",
    "lt",
    "masked_fill",
    "masked_select",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "mish",
    "mm",
    "moveaxis",
    "movedim",
    "mse_loss",
    "mul",
    "multiply",
    "mv",
    "nan_to_num",
    "narrow",
    "ne",
    "neg",
    "negative",
    "nll_loss",
    "norm",
    "normalize",
    "not_equal",
    "one_hot",
    "ones",
    "ones_like",
    "outer",
    "pad",
    "permute",
    "positive",
    "pow",
    "prod",
    "rand",
    "randint",
    "randn",
    "ravel",
    "reciprocal",
    "relu",
    "relu6",
    "remainder",
    "repeat",
    "repeat_interleave",
    "reshape",
    "reshape_as",
    "rms_norm",
    "roll",
    "round",
    "rsqrt",
    "rsub",
    "scaled_dot_product_attention",
    "scatter",
    "scatter_add",
    "select",
    "selu",
    "setitem",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sinh",
    "smooth_l1_loss",
    "softmax",
    "softmin",
    "softplus",
    "softsign",
    "split",
    "sqrt",
    "sqrt_flat_at_zero",
    "square",
    "squeeze",
    "stack",
    "std",
    "sub",
    "subtract",
    "sum",
    "swapaxes",
    "swapdims",
    "t",
    "take_along_dim",
    "tan",
    "tanh",
    "tile",
    "transpose",
    "tril",
    "triu",
    "true_divide",
    "trunc",
    "unbind",
    "unflatten",
    "unsqueeze",
    "var",
    "var_mean",
    "view",
    "view_as",
    "where",
    "wrap_negative",
    "zeros",
    "zeros_like",
]
