"""Written by tests/test_stubs.py from what the namespace holds: see there."""

# ruff: noqa
# fmt: off

from distcompile.nn import attention as attention
from distcompile.nn import functional as functional
from distcompile.nn import init as init
from distcompile.nn import modules as modules
from distcompile.nn import parallel as parallel
from distcompile.nn import utils as utils
from distcompile.nn.layers.activation import CELU as CELU
from distcompile.nn.layers.activation import ELU as ELU
from distcompile.nn.layers.activation import GELU as GELU
from distcompile.nn.layers.activation import GLU as GLU
from distcompile.nn.layers.activation import Hardshrink as Hardshrink
from distcompile.nn.layers.activation import Hardsigmoid as Hardsigmoid
from distcompile.nn.layers.activation import Hardswish as Hardswish
from distcompile.nn.layers.activation import Hardtanh as Hardtanh
from distcompile.nn.layers.activation import LeakyReLU as LeakyReLU
from distcompile.nn.layers.activation import LogSigmoid as LogSigmoid
from distcompile.nn.layers.activation import LogSoftmax as LogSoftmax
from distcompile.nn.layers.activation import Mish as Mish
from distcompile.nn.layers.activation import PReLU as PReLU
from distcompile.nn.layers.activation import RReLU as RReLU
from distcompile.nn.layers.activation import ReLU as ReLU
from distcompile.nn.layers.activation import ReLU6 as ReLU6
from distcompile.nn.layers.activation import SELU as SELU
from distcompile.nn.layers.activation import SiLU as SiLU
from distcompile.nn.layers.activation import Sigmoid as Sigmoid
from distcompile.nn.layers.activation import Softmax as Softmax
from distcompile.nn.layers.activation import Softmax2d as Softmax2d
from distcompile.nn.layers.activation import Softmin as Softmin
from distcompile.nn.layers.activation import Softplus as Softplus
from distcompile.nn.layers.activation import Softshrink as Softshrink
from distcompile.nn.layers.activation import Softsign as Softsign
from distcompile.nn.layers.activation import Tanh as Tanh
from distcompile.nn.layers.activation import Tanhshrink as Tanhshrink
from distcompile.nn.layers.activation import Threshold as Threshold
from distcompile.nn.layers.adaptive import AdaptiveLogSoftmaxWithLoss as AdaptiveLogSoftmaxWithLoss
from distcompile.nn.layers.batchnorm import BatchNorm1d as BatchNorm1d
from distcompile.nn.layers.batchnorm import BatchNorm2d as BatchNorm2d
from distcompile.nn.layers.batchnorm import BatchNorm3d as BatchNorm3d
from distcompile.nn.layers.containers import ModuleDict as ModuleDict
from distcompile.nn.layers.containers import ModuleList as ModuleList
from distcompile.nn.layers.containers import Sequential as Sequential
from distcompile.nn.layers.conv import Conv1d as Conv1d
from distcompile.nn.layers.conv import Conv2d as Conv2d
from distcompile.nn.layers.conv import Conv3d as Conv3d
from distcompile.nn.layers.conv import ConvTranspose1d as ConvTranspose1d
from distcompile.nn.layers.conv import ConvTranspose2d as ConvTranspose2d
from distcompile.nn.layers.conv import ConvTranspose3d as ConvTranspose3d
from distcompile.nn.layers.distance import CosineSimilarity as CosineSimilarity
from distcompile.nn.layers.distance import PairwiseDistance as PairwiseDistance
from distcompile.nn.layers.dropout import AlphaDropout as AlphaDropout
from distcompile.nn.layers.dropout import Dropout as Dropout
from distcompile.nn.layers.dropout import Dropout1d as Dropout1d
from distcompile.nn.layers.dropout import Dropout2d as Dropout2d
from distcompile.nn.layers.dropout import Dropout3d as Dropout3d
from distcompile.nn.layers.dropout import FeatureAlphaDropout as FeatureAlphaDropout
from distcompile.nn.layers.embedding import Embedding as Embedding
from distcompile.nn.layers.embedding import EmbeddingBag as EmbeddingBag
from distcompile.nn.layers.instancenorm import InstanceNorm1d as InstanceNorm1d
from distcompile.nn.layers.instancenorm import InstanceNorm2d as InstanceNorm2d
from distcompile.nn.layers.instancenorm import InstanceNorm3d as InstanceNorm3d
from distcompile.nn.layers.lazy_layers import LazyBatchNorm1d as LazyBatchNorm1d
from distcompile.nn.layers.lazy_layers import LazyBatchNorm2d as LazyBatchNorm2d
from distcompile.nn.layers.lazy_layers import LazyBatchNorm3d as LazyBatchNorm3d
from distcompile.nn.layers.lazy_layers import LazyConv1d as LazyConv1d
from distcompile.nn.layers.lazy_layers import LazyConv2d as LazyConv2d
from distcompile.nn.layers.lazy_layers import LazyConv3d as LazyConv3d
from distcompile.nn.layers.lazy_layers import LazyConvTranspose1d as LazyConvTranspose1d
from distcompile.nn.layers.lazy_layers import LazyConvTranspose2d as LazyConvTranspose2d
from distcompile.nn.layers.lazy_layers import LazyConvTranspose3d as LazyConvTranspose3d
from distcompile.nn.layers.lazy_layers import LazyInstanceNorm1d as LazyInstanceNorm1d
from distcompile.nn.layers.lazy_layers import LazyInstanceNorm2d as LazyInstanceNorm2d
from distcompile.nn.layers.lazy_layers import LazyInstanceNorm3d as LazyInstanceNorm3d
from distcompile.nn.layers.lazy_layers import LazyLinear as LazyLinear
from distcompile.nn.layers.linear import Bilinear as Bilinear
from distcompile.nn.layers.linear import Flatten as Flatten
from distcompile.nn.layers.linear import Identity as Identity
from distcompile.nn.layers.linear import Linear as Linear
from distcompile.nn.layers.linear import Unflatten as Unflatten
from distcompile.nn.layers.loss import BCELoss as BCELoss
from distcompile.nn.layers.loss import BCEWithLogitsLoss as BCEWithLogitsLoss
from distcompile.nn.layers.loss import CrossEntropyLoss as CrossEntropyLoss
from distcompile.nn.layers.loss import HuberLoss as HuberLoss
from distcompile.nn.layers.loss import KLDivLoss as KLDivLoss
from distcompile.nn.layers.loss import L1Loss as L1Loss
from distcompile.nn.layers.loss import MSELoss as MSELoss
from distcompile.nn.layers.loss import NLLLoss as NLLLoss
from distcompile.nn.layers.loss import SmoothL1Loss as SmoothL1Loss
from distcompile.nn.layers.margin_loss import CTCLoss as CTCLoss
from distcompile.nn.layers.margin_loss import CosineEmbeddingLoss as CosineEmbeddingLoss
from distcompile.nn.layers.margin_loss import GaussianNLLLoss as GaussianNLLLoss
from distcompile.nn.layers.margin_loss import HingeEmbeddingLoss as HingeEmbeddingLoss
from distcompile.nn.layers.margin_loss import LinearCrossEntropyLoss as LinearCrossEntropyLoss
from distcompile.nn.layers.margin_loss import MarginRankingLoss as MarginRankingLoss
from distcompile.nn.layers.margin_loss import MultiLabelMarginLoss as MultiLabelMarginLoss
from distcompile.nn.layers.margin_loss import MultiLabelSoftMarginLoss as MultiLabelSoftMarginLoss
from distcompile.nn.layers.margin_loss import MultiMarginLoss as MultiMarginLoss
from distcompile.nn.layers.margin_loss import PoissonNLLLoss as PoissonNLLLoss
from distcompile.nn.layers.margin_loss import SoftMarginLoss as SoftMarginLoss
from distcompile.nn.layers.margin_loss import TripletMarginLoss as TripletMarginLoss
from distcompile.nn.layers.margin_loss import TripletMarginWithDistanceLoss as TripletMarginWithDistanceLoss
from distcompile.nn.layers.multihead_attention import MultiheadAttention as MultiheadAttention
from distcompile.nn.layers.normalization import CrossMapLRN2d as CrossMapLRN2d
from distcompile.nn.layers.normalization import GroupNorm as GroupNorm
from distcompile.nn.layers.normalization import LayerNorm as LayerNorm
from distcompile.nn.layers.normalization import LocalResponseNorm as LocalResponseNorm
from distcompile.nn.layers.normalization import RMSNorm as RMSNorm
from distcompile.nn.layers.padding import CircularPad1d as CircularPad1d
from distcompile.nn.layers.padding import CircularPad2d as CircularPad2d
from distcompile.nn.layers.padding import CircularPad3d as CircularPad3d
from distcompile.nn.layers.padding import ConstantPad1d as ConstantPad1d
from distcompile.nn.layers.padding import ConstantPad2d as ConstantPad2d
from distcompile.nn.layers.padding import ConstantPad3d as ConstantPad3d
from distcompile.nn.layers.padding import ReflectionPad1d as ReflectionPad1d
from distcompile.nn.layers.padding import ReflectionPad2d as ReflectionPad2d
from distcompile.nn.layers.padding import ReflectionPad3d as ReflectionPad3d
from distcompile.nn.layers.padding import ReplicationPad1d as ReplicationPad1d
from distcompile.nn.layers.padding import ReplicationPad2d as ReplicationPad2d
from distcompile.nn.layers.padding import ReplicationPad3d as ReplicationPad3d
from distcompile.nn.layers.padding import ZeroPad1d as ZeroPad1d
from distcompile.nn.layers.padding import ZeroPad2d as ZeroPad2d
from distcompile.nn.layers.padding import ZeroPad3d as ZeroPad3d
from distcompile.nn.layers.parameter_containers import ParameterDict as ParameterDict
from distcompile.nn.layers.parameter_containers import ParameterList as ParameterList
from distcompile.nn.layers.pooling import AdaptiveAvgPool1d as AdaptiveAvgPool1d
from distcompile.nn.layers.pooling import AdaptiveAvgPool2d as AdaptiveAvgPool2d
from distcompile.nn.layers.pooling import AdaptiveAvgPool3d as AdaptiveAvgPool3d
from distcompile.nn.layers.pooling import AdaptiveMaxPool1d as AdaptiveMaxPool1d
from distcompile.nn.layers.pooling import AdaptiveMaxPool2d as AdaptiveMaxPool2d
from distcompile.nn.layers.pooling import AdaptiveMaxPool3d as AdaptiveMaxPool3d
from distcompile.nn.layers.pooling import AvgPool1d as AvgPool1d
from distcompile.nn.layers.pooling import AvgPool2d as AvgPool2d
from distcompile.nn.layers.pooling import AvgPool3d as AvgPool3d
from distcompile.nn.layers.pooling import FractionalMaxPool2d as FractionalMaxPool2d
from distcompile.nn.layers.pooling import FractionalMaxPool3d as FractionalMaxPool3d
from distcompile.nn.layers.pooling import LPPool1d as LPPool1d
from distcompile.nn.layers.pooling import LPPool2d as LPPool2d
from distcompile.nn.layers.pooling import LPPool3d as LPPool3d
from distcompile.nn.layers.pooling import MaxPool1d as MaxPool1d
from distcompile.nn.layers.pooling import MaxPool2d as MaxPool2d
from distcompile.nn.layers.pooling import MaxPool3d as MaxPool3d
from distcompile.nn.layers.pooling import MaxUnpool1d as MaxUnpool1d
from distcompile.nn.layers.pooling import MaxUnpool2d as MaxUnpool2d
from distcompile.nn.layers.pooling import MaxUnpool3d as MaxUnpool3d
from distcompile.nn.layers.recurrent import GRU as GRU
from distcompile.nn.layers.recurrent import LSTM as LSTM
from distcompile.nn.layers.recurrent import RNN as RNN
from distcompile.nn.layers.recurrent import RNNBase as RNNBase
from distcompile.nn.layers.recurrent_cells import GRUCell as GRUCell
from distcompile.nn.layers.recurrent_cells import LSTMCell as LSTMCell
from distcompile.nn.layers.recurrent_cells import RNNCell as RNNCell
from distcompile.nn.layers.recurrent_cells import RNNCellBase as RNNCellBase
from distcompile.nn.layers.sync_batchnorm import SyncBatchNorm as SyncBatchNorm
from distcompile.nn.layers.transformer import Transformer as Transformer
from distcompile.nn.layers.transformer import TransformerDecoder as TransformerDecoder
from distcompile.nn.layers.transformer import TransformerDecoderLayer as TransformerDecoderLayer
from distcompile.nn.layers.transformer import TransformerEncoder as TransformerEncoder
from distcompile.nn.layers.transformer import TransformerEncoderLayer as TransformerEncoderLayer
from distcompile.nn.layers.upsampling import ChannelShuffle as ChannelShuffle
from distcompile.nn.layers.upsampling import Fold as Fold
from distcompile.nn.layers.upsampling import PixelShuffle as PixelShuffle
from distcompile.nn.layers.upsampling import PixelUnshuffle as PixelUnshuffle
from distcompile.nn.layers.upsampling import Unfold as Unfold
from distcompile.nn.layers.upsampling import Upsample as Upsample
from distcompile.nn.layers.upsampling import UpsamplingBilinear2d as UpsamplingBilinear2d
from distcompile.nn.layers.upsampling import UpsamplingNearest2d as UpsamplingNearest2d
from distcompile.nn.lazy import UninitializedBuffer as UninitializedBuffer
from distcompile.nn.lazy import UninitializedParameter as UninitializedParameter
from distcompile.nn.module import Module as Module
from distcompile.nn.parallel.data_parallel import DataParallel as DataParallel
from distcompile.nn.parameter import Buffer as Buffer
from distcompile.nn.parameter import Parameter as Parameter

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveLogSoftmaxWithLoss",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AlphaDropout",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "BCELoss",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Bilinear",
    "Buffer",
    "CELU",
    "CTCLoss",
    "ChannelShuffle",
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "CosineEmbeddingLoss",
    "CosineSimilarity",
    "CrossEntropyLoss",
    "CrossMapLRN2d",
    "DataParallel",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "ELU",
    "Embedding",
    "EmbeddingBag",
    "FeatureAlphaDropout",
    "Flatten",
    "Fold",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "GELU",
    "GLU",
    "GRU",
    "GRUCell",
    "GaussianNLLLoss",
    "GroupNorm",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "HingeEmbeddingLoss",
    "HuberLoss",
    "Identity",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "KLDivLoss",
    "L1Loss",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "LSTM",
    "LSTMCell",
    "LayerNorm",
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
    "LazyLinear",
    "LeakyReLU",
    "Linear",
    "LinearCrossEntropyLoss",
    "LocalResponseNorm",
    "LogSigmoid",
    "LogSoftmax",
    "MSELoss",
    "MarginRankingLoss",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
    "Mish",
    "Module",
    "ModuleDict",
    "ModuleList",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "MultiheadAttention",
    "NLLLoss",
    "PReLU",
    "PairwiseDistance",
    "Parameter",
    "ParameterDict",
    "ParameterList",
    "PixelShuffle",
    "PixelUnshuffle",
    "PoissonNLLLoss",
    "RMSNorm",
    "RNN",
    "RNNBase",
    "RNNCell",
    "RNNCellBase",
    "RReLU",
    "ReLU",
    "ReLU6",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "SELU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "Softmax",
    "Softmax2d",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "SyncBatchNorm",
    "Tanh",
    "Tanhshrink",
    "Threshold",
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
    "Unflatten",
    "Unfold",
    "UninitializedBuffer",
    "UninitializedParameter",
    "Upsample",
    "UpsamplingBilinear2d",
    "UpsamplingNearest2d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
    "attention",
    "functional",
    "init",
    "modules",
    "parallel",
    "utils",
]
