"""torch.nn.modules' names and import paths, for files that import layers, or their bases, from there.

In: nothing. Out: the names of `distcompile.nn`, and a module for each of torch's files: `nn.modules.conv._ConvNd`,
`nn.modules.batchnorm._BatchNorm`, ... with what our files of that matter hold.
"""

from __future__ import annotations

import importlib

from distcompile.laid_out import lay_out
from distcompile.nn import *  # noqa: F403
from distcompile.nn.state import EXTRA_STATE, IncompatibleKeys

FILES: dict[str, str] = {
    "activation": "activation multihead_attention",
    "adaptive": "adaptive",
    "batchnorm": "batchnorm sync_batchnorm lazy_layers",
    "channelshuffle": "upsampling",
    "container": "containers parameter_containers",
    "conv": "conv lazy_layers",
    "distance": "distance",
    "dropout": "dropout",
    "flatten": "linear",
    "fold": "upsampling",
    "instancenorm": "instancenorm lazy_layers",
    "lazy": "lazy",
    "linear": "linear lazy_layers",
    "loss": "loss margin_loss",
    "module": "module hooks",
    "normalization": "normalization",
    "padding": "padding",
    "pixelshuffle": "upsampling",
    "pooling": "pooling",
    "rnn": "recurrent recurrent_cells",
    "sparse": "embedding",
    "transformer": "transformer",
    "upsampling": "upsampling",
}


globals().update(lay_out(__name__, "distcompile.nn", FILES))
globals()["batchnorm"]._NormBase = globals()["batchnorm"].NormBase
vars(globals()["module"]).update(_EXTRA_STATE_KEY_SUFFIX=EXTRA_STATE, _IncompatibleKeys=IncompatibleKeys)
globals()["utils"] = importlib.import_module(f"{__name__}.utils")  # not nn.utils, which the star brought
