"""Written by tests/test_stubs.py from what the namespace holds: see there."""

# ruff: noqa
# fmt: off

import builtins
from typing import Any

from compiler_core.capture import compile as compile
from compiler_core.device import Device as device
from compiler_core.device import get_default_device as get_default_device
from compiler_core.device import set_default_device as set_default_device
from compiler_core.dtype import DType as dtype
from compiler_core.dtype import bfloat16 as bfloat16
from compiler_core.dtype import bool_ as bool
from compiler_core.dtype import complex128 as cdouble
from compiler_core.dtype import complex128 as complex128
from compiler_core.dtype import complex32 as chalf
from compiler_core.dtype import complex32 as complex32
from compiler_core.dtype import complex64 as cfloat
from compiler_core.dtype import complex64 as complex64
from compiler_core.dtype import float16 as float16
from compiler_core.dtype import float16 as half
from compiler_core.dtype import float32 as float
from compiler_core.dtype import float32 as float32
from compiler_core.dtype import float4_e2m1fn_x2 as float4_e2m1fn_x2
from compiler_core.dtype import float64 as double
from compiler_core.dtype import float64 as float64
from compiler_core.dtype import float8_e4m3fn as float8_e4m3fn
from compiler_core.dtype import float8_e4m3fnuz as float8_e4m3fnuz
from compiler_core.dtype import float8_e5m2 as float8_e5m2
from compiler_core.dtype import float8_e5m2fnuz as float8_e5m2fnuz
from compiler_core.dtype import float8_e8m0fnu as float8_e8m0fnu
from compiler_core.dtype import get_default_dtype as get_default_dtype
from compiler_core.dtype import int1 as int1
from compiler_core.dtype import int16 as int16
from compiler_core.dtype import int16 as short
from compiler_core.dtype import int2 as int2
from compiler_core.dtype import int3 as int3
from compiler_core.dtype import int32 as int
from compiler_core.dtype import int32 as int32
from compiler_core.dtype import int4 as int4
from compiler_core.dtype import int5 as int5
from compiler_core.dtype import int6 as int6
from compiler_core.dtype import int64 as int64
from compiler_core.dtype import int64 as long
from compiler_core.dtype import int7 as int7
from compiler_core.dtype import int8 as int8
from compiler_core.dtype import set_default_dtype as set_default_dtype
from compiler_core.dtype import uint1 as uint1
from compiler_core.dtype import uint16 as uint16
from compiler_core.dtype import uint2 as uint2
from compiler_core.dtype import uint3 as uint3
from compiler_core.dtype import uint32 as uint32
from compiler_core.dtype import uint4 as uint4
from compiler_core.dtype import uint5 as uint5
from compiler_core.dtype import uint6 as uint6
from compiler_core.dtype import uint64 as uint64
from compiler_core.dtype import uint7 as uint7
from compiler_core.dtype import uint8 as uint8
from compiler_core.errors import CudaMemoryError as OutOfMemoryError
from compiler_core.memory_format import channels_last as channels_last
from compiler_core.memory_format import channels_last_3d as channels_last_3d
from compiler_core.memory_format import contiguous_format as contiguous_format
from compiler_core.memory_format import jagged as jagged
from compiler_core.memory_format import layout as layout
from compiler_core.memory_format import legacy_contiguous_format as legacy_contiguous_format
from compiler_core.memory_format import memory_format as memory_format
from compiler_core.memory_format import preserve_format as preserve_format
from compiler_core.memory_format import sparse_bsc as sparse_bsc
from compiler_core.memory_format import sparse_bsr as sparse_bsr
from compiler_core.memory_format import sparse_coo as sparse_coo
from compiler_core.memory_format import sparse_csc as sparse_csc
from compiler_core.memory_format import sparse_csr as sparse_csr
from compiler_core.memory_format import strided as strided
from compiler_core.ops.composites.complex import angle as angle
from compiler_core.ops.composites.complex import complex as complex
from compiler_core.ops.composites.complex import conj as conj
from compiler_core.ops.composites.complex import conj_physical as conj_physical
from compiler_core.ops.composites.complex import imag as imag
from compiler_core.ops.composites.complex import isreal as isreal
from compiler_core.ops.composites.complex import polar as polar
from compiler_core.ops.composites.complex import real as real
from compiler_core.ops.composites.complex import resolve_conj as resolve_conj
from compiler_core.ops.composites.complex import resolve_conj as resolve_neg
from compiler_core.ops.composites.complex import view_as_complex as view_as_complex
from compiler_core.ops.composites.complex import view_as_real as view_as_real
from compiler_core.ops.composites.numbers import bitwise_left_shift as bitwise_left_shift
from compiler_core.ops.composites.numbers import bitwise_right_shift as bitwise_right_shift
from compiler_core.ops.composites.numbers import constant_pad_nd as constant_pad_nd
from compiler_core.ops.composites.numbers import gcd as gcd
from compiler_core.ops.composites.numbers import lcm as lcm
from compiler_core.ops.composites.numbers import logspace as logspace
from compiler_core.ops.composites.numbers import nonzero_static as nonzero_static
from compiler_core.ops.composites.numbers import scalar_tensor as scalar_tensor
from compiler_core.ops.composites.numbers import tril_indices as tril_indices
from compiler_core.ops.composites.numbers import triu_indices as triu_indices
from compiler_core.ops.composites.products import addbmm as addbmm
from compiler_core.ops.composites.products import addmv as addmv
from compiler_core.ops.composites.products import addr as addr
from compiler_core.ops.composites.products import cdist as cdist
from compiler_core.ops.composites.products import chain_matmul as chain_matmul
from compiler_core.ops.composites.products import cross as cross
from compiler_core.ops.composites.products import dist as dist
from compiler_core.ops.composites.products import ger as ger
from compiler_core.ops.composites.products import inner as inner
from compiler_core.ops.composites.products import kron as kron
from compiler_core.ops.composites.products import pdist as pdist
from compiler_core.ops.composites.products import tensordot as tensordot
from compiler_core.ops.composites.products import vdot as vdot
from compiler_core.ops.composites.running import cummax as cummax
from compiler_core.ops.composites.running import cummin as cummin
from compiler_core.ops.composites.running import cumprod as cumprod
from compiler_core.ops.composites.running import cumulative_trapezoid as cumulative_trapezoid
from compiler_core.ops.composites.running import diff as diff
from compiler_core.ops.composites.running import gradient as gradient
from compiler_core.ops.composites.running import logcumsumexp as logcumsumexp
from compiler_core.ops.composites.running import trapezoid as trapezoid
from compiler_core.ops.composites.running import trapezoid as trapz
from compiler_core.ops.composites.shuffle import channel_shuffle as channel_shuffle
from compiler_core.ops.composites.shuffle import channel_shuffle as native_channel_shuffle
from compiler_core.ops.composites.shuffle import pixel_shuffle as pixel_shuffle
from compiler_core.ops.composites.shuffle import pixel_unshuffle as pixel_unshuffle
from compiler_core.ops.composites.stacking import atleast_1d as atleast_1d
from compiler_core.ops.composites.stacking import atleast_2d as atleast_2d
from compiler_core.ops.composites.stacking import atleast_3d as atleast_3d
from compiler_core.ops.composites.stacking import block_diag as block_diag
from compiler_core.ops.composites.stacking import broadcast_shapes_of as broadcast_shapes
from compiler_core.ops.composites.stacking import cartesian_prod as cartesian_prod
from compiler_core.ops.composites.stacking import column_stack as column_stack
from compiler_core.ops.composites.stacking import combinations as combinations
from compiler_core.ops.composites.stacking import diag_embed as diag_embed
from compiler_core.ops.composites.stacking import diagflat as diagflat
from compiler_core.ops.composites.stacking import dsplit as dsplit
from compiler_core.ops.composites.stacking import dstack as dstack
from compiler_core.ops.composites.stacking import fliplr as fliplr
from compiler_core.ops.composites.stacking import flipud as flipud
from compiler_core.ops.composites.stacking import hsplit as hsplit
from compiler_core.ops.composites.stacking import hstack as hstack
from compiler_core.ops.composites.stacking import meshgrid as meshgrid
from compiler_core.ops.composites.stacking import rot90 as rot90
from compiler_core.ops.composites.stacking import split_with_sizes as split_with_sizes
from compiler_core.ops.composites.stacking import tensor_split as tensor_split
from compiler_core.ops.composites.stacking import unsafe_chunk as unsafe_chunk
from compiler_core.ops.composites.stacking import unsafe_split as unsafe_split
from compiler_core.ops.composites.stacking import vsplit as vsplit
from compiler_core.ops.composites.stacking import vstack as row_stack
from compiler_core.ops.composites.stacking import vstack as vstack
from compiler_core.ops.composites.statistics import bucketize as bucketize
from compiler_core.ops.composites.statistics import corrcoef as corrcoef
from compiler_core.ops.composites.statistics import cov as cov
from compiler_core.ops.composites.statistics import histc as histc
from compiler_core.ops.composites.statistics import isin as isin
from compiler_core.ops.composites.statistics import mode as mode
from compiler_core.ops.composites.statistics import nanquantile as nanquantile
from compiler_core.ops.composites.statistics import quantile as quantile
from compiler_core.ops.composites.statistics import searchsorted as searchsorted
from compiler_core.ops.composites.statistics import std_mean as std_mean
from compiler_core.ops.composites.statistics import unravel_index as unravel_index
from compiler_core.ops.composites.trigonometry import acos as acos
from compiler_core.ops.composites.trigonometry import acos as arccos
from compiler_core.ops.composites.trigonometry import acosh as acosh
from compiler_core.ops.composites.trigonometry import acosh as arccosh
from compiler_core.ops.composites.trigonometry import asin as arcsin
from compiler_core.ops.composites.trigonometry import asin as asin
from compiler_core.ops.composites.trigonometry import asinh as arcsinh
from compiler_core.ops.composites.trigonometry import asinh as asinh
from compiler_core.ops.composites.trigonometry import atan as arctan
from compiler_core.ops.composites.trigonometry import atan as atan
from compiler_core.ops.composites.trigonometry import atan2 as arctan2
from compiler_core.ops.composites.trigonometry import atan2 as atan2
from compiler_core.ops.composites.trigonometry import atanh as arctanh
from compiler_core.ops.composites.trigonometry import atanh as atanh
from compiler_core.ops.composites.trigonometry import copysign as copysign
from compiler_core.ops.composites.trigonometry import deg2rad as deg2rad
from compiler_core.ops.composites.trigonometry import fmax as fmax
from compiler_core.ops.composites.trigonometry import fmin as fmin
from compiler_core.ops.composites.trigonometry import frexp as frexp
from compiler_core.ops.composites.trigonometry import heaviside as heaviside
from compiler_core.ops.composites.trigonometry import hypot as hypot
from compiler_core.ops.composites.trigonometry import isneginf as isneginf
from compiler_core.ops.composites.trigonometry import isposinf as isposinf
from compiler_core.ops.composites.trigonometry import ldexp as ldexp
from compiler_core.ops.composites.trigonometry import nextafter as nextafter
from compiler_core.ops.composites.trigonometry import rad2deg as rad2deg
from compiler_core.ops.composites.trigonometry import sgn as sgn
from compiler_core.ops.composites.trigonometry import signbit as signbit
from compiler_core.ops.composites.trigonometry import sinc as sinc
from compiler_core.ops.convolution.composite import conv1d as conv1d
from compiler_core.ops.convolution.composite import conv2d as conv2d
from compiler_core.ops.convolution.composite import conv3d as conv3d
from compiler_core.ops.convolution.composite import conv_transpose1d as conv_transpose1d
from compiler_core.ops.convolution.composite import conv_transpose2d as conv_transpose2d
from compiler_core.ops.convolution.composite import conv_transpose3d as conv_transpose3d
from compiler_core.ops.functional import abs as abs
from compiler_core.ops.functional import abs as absolute
from compiler_core.ops.functional import add as add
from compiler_core.ops.functional import addcdiv as addcdiv
from compiler_core.ops.functional import addcmul as addcmul
from compiler_core.ops.functional import addmm as addmm
from compiler_core.ops.functional import all as all
from compiler_core.ops.functional import amax as amax
from compiler_core.ops.functional import amin as amin
from compiler_core.ops.functional import any as any
from compiler_core.ops.functional import argmax as argmax
from compiler_core.ops.functional import argmin as argmin
from compiler_core.ops.functional import baddbmm as baddbmm
from compiler_core.ops.functional import bitwise_and as bitwise_and
from compiler_core.ops.functional import bitwise_not as bitwise_not
from compiler_core.ops.functional import bitwise_or as bitwise_or
from compiler_core.ops.functional import bitwise_xor as bitwise_xor
from compiler_core.ops.functional import bmm as bmm
from compiler_core.ops.functional import broadcast_tensors as broadcast_tensors
from compiler_core.ops.functional import cat as cat
from compiler_core.ops.functional import cat as concat
from compiler_core.ops.functional import cat as concatenate
from compiler_core.ops.functional import ceil as ceil
from compiler_core.ops.functional import chunk as chunk
from compiler_core.ops.functional import clamp as clamp
from compiler_core.ops.functional import clamp as clip
from compiler_core.ops.functional import cos as cos
from compiler_core.ops.functional import cosh as cosh
from compiler_core.ops.functional import count_nonzero as count_nonzero
from compiler_core.ops.functional import cumsum as cumsum
from compiler_core.ops.functional import detach as detach
from compiler_core.ops.functional import diag as diag
from compiler_core.ops.functional import div as div
from compiler_core.ops.functional import div as divide
from compiler_core.ops.functional import dot as dot
from compiler_core.ops.functional import einsum as einsum
from compiler_core.ops.functional import embedding as embedding
from compiler_core.ops.functional import eq as eq
from compiler_core.ops.functional import erf as erf
from compiler_core.ops.functional import erfc as erfc
from compiler_core.ops.functional import exp as exp
from compiler_core.ops.functional import exp2 as exp2
from compiler_core.ops.functional import expm1 as expm1
from compiler_core.ops.functional import flatten as flatten
from compiler_core.ops.functional import flip as flip
from compiler_core.ops.functional import float_power as float_power
from compiler_core.ops.functional import floor as floor
from compiler_core.ops.functional import floor_divide as floor_divide
from compiler_core.ops.functional import fmod as fmod
from compiler_core.ops.functional import frac as frac
from compiler_core.ops.functional import gather as gather
from compiler_core.ops.functional import ge as ge
from compiler_core.ops.functional import ge as greater_equal
from compiler_core.ops.functional import group_norm as group_norm
from compiler_core.ops.functional import gt as greater
from compiler_core.ops.functional import gt as gt
from compiler_core.ops.functional import index_add as index_add
from compiler_core.ops.functional import index_copy as index_copy
from compiler_core.ops.functional import index_select as index_select
from compiler_core.ops.functional import isclose as isclose
from compiler_core.ops.functional import isfinite as isfinite
from compiler_core.ops.functional import isinf as isinf
from compiler_core.ops.functional import isnan as isnan
from compiler_core.ops.functional import layer_norm as layer_norm
from compiler_core.ops.functional import le as le
from compiler_core.ops.functional import le as less_equal
from compiler_core.ops.functional import lerp as lerp
from compiler_core.ops.functional import log as log
from compiler_core.ops.functional import log10 as log10
from compiler_core.ops.functional import log1p as log1p
from compiler_core.ops.functional import log2 as log2
from compiler_core.ops.functional import log_softmax as log_softmax
from compiler_core.ops.functional import logical_and as logical_and
from compiler_core.ops.functional import logical_not as logical_not
from compiler_core.ops.functional import logical_or as logical_or
from compiler_core.ops.functional import logical_xor as logical_xor
from compiler_core.ops.functional import logsumexp as logsumexp
from compiler_core.ops.functional import lt as less
from compiler_core.ops.functional import lt as lt
from compiler_core.ops.functional import masked_fill as masked_fill
from compiler_core.ops.functional import matmul as matmul
from compiler_core.ops.functional import max as max
from compiler_core.ops.functional import maximum as maximum
from compiler_core.ops.functional import mean as mean
from compiler_core.ops.functional import min as min
from compiler_core.ops.functional import minimum as minimum
from compiler_core.ops.functional import mm as mm
from compiler_core.ops.functional import movedim as moveaxis
from compiler_core.ops.functional import movedim as movedim
from compiler_core.ops.functional import mul as mul
from compiler_core.ops.functional import mul as multiply
from compiler_core.ops.functional import mv as mv
from compiler_core.ops.functional import nan_to_num as nan_to_num
from compiler_core.ops.functional import narrow as narrow
from compiler_core.ops.functional import ne as ne
from compiler_core.ops.functional import ne as not_equal
from compiler_core.ops.functional import neg as neg
from compiler_core.ops.functional import neg as negative
from compiler_core.ops.functional import norm as norm
from compiler_core.ops.functional import outer as outer
from compiler_core.ops.functional import permute as permute
from compiler_core.ops.functional import positive as positive
from compiler_core.ops.functional import pow as pow
from compiler_core.ops.functional import prod as prod
from compiler_core.ops.functional import ravel as ravel
from compiler_core.ops.functional import reciprocal as reciprocal
from compiler_core.ops.functional import relu as relu
from compiler_core.ops.functional import remainder as remainder
from compiler_core.ops.functional import repeat_interleave as repeat_interleave
from compiler_core.ops.functional import reshape as reshape
from compiler_core.ops.functional import rms_norm as rms_norm
from compiler_core.ops.functional import roll as roll
from compiler_core.ops.functional import round as round
from compiler_core.ops.functional import rsqrt as rsqrt
from compiler_core.ops.functional import rsub as rsub
from compiler_core.ops.functional import scatter as scatter
from compiler_core.ops.functional import scatter_add as scatter_add
from compiler_core.ops.functional import select as select
from compiler_core.ops.functional import selu as selu
from compiler_core.ops.functional import sigmoid as sigmoid
from compiler_core.ops.functional import sign as sign
from compiler_core.ops.functional import sin as sin
from compiler_core.ops.functional import sinh as sinh
from compiler_core.ops.functional import softmax as softmax
from compiler_core.ops.functional import split as split
from compiler_core.ops.functional import sqrt as sqrt
from compiler_core.ops.functional import square as square
from compiler_core.ops.functional import squeeze as squeeze
from compiler_core.ops.functional import stack as stack
from compiler_core.ops.functional import std as std
from compiler_core.ops.functional import sub as sub
from compiler_core.ops.functional import sub as subtract
from compiler_core.ops.functional import sum as sum
from compiler_core.ops.functional import t as t
from compiler_core.ops.functional import take_along_dim as take_along_dim
from compiler_core.ops.functional import tan as tan
from compiler_core.ops.functional import tanh as tanh
from compiler_core.ops.functional import tile as tile
from compiler_core.ops.functional import transpose as swapaxes
from compiler_core.ops.functional import transpose as swapdims
from compiler_core.ops.functional import transpose as transpose
from compiler_core.ops.functional import tril as tril
from compiler_core.ops.functional import triu as triu
from compiler_core.ops.functional import true_divide as true_divide
from compiler_core.ops.functional import trunc as fix
from compiler_core.ops.functional import trunc as trunc
from compiler_core.ops.functional import unbind as unbind
from compiler_core.ops.functional import unflatten as unflatten
from compiler_core.ops.functional import unsqueeze as unsqueeze
from compiler_core.ops.functional import var as var
from compiler_core.ops.functional import var_mean as var_mean
from compiler_core.ops.indexing.placing import as_strided_scatter as as_strided_scatter
from compiler_core.ops.indexing.placing import diagonal_scatter as diagonal_scatter
from compiler_core.ops.indexing.placing import fill as fill
from compiler_core.ops.indexing.placing import index_fill as index_fill
from compiler_core.ops.indexing.placing import index_reduce as index_reduce
from compiler_core.ops.indexing.placing import masked_scatter as masked_scatter
from compiler_core.ops.indexing.placing import put as put
from compiler_core.ops.indexing.placing import renorm as renorm
from compiler_core.ops.indexing.placing import scatter_reduce as scatter_reduce
from compiler_core.ops.indexing.placing import select_scatter as select_scatter
from compiler_core.ops.indexing.placing import slice_scatter as slice_scatter
from compiler_core.ops.indexing.placing import take as take
from compiler_core.ops.linear_algebra.factorisations import lu_unpack as lu_unpack
from compiler_core.ops.linear_algebra.factorisations import old_cholesky as cholesky
from compiler_core.ops.linear_algebra.factorisations import old_lu as lu
from compiler_core.ops.linear_algebra.factorisations import old_qr as qr
from compiler_core.ops.linear_algebra.factorisations import old_svd as svd
from compiler_core.ops.linear_algebra.norms import householder_product as orgqr
from compiler_core.ops.linear_algebra.norms import matrix_power as matrix_power
from compiler_core.ops.linear_algebra.norms import nuclear_norm as nuclear_norm
from compiler_core.ops.linear_algebra.norms import pinverse as pinverse
from compiler_core.ops.linear_algebra.solvers import cholesky_inverse as cholesky_inverse
from compiler_core.ops.linear_algebra.solvers import cholesky_solve as cholesky_solve
from compiler_core.ops.linear_algebra.solvers import det as det
from compiler_core.ops.linear_algebra.solvers import inv as inverse
from compiler_core.ops.linear_algebra.solvers import logdet as logdet
from compiler_core.ops.linear_algebra.solvers import matrix_exp as matrix_exp
from compiler_core.ops.linear_algebra.solvers import old_lu_solve as lu_solve
from compiler_core.ops.linear_algebra.solvers import slogdet as slogdet
from compiler_core.ops.linear_algebra.solvers import triangular_solve as triangular_solve
from compiler_core.ops.pooling.adaptive import adaptive_avg_pool1d as adaptive_avg_pool1d
from compiler_core.ops.pooling.composite import avg_pool1d as avg_pool1d
from compiler_core.ops.pooling.composite import max_pool1d as max_pool1d
from compiler_core.ops.pooling.composite import max_pool2d as max_pool2d
from compiler_core.ops.pooling.composite import max_pool3d as max_pool3d
from compiler_core.ops.signal.stft import istft as istft
from compiler_core.ops.signal.stft import stft as stft
from compiler_core.ops.signal.window_functions import bartlett_window as bartlett_window
from compiler_core.ops.signal.window_functions import blackman_window as blackman_window
from compiler_core.ops.signal.window_functions import hamming_window as hamming_window
from compiler_core.ops.signal.window_functions import hann_window as hann_window
from compiler_core.ops.signal.window_functions import kaiser_window as kaiser_window
from compiler_core.ops.sorting.composite import argsort as argsort
from compiler_core.ops.sorting.composite import kthvalue as kthvalue
from compiler_core.ops.sorting.composite import median as median
from compiler_core.ops.sorting.composite import msort as msort
from compiler_core.ops.sorting.composite import nanmedian as nanmedian
from compiler_core.ops.sorting.composite import sort as sort
from compiler_core.ops.sorting.composite import topk as topk
from compiler_core.ops.special.bessel import i0 as i0
from compiler_core.ops.special.elementary import erfinv as erfinv
from compiler_core.ops.special.elementary import logaddexp as logaddexp
from compiler_core.ops.special.elementary import logaddexp2 as logaddexp2
from compiler_core.ops.special.elementary import logit as logit
from compiler_core.ops.special.elementary import xlogy as xlogy
from compiler_core.ops.special.gamma import digamma as digamma
from compiler_core.ops.special.gamma import igamma as igamma
from compiler_core.ops.special.gamma import igammac as igammac
from compiler_core.ops.special.gamma import lgamma as lgamma
from compiler_core.ops.special.gamma import mvlgamma as mvlgamma
from compiler_core.ops.special.gamma import polygamma as polygamma
from compiler_core.sparse.construct import sparse_bsc_tensor as sparse_bsc_tensor
from compiler_core.sparse.construct import sparse_bsr_tensor as sparse_bsr_tensor
from compiler_core.sparse.construct import sparse_compressed_tensor as sparse_compressed_tensor
from compiler_core.sparse.construct import sparse_coo_tensor as sparse_coo_tensor
from compiler_core.sparse.construct import sparse_csc_tensor as sparse_csc_tensor
from compiler_core.sparse.construct import sparse_csr_tensor as sparse_csr_tensor
from compiler_core.sparse.in_place import resize_as_sparse_ as resize_as_sparse_
from compiler_core.sparse.parts import coalesce as _coalesce
from compiler_core.sparse.products import dsmm as dsmm
from compiler_core.sparse.products import hsmm as hsmm
from compiler_core.sparse.products import hspmm as hspmm
from compiler_core.sparse.products import saddmm as saddmm
from compiler_core.sparse.products import smm as smm
from compiler_core.sparse.products import spmm as spmm
from compiler_core.sparse.products import sspaddmm as sspaddmm
from compiler_core.tensor.autograd.anomaly import is_anomaly_check_nan_enabled as is_anomaly_check_nan_enabled
from compiler_core.tensor.autograd.anomaly import is_anomaly_enabled as is_anomaly_enabled
from compiler_core.tensor.autograd.grad_mode import enable_grad as enable_grad
from compiler_core.tensor.autograd.grad_mode import inference_mode as inference_mode
from compiler_core.tensor.autograd.grad_mode import is_grad_enabled as is_grad_enabled
from compiler_core.tensor.autograd.grad_mode import is_inference_mode_enabled as is_inference_mode_enabled
from compiler_core.tensor.autograd.grad_mode import no_grad as no_grad
from compiler_core.tensor.autograd.grad_mode import set_grad_enabled as set_grad_enabled
from compiler_core.tensor.autograd.inference import is_inference as is_inference
from compiler_core.tensor.counting import histogram as histogram
from compiler_core.tensor.counting import histogramdd as histogramdd
from compiler_core.tensor.counting import unique_consecutive as unique_consecutive
from compiler_core.tensor.lowrank import pca_lowrank as pca_lowrank
from compiler_core.tensor.lowrank import svd_lowrank as svd_lowrank
from compiler_core.tensor.making.creation import arange as arange
from compiler_core.tensor.making.creation import empty as empty
from compiler_core.tensor.making.creation import empty_like as empty_like
from compiler_core.tensor.making.creation import eye as eye
from compiler_core.tensor.making.creation import full as full
from compiler_core.tensor.making.creation import full_like as full_like
from compiler_core.tensor.making.creation import linspace as linspace
from compiler_core.tensor.making.creation import ones as ones
from compiler_core.tensor.making.creation import ones_like as ones_like
from compiler_core.tensor.making.creation import tensor as tensor
from compiler_core.tensor.making.creation import zeros as zeros
from compiler_core.tensor.making.creation import zeros_like as zeros_like
from compiler_core.tensor.making.legacy_types import BFloat16Tensor as BFloat16Tensor
from compiler_core.tensor.making.legacy_types import BoolTensor as BoolTensor
from compiler_core.tensor.making.legacy_types import ByteTensor as ByteTensor
from compiler_core.tensor.making.legacy_types import CharTensor as CharTensor
from compiler_core.tensor.making.legacy_types import DoubleTensor as DoubleTensor
from compiler_core.tensor.making.legacy_types import FloatTensor as FloatTensor
from compiler_core.tensor.making.legacy_types import HalfTensor as HalfTensor
from compiler_core.tensor.making.legacy_types import IntTensor as IntTensor
from compiler_core.tensor.making.legacy_types import LongTensor as LongTensor
from compiler_core.tensor.making.legacy_types import ShortTensor as ShortTensor
from compiler_core.tensor.making.legacy_types import set_default_tensor_type as set_default_tensor_type
from compiler_core.tensor.making.placement import as_placed as as_tensor
from compiler_core.tensor.making.random import Generator as Generator
from compiler_core.tensor.making.random import default_generator as default_generator
from compiler_core.tensor.making.random import get_rng_state as get_rng_state
from compiler_core.tensor.making.random import initial_seed as initial_seed
from compiler_core.tensor.making.random import manual_seed as manual_seed
from compiler_core.tensor.making.random import seed as seed
from compiler_core.tensor.making.random import set_rng_state as set_rng_state
from compiler_core.tensor.making.random_creation import bernoulli as bernoulli
from compiler_core.tensor.making.random_creation import normal as normal
from compiler_core.tensor.making.random_creation import rand as rand
from compiler_core.tensor.making.random_creation import rand_like as rand_like
from compiler_core.tensor.making.random_creation import randint as randint
from compiler_core.tensor.making.random_creation import randint_like as randint_like
from compiler_core.tensor.making.random_creation import randn as randn
from compiler_core.tensor.making.random_creation import randn_like as randn_like
from compiler_core.tensor.making.random_creation import randperm as randperm
from compiler_core.tensor.making.rejection_draws import binomial as binomial
from compiler_core.tensor.making.rejection_draws import poisson as poisson
from compiler_core.tensor.making.rejection_draws import sample_dirichlet as _sample_dirichlet
from compiler_core.tensor.making.rejection_draws import standard_gamma as _standard_gamma
from compiler_core.tensor.making.rejection_draws import standard_gamma_grad as _standard_gamma_grad
from compiler_core.tensor.memory.borrowing import asarray as asarray
from compiler_core.tensor.memory.borrowing import from_file as from_file
from compiler_core.tensor.memory.borrowing import from_numpy as from_numpy
from compiler_core.tensor.memory.borrowing import frombuffer as frombuffer
from compiler_core.tensor.memory.lending import from_dlpack as from_dlpack
from compiler_core.tensor.memory.lending import to_dlpack as to_dlpack
from compiler_core.tensor.memory.storage import UntypedStorage as UntypedStorage
from compiler_core.tensor.memory.strided import adjoint as adjoint
from compiler_core.tensor.memory.strided import as_strided as as_strided
from compiler_core.tensor.memory.strided import empty_strided as empty_strided
from compiler_core.tensor.memory.strided import get_device as get_device
from compiler_core.tensor.memory.typed_storage import BFloat16Storage as BFloat16Storage
from compiler_core.tensor.memory.typed_storage import BoolStorage as BoolStorage
from compiler_core.tensor.memory.typed_storage import ByteStorage as ByteStorage
from compiler_core.tensor.memory.typed_storage import CharStorage as CharStorage
from compiler_core.tensor.memory.typed_storage import ComplexDoubleStorage as ComplexDoubleStorage
from compiler_core.tensor.memory.typed_storage import ComplexFloatStorage as ComplexFloatStorage
from compiler_core.tensor.memory.typed_storage import DoubleStorage as DoubleStorage
from compiler_core.tensor.memory.typed_storage import FloatStorage as FloatStorage
from compiler_core.tensor.memory.typed_storage import HalfStorage as HalfStorage
from compiler_core.tensor.memory.typed_storage import IntStorage as IntStorage
from compiler_core.tensor.memory.typed_storage import LongStorage as LongStorage
from compiler_core.tensor.memory.typed_storage import ShortStorage as ShortStorage
from compiler_core.tensor.memory.typed_storage import TypedStorage as TypedStorage
from compiler_core.tensor.memory.typed_storage import is_storage as is_storage
from compiler_core.tensor.methods.derived import aminmax as aminmax
from compiler_core.tensor.methods.derived import broadcast_to as broadcast_to
from compiler_core.tensor.methods.derived import diagonal as diagonal
from compiler_core.tensor.methods.derived import nanmean as nanmean
from compiler_core.tensor.methods.derived import nansum as nansum
from compiler_core.tensor.methods.derived import trace as trace
from compiler_core.tensor.methods.indexing import index_put as index_put
from compiler_core.tensor.methods.indexing import masked_select as masked_select
from compiler_core.tensor.printing import set_printoptions as set_printoptions
from compiler_core.tensor.selection import bincount as bincount
from compiler_core.tensor.selection import multinomial as multinomial
from compiler_core.tensor.selection import nonzero as argwhere
from compiler_core.tensor.selection import nonzero as nonzero
from compiler_core.tensor.selection import unique as unique
from compiler_core.tensor.selection import where as where
from compiler_core.tensor.tensor import Size as Size
from compiler_core.tensor.tensor import Tensor as Tensor
from distcompile import _C as _C
from distcompile import __config__ as __config__
from distcompile import _dynamo as _dynamo
from distcompile import _inductor as _inductor
from distcompile import accelerator as accelerator
from distcompile import amp as amp
from distcompile import autograd as autograd
from distcompile import backends as backends
from distcompile import compiler as compiler
from distcompile import cpu as cpu
from distcompile import cuda as cuda
from distcompile import data as data
from distcompile import ddp as ddp
from distcompile import debug as debug
from distcompile import demo as demo
from distcompile import distributed as distributed
from distcompile import distributions as distributions
from distcompile import errors as errors
from distcompile import export as export
from distcompile import fft as fft
from distcompile import func as func
from distcompile import functional as functional
from distcompile import futures as futures
from distcompile import fx as fx
from distcompile import hub as hub
from distcompile import jit as jit
from distcompile import library as library
from distcompile import linalg as linalg
from distcompile import masked as masked
from distcompile import mps as mps
from distcompile import mtia as mtia
from distcompile import multiprocessing as multiprocessing
from distcompile import nn as nn
from distcompile import onnx as onnx
from distcompile import optim as optim
from distcompile import overrides as overrides
from distcompile import parity as parity
from distcompile import profiler as profiler
from distcompile import random as random
from distcompile import return_types as return_types
from distcompile import serialization as serialization
from distcompile import signal as signal
from distcompile import sparse as sparse
from distcompile import special as special
from distcompile import storage as storage
from distcompile import testing as testing
from distcompile import types as types
from distcompile import utils as utils
from distcompile import version as version
from distcompile import xpu as xpu
from distcompile._dynamo import explain as explain
from distcompile.amp.autocasting import autocast as autocast
from distcompile.amp.autocasting import autocast_decrement_nesting as autocast_decrement_nesting
from distcompile.amp.autocasting import autocast_increment_nesting as autocast_increment_nesting
from distcompile.amp.autocasting import clear_autocast_cache as clear_autocast_cache
from distcompile.amp.autocasting import get_autocast_cpu_dtype as get_autocast_cpu_dtype
from distcompile.amp.autocasting import get_autocast_dtype as get_autocast_dtype
from distcompile.amp.autocasting import get_autocast_gpu_dtype as get_autocast_gpu_dtype
from distcompile.amp.autocasting import is_autocast_cache_enabled as is_autocast_cache_enabled
from distcompile.amp.autocasting import is_autocast_cpu_enabled as is_autocast_cpu_enabled
from distcompile.amp.autocasting import is_autocast_enabled as is_autocast_enabled
from distcompile.amp.autocasting import set_autocast_cache_enabled as set_autocast_cache_enabled
from distcompile.amp.autocasting import set_autocast_cpu_dtype as set_autocast_cpu_dtype
from distcompile.amp.autocasting import set_autocast_cpu_enabled as set_autocast_cpu_enabled
from distcompile.amp.autocasting import set_autocast_dtype as set_autocast_dtype
from distcompile.amp.autocasting import set_autocast_enabled as set_autocast_enabled
from distcompile.amp.autocasting import set_autocast_gpu_dtype as set_autocast_gpu_dtype
from distcompile.backends import get_float32_matmul_precision as get_float32_matmul_precision
from distcompile.backends import set_float32_matmul_precision as set_float32_matmul_precision
from distcompile.futures import Future as Future
from distcompile.jit import ScriptModule as ScriptModule
from distcompile.library.namespaces import ops as ops
from distcompile.nn.functional.activations import celu as celu
from distcompile.nn.functional.activations import celu_ as celu_
from distcompile.nn.functional.activations import hardshrink as hardshrink
from distcompile.nn.functional.activations import prelu as prelu
from distcompile.nn.functional.activations import relu_ as relu_
from distcompile.nn.functional.activations import rrelu as rrelu
from distcompile.nn.functional.activations import rrelu_ as rrelu_
from distcompile.nn.functional.activations import selu_ as selu_
from distcompile.nn.functional.activations import threshold as threshold
from distcompile.nn.functional.activations import threshold_ as threshold_
from distcompile.nn.functional.layers import alpha_dropout as alpha_dropout
from distcompile.nn.functional.layers import bilinear as bilinear
from distcompile.nn.functional.layers import conv_tbc as conv_tbc
from distcompile.nn.functional.layers import dropout as dropout
from distcompile.nn.functional.layers import feature_alpha_dropout as feature_alpha_dropout
from distcompile.nn.functional.losses import cosine_similarity as cosine_similarity
from distcompile.nn.functional.losses import pairwise_distance as pairwise_distance
from distcompile.nn.functional.pooling import adaptive_max_pool1d_with_indices as adaptive_max_pool1d
from distcompile.nn.functional.pooling import max_pool1d_with_indices as max_pool1d_with_indices
from distcompile.serialization import load as load
from distcompile.serialization import load_file as load_file
from distcompile.serialization import save as save
from distcompile.serialization import save_file as save_file
from distcompile.surface.asking import _assert as _assert
from distcompile.surface.asking import _assert_async as _assert_async
from distcompile.surface.asking import _check as _check
from distcompile.surface.asking import _check_index as _check_index
from distcompile.surface.asking import _check_is_size as _check_is_size
from distcompile.surface.asking import _check_not_implemented as _check_not_implemented
from distcompile.surface.asking import _check_tensor_all as _check_tensor_all
from distcompile.surface.asking import _check_tensor_all_with as _check_tensor_all_with
from distcompile.surface.asking import _check_type as _check_type
from distcompile.surface.asking import _check_value as _check_value
from distcompile.surface.asking import _check_with as _check_with
from distcompile.surface.asking import typename as typename
from distcompile.surface.determinism import are_deterministic_algorithms_enabled as are_deterministic_algorithms_enabled
from distcompile.surface.determinism import get_deterministic_debug_mode as get_deterministic_debug_mode
from distcompile.surface.determinism import is_deterministic_algorithms_warn_only_enabled as is_deterministic_algorithms_warn_only_enabled
from distcompile.surface.determinism import set_deterministic_debug_mode as set_deterministic_debug_mode
from distcompile.surface.determinism import use_deterministic_algorithms as use_deterministic_algorithms
from distcompile.surface.limits import can_cast as can_cast
from distcompile.surface.limits import finfo as finfo
from distcompile.surface.limits import iinfo as iinfo
from distcompile.surface.limits import promote_types as promote_types
from distcompile.surface.limits import result_type as result_type
from distcompile.surface.loops import cond as cond
from distcompile.surface.loops import while_loop as while_loop
from distcompile.surface.mapping import vmap as vmap
from distcompile.surface.rare import coo_to_csr as _convert_indices_from_coo_to_csr
from distcompile.surface.rare import csr_to_coo as _convert_indices_from_csr_to_coo
from distcompile.surface.rare import expand_copy as expand_copy
from distcompile.surface.rare import get_device_module as get_device_module
from distcompile.surface.rare import grouped_mm as _grouped_mm
from distcompile.surface.rare import segment_reduce as _segment_reduce
from distcompile.surface.rare import segment_reduce as segment_reduce
from distcompile.surface.rare import shape_as_tensor as _shape_as_tensor
from distcompile.surface.rare import softmax_backward_data as _softmax_backward_data
from distcompile.surface.streams import Event as Event
from distcompile.surface.streams import Stream as Stream
from distcompile.surface.symbols import sym_float as sym_float
from distcompile.surface.symbols import sym_int as sym_int
from distcompile.surface.symbols import sym_ite as sym_ite
from distcompile.surface.symbols import sym_max as sym_max
from distcompile.surface.symbols import sym_min as sym_min
from distcompile.surface.symbols import sym_not as sym_not
from distcompile.surface.symbols import sym_sqrt as sym_sqrt
from distcompile.surface.symbols import sym_sum as sym_sum
from distcompile.surface.threads import get_num_interop_threads as get_num_interop_threads
from distcompile.surface.threads import get_num_threads as get_num_threads
from distcompile.surface.threads import set_flush_denormal as set_flush_denormal
from distcompile.surface.threads import set_num_interop_threads as set_num_interop_threads
from distcompile.surface.threads import set_num_threads as set_num_threads
from math import e as e
from math import inf as inf
from math import nan as nan
from math import pi as pi
from numpy import newaxis as newaxis

_foreach_abs: Any
_foreach_abs_: Any
_foreach_acos: Any
_foreach_acos_: Any
_foreach_add: Any
_foreach_add_: Any
_foreach_addcdiv: Any
_foreach_addcdiv_: Any
_foreach_addcmul: Any
_foreach_addcmul_: Any
_foreach_asin: Any
_foreach_asin_: Any
_foreach_atan: Any
_foreach_atan_: Any
_foreach_ceil: Any
_foreach_ceil_: Any
_foreach_clamp_max: Any
_foreach_clamp_max_: Any
_foreach_clamp_min: Any
_foreach_clamp_min_: Any
_foreach_clone: Any
_foreach_copy_: Any
_foreach_cos: Any
_foreach_cos_: Any
_foreach_cosh: Any
_foreach_cosh_: Any
_foreach_div: Any
_foreach_div_: Any
_foreach_erf: Any
_foreach_erf_: Any
_foreach_erfc: Any
_foreach_erfc_: Any
_foreach_exp: Any
_foreach_exp_: Any
_foreach_expm1: Any
_foreach_expm1_: Any
_foreach_floor: Any
_foreach_floor_: Any
_foreach_frac: Any
_foreach_frac_: Any
_foreach_lerp: Any
_foreach_lerp_: Any
_foreach_lgamma: Any
_foreach_lgamma_: Any
_foreach_log: Any
_foreach_log10: Any
_foreach_log10_: Any
_foreach_log1p: Any
_foreach_log1p_: Any
_foreach_log2: Any
_foreach_log2_: Any
_foreach_log_: Any
_foreach_max: Any
_foreach_maximum: Any
_foreach_maximum_: Any
_foreach_minimum: Any
_foreach_minimum_: Any
_foreach_mm: Any
_foreach_mul: Any
_foreach_mul_: Any
_foreach_neg: Any
_foreach_neg_: Any
_foreach_norm: Any
_foreach_pow: Any
_foreach_pow_: Any
_foreach_powsum: Any
_foreach_reciprocal: Any
_foreach_reciprocal_: Any
_foreach_round: Any
_foreach_round_: Any
_foreach_rsqrt: Any
_foreach_rsqrt_: Any
_foreach_sigmoid: Any
_foreach_sigmoid_: Any
_foreach_sign: Any
_foreach_sign_: Any
_foreach_sin: Any
_foreach_sin_: Any
_foreach_sinh: Any
_foreach_sinh_: Any
_foreach_sqrt: Any
_foreach_sqrt_: Any
_foreach_sub: Any
_foreach_sub_: Any
_foreach_tan: Any
_foreach_tan_: Any
_foreach_tanh: Any
_foreach_tanh_: Any
_foreach_trunc: Any
_foreach_trunc_: Any
_foreach_zero_: Any
abs_: Any
acos_: Any
acosh_: Any
addmv_: Any
allclose: Any
arccos_: Any
arccosh_: Any
arcsin_: Any
arcsinh_: Any
arctan_: Any
arctanh_: Any
asin_: Any
asinh_: Any
atan_: Any
atanh_: Any
ceil_: Any
clamp_: Any
clamp_max: Any
clamp_max_: Any
clamp_min: Any
clamp_min_: Any
clip_: Any
clone: Any
conj_physical_: Any
cos_: Any
cosh_: Any
deg2rad_: Any
detach_: Any
equal: Any
erf_: Any
erfc_: Any
exp2_: Any
exp_: Any
expm1_: Any
fill_: Any
fix_: Any
floor_: Any
frac_: Any
gcd_: Any
i0_: Any
index_put_: Any
is_complex: Any
is_conj: Any
is_floating_point: Any
is_nonzero: Any
is_signed: Any
lcm_: Any
ldexp_: Any
log10_: Any
log1p_: Any
log2_: Any
log_: Any
logit_: Any
nan_to_num_: Any
narrow_copy: Any
neg_: Any
negative_: Any
numel: Any
rad2deg_: Any
reciprocal_: Any
round_: Any
rsqrt_: Any
sigmoid_: Any
sin_: Any
sinc_: Any
sinh_: Any
sqrt_: Any
square_: Any
tan_: Any
tanh_: Any
trunc_: Any
xlogy_: Any
zero_: Any
__version__: builtins.str

def is_tensor(obj: object) -> builtins.bool: ...

__all__ = [
    "BFloat16Storage",
    "BFloat16Tensor",
    "BoolStorage",
    "BoolTensor",
    "ByteStorage",
    "ByteTensor",
    "CharStorage",
    "CharTensor",
    "ComplexDoubleStorage",
    "ComplexFloatStorage",
    "DoubleStorage",
    "DoubleTensor",
    "Event",
    "FloatStorage",
    "FloatTensor",
    "Future",
    "Generator",
    "HalfStorage",
    "HalfTensor",
    "IntStorage",
    "IntTensor",
    "LongStorage",
    "LongTensor",
    "OutOfMemoryError",
    "ScriptModule",
    "ShortStorage",
    "ShortTensor",
    "Size",
    "Stream",
    "Tensor",
    "TypedStorage",
    "UntypedStorage",
    "_C",
    "__config__",
    "__version__",
    "_assert",
    "_assert_async",
    "_check",
    "_check_index",
    "_check_is_size",
    "_check_not_implemented",
    "_check_tensor_all",
    "_check_tensor_all_with",
    "_check_type",
    "_check_value",
    "_check_with",
    "_coalesce",
    "_convert_indices_from_coo_to_csr",
    "_convert_indices_from_csr_to_coo",
    "_dynamo",
    "_foreach_abs",
    "_foreach_abs_",
    "_foreach_acos",
    "_foreach_acos_",
    "_foreach_add",
    "_foreach_add_",
    "_foreach_addcdiv",
    "_foreach_addcdiv_",
    "_foreach_addcmul",
    "_foreach_addcmul_",
    "_foreach_asin",
    "_foreach_asin_",
    "_foreach_atan",
    "_foreach_atan_",
    "_foreach_ceil",
    "_foreach_ceil_",
    "_foreach_clamp_max",
    "_foreach_clamp_max_",
    "_foreach_clamp_min",
    "_foreach_clamp_min_",
    "_foreach_clone",
    "_foreach_copy_",
    "_foreach_cos",
    "_foreach_cos_",
    "_foreach_cosh",
    "_foreach_cosh_",
    "_foreach_div",
    "_foreach_div_",
    "_foreach_erf",
    "_foreach_erf_",
    "_foreach_erfc",
    "_foreach_erfc_",
    "_foreach_exp",
    "_foreach_exp_",
    "_foreach_expm1",
    "_foreach_expm1_",
    "_foreach_floor",
    "_foreach_floor_",
    "_foreach_frac",
    "_foreach_frac_",
    "_foreach_lerp",
    "_foreach_lerp_",
    "_foreach_lgamma",
    "_foreach_lgamma_",
    "_foreach_log",
    "_foreach_log10",
    "_foreach_log10_",
    "_foreach_log1p",
    "_foreach_log1p_",
    "_foreach_log2",
    "_foreach_log2_",
    "_foreach_log_",
    "_foreach_max",
    "_foreach_maximum",
    "_foreach_maximum_",
    "_foreach_minimum",
    "_foreach_minimum_",
    "_foreach_mm",
    "_foreach_mul",
    "_foreach_mul_",
    "_foreach_neg",
    "_foreach_neg_",
    "_foreach_norm",
    "_foreach_pow",
    "_foreach_pow_",
    "_foreach_powsum",
    "_foreach_reciprocal",
    "_foreach_reciprocal_",
    "_foreach_round",
    "_foreach_round_",
    "_foreach_rsqrt",
    "_foreach_rsqrt_",
    "_foreach_sigmoid",
    "_foreach_sigmoid_",
    "_foreach_sign",
    "_foreach_sign_",
    "_foreach_sin",
    "_foreach_sin_",
    "_foreach_sinh",
    "_foreach_sinh_",
    "_foreach_sqrt",
    "_foreach_sqrt_",
    "_foreach_sub",
    "_foreach_sub_",
    "_foreach_tan",
    "_foreach_tan_",
    "_foreach_tanh",
    "_foreach_tanh_",
    "_foreach_trunc",
    "_foreach_trunc_",
    "_foreach_zero_",
    "_grouped_mm",
    "_inductor",
    "_sample_dirichlet",
    "_segment_reduce",
    "_shape_as_tensor",
    "_softmax_backward_data",
    "_standard_gamma",
    "_standard_gamma_grad",
    "abs",
    "abs_",
    "absolute",
    "accelerator",
    "acos",
    "acos_",
    "acosh",
    "acosh_",
    "adaptive_avg_pool1d",
    "adaptive_max_pool1d",
    "add",
    "addbmm",
    "addcdiv",
    "addcmul",
    "addmm",
    "addmv",
    "addmv_",
    "addr",
    "adjoint",
    "all",
    "allclose",
    "alpha_dropout",
    "amax",
    "amin",
    "aminmax",
    "amp",
    "angle",
    "any",
    "arange",
    "arccos",
    "arccos_",
    "arccosh",
    "arccosh_",
    "arcsin",
    "arcsin_",
    "arcsinh",
    "arcsinh_",
    "arctan",
    "arctan2",
    "arctan_",
    "arctanh",
    "arctanh_",
    "are_deterministic_algorithms_enabled",
    "argmax",
    "argmin",
    "argsort",
    "argwhere",
    "as_strided",
    "as_strided_scatter",
    "as_tensor",
    "asarray",
    "asin",
    "asin_",
    "asinh",
    "asinh_",
    "atan",
    "atan2",
    "atan_",
    "atanh",
    "atanh_",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "autocast",
    "autocast_decrement_nesting",
    "autocast_increment_nesting",
    "autograd",
    "avg_pool1d",
    "backends",
    "baddbmm",
    "bartlett_window",
    "bernoulli",
    "bfloat16",
    "bilinear",
    "bincount",
    "binomial",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "blackman_window",
    "block_diag",
    "bmm",
    "bool",
    "broadcast_shapes",
    "broadcast_tensors",
    "broadcast_to",
    "bucketize",
    "can_cast",
    "cartesian_prod",
    "cat",
    "cdist",
    "cdouble",
    "ceil",
    "ceil_",
    "celu",
    "celu_",
    "cfloat",
    "chain_matmul",
    "chalf",
    "channel_shuffle",
    "channels_last",
    "channels_last_3d",
    "cholesky",
    "cholesky_inverse",
    "cholesky_solve",
    "chunk",
    "clamp",
    "clamp_",
    "clamp_max",
    "clamp_max_",
    "clamp_min",
    "clamp_min_",
    "clear_autocast_cache",
    "clip",
    "clip_",
    "clone",
    "column_stack",
    "combinations",
    "compile",
    "compiler",
    "complex",
    "complex128",
    "complex32",
    "complex64",
    "concat",
    "concatenate",
    "cond",
    "conj",
    "conj_physical",
    "conj_physical_",
    "constant_pad_nd",
    "contiguous_format",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_tbc",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "copysign",
    "corrcoef",
    "cos",
    "cos_",
    "cosh",
    "cosh_",
    "cosine_similarity",
    "count_nonzero",
    "cov",
    "cpu",
    "cross",
    "cuda",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "cumulative_trapezoid",
    "data",
    "ddp",
    "debug",
    "default_generator",
    "deg2rad",
    "deg2rad_",
    "demo",
    "det",
    "detach",
    "detach_",
    "device",
    "diag",
    "diag_embed",
    "diagflat",
    "diagonal",
    "diagonal_scatter",
    "diff",
    "digamma",
    "dist",
    "distributed",
    "distributions",
    "div",
    "divide",
    "dot",
    "double",
    "dropout",
    "dsmm",
    "dsplit",
    "dstack",
    "dtype",
    "e",
    "einsum",
    "embedding",
    "empty",
    "empty_like",
    "empty_strided",
    "enable_grad",
    "eq",
    "equal",
    "erf",
    "erf_",
    "erfc",
    "erfc_",
    "erfinv",
    "errors",
    "exp",
    "exp2",
    "exp2_",
    "exp_",
    "expand_copy",
    "explain",
    "expm1",
    "expm1_",
    "export",
    "eye",
    "feature_alpha_dropout",
    "fft",
    "fill",
    "fill_",
    "finfo",
    "fix",
    "fix_",
    "flatten",
    "flip",
    "fliplr",
    "flipud",
    "float",
    "float16",
    "float32",
    "float4_e2m1fn_x2",
    "float64",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float_power",
    "floor",
    "floor_",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "frac",
    "frac_",
    "frexp",
    "from_dlpack",
    "from_file",
    "from_numpy",
    "frombuffer",
    "full",
    "full_like",
    "func",
    "functional",
    "futures",
    "fx",
    "gather",
    "gcd",
    "gcd_",
    "ge",
    "ger",
    "get_autocast_cpu_dtype",
    "get_autocast_dtype",
    "get_autocast_gpu_dtype",
    "get_default_device",
    "get_default_dtype",
    "get_deterministic_debug_mode",
    "get_device",
    "get_device_module",
    "get_float32_matmul_precision",
    "get_num_interop_threads",
    "get_num_threads",
    "get_rng_state",
    "gradient",
    "greater",
    "greater_equal",
    "group_norm",
    "gt",
    "half",
    "hamming_window",
    "hann_window",
    "hardshrink",
    "heaviside",
    "histc",
    "histogram",
    "histogramdd",
    "hsmm",
    "hsplit",
    "hspmm",
    "hstack",
    "hub",
    "hypot",
    "i0",
    "i0_",
    "igamma",
    "igammac",
    "iinfo",
    "imag",
    "index_add",
    "index_copy",
    "index_fill",
    "index_put",
    "index_put_",
    "index_reduce",
    "index_select",
    "inf",
    "inference_mode",
    "initial_seed",
    "inner",
    "int",
    "int1",
    "int16",
    "int2",
    "int3",
    "int32",
    "int4",
    "int5",
    "int6",
    "int64",
    "int7",
    "int8",
    "inverse",
    "is_anomaly_check_nan_enabled",
    "is_anomaly_enabled",
    "is_autocast_cache_enabled",
    "is_autocast_cpu_enabled",
    "is_autocast_enabled",
    "is_complex",
    "is_conj",
    "is_deterministic_algorithms_warn_only_enabled",
    "is_floating_point",
    "is_grad_enabled",
    "is_inference",
    "is_inference_mode_enabled",
    "is_nonzero",
    "is_signed",
    "is_storage",
    "is_tensor",
    "isclose",
    "isfinite",
    "isin",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "isreal",
    "istft",
    "jagged",
    "jit",
    "kaiser_window",
    "kron",
    "kthvalue",
    "layer_norm",
    "layout",
    "lcm",
    "lcm_",
    "ldexp",
    "ldexp_",
    "le",
    "legacy_contiguous_format",
    "lerp",
    "less",
    "less_equal",
    "lgamma",
    "library",
    "linalg",
    "linspace",
    "load",
    "load_file",
    "log",
    "log10",
    "log10_",
    "log1p",
    "log1p_",
    "log2",
    "log2_",
    "log_",
    "log_softmax",
    "logaddexp",
    "logaddexp2",
    "logcumsumexp",
    "logdet",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "logit",
    "logit_",
    "logspace",
    "logsumexp",
    "long",
    "lt",
    "lu",
    "lu_solve",
    "lu_unpack",
    "manual_seed",
    "masked",
    "masked_fill",
    "masked_scatter",
    "masked_select",
    "matmul",
    "matrix_exp",
    "matrix_power",
    "max",
    "max_pool1d",
    "max_pool1d_with_indices",
    "max_pool2d",
    "max_pool3d",
    "maximum",
    "mean",
    "median",
    "memory_format",
    "meshgrid",
    "min",
    "minimum",
    "mm",
    "mode",
    "moveaxis",
    "movedim",
    "mps",
    "msort",
    "mtia",
    "mul",
    "multinomial",
    "multiply",
    "multiprocessing",
    "mv",
    "mvlgamma",
    "nan",
    "nan_to_num",
    "nan_to_num_",
    "nanmean",
    "nanmedian",
    "nanquantile",
    "nansum",
    "narrow",
    "narrow_copy",
    "native_channel_shuffle",
    "ne",
    "neg",
    "neg_",
    "negative",
    "negative_",
    "newaxis",
    "nextafter",
    "nn",
    "no_grad",
    "nonzero",
    "nonzero_static",
    "norm",
    "normal",
    "not_equal",
    "nuclear_norm",
    "numel",
    "ones",
    "ones_like",
    "onnx",
    "ops",
    "optim",
    "orgqr",
    "outer",
    "overrides",
    "pairwise_distance",
    "parity",
    "pca_lowrank",
    "pdist",
    "permute",
    "pi",
    "pinverse",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson",
    "polar",
    "polygamma",
    "positive",
    "pow",
    "prelu",
    "preserve_format",
    "prod",
    "profiler",
    "promote_types",
    "put",
    "qr",
    "quantile",
    "rad2deg",
    "rad2deg_",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "random",
    "randperm",
    "ravel",
    "real",
    "reciprocal",
    "reciprocal_",
    "relu",
    "relu_",
    "remainder",
    "renorm",
    "repeat_interleave",
    "reshape",
    "resize_as_sparse_",
    "resolve_conj",
    "resolve_neg",
    "result_type",
    "return_types",
    "rms_norm",
    "roll",
    "rot90",
    "round",
    "round_",
    "row_stack",
    "rrelu",
    "rrelu_",
    "rsqrt",
    "rsqrt_",
    "rsub",
    "saddmm",
    "save",
    "save_file",
    "scalar_tensor",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "searchsorted",
    "seed",
    "segment_reduce",
    "select",
    "select_scatter",
    "selu",
    "selu_",
    "serialization",
    "set_autocast_cache_enabled",
    "set_autocast_cpu_dtype",
    "set_autocast_cpu_enabled",
    "set_autocast_dtype",
    "set_autocast_enabled",
    "set_autocast_gpu_dtype",
    "set_default_device",
    "set_default_dtype",
    "set_default_tensor_type",
    "set_deterministic_debug_mode",
    "set_float32_matmul_precision",
    "set_flush_denormal",
    "set_grad_enabled",
    "set_num_interop_threads",
    "set_num_threads",
    "set_printoptions",
    "set_rng_state",
    "sgn",
    "short",
    "sigmoid",
    "sigmoid_",
    "sign",
    "signal",
    "signbit",
    "sin",
    "sin_",
    "sinc",
    "sinc_",
    "sinh",
    "sinh_",
    "slice_scatter",
    "slogdet",
    "smm",
    "softmax",
    "sort",
    "sparse",
    "sparse_bsc",
    "sparse_bsc_tensor",
    "sparse_bsr",
    "sparse_bsr_tensor",
    "sparse_compressed_tensor",
    "sparse_coo",
    "sparse_coo_tensor",
    "sparse_csc",
    "sparse_csc_tensor",
    "sparse_csr",
    "sparse_csr_tensor",
    "special",
    "split",
    "split_with_sizes",
    "spmm",
    "sqrt",
    "sqrt_",
    "square",
    "square_",
    "squeeze",
    "sspaddmm",
    "stack",
    "std",
    "std_mean",
    "stft",
    "storage",
    "strided",
    "sub",
    "subtract",
    "sum",
    "svd",
    "svd_lowrank",
    "swapaxes",
    "swapdims",
    "sym_float",
    "sym_int",
    "sym_ite",
    "sym_max",
    "sym_min",
    "sym_not",
    "sym_sqrt",
    "sym_sum",
    "t",
    "take",
    "take_along_dim",
    "tan",
    "tan_",
    "tanh",
    "tanh_",
    "tensor",
    "tensor_split",
    "tensordot",
    "testing",
    "threshold",
    "threshold_",
    "tile",
    "to_dlpack",
    "topk",
    "trace",
    "transpose",
    "trapezoid",
    "trapz",
    "triangular_solve",
    "tril",
    "tril_indices",
    "triu",
    "triu_indices",
    "true_divide",
    "trunc",
    "trunc_",
    "typename",
    "types",
    "uint1",
    "uint16",
    "uint2",
    "uint3",
    "uint32",
    "uint4",
    "uint5",
    "uint6",
    "uint64",
    "uint7",
    "uint8",
    "unbind",
    "unflatten",
    "unique",
    "unique_consecutive",
    "unravel_index",
    "unsafe_chunk",
    "unsafe_split",
    "unsqueeze",
    "use_deterministic_algorithms",
    "utils",
    "var",
    "var_mean",
    "vdot",
    "version",
    "view_as_complex",
    "view_as_real",
    "vmap",
    "vsplit",
    "vstack",
    "where",
    "while_loop",
    "xlogy",
    "xlogy_",
    "xpu",
    "zero_",
    "zeros",
    "zeros_like",
]
