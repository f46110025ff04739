"""torch.linalg's solvers over any Value, and torch's older names for them; determinants, inverses, the exponential.

In: values f[*batch, m, n]. Out: values, in named tuples where torch returns one. Batch dims broadcast. For complex
matrices "transposed" means the conjugate transposed. Least squares are in least_squares.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from compiler_core import dtype as dt
from compiler_core.errors import ShapeError
from compiler_core.names.spelling import result_text
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import as_value, broadcast_shapes, broadcast_to, cast, dtype_of, floating
from compiler_core.ops.casting import as_given, in_float32_on_cpu
from compiler_core.ops.linear_algebra.factor import eye_like, permutation_matrix
from compiler_core.ops.linear_algebra.factorisations import (
    info_of,
    lu_factor,
    pivots_to_permutation,
    real_values,
    svdvals,
)
from compiler_core.ops.linear_algebra.matmul import adjoint, transpose_last
from compiler_core.ops.linear_algebra.matrices import from_triangle, matrix, of_lapack, sizes, where_it_works
from compiler_core.ops.linear_algebra.packing import unpack
from compiler_core.ops.lying import lies
from compiler_core.ops.registry import Value


class Slogdet(NamedTuple):
    sign: Value
    logabsdet: Value

    def __repr__(self) -> str:
        return result_text("linalg_slogdet", self)


class SolveEx(NamedTuple):
    result: Value
    info: Value

    def __repr__(self) -> str:
        return result_text("linalg_solve_ex", self)


class InvEx(NamedTuple):
    inverse: Value
    info: Value

    def __repr__(self) -> str:
        return result_text("linalg_inv_ex", self)


class Triangular(NamedTuple):
    solution: Value
    cloned_coefficient: Value

    def __repr__(self) -> str:
        return result_text("triangular_solve", self)


_conj_transposed = adjoint  # where an argument is called adjoint


def _pair(a: Value, b: Value) -> tuple[Value, Value]:
    """Matrices with a common dtype and common batch dims."""
    dtype = dt.promote(a, b)
    batch = broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2]))
    return tuple(broadcast_to(cast(x, dtype), (*batch, *x.shape[-2:])) for x in (a, b))


def is_vector(a: Value, b: Value) -> bool:
    """torch.linalg.solve's rule: b is a batch of vectors if it is one vector, or has A's shape without the last dim."""
    return len(b.shape) == 1 or (len(b.shape) == len(a.shape) - 1 and tuple(b.shape) == tuple(a.shape[:-1]))


@of_lapack
def solve(A: Value, B: Value, *, left: bool = True) -> Value:
    """X with A X = B, or X A = B if not left."""
    a, b = matrix(A, "solve"), floating(B)
    vector = is_vector(a, b)
    if vector:
        b = F.unsqueeze(b, -1)
    if not left:
        return transpose_last(prims.solve(*_pair(transpose_last(a), transpose_last(b))))
    x = prims.solve(*_pair(a, b))
    return F.squeeze(x, -1) if vector else x


@lies("columns")
def solve_ex(A: Value, B: Value, *, left: bool = True, check_errors: bool = False) -> SolveEx:
    """`solve`, and info: the first zero on the diagonal of A's U (from 1), or 0.

    A singular matrix gives NaN, or LinAlgError if check_errors.
    """
    a, b = matrix(A, "solve_ex"), floating(B)
    info = info_of(lu_factor(a).LU)
    if is_vector(a, b):
        solution = solve_ex(a, F.unsqueeze(b, -1), left=left, check_errors=check_errors).result
        return SolveEx(F.squeeze(solution, -1), info)
    found = where_it_works(lambda m: solve(m, b, left=left), a, info, "solve_ex", check_errors)
    return SolveEx(found, info)


@of_lapack
def inv(A: Value) -> Value:
    """The inverse."""
    a = matrix(A, "inv")
    if a.shape[-1] != a.shape[-2]:
        raise ShapeError("linalg.inv: A must be batches of square matrices", got=str(tuple(a.shape)))
    return prims.solve(a, eye_like(a))


@of_lapack
def inv_ex(A: Value, *, check_errors: bool = False) -> InvEx:
    """`inv`, and info: the first zero on the diagonal of A's U (from 1), or 0.

    A singular matrix gives NaN, or LinAlgError if check_errors.
    """
    a = matrix(A, "inv_ex")
    info = info_of(lu_factor(a).LU)
    return InvEx(where_it_works(inv, a, info, "inv_ex", check_errors), info)


def solve_triangular(A: Value, B: Value, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Value:
    """X with A X = B for triangular A, or X A = B if not left."""
    a, b = matrix(A, "solve_triangular"), matrix(B, "solve_triangular")
    if left:
        return prims.solve_triangular(*_pair(a, b), upper=upper, unitriangular=unitriangular)
    a, b = _pair(transpose_last(a), transpose_last(b))
    return transpose_last(prims.solve_triangular(a, b, upper=not upper, unitriangular=unitriangular))


@in_float32_on_cpu
def triangular_solve(
    b: Value, A: Value, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Triangular:
    """torch.triangular_solve."""
    a, rhs = _pair(matrix(A, "triangular_solve"), matrix(b, "triangular_solve"))
    if transpose:  # without the conjugate, as in torch
        x = prims.solve_triangular(transpose_last(a), rhs, upper=not upper, unitriangular=unitriangular)
    else:
        x = prims.solve_triangular(a, rhs, upper=upper, unitriangular=unitriangular)
    return Triangular(x, a)


@of_lapack
def cholesky_solve(B: Value, L: Value, upper: bool = False) -> Value:
    """X with (L L^T) X = B; with upper, (L^T L) X = B."""
    factor, b = _pair(matrix(L, "cholesky_solve"), matrix(B, "cholesky_solve"))
    lower = adjoint(factor) if upper else factor
    lower = F.sub(lower, prims.detach(F.triu(lower, 1)))  # what is not read has torch's gradient still
    return prims.solve(F.matmul(lower, adjoint(lower)), b)


@of_lapack
def cholesky_inverse(L: Value, upper: bool = False) -> Value:
    """The inverse of L L^T; with upper, of L^T L."""
    factor = matrix(L, "cholesky_inverse")
    return cholesky_solve(eye_like(factor), factor, upper)


@lies("columns")
@as_given
def lu_solve(LU: Value, pivots: Value, B: Value, *, left: bool = True, adjoint: bool = False) -> Value:
    """X with A X = B (X A = B; A^T X = B) for the A that was factored."""
    if not left:
        return _conj_transposed(lu_solve(LU, pivots, _conj_transposed(as_value(B)), adjoint=not adjoint))
    permutation = pivots_to_permutation(pivots, LU.shape[-1])
    p = permutation_matrix(prims.cast(permutation, dtype_of(LU)))
    factor, b = _pair(matrix(LU, "lu_solve"), matrix(B, "lu_solve"))
    if adjoint:
        y = prims.solve_triangular(_conj_transposed(factor), b, upper=False, unitriangular=False)
        return F.matmul(p, prims.solve_triangular(_conj_transposed(factor), y, upper=True, unitriangular=True))
    y = prims.solve_triangular(factor, F.matmul(transpose_last(p), b), upper=False, unitriangular=True)
    return prims.solve_triangular(factor, y, upper=True, unitriangular=False)


@of_lapack
def old_lu_solve(b: Value, LU_data: Value, LU_pivots: Value) -> Value:
    """torch.lu_solve."""
    return lu_solve(LU_data, LU_pivots, b)


def det(A: Value) -> Value:
    """The determinant."""
    return prims.det(matrix(A, "det"))


def slogdet(A: Value) -> Slogdet:
    """The sign, and the logarithm of the absolute value, of the determinant."""
    packed = prims.slogdet(matrix(A, "slogdet"))
    sign, log = unpack(packed, ((), ()))
    return Slogdet(sign if dtype_of(sign).is_complex else prims.detach(sign), real_values(log))


def logdet(input: Value) -> Value:
    """log(det): NaN where the determinant is negative."""
    sign, log = slogdet(input)
    if dtype_of(sign).is_complex:
        return F.add(F.log(sign), log)
    return F.where(F.lt(sign, 0), float("nan"), log)


def matrix_exp(input: Value) -> Value:
    """The exponential of square matrices."""
    return prims.matrix_exp(matrix(input, "matrix_exp"))


def pinv(
    A: Value,
    rcond: Any = None,
    hermitian: bool = False,
    *,
    rtol: Any = None,
    atol: Any = None,
) -> Value:
    """The pseudo-inverse; singular values up to max(atol, rtol * the largest) count as zero."""
    a = matrix(A, "pinv")
    if hermitian:  # one triangle is read
        a = from_triangle(a, upper=False)
    _, m, n = sizes(a)
    if 0 in a.shape:
        return adjoint(a)
    values = svdvals(prims.detach(a))
    return prims.pinv(a, tolerance(values, max(m, n), rcond if rtol is None else rtol, atol))


def tolerance(values: Value, size: int, rtol: Any, atol: Any) -> Value:
    """max(atol, rtol * the largest of values[*batch, k]), [*batch]: what counts as zero. Numbers, tensors, or None."""
    if rtol is None:
        default = size * dt.finfo_eps(dtype_of(values))
        rtol = (
            default
            if atol is None
            else F.where(F.gt(atol, 0), 0.0, default)
            if hasattr(atol, "shape")
            else (0.0 if atol > 0 else default)
        )
    largest = F.amax(values, -1)
    limit = F.mul(largest, rtol)
    return cast(F.maximum(limit, F.add(F.mul(largest, 0.0), 0.0 if atol is None else atol)), dtype_of(values))
