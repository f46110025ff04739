"""torch.nn.utils's names: gradient clipping, parameters as one vector, packed sequences (`rnn`).

In: parameters. Out: their gradients clipped; one flat tensor, and back.
"""

from __future__ import annotations

from typing import Any

from distcompile.nn.utils import rnn
from distcompile.nn.utils.clip_grad import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from distcompile.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters

_SUBMODULES = ("fusion", "init", "parametrizations", "parametrize", "prune", "stateless")
_LATE = {
    "weight_norm": "weight_normalization",
    "remove_weight_norm": "weight_normalization",
    "spectral_norm": "spectral_normalization",
    "remove_spectral_norm": "spectral_normalization",
    "skip_init": "init",
    "convert_conv2d_weight_memory_format": "memory_format",
    "convert_conv3d_weight_memory_format": "memory_format",
    "fuse_conv_bn_eval": "fusion",
    "fuse_conv_bn_weights": "fusion",
    "fuse_linear_bn_eval": "fusion",
    "fuse_linear_bn_weights": "fusion",
}


def __getattr__(name: str) -> Any:
    """What needs layers, which need this package: loaded at first use."""
    import importlib

    if name in _SUBMODULES:
        return importlib.import_module(f"distcompile.nn.utils.{name}")
    if name in _LATE:
        return getattr(importlib.import_module(f"distcompile.nn.utils.{_LATE[name]}"), name)
    raise AttributeError(f"module 'distcompile.nn.utils' has no attribute {name!r}")


def clip_grad_norm(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Any:
    """`clip_grad_norm_` under its older name, which warns, as torch does."""
    import warnings

    text = "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`."
    warnings.warn(text.replace("torch.", "distcompile."), FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "convert_conv2d_weight_memory_format",
    "convert_conv3d_weight_memory_format",
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
    "get_total_norm",
    "parameters_to_vector",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "skip_init",
    "spectral_norm",
    "vector_to_parameters",
    "weight_norm",
]
