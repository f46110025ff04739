"""torch.nn.modules' names and import paths, for files that import layers, or their bases, from there.

In: nothing. Out: the names of `distcompile.nn`, and a module for each of torch's files: `nn.modules.conv._ConvNd`,
`nn.modules.batchnorm._BatchNorm`, ... with what our files of that matter hold.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

from distcompile.nn import *  # noqa: F403
from distcompile.nn.state import EXTRA_STATE

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


def _gathered(name: str, sources: str) -> ModuleType:
    """A module with the names of several of ours, the first's before the others'."""
    module = ModuleType(f"{__name__}.{name}", f"torch.nn.modules.{name}'s names.")
    for source in reversed(sources.split()):
        held = vars(importlib.import_module(f"distcompile.nn.{source}"))
        vars(module).update({key: value for key, value in held.items() if not key.startswith("__")})
    module.__spec__ = ModuleSpec(module.__name__, None)  # so that importlib finds it
    if name == "batchnorm":
        vars(module)["_NormBase"] = module.NormBase
    if name == "module":
        vars(module)["_EXTRA_STATE_KEY_SUFFIX"] = EXTRA_STATE
    return module


for _name, _sources in FILES.items():
    globals()[_name] = sys.modules[f"{__name__}.{_name}"] = _gathered(_name, _sources)
globals()["utils"] = importlib.import_module(f"{__name__}.utils")  # not nn.utils, which the star brought
