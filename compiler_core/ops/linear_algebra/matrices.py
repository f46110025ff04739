"""What torch.linalg's functions share: the checks of a matrix argument, how one triangle is read, LAPACK's info.

In: values f[*batch, m, n]. Out: the same, checked. Integers are refused, as in torch.
For complex matrices "symmetric" means Hermitian.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from compiler_core.errors import ShapeError
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import as_value, broadcast_to, dtype_of
from compiler_core.ops.casting import in_float32_on_cpu
from compiler_core.ops.linear_algebra.factor import eye_like
from compiler_core.ops.linear_algebra.matmul import adjoint
from compiler_core.ops.lying import lies
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import Value

Function = TypeVar("Function", bound=Callable[..., Any])


def matrix(x: Value, name: str) -> Value:
    """x, a floating value with at least two dims. Raises ShapeError and NoKernelError."""
    x = as_value(x)
    if len(x.shape) < 2:
        raise ShapeError(f"linalg.{name}: the input must have at least 2 dimensions", got=str(tuple(x.shape)))
    need_kind(f"linalg.{name}", "fc", x)
    return x


def sizes(a: Value) -> tuple[tuple[int, ...], int, int]:
    return tuple(a.shape[:-2]), a.shape[-2], a.shape[-1]


def from_triangle(a: Value, upper: bool) -> Value:
    """The symmetric matrix that one triangle of a is read as; the gradient is that of all of a, as in torch."""
    _, m, n = sizes(a)
    if m != n:
        raise ShapeError("linalg: the matrices must be square", got=str(tuple(a.shape)))
    half = F.triu(a) if upper else F.tril(a)
    rest = F.triu(a, 1) if upper else F.tril(a, -1)
    if dtype_of(a).is_complex:  # a diagonal is read as real
        half = _real_diagonal(half)
    return F.add(a, prims.detach(F.sub(F.add(half, adjoint(rest)), a)))


def _real_diagonal(a: Value) -> Value:
    """a with the imaginary part of its diagonal taken away."""
    imag = prims.imag(a)
    on_diagonal = prims.real(eye_like(a))
    return prims.complex(prims.real(a), F.mul(imag, F.sub(1.0, on_diagonal)))


def of_lapack(function: Function) -> Function:
    """`function`, which autocast computes in float32 on the CPU; its matrices lie as LAPACK leaves them."""
    return lies("columns")(in_float32_on_cpu(function))


def where_it_works(function: Callable[[Value], Value], a: Value, info: Value, name: str, check_errors: bool) -> Value:
    """function(a), but NaN, or LinAlgError if check_errors, for the matrices of a whose info[*batch] is not 0."""
    bad = F.unsqueeze(F.unsqueeze(F.ne(info, 0), -1), -1)
    result = function(F.where(bad, eye_like(a), a))
    if check_errors:
        message = f"{name}: a matrix is singular, or not positive definite"
        return prims.require(result, broadcast_to(bad, tuple(result.shape)), "linalg", message)
    return F.where(bad, math.nan, result)
