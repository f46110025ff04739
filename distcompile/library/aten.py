"""torch.ops.aten: torch's own operators by their internal names, as far as they are here.

In: names. Out: packets of overloads. An operator is the public function of its name, called as it
stands: torch's functions take the arguments of its operators in the same order. Those that do not, and those that have
no public name, are below. Of other names (aten_names.py has those that are known to agree) and overloads one can speak,
as libraries do in tables; a call is a NotSupportedError. Limit: an overload does not refuse what another one takes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import distcompile as dc
from compiler_core.capture import policy
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import NotSupportedError
from distcompile.library.aten_names import OVERLOADS
from distcompile.library.namespaces import OpNamespace, ops
from distcompile.library.operators import OpOverload, OpOverloadPacket, Registered

Function = Callable[..., Any]


class AtenNamespace(OpNamespace):
    """torch.ops.aten: any name is an operator's."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = vars(self)[name] = AtenPacket(f"aten::{name}")
        return found


class AtenPacket(OpOverloadPacket):
    """torch.ops.aten.name: its overloads are one function."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = vars(self)[name] = OpOverload(self, name, _refuse, None, Registered())
        return found

    def pick(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OpOverload:
        return next(iter(self._overloads.values()), None) or self.default


def _call(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if "self" in kwargs:
        args, kwargs = (kwargs["self"], *args), {name: value for name, value in kwargs.items() if name != "self"}
    return function_of(op._opname)(*args, **kwargs)


def _refuse(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    raise NotSupportedError(f"torch.ops.{op} is not offered", remedy="call the public function that it is beneath")


@cache
def function_of(name: str) -> Any:
    """The function that is `torch.ops.aten.name`. Raises AttributeError if there is none."""
    found: Any = _OWN.get(name)
    if found is not None:
        return found
    for module in ("linalg", "special", "fft"):
        if name.startswith(f"{module}_"):
            found = getattr(getattr(dc, module), name.removeprefix(f"{module}_"), None)
    for holder in (dc, Tensor, dc.nn.functional) if found is None else ():
        found = found or getattr(holder, name, None)
    if found is None and name.endswith("_copy"):
        view = function_of(name.removesuffix("_copy"))
        return lambda *args, **kwargs: _copied(view(*args, **kwargs))
    if found is None:
        raise AttributeError(name)
    return found


def _copied(views: Any) -> Any:
    return views.clone() if isinstance(views, Tensor) else [one.clone() for one in views]


# ---- those of another signature, or without a public name


def _slice(self: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    return self[(slice(None),) * (dim % self.ndim) + (slice(start, end, step),)]


def _index(self: Tensor, indices: list[Tensor | None]) -> Any:
    return self[tuple(slice(None) if one is None else one for one in indices)]


def _converted(self: Tensor, *, dtype: Any = None, device: Any = None, **how: Any) -> Any:
    if how.pop("layout", None) not in (None, dc.strided) or how.pop("pin_memory", None):
        raise NotSupportedError("aten._to_copy makes plain tensors", got="layout or pin_memory")
    return self.to(device or self.device, dtype or self.dtype, copy=True, **how)


def _softmax(self: Tensor, dim: int, half_to_float: bool) -> Any:
    return dc.softmax(self, dim, dtype=dc.float32 if half_to_float else None)


def _log_softmax(self: Tensor, dim: int, half_to_float: bool) -> Any:
    return dc.log_softmax(self, dim, dtype=dc.float32 if half_to_float else None)


def _convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: list[int], padding: list[int], dilation: list[int],
    transposed: bool, output_padding: list[int], groups: int,
) -> Any:  # fmt: skip
    name = f"conv{'_transpose' * transposed}{weight.ndim - 2}d"
    how = {"output_padding": output_padding} if transposed else {}
    convolve: Function = getattr(dc.nn.functional, name)
    return convolve(input, weight, bias, stride, padding, groups=groups, dilation=dilation, **how)


def _embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Any:
    row = padding_idx if padding_idx >= 0 else None
    return dc.nn.functional.embedding(indices, weight, row, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


def _layer_norm(
    input: Tensor, normalized_shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Any, Any, Any]:
    dims = list(range(-len(normalized_shape), 0))
    variance, mean = dc.var_mean(input, dims, correction=0, keepdim=True)
    return dc.nn.functional.layer_norm(input, normalized_shape, weight, bias, eps), mean, dc.rsqrt(variance + eps)


def _loss(name: str, parameters: str = "reduction") -> Function:
    """A loss whose reduction is a number. parameters: those after the target, in the operator's order."""

    def call(self: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Any:
        given = dict(zip(parameters.split(), args, strict=False)) | kwargs
        given["reduction"] = ("none", "mean", "sum")[given.get("reduction", 1)]
        loss: Function = getattr(dc.nn.functional, name)
        return loss(self, target, **given)

    return call


_OWN: dict[str, Function] = {
    "slice": _slice,
    "index": _index,
    "_to_copy": _converted,
    "_softmax": _softmax,
    "_log_softmax": _log_softmax,
    "convolution": _convolution,
    "native_layer_norm": _layer_norm,
    "alias": lambda self: self.view(self.shape),
    "lift_fresh": lambda self: self,
    "_unsafe_view": lambda self, size: self.view(size),
    "_local_scalar_dense": lambda self: self.item(),
    "sym_size": lambda self, dim=None: self.size(dim),
    "sym_numel": lambda self: self.numel(),
    "sym_stride": lambda self, dim=None: self.stride(dim),
    "embedding": _embedding,
    "tensordot": lambda self, other, dims_self, dims_other: dc.tensordot(self, other, (dims_self, dims_other)),
    "broadcast_tensors": lambda tensors: list(dc.broadcast_tensors(*tensors)),
    "sigmoid_backward": lambda grad_output, output: grad_output * (1 - output) * output,
    "tanh_backward": lambda grad_output, output: grad_output * (1 - output * output),
    "threshold_backward": lambda grad_output, self, threshold: dc.where(self <= threshold, 0, grad_output),
    "mse_loss": _loss("mse_loss"),
    "l1_loss": _loss("l1_loss"),
    "huber_loss": _loss("huber_loss", "reduction delta"),
    "smooth_l1_loss": _loss("smooth_l1_loss", "reduction beta"),
    "binary_cross_entropy": _loss("binary_cross_entropy", "weight reduction"),
    "nll_loss": _loss("nll_loss", "weight reduction ignore_index"),
}


# all at once: what is there at capture is read, what is made there would break the graph
vars(ops)["aten"] = _aten = AtenNamespace("aten")
for _name, _overloads in OVERLOADS.items():
    vars(_aten)[_name] = _packet = AtenPacket(f"aten::{_name}")
    for _overload in _overloads:
        _packet.add(OpOverload(_packet, _overload, _call, None, Registered()))

policy.say(AtenPacket.pick, policy.ENTER)
