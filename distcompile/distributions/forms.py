"""torch.distributions.utils: parameters in their forms: broadcast, as probabilities or logits, as triangles or vectors.

In: Tensors, numbers. Out: Tensors. `lazy_property`: an attribute that is computed once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import distcompile as dc
import distcompile.nn.functional as F
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]

euler_constant = 0.57721566490153286060


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Numbers and Tensors as Tensors of one shape; numbers in the first Tensor's dtype, and on its device.

    Raises ArgumentError (a ValueError) for anything else.
    """
    if not all(isinstance(value, Tensor | int | float) for value in values):
        raise ArgumentError("Input arguments must all be instances of Number, torch.Tensor or objects implementing "
                            "__torch_function__.")  # fmt: skip
    tensors = [value for value in values if isinstance(value, Tensor)]
    dtype = tensors[0].dtype if tensors else dc.get_default_dtype()
    place = tensors[0].device if tensors else None
    made = [v if isinstance(v, Tensor) else dc.tensor(float(v), dtype=dtype, device=place) for v in values]
    return tuple(dc.broadcast_tensors(*made))


def standard_normal(shape: Sequence[int], dtype: Any, device: Any) -> Tensor:
    """Normal draws of a shape."""
    return dc.empty(tuple(shape), dtype=dtype, device=device).normal_()


def sum_rightmost(value: Tensor, dim: int) -> Tensor:
    """`value` summed over its last `dim` dims."""
    return value.sum(tuple(range(-dim, 0))) if dim else value


def clamp_probs(probs: Tensor) -> Tensor:
    """Away from 0 and 1 by the dtype's epsilon."""
    eps = dc.finfo(probs.dtype).eps
    return probs.clamp(eps, 1 - eps)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities of log odds, or of the logarithms of weights of classes along the last dim."""
    return logits.sigmoid() if is_binary else F.softmax(logits, dim=-1)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Log odds of probabilities; of classes', logarithms."""
    inner = clamp_probs(probs)
    return inner.log() - (-inner).log1p() if is_binary else inner.log()


class lazy_property:
    """A method that is called at the first use of its name, with gradients recorded; what it gives is kept."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        functools.update_wrapper(self, wrapped)  # type: ignore[arg-type]

    def __get__(self, instance: Any, obj_type: Any = None) -> Any:
        if instance is None:
            return _OfClass(self.wrapped)
        with dc.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


class _OfClass(lazy_property, property):
    """What a class has under the name of a lazy property."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        property.__init__(self, wrapped)


def _lower(n: int, diag: int, device: Any) -> Tensor:
    """bool[n, n]: up to the diagonal `diag`."""
    place = dc.arange(n, device=device)
    return place < place.view(-1, 1) + (diag + 1)


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """T[..., n, n] -> T[..., k]: entries up to the diagonal `diag`, by rows. Raises ArgumentError (a ValueError)."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ArgumentError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    return mat[..., _lower(n, diag, mat.device)]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """T[..., k] -> T[..., n, n], the inverse of `tril_matrix_to_vec`. Raises ArgumentError (a ValueError)."""
    root = math.sqrt((1 + 2 * diag) ** 2 + 8 * vec.shape[-1] + 4 * abs(diag) * (diag + 1))
    n = round((root - (1 + 2 * diag)) / 2)
    if int(_lower(n, diag, None).sum()) != vec.shape[-1]:
        raise ArgumentError(
            f"The size of last dimension is {vec.shape[-1]} which cannot be expressed as the lower triangular part of "
            "a square D x D matrix."
        )
    matrix = vec.new_zeros((*vec.shape[:-1], n, n))
    matrix[..., _lower(n, diag, vec.device)] = vec
    return matrix


_standard_normal, _sum_rightmost = standard_normal, sum_rightmost
