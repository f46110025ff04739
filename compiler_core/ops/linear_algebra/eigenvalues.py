"""torch.linalg's eigenvalues and eigenvectors: of symmetric (Hermitian) matrices, and of any square ones.

In: values T[*batch, n, n]; integers become the default dtype. Out: values, in named tuples where torch returns one.
"""

from __future__ import annotations

from typing import NamedTuple

from compiler_core.errors import ShapeError
from compiler_core.names.spelling import result_text
from compiler_core.ops import prims
from compiler_core.ops.casting import in_float32_on_cpu
from compiler_core.ops.linear_algebra.factorisations import real_values
from compiler_core.ops.linear_algebra.matrices import from_triangle, matrix
from compiler_core.ops.linear_algebra.packing import unpack
from compiler_core.ops.lying import lies
from compiler_core.ops.registry import Value


class Eigh(NamedTuple):
    eigenvalues: Value
    eigenvectors: Value

    def __repr__(self) -> str:
        return result_text("linalg_eigh", self)


class Eig(NamedTuple):
    eigenvalues: Value
    eigenvectors: Value

    def __repr__(self) -> str:
        return result_text("linalg_eig", self)


@lies("columns")
@in_float32_on_cpu
def eigh(A: Value, UPLO: str = "L") -> Eigh:
    """Eigenvalues, ascending, and eigenvectors (columns) of symmetric matrices, of which one triangle is read."""
    if UPLO.upper() not in ("L", "U"):
        raise ShapeError("linalg.eigh: unknown UPLO", expected="'L' or 'U'", got=repr(UPLO))
    a = from_triangle(matrix(A, "eigh"), UPLO.upper() == "U")
    n = a.shape[-1]
    values, vectors = unpack(prims.eigh(a), ((n,), (n, n)))
    return Eigh(real_values(values), vectors)


@lies("columns")
@in_float32_on_cpu
def eig(A: Value) -> Eig:
    """Eigenvalues and right eigenvectors (columns), complex, of square matrices."""
    a = matrix(A, "eig")
    n = a.shape[-1]
    return Eig(*unpack(prims.eig(a), ((n,), (n, n))))


@lies("rows")
@in_float32_on_cpu
def eigvals(A: Value) -> Value:
    """Eigenvalues, complex, of square matrices."""
    return eig(A).eigenvalues


@lies("rows")
@in_float32_on_cpu
def eigvalsh(A: Value, UPLO: str = "L") -> Value:
    """Eigenvalues of symmetric matrices, ascending."""
    return eigh(A, UPLO).eigenvalues
