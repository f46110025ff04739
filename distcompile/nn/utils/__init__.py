"""torch.nn.utils's names: gradient clipping, parameters as one vector, packed sequences (`rnn`).

In: parameters. Out: their gradients clipped; one flat tensor, and back.
"""

from __future__ import annotations

from typing import Any

from distcompile.nn.utils import rnn
from distcompile.nn.utils.clip_grad import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from distcompile.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters


def __getattr__(name: str) -> Any:
    """The submodules that need layers, which need this package: loaded at first use."""
    if name in ("fusion", "parametrizations", "parametrize"):
        import importlib

        return importlib.import_module(f"distcompile.nn.utils.{name}")
    if name in ("weight_norm", "remove_weight_norm"):
        import importlib

        return getattr(importlib.import_module("distcompile.nn.utils.weight_normalization"), name)
    raise AttributeError(f"module 'distcompile.nn.utils' has no attribute {name!r}")


__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "get_total_norm",
    "parameters_to_vector",
    "rnn",
    "vector_to_parameters",
]
