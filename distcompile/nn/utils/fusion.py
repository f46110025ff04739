"""Batch norm folded into the layer before it, for evaluation. torch's names.

In: a convolution or Linear and a batch norm, both in evaluation mode. Out: one layer that computes both.
"""

from __future__ import annotations

import copy
from typing import TypeVar

from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError
from distcompile.nn.layers.batchnorm import _BatchNorm
from distcompile.nn.layers.linear import Linear
from distcompile.nn.module import Module
from distcompile.nn.parameter import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]

M = TypeVar("M", bound=Module)


def _folded(
    weight: Tensor,
    bias: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    dim: int,
) -> tuple[Parameter, Parameter]:
    scale = (bn_rv + bn_eps).rsqrt() if bn_w is None else bn_w * (bn_rv + bn_eps).rsqrt()
    shift = -bn_rm if bias is None else bias - bn_rm
    shift = shift * scale if bn_b is None else shift * scale + bn_b
    shape = [-1 if d == dim else 1 for d in range(weight.dim())]
    folded = (weight * scale.reshape(shape)).detach().to(weight.dtype)
    kept = weight.requires_grad
    return Parameter(folded, kept), Parameter(
        shift.detach().to(weight.dtype), kept if bias is None else bias.requires_grad
    )


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """(weight, bias) of a convolution followed by a batch norm. transpose: channels are the weight's dimension 1."""
    return _folded(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 1 if transpose else 0)


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor,
    bn_b: Tensor,
) -> tuple[Parameter, Parameter]:
    """(weight, bias) of a Linear followed by a batch norm."""
    return _folded(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 0)


def _fuse(layer: M, bn: Module, transpose: bool) -> M:
    if layer.training or bn.training:
        raise ArgumentError("Fusion only for eval!")
    if not isinstance(bn, _BatchNorm) or bn.running_mean is None or bn.running_var is None:
        raise ArgumentError("fusion needs a batch norm with running statistics", got=type(bn).__name__)
    fused = copy.deepcopy(layer)
    statistics = (bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    weight, bias = fuse_conv_bn_weights(fused.weight, fused.bias, *statistics, transpose)
    fused.weight = weight
    fused.register_parameter("bias", bias)
    return fused


def fuse_conv_bn_eval(conv: M, bn: Module, transpose: bool = False) -> M:
    """A copy of `conv` that also does what `bn` does. Raises ArgumentError unless both are in evaluation mode."""
    return _fuse(conv, bn, transpose)


def fuse_linear_bn_eval(linear: Linear, bn: Module) -> Linear:
    """A copy of `linear` that also does what `bn` does. Raises ArgumentError unless both are in evaluation mode."""
    if isinstance(bn, _BatchNorm) and linear.out_features != bn.num_features and bn.num_features != 1:
        raise ArgumentError("To fuse, linear.out_features == bn.num_features or bn.num_features == 1")
    return _fuse(linear, bn, False)
