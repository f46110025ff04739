"""torch.linalg's factorisations over any Value, and torch's older names for them: cholesky, svd, qr, lu.

In: values f[*batch, m, n]. Out: values, in named tuples where torch returns one. For complex matrices "transposed"
means the conjugate transposed; singular values are real.
"""

from __future__ import annotations

from typing import NamedTuple

from compiler_core import dtype as dt
from compiler_core.errors import ShapeError
from compiler_core.names.spelling import result_text
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import as_value, dtype_of, like
from compiler_core.ops.casting import in_float32_on_cpu
from compiler_core.ops.linear_algebra.factor import eye_like, permutation_matrix
from compiler_core.ops.linear_algebra.matmul import adjoint
from compiler_core.ops.linear_algebra.matrices import from_triangle, matrix, of_lapack, sizes, where_it_works
from compiler_core.ops.linear_algebra.packing import unpack
from compiler_core.ops.lying import as_told, lies
from compiler_core.ops.registry import Value


class CholeskyEx(NamedTuple):
    L: Value
    info: Value

    def __repr__(self) -> str:
        return result_text("linalg_cholesky_ex", self)


class Svd(NamedTuple):
    U: Value
    S: Value
    Vh: Value

    def __repr__(self) -> str:
        return result_text("linalg_svd", self)


class OldSvd(NamedTuple):
    U: Value
    S: Value
    V: Value

    def __repr__(self) -> str:
        return result_text("svd", self)


class Qr(NamedTuple):
    Q: Value
    R: Value

    def __repr__(self) -> str:
        return result_text("linalg_qr", self)


class OldQr(Qr):
    __slots__ = ()

    def __repr__(self) -> str:
        return result_text("qr", self)


class Lu(NamedTuple):
    P: Value
    L: Value
    U: Value

    def __repr__(self) -> str:
        return result_text("linalg_lu", self)


class Unpacked(Lu):
    __slots__ = ()

    def __repr__(self) -> str:
        return result_text("lu_unpack", self)


class LuFactor(NamedTuple):
    LU: Value
    pivots: Value

    def __repr__(self) -> str:
        return result_text("linalg_lu_factor", self)


class LuFactorEx(NamedTuple):
    LU: Value
    pivots: Value
    info: Value

    def __repr__(self) -> str:
        return result_text("linalg_lu_factor_ex", self)


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
def cholesky_ex(input: Value, *, upper: bool = False, check_errors: bool = False) -> CholeskyEx:
    """`cholesky`, and LAPACK's info: the order of the first minor that is not positive, or 0.

    A matrix with an info gives NaN, or LinAlgError if check_errors.
    """
    a = matrix(input, "cholesky_ex")
    info = prims.cholesky_info(prims.detach(from_triangle(a, upper)))
    return CholeskyEx(where_it_works(lambda m: cholesky(m, upper=upper), a, info, "cholesky_ex", check_errors), info)


def real_values(values: Value) -> Value:
    """Values that are real, in their real dtype."""
    return prims.real(values) if dtype_of(values).is_complex else values


@of_lapack
def svd(A: Value, full_matrices: bool = True, *, driver: str | None = None) -> Svd:
    """U diag(S) Vh = A, S descending."""
    a = matrix(A, "svd")
    _, m, n = sizes(a)
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
        batch, m, n = sizes(a)
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
    _, m, n = sizes(a)
    k = m if mode == "complete" else min(m, n)
    q, r = unpack(prims.qr(a, mode == "complete"), ((m, k), (k, n)))
    return Qr(prims.full((0,), 0.0, dtype_of(a)) if mode == "r" else q, r)


@of_lapack
def old_qr(input: Value, some: bool = True) -> OldQr:
    """torch.qr."""
    return OldQr(*qr(input, "reduced" if some else "complete"))


def _lu(a: Value, pivot: bool) -> tuple[Value, Value, Value]:
    _, m, n = sizes(a)
    return unpack(prims.lu(a, pivot), ((m, n), (m,), (min(m, n),)))


def _triangles(packed: Value) -> tuple[Value, Value]:
    """L [m, k] and U [k, n] of a packed LU."""
    _, m, n = sizes(packed)
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
    return LuFactorEx(packed, pivots, info_of(packed))


def info_of(packed: Value) -> Value:
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


def lu_unpack(LU_data: Value, LU_pivots: Value, unpack_data: bool = True, unpack_pivots: bool = True) -> Unpacked:
    """P, L and U of what `lu_factor` gives."""
    packed = as_value(LU_data)
    empty = prims.full((0,), 0.0, dtype_of(packed))
    left, right = _triangles(packed) if unpack_data else (empty, empty)
    if not unpack_pivots:
        return Unpacked(empty, left, right)
    permutation = pivots_to_permutation(LU_pivots, packed.shape[-2])
    return Unpacked(permutation_matrix(prims.cast(permutation, dtype_of(packed))), left, right)
