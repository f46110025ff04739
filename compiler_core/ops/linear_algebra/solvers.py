"""torch.linalg's factorisations and solvers over any Value, and torch's older names for them.

In: values f[*batch, m, n]; integers become the default dtype, half precision is refused as in torch. Out: values, in
named tuples where torch returns one. Batch dims broadcast. For complex matrices "transposed" means the conjugate
transposed, "symmetric" Hermitian; eigenvalues of those, and singular values, are real.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from compiler_core import dtype as dt
from compiler_core.errors import ShapeError
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import as_value, broadcast_shapes, broadcast_to, cast, dtype_of, floating, like
from compiler_core.ops.casting import as_given, in_float32_on_cpu
from compiler_core.ops.composites.reduction import abs_squared
from compiler_core.ops.linear_algebra.factor import eye_like, permutation_matrix
from compiler_core.ops.linear_algebra.matmul import adjoint, transpose_last
from compiler_core.ops.linear_algebra.packing import unpack
from compiler_core.ops.lying import as_told, lies
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import Value

Function = TypeVar("Function", bound=Callable[..., Any])


class Svd(NamedTuple):
    U: Value
    S: Value
    Vh: Value


class OldSvd(NamedTuple):
    U: Value
    S: Value
    V: Value


class Qr(NamedTuple):
    Q: Value
    R: Value


class Lu(NamedTuple):
    P: Value
    L: Value
    U: Value


class LuFactor(NamedTuple):
    LU: Value
    pivots: Value


class LuFactorEx(NamedTuple):
    LU: Value
    pivots: Value
    info: Value


class Slogdet(NamedTuple):
    sign: Value
    logabsdet: Value


class WithInfo(NamedTuple):
    """What the `_ex` functions return: `L`, `inverse` or `result`, and LAPACK's info, 0 for success."""

    result: Value
    info: Value


class Triangular(NamedTuple):
    solution: Value
    cloned_coefficient: Value


class Lstsq(NamedTuple):
    solution: Value
    residuals: Value
    rank: Value
    singular_values: Value


def matrix(x: Value, name: str) -> Value:
    """x, a floating value with at least two dims. Raises ShapeError and NoKernelError."""
    x = as_value(x)
    if len(x.shape) < 2:
        raise ShapeError(f"linalg.{name}: the input must have at least 2 dimensions", got=str(tuple(x.shape)))
    need_kind(f"linalg.{name}", "fc", x)
    return x


def _sizes(a: Value) -> tuple[tuple[int, ...], int, int]:
    return tuple(a.shape[:-2]), a.shape[-2], a.shape[-1]


_conj_transposed = adjoint  # where an argument is called adjoint


def from_triangle(a: Value, upper: bool) -> Value:
    """The symmetric matrix that one triangle of a is read as; the gradient is that of all of a, as in torch."""
    _, m, n = _sizes(a)
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


# ---- factorisations


def of_lapack(function: Function) -> Function:
    """`function` in float32 where the CPU's 16-bit floats have none; its matrices lie as LAPACK leaves them."""
    return lies("columns")(in_float32_on_cpu(function))


@of_lapack
def cholesky(input: Value, *, upper: bool = False) -> Value:
    """L with L L^T = input; with upper, its transpose. Only the lower (upper) triangle of input is read."""
    factor = prims.cholesky(from_triangle(matrix(input, "cholesky"), upper))
    return adjoint(factor) if upper else factor


@of_lapack
def old_cholesky(input: Value, upper: bool = False) -> Value:
    """torch.cholesky."""
    return cholesky(input, upper=upper)


@of_lapack
def cholesky_ex(input: Value, *, upper: bool = False, check_errors: bool = False) -> WithInfo:
    """`cholesky`, and LAPACK's info: the order of the first minor that is not positive, or 0.

    A matrix with an info gives NaN, or LinAlgError if check_errors.
    """
    a = matrix(input, "cholesky_ex")
    info = prims.cholesky_info(prims.detach(from_triangle(a, upper)))
    return WithInfo(_where_it_works(lambda m: cholesky(m, upper=upper), a, info, "cholesky_ex", check_errors), info)


def _where_it_works(function: Callable[[Value], Value], a: Value, info: Value, name: str, check_errors: bool) -> Value:
    """function(a), but NaN, or LinAlgError if check_errors, for the matrices of a whose info[*batch] is not 0."""
    bad = F.unsqueeze(F.unsqueeze(F.ne(info, 0), -1), -1)
    result = function(F.where(bad, eye_like(a), a))
    if check_errors:
        message = f"{name}: a matrix is singular, or not positive definite"
        return prims.require(result, broadcast_to(bad, tuple(result.shape)), "linalg", message)
    return F.where(bad, math.nan, result)


def real_values(values: Value) -> Value:
    """Values that are real, in their real dtype."""
    return prims.real(values) if dtype_of(values).is_complex else values


@of_lapack
def svd(A: Value, full_matrices: bool = True, *, driver: str | None = None) -> Svd:
    """U diag(S) Vh = A, S descending."""
    a = matrix(A, "svd")
    _, m, n = _sizes(a)
    k = min(m, n)
    shapes = ((m, m), (k,), (n, n)) if full_matrices else ((m, k), (k,), (k, n))
    u, s, vh = unpack(prims.svd(a, full_matrices), shapes)
    return Svd(u, real_values(s), vh)


@in_float32_on_cpu
def svdvals(A: Value, *, driver: str | None = None) -> Value:
    """Singular values, descending."""
    return prims.svdvals(matrix(A, "svdvals"))


@in_float32_on_cpu
def old_svd(input: Value, some: bool = True, compute_uv: bool = True) -> OldSvd:
    """torch.svd: V, not its transpose."""
    a = matrix(input, "svd")
    if not compute_uv:
        batch, m, n = _sizes(a)
        empty = prims.full_like(a, 0.0)
        return OldSvd(
            F.expand(empty[..., :1, :1], (*batch, m, m)), svdvals(a), F.expand(empty[..., :1, :1], (*batch, n, n))
        )
    u, s, vh = svd(a, not some)
    return OldSvd(u, s, adjoint(vh))


@of_lapack
def qr(A: Value, mode: str = "reduced") -> Qr:
    """Q R = A. mode: "reduced", "complete" or "r" (Q is empty)."""
    a = matrix(A, "qr")
    if mode not in ("reduced", "complete", "r"):
        raise ShapeError("linalg.qr: unknown mode", expected="'reduced', 'complete' or 'r'", got=repr(mode))
    _, m, n = _sizes(a)
    k = m if mode == "complete" else min(m, n)
    q, r = unpack(prims.qr(a, mode == "complete"), ((m, k), (k, n)))
    return Qr(prims.full((0,), 0.0, dtype_of(a)) if mode == "r" else q, r)


@of_lapack
def old_qr(input: Value, some: bool = True) -> Qr:
    """torch.qr."""
    return qr(input, "reduced" if some else "complete")


def _lu(a: Value, pivot: bool) -> tuple[Value, Value, Value]:
    _, m, n = _sizes(a)
    return unpack(prims.lu(a, pivot), ((m, n), (m,), (min(m, n),)))


def _triangles(packed: Value) -> tuple[Value, Value]:
    """L [m, k] and U [k, n] of a packed LU."""
    _, m, n = _sizes(packed)
    k = min(m, n)
    left = F.tril(F.narrow(packed, -1, 0, k), -1)
    ones = F.eye(m, k, dtype=dtype_of(packed))
    return F.add(left, ones), F.triu(F.narrow(packed, -2, 0, k))


def lu(A: Value, *, pivot: bool = True) -> Lu:
    """P L U = A."""
    packed, permutation, _ = _lu(matrix(A, "lu"), pivot)
    left, right = as_told("columns", _triangles(packed), (A,))
    return Lu(permutation_matrix(prims.detach(permutation)), left, right)


@lies("columns")
def lu_factor(A: Value, *, pivot: bool = True) -> LuFactor:
    """L and U in one, and LAPACK's pivots (from 1), int32."""
    packed, _, pivots = _lu(matrix(A, "lu_factor"), pivot)
    return LuFactor(packed, prims.cast(prims.detach(pivots), dt.int32))


@lies("columns")
def lu_factor_ex(A: Value, *, pivot: bool = True, check_errors: bool = False) -> LuFactorEx:
    """`lu_factor`, and the first zero on U's diagonal (from 1), or 0."""
    packed, pivots = lu_factor(A, pivot=pivot)
    return LuFactorEx(packed, pivots, _info(packed))


def _info(packed: Value) -> Value:
    """The place, from 1, of the first zero on U's diagonal; 0 if there is none."""
    if 0 in packed.shape[-2:]:
        return like(prims.full(tuple(packed.shape[:-2]), 0, dt.int32), packed)
    k = min(packed.shape[-2:])
    block = F.narrow(F.narrow(prims.detach(packed), -1, 0, k), -2, 0, k)
    zero = F.any(F.logical_and(F.eq(block, 0), F.ne(eye_like(block), 0)), -1)
    first = prims.add(F.argmax(prims.cast(zero, dt.uint8), -1), prims.full(tuple(zero.shape[:-1]), 1, dt.int64))
    return prims.cast(F.where(F.any(zero, -1), first, 0), dt.int32)


@of_lapack
def old_lu(input: Value, pivot: bool = True, get_infos: bool = False) -> tuple[Value, ...]:
    """torch.lu."""
    packed, pivots, info = lu_factor_ex(input, pivot=pivot)
    return (packed, pivots, info) if get_infos else (packed, pivots)


def pivots_to_permutation(pivots: Value, m: int) -> Value:
    """The permutation that LAPACK's pivots (from 1) are: row exchanges, one after the other."""
    *batch, k = pivots.shape
    permutation = F.expand(F.arange(m), (*batch, m))
    for i in range(k):
        j = prims.sub(F.narrow(prims.cast(pivots, dt.int64), -1, i, 1), prims.full((*batch, 1), 1, dt.int64))
        here, there = F.narrow(permutation, -1, i, 1), F.gather(permutation, -1, j)
        permutation = F.scatter(permutation, -1, j, here)
        permutation = F.scatter(permutation, -1, prims.full((*batch, 1), i, dt.int64), there)
    return permutation


def lu_unpack(LU_data: Value, LU_pivots: Value, unpack_data: bool = True, unpack_pivots: bool = True) -> Lu:
    """P, L and U of what `lu_factor` gives."""
    packed = as_value(LU_data)
    empty = prims.full((0,), 0.0, dtype_of(packed))
    left, right = _triangles(packed) if unpack_data else (empty, empty)
    if not unpack_pivots:
        return Lu(empty, left, right)
    permutation = pivots_to_permutation(LU_pivots, packed.shape[-2])
    return Lu(permutation_matrix(prims.cast(permutation, dtype_of(packed))), left, right)


# ---- solvers


def _pair(a: Value, b: Value) -> tuple[Value, Value]:
    """Matrices with a common dtype and common batch dims."""
    dtype = dt.promote(a, b)
    batch = broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2]))
    return tuple(broadcast_to(cast(x, dtype), (*batch, *x.shape[-2:])) for x in (a, b))


def _is_vector(a: Value, b: Value) -> bool:
    """torch.linalg.solve's rule: b is a batch of vectors if it is one vector, or has A's shape without the last dim."""
    return len(b.shape) == 1 or (len(b.shape) == len(a.shape) - 1 and tuple(b.shape) == tuple(a.shape[:-1]))


@of_lapack
def solve(A: Value, B: Value, *, left: bool = True) -> Value:
    """X with A X = B, or X A = B if not left."""
    a, b = matrix(A, "solve"), floating(B)
    vector = _is_vector(a, b)
    if vector:
        b = F.unsqueeze(b, -1)
    if not left:
        return transpose_last(prims.solve(*_pair(transpose_last(a), transpose_last(b))))
    x = prims.solve(*_pair(a, b))
    return F.squeeze(x, -1) if vector else x


@lies("columns")
def solve_ex(A: Value, B: Value, *, left: bool = True, check_errors: bool = False) -> WithInfo:
    """`solve`, and info: the first zero on the diagonal of A's U (from 1), or 0.

    A singular matrix gives NaN, or LinAlgError if check_errors.
    """
    a, b = matrix(A, "solve_ex"), floating(B)
    info = _info(lu_factor(a).LU)
    if _is_vector(a, b):
        solution = solve_ex(a, F.unsqueeze(b, -1), left=left, check_errors=check_errors).result
        return WithInfo(F.squeeze(solution, -1), info)
    found = _where_it_works(lambda m: solve(m, b, left=left), a, info, "solve_ex", check_errors)
    return WithInfo(found, info)


@of_lapack
def inv(A: Value) -> Value:
    """The inverse."""
    a = matrix(A, "inv")
    if a.shape[-1] != a.shape[-2]:
        raise ShapeError("linalg.inv: A must be batches of square matrices", got=str(tuple(a.shape)))
    return prims.solve(a, eye_like(a))


@of_lapack
def inv_ex(A: Value, *, check_errors: bool = False) -> WithInfo:
    """`inv`, and info: the first zero on the diagonal of A's U (from 1), or 0.

    A singular matrix gives NaN, or LinAlgError if check_errors.
    """
    a = matrix(A, "inv_ex")
    info = _info(lu_factor(a).LU)
    return WithInfo(_where_it_works(inv, a, info, "inv_ex", check_errors), info)


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
    _, m, n = _sizes(a)
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


@of_lapack
def lstsq(A: Value, B: Value, rcond: float | None = None, *, driver: str | None = None) -> Lstsq:
    """The X of least norm that minimises |A X - B|. rank and singular values as torch gives them for `driver`."""
    a, b = matrix(A, "lstsq"), floating(B)
    vector = _is_vector(a, b)
    if vector:
        b = F.unsqueeze(b, -1)
    x = F.matmul(pinv(a, rtol=rcond), b)
    _, m, n = _sizes(a)
    empty = like(prims.full((0,), 0.0, dtype_of(a).real), a)
    from compiler_core.ops.linear_algebra.norms import matrix_rank

    driver = driver or "gelsy"
    residuals = empty
    if m > n and driver != "gelsy":
        difference = F.sub(F.matmul(a, x), b)
        residuals = F.sum(abs_squared(difference), -2)
    rank = matrix_rank(a, rtol=rcond) if driver != "gels" else like(prims.full((0,), 0, dt.int64), a)
    values = svdvals(a) if driver in ("gelss", "gelsd") else empty
    return Lstsq(F.squeeze(x, -1) if vector else x, residuals, rank, values)
