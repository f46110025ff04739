"""All parameters as one flat vector, and back.

In: parameters in some order. Out: f[total elements], a copy; or the parameters, which lie in the vector's memory
afterwards, as torch's do.
"""

from __future__ import annotations

from collections.abc import Iterable

from compiler_core.ops import functional as C
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError, RegistrationTypeError


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The parameters' elements, one after the other. Differentiable."""
    return C.cat([parameter.reshape(-1) for parameter in parameters])  # type: ignore[no-any-return]


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Make the parameters consecutive slices of `vec`, in its memory and of its dtype: what is written to one shows in
    the other. Raises ArgumentError if vec is too short."""
    if not isinstance(vec, Tensor):
        raise RegistrationTypeError(f"expected a Tensor, but got: {type(vec).__name__}")
    start = 0
    for parameter in parameters:
        end = start + parameter.numel()
        if end > vec.numel():
            raise ArgumentError(
                "the vector is shorter than the parameters", expected=f"at least {end}", got=str(vec.numel())
            )
        parameter.data = vec[start:end].view_as(parameter).detach()
        start = end
