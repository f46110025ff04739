"""The layers of torch.nn, and the containers. A kind of layer is a file, so they are over 25.

- `activation.py`: Activations as modules: each calls the function of `nn.functional` of (nearly) the same name.
- `adaptive.py`: AdaptiveLogSoftmaxWithLoss: log softmax over many classes, rare ones in clusters with small
  projections.
- `batchnorm.py`: Batch normalisation, with running statistics kept as buffers: BatchNorm1d, BatchNorm2d,
  BatchNorm3d.
- `containers.py`: Modules that hold modules: Sequential, ModuleList, ModuleDict.
- `conv.py`: Convolution layers: Conv1d, Conv2d, Conv3d and their transposes.
- `distance.py`: Distances and similarities of vectors as modules: CosineSimilarity, PairwiseDistance.
- `dropout.py`: Dropout: in training, zero elements (or whole channels) at random and scale the rest.
- `embedding.py`: Embedding and EmbeddingBag: a table of vectors looked up by integer, one by one or reduced in
  bags.
- `families.py`: Layers that torch has for one, two and three spatial dims: a family is one class, and each of its
  layers a line.
- `instancenorm.py`: Instance normalisation: InstanceNorm1d, InstanceNorm2d, InstanceNorm3d.
- `lazy_layers.py`: The layers of torch that find their input's size themselves: LazyLinear, LazyConv*,
  LazyBatchNorm*.
- `linear.py`: Dense layers (Linear, Bilinear, Identity) and the layers that only reshape (Flatten, Unflatten).
- `loss.py`: Losses as modules: each calls the function of `nn.functional` of the same name.
- `margin_loss.py`: Losses on pairs, triplets, margins, likelihoods and label sequences: modules that call functions
  of `nn.functional`.
- `multihead_attention.py`: MultiheadAttention, with torch's parameters (state dict keys) and its two mask
  arguments.
- `normalization.py`: Normalisation layers without running statistics: LayerNorm, RMSNorm, GroupNorm, local response
  norms.
- `padded_rows.py`: Padded positions of a TransformerEncoder, which torch leaves out in evaluation: it packs what is
  not padded, and fills the result with zeros.
- `padding.py`: Padding as layers: constant, zero, reflected, replicated and circular, in one to three dimensions.
- `parameter_containers.py`: Modules that hold parameters: ParameterList, ParameterDict.
- `pooling.py`: Pooling layers: maximum, average, LP, adaptive; and MaxUnpool, which undoes the first.
- `recurrent.py`: Recurrent layers RNN, LSTM and GRU: layers, directions, dropout, packed sequences; parameters and
  results as torch's.
- `recurrent_cells.py`: Recurrent layers of one step: RNNCell, LSTMCell, GRUCell, with torch's parameters.
- `sync_batchnorm.py`: SyncBatchNorm: batch normalisation whose statistics are those of all ranks' batches together.
- `transformer.py`: Transformer encoder and decoder layers and stacks, with torch's names, arguments and state dict
  keys.
- `upsampling.py`: Layers that resize or rearrange: Upsample and its kin, PixelShuffle, PixelUnshuffle,
  ChannelShuffle, Fold, Unfold.
"""

from __future__ import annotations

from compiler_core.names.namespaces import classes_in
from distcompile.nn.layers import (  # noqa: F401  looked through below
    activation,
    adaptive,
    batchnorm,
    containers,
    conv,
    distance,
    dropout,
    embedding,
    instancenorm,
    lazy_layers,
    linear,
    loss,
    margin_loss,
    multihead_attention,
    normalization,
    padding,
    parameter_containers,
    pooling,
    recurrent,
    recurrent_cells,
    sync_batchnorm,
    transformer,
    upsampling,
)
from distcompile.nn.module import Module

# every layer that is public, in torch's name: a class of one of these files, without a leading underscore
LAYERS = classes_in(vars().values(), Module)
