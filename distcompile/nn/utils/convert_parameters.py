"""All parameters as one flat vector, and back.

In: parameters in some order. Out: f[total elements]; or the parameters, sharing no memory with the vector afterwards.
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
    """Put consecutive slices of `vec` into the parameters. Raises ArgumentError if vec is too short."""
    if not isinstance(vec, Tensor):
        raise RegistrationTypeError(f"expected a Tensor, but got: {type(vec).__name__}")
    start = 0
    for parameter in parameters:
        end = start + parameter.numel()
        if end > vec.numel():
            raise ArgumentError(
                "the vector is shorter than the parameters", expected=f"at least {end}", got=str(vec.numel())
            )
        parameter._cell.write(vec._read()[start:end].reshape(parameter.shape).astype(parameter.dtype.numpy))
        start = end
