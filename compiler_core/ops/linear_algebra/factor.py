"""Matrix factorisations: cholesky, eigh, svd, svdvals, qr, lu. LAPACK's through NumPy (lu: our own, NumPy has none);
compiled code calls LAPACK itself for cholesky and lu of real matrices (lapack.py).

In: a: f[*batch, m, n], f32 or f64, or complex of these. Out: the factors, packed (packing.py) where there are several;
of complex matrices all are complex, svdvals excepted, and "symmetric" means Hermitian:
    cholesky  L [n, n]                  eigh  values [n], vectors [n, n] (columns)          svdvals  S [k]
              of the symmetric part of a, both
    svd       U [m, k], S [k], Vh [k, n]; with full, U [m, m], Vh [n, n]                      k = min(m, n)
    qr        Q [m, k], R [k, n]; with full, Q [m, m], R [m, n]
    lu        L and U in one [m, n], the permutation [m] (row i of L U is row perm[i] of a), LAPACK's pivots [k]
Gradients: Townsend 2016, "Differentiating the singular value decomposition"; Murray 2016, arXiv:1602.07527; Walter and
Lehmann 2010 for QR; as torch writes them. Of complex matrices those of eigh and svd hold for losses that do not depend
on the phases of vectors, which are free. Where two eigenvalues or singular values are equal the vectors' are infinite.
Raises LinAlgError where LAPACK fails (a matrix that is not positive definite; an iteration that does not converge).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np

from compiler_core import cuda
from compiler_core.dtype import DType, complex64, complex128, float32, float64, of
from compiler_core.errors import LinAlgError, ShapeError
from compiler_core.meta import Shape, TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.checks import check_dtype
from compiler_core.ops.composites.movement import tril, triu
from compiler_core.ops.linear_algebra import lapack
from compiler_core.ops.linear_algebra.matmul import adjoint as H
from compiler_core.ops.linear_algebra.packing import pack, packed_shape, unpack
from compiler_core.ops.registry import Array, NotDifferentiable, Op, Sample, Value, VjpRule, register
from compiler_core.ops.routine import Native, Strided, call_back
from compiler_core.ops.rules import ALIKE, OwnCode

DTYPES = (float32, float64, complex64, complex128)
_REAL = (float32, float64)
mm = prims.matmul


def linalg_op(
    name: str,
    infer: Callable[..., TensorMeta],
    eager: Callable[..., Array],
    vjp: VjpRule | NotDifferentiable,
    samples: tuple[Sample, ...],
    native: Native | None = None,
    accepts: Callable[[Strided], bool] = lambda layout: True,
) -> Op:
    """A primitive that calls NumPy's LAPACK back where `native` does not call it; its failures are LinAlgErrors."""

    def checked(xp: Any, *arrays: Array, **attrs: Any) -> Array:
        try:
            with np.errstate(all="ignore"), nullcontext() if xp is np else cuda.raising_linalg():
                return eager(xp, *arrays, **attrs)
        except np.linalg.LinAlgError as error:
            raise LinAlgError(f"{name}: {error}") from error

    lower = call_back(name, checked, why="LAPACK, through NumPy", native=native, accepts=accepts)
    return register(Op(name, infer, checked, vjp, lower, samples, DTYPES, vmap=ALIKE, engines=OwnCode("LAPACK")))


def check_matrix(name: str, a: TensorMeta, *, square: bool = False) -> tuple[Shape, int, int]:
    """(batch, m, n). Raises ShapeError or DTypeError."""
    check_dtype(name, a, DTYPES)
    if a.ndim < 2 or (square and a.shape[-1] != a.shape[-2]):
        what = "a batch of square matrices" if square else "at least two dims"
        raise ShapeError(f"linalg.{name}: the operand does not fit", expected=what, got=str(a))
    return a.shape[:-2], a.shape[-2], a.shape[-1]


def positive_definite(*shape: int) -> Callable[[np.random.Generator, DType], list[Array]]:
    """A sample maker: well conditioned symmetric matrices."""

    def make(rng: np.random.Generator, dtype: DType) -> list[Array]:
        a = rng.uniform(-1, 1, shape)
        if dtype.is_complex:
            a = a + 1j * rng.uniform(-1, 1, shape)
        eye = np.arange(1, shape[-1] + 1) * np.eye(shape[-1])
        return [(np.matmul(a, np.swapaxes(a, -1, -2).conj()) * 0.2 + eye).astype(dtype.numpy)]

    return make


def eye_like(a: Value) -> Value:
    """The identity, T[*batch, n, n], for square matrices a."""
    from compiler_core.ops.composites.movement import diagonal_mask

    ones, zeros = prims.full_like(a, 1.0), prims.full_like(a, 0.0)
    return prims.where(prims.expand(diagonal_mask(*a.shape[-2:]), tuple(a.shape)), ones, zeros)


def columns_of(v: Value, rows: int) -> Value:
    """v[*batch, n] repeated as rows: [*batch, rows, n]."""
    return prims.expand(prims.reshape(v, (*v.shape[:-1], 1, v.shape[-1])), (*v.shape[:-1], rows, v.shape[-1]))


def rows_of(v: Value, columns: int) -> Value:
    """v[*batch, n] repeated as columns: [*batch, n, columns]."""
    return prims.expand(prims.reshape(v, (*v.shape, 1)), (*v.shape, columns))


def gaps_of(v: Value, eye: Value) -> Value:
    """v_j - v_i off the diagonal, 1 on it."""
    n = v.shape[-1]
    return prims.add(prims.sub(columns_of(v, n), rows_of(v, n)), eye)


def _symmetric(xp: Any, a: Array) -> Array:
    """The symmetric part: what a function of symmetric matrices is of any others, so that its gradient is symmetric."""
    return (a + xp.conj(xp.swapaxes(a, -1, -2))) / a.dtype.type(2)  # type: ignore[no-any-return]


# ---- cholesky


def _infer_cholesky(a: TensorMeta) -> TensorMeta:
    check_matrix("cholesky", a, square=True)
    return a


def _vjp_cholesky(g: Value, out: Value, a: Value) -> tuple[Value]:
    phi = tril(mm(H(out), tril(g)))
    phi = prims.sub(phi, prims.mul(prims.mul(phi, eye_like(a)), prims.full_like(a, 0.5)))
    left = prims.solve_triangular(H(out), phi, upper=True, unitriangular=False)
    inner = H(prims.solve_triangular(H(out), H(left), upper=True, unitriangular=False))
    return (prims.mul(prims.add(inner, H(inner)), prims.full_like(a, 0.5)),)


CHOLESKY = linalg_op(
    "cholesky",
    _infer_cholesky,
    lambda xp, a: xp.linalg.cholesky(_symmetric(xp, a)),
    _vjp_cholesky,
    tuple(Sample((), make=positive_definite(*shape)) for shape in ((3, 3), (2, 4, 4), (1, 1))),
    lapack.CHOLESKY,
)


# ---- eigh


def _infer_eigh(a: TensorMeta) -> TensorMeta:
    batch, n, _ = check_matrix("eigh", a, square=True)
    return a.with_shape(packed_shape(batch, ((n,), (n, n))))


def _eager_eigh(xp: Any, a: Array) -> Array:
    return pack(xp, a.shape[:-2], xp.linalg.eigh(_symmetric(xp, a)))


def _vjp_eigh(g: Value, out: Value, a: Value) -> tuple[Value]:
    n = a.shape[-1]
    values, v = unpack(out, ((n,), (n, n)))
    g_values, g_v = unpack(g, ((n,), (n, n)))
    eye = eye_like(a)
    turned = mm(H(v), g_v)
    skew = prims.mul(prims.sub(turned, H(turned)), prims.full_like(eye, 0.5))
    inner = prims.div(skew, gaps_of(values, eye))
    inner = prims.where(prims.ne(eye, prims.full_like(eye, 0.0)), rows_of(g_values, n), inner)
    return (mm(mm(v, inner), H(v)),)


EIGH = linalg_op(
    "eigh",
    _infer_eigh,
    _eager_eigh,
    _vjp_eigh,
    tuple(Sample((), dtypes=_REAL, make=positive_definite(*shape)) for shape in ((3, 3), (2, 3, 3))),
)


# ---- svd


def _sizes_svd(shape: Shape, full: bool) -> tuple[Shape, Shape, Shape]:
    m, n = shape[-2:]
    k = min(m, n)
    return ((m, m), (k,), (n, n)) if full else ((m, k), (k,), (k, n))


def _infer_svd(a: TensorMeta, full: bool) -> TensorMeta:
    batch, _, _ = check_matrix("svd", a)
    return a.with_shape(packed_shape(batch, _sizes_svd(a.shape, full)))


def _eager_svd(xp: Any, a: Array, full: bool) -> Array:
    return pack(xp, a.shape[:-2], xp.linalg.svd(a, full_matrices=full))


def _narrowed(g: Value, shape: Shape, full: bool) -> tuple[Value, Value, Value]:
    """The first k columns of U and rows of Vh: what of the full factors is determined."""
    gu, gs, gvh = unpack(g, _sizes_svd(shape, full))
    if not full:
        return gu, gs, gvh
    *batch, m, n = shape
    k, zeros, ones = min(m, n), (0,) * len(shape), (1,) * len(shape)
    return prims.slice(gu, zeros, (*batch, m, k), ones), gs, prims.slice(gvh, zeros, (*batch, k, n), ones)


def _vjp_svd(g: Value, out: Value, a: Value, full: bool) -> tuple[Value]:
    shape = tuple(a.shape)
    (m, n), k = shape[-2:], min(shape[-2:])
    u, s, vh = _narrowed(out, shape, full)
    gu, gs, gvh = _narrowed(g, shape, full)
    uu, vv = mm(H(u), gu), mm(vh, H(gvh))
    eye = eye_like(uu)
    gaps = gaps_of(prims.mul(s, s), eye)
    left = prims.mul(prims.div(prims.sub(uu, H(uu)), gaps), columns_of(s, k))
    right = prims.mul(rows_of(s, k), prims.div(prims.sub(vv, H(vv)), gaps))
    inner = prims.add(prims.add(left, right), prims.mul(eye, rows_of(gs, k)))
    if of(a.dtype).is_complex:  # how the phases of u turn against those of vh
        turning = prims.div(prims.sub(uu, H(uu)), prims.mul(columns_of(s, k), prims.full_like(uu, 2.0)))
        inner = prims.add(inner, prims.mul(eye, turning))
    result = mm(mm(u, inner), vh)
    if m > k:
        scaled = prims.div(gu, columns_of(s, m))
        result = prims.add(result, mm(prims.sub(scaled, mm(u, mm(H(u), scaled))), vh))
    if n > k:
        scaled = prims.div(gvh, rows_of(s, n))
        result = prims.add(result, mm(u, prims.sub(scaled, mm(mm(scaled, H(vh)), vh))))
    return (result,)


SVD = linalg_op(
    "svd",
    _infer_svd,
    _eager_svd,
    _vjp_svd,
    tuple(Sample((shape,), {"full": False}, dtypes=_REAL) for shape in ((3, 3), (4, 2), (2, 2, 3))),
)


def _infer_svdvals(a: TensorMeta) -> TensorMeta:
    batch, m, n = check_matrix("svdvals", a)
    return TensorMeta((*batch, min(m, n)), a.dtype.real)


def _vjp_svdvals(g: Value, out: Value, a: Value) -> tuple[Value]:
    u, _, vh = unpack(prims.svd(a, full=False), _sizes_svd(tuple(a.shape), False))
    cotangent = g if of(g.dtype) is of(a.dtype) else prims.cast(g, of(a.dtype))
    return (mm(prims.mul(u, columns_of(cotangent, a.shape[-2])), vh),)


SVDVALS = linalg_op(
    "svdvals",
    _infer_svdvals,
    lambda xp, a: xp.linalg.svd(a, compute_uv=False),
    _vjp_svdvals,
    tuple(Sample((shape,)) for shape in ((3, 3), (4, 2), (2, 2, 3))),
)


# ---- qr


def _sizes_qr(shape: Shape, full: bool) -> tuple[Shape, Shape]:
    m, n = shape[-2:]
    k = m if full else min(m, n)
    return (m, k), (k, n)


def _infer_qr(a: TensorMeta, full: bool) -> TensorMeta:
    batch, _, _ = check_matrix("qr", a)
    return a.with_shape(packed_shape(batch, _sizes_qr(a.shape, full)))


def _eager_qr(xp: Any, a: Array, full: bool) -> Array:
    return pack(xp, a.shape[:-2], xp.linalg.qr(a, "complete" if full else "reduced"))


def _vjp_tall_qr(gq: Value, gr: Value, q: Value, r: Value) -> Value:
    inner = triu(prims.sub(mm(gr, H(r)), mm(H(q), gq)))
    dtype = of(inner.dtype)
    diagonal = prims.cast(prims.real(inner), dtype) if dtype.is_complex else inner
    symmetric = prims.sub(prims.add(inner, H(inner)), prims.mul(diagonal, eye_like(inner)))
    return _times_inverse(prims.add(gq, mm(q, symmetric)), r)


def _vjp_qr(g: Value, out: Value, a: Value, full: bool) -> tuple[Value]:
    *batch, m, n = a.shape
    if full and m > n:
        raise LinAlgError("qr: the gradient is defined only for mode='reduced' when a matrix is tall")
    (q, r), (gq, gr) = unpack(out, _sizes_qr(a.shape, full)), unpack(g, _sizes_qr(a.shape, full))
    if m >= n:
        return (_vjp_tall_qr(gq, triu(gr), q, r),)
    zeros, ones = (0,) * len(a.shape), (1,) * len(a.shape)
    starts = (*zeros[:-1], m)
    first, rest = (prims.slice(r, zeros, (*batch, m, m), ones), prims.slice(a, starts, tuple(a.shape), ones))
    g_first, g_rest = prims.slice(gr, zeros, (*batch, m, m), ones), prims.slice(gr, starts, (*batch, m, n), ones)
    left = _vjp_tall_qr(prims.add(gq, mm(rest, H(g_rest))), triu(g_first), q, first)
    return (prims.cat([left, mm(q, g_rest)], len(a.shape) - 1),)


QR = linalg_op(
    "qr",
    _infer_qr,
    _eager_qr,
    _vjp_qr,
    tuple(Sample((shape,), {"full": False}) for shape in ((3, 3), (4, 2), (2, 2, 3))),
)


# ---- lu


def _sizes_lu(shape: Shape) -> tuple[Shape, Shape, Shape]:
    m, n = shape[-2:]
    return (m, n), (m,), (min(m, n),)


def _infer_lu(a: TensorMeta, pivot: bool) -> TensorMeta:
    batch, _, _ = check_matrix("lu", a)
    return a.with_shape(packed_shape(batch, _sizes_lu(a.shape)))


def _eager_lu(xp: Any, a: Array, pivot: bool) -> Array:
    """Gaussian elimination with partial pivoting, all matrices of the batch at once."""
    *batch, m, n = a.shape
    lu = a.reshape(math.prod(batch), m, n).copy()
    which = xp.arange(len(lu))
    permutation = xp.tile(xp.arange(m), (len(lu), 1))
    pivots = xp.tile(xp.arange(1, min(m, n) + 1), (len(lu), 1))
    for k in range(min(m, n)):
        if pivot:
            rows = k + xp.argmax(xp.abs(lu[:, k:, k].real) + xp.abs(lu[:, k:, k].imag), 1)  # LAPACK's measure
            lu[which, k], lu[which, rows] = lu[which, rows], lu[which, k].copy()
            permutation[which, k], permutation[which, rows] = permutation[which, rows], permutation[which, k].copy()
            pivots[:, k] = rows + 1
        divisor = xp.where(lu[:, k, k] == 0, 1, lu[:, k, k])
        lu[:, k + 1 :, k] /= divisor[:, None]
        lu[:, k + 1 :, k + 1 :] -= lu[:, k + 1 :, k, None] * lu[:, None, k, k + 1 :]
    parts = [lu.reshape(a.shape), *(p.reshape(*batch, p.shape[1]).astype(a.dtype) for p in (permutation, pivots))]
    return pack(xp, tuple(batch), parts)


def _vjp_lu(g: Value, out: Value, a: Value, pivot: bool) -> tuple[Value]:
    *batch, m, n = a.shape
    k, zeros, ones = min(m, n), (0,) * len(a.shape), (1,) * len(a.shape)
    lu, permutation, _ = unpack(out, _sizes_lu(tuple(a.shape)))
    g_lu, _, _ = unpack(g, _sizes_lu(tuple(a.shape)))
    first, g_first = (prims.slice(x, zeros, (*batch, k, k), ones) for x in (lu, g_lu))
    lower, upper = prims.add(tril(first, -1), eye_like(first)), triu(first)
    below, above = mm(H(lower), tril(g_first, -1)), mm(triu(g_first), H(upper))
    starts = (*zeros[:-1], k) if n > m else (*zeros[:-2], k, 0)
    rest, g_rest = (prims.slice(x, starts, tuple(a.shape), ones) for x in (lu, g_lu))
    if n > m:  # the columns on the right are L^-1 of a's
        below = prims.sub(below, mm(g_rest, H(rest)))
    elif m > n:  # the rows below are a's U^-1
        above = prims.sub(above, mm(H(rest), g_rest))
    inner = prims.add(tril(below, -1), triu(above))
    left = prims.solve_triangular(H(lower), inner, upper=True, unitriangular=True)
    both = _times_inverse(left, upper)
    if n > m:
        both = prims.cat(
            [both, prims.solve_triangular(H(lower), g_rest, upper=True, unitriangular=True)], len(zeros) - 1
        )
    elif m > n:
        both = prims.cat([both, _times_inverse(g_rest, upper)], len(zeros) - 2)
    return (mm(permutation_matrix(permutation), both),)


def _times_inverse(x: Value, upper: Value) -> Value:
    """x U^-H."""
    return H(prims.solve_triangular(upper, H(x), upper=True, unitriangular=False))


def permutation_matrix(permutation: Value) -> Value:
    """P of P L U = a, [*batch, m, m]: P[perm[i], i] = 1."""
    m, dtype = permutation.shape[-1], of(permutation.dtype)
    if dtype.is_complex:
        return prims.cast(permutation_matrix(prims.real(permutation)), dtype)
    rows = prims.iota((*permutation.shape, m), len(permutation.shape) - 1, of(permutation.dtype))
    ones, zeros = prims.full_like(rows, 1.0), prims.full_like(rows, 0.0)
    return prims.where(prims.eq(rows, columns_of(permutation, m)), ones, zeros)


LU = linalg_op(
    "lu",
    _infer_lu,
    _eager_lu,
    _vjp_lu,
    tuple(Sample((shape,), {"pivot": True}) for shape in ((3, 3), (2, 3, 3), (4, 2), (2, 3))),
    lapack.LU,
)
