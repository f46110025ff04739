"""torch.nn.modules' names and import paths, for files that import layers, or their bases, from there.

In: nothing. Out: the names of `distcompile.nn`, and a module for each of torch's files: `nn.modules.conv._ConvNd`,
`nn.modules.batchnorm._BatchNorm`, ... with what our files of that matter hold.
"""

from __future__ import annotations

import importlib

from distcompile.nn import *  # noqa: F403
from distcompile.nn.state import EXTRA_STATE, IncompatibleKeys
from distcompile.surface.laid_out import lay_out

FILES: dict[str, str] = {
    "activation": "layers.activation layers.multihead_attention",
    "adaptive": "layers.adaptive",
    "batchnorm": "layers.batchnorm layers.sync_batchnorm layers.lazy_layers",
    "channelshuffle": "layers.upsampling",
    "container": "layers.containers layers.parameter_containers",
    "conv": "layers.conv layers.lazy_layers",
    "distance": "layers.distance",
    "dropout": "layers.dropout",
    "flatten": "layers.linear",
    "fold": "layers.upsampling",
    "instancenorm": "layers.instancenorm layers.lazy_layers",
    "lazy": "lazy",
    "linear": "layers.linear layers.lazy_layers",
    "loss": "layers.loss layers.margin_loss",
    "module": "module hooks",
    "normalization": "layers.normalization",
    "padding": "layers.padding",
    "pixelshuffle": "layers.upsampling",
    "pooling": "layers.pooling",
    "rnn": "layers.recurrent layers.recurrent_cells",
    "sparse": "layers.embedding",
    "transformer": "layers.transformer",
    "upsampling": "layers.upsampling",
}


globals().update(lay_out(__name__, "distcompile.nn", FILES))
vars(globals()["module"]).update(_EXTRA_STATE_KEY_SUFFIX=EXTRA_STATE, _IncompatibleKeys=IncompatibleKeys)
globals()["utils"] = importlib.import_module(f"{__name__}.utils")  # not nn.utils, which the star brought
