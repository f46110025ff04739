"""Linear systems and functions of matrices: solve, solve_triangular, det, slogdet, pinv, matrix_exp and their kin.

In: T[*batch, n, n] (pinv: [*batch, m, n]), f32, f64 or complex, right-hand sides T[*batch, n, k]. Out: see each.
Gradients: Giles 2008, "Collected matrix derivative results"; Golub and Pereyra 1973 for pinv; of det by cofactors,
which are right for singular matrices too; of matrix_exp by the block triangular matrix of Mathias 1996.
Raises LinAlgError for a singular matrix.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from compiler_core.dtype import int32, of
from compiler_core.errors import ShapeError
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.checks import check_dtype, check_shape
from compiler_core.ops.composites.movement import tril, triu
from compiler_core.ops.linear_algebra import lapack
from compiler_core.ops.linear_algebra.factor import DTYPES, check_matrix, eye_like, linalg_op, positive_definite
from compiler_core.ops.linear_algebra.matmul import adjoint as H
from compiler_core.ops.linear_algebra.matmul import transpose_last
from compiler_core.ops.registry import Array, NotDifferentiable, Op, Sample, Value, register
from compiler_core.ops.routine import call_back
from compiler_core.ops.rules import ALIKE, OwnCode

mm = prims.matmul


# ---- systems


def _infer_solve(a: TensorMeta, b: TensorMeta, **attrs: Any) -> TensorMeta:
    batch, n, _ = check_matrix("solve", a, square=True)
    check_dtype("solve", b, (a.dtype,), "operand 1")
    if b.ndim != a.ndim or b.shape[:-1] != (*batch, n):
        raise ShapeError("linalg.solve: shapes do not fit", expected="(*batch, n, n), (*batch, n, k)", got=f"{a}, {b}")
    return b


def _vjp_solve(g: Value, out: Value, a: Value, b: Value) -> tuple[Value, Value]:
    gb = prims.solve(H(a), g)
    return prims.neg(mm(gb, H(out))), gb


_SYSTEMS = (((3, 3), (3, 2)), ((2, 3, 3), (2, 3, 1)))


def _system(shape: tuple[int, ...], rhs: tuple[int, ...]) -> Any:
    def make(rng: np.random.Generator, dtype: Any) -> list[Array]:
        b = rng.uniform(-1, 1, rhs) + (1j * rng.uniform(-1, 1, rhs) if dtype.is_complex else 0)
        return [*positive_definite(*shape)(rng, dtype), b.astype(dtype.numpy)]

    return make


SOLVE = linalg_op(
    "solve",
    _infer_solve,
    lambda xp, a, b: xp.linalg.solve(a, b),
    _vjp_solve,
    tuple(Sample((), make=_system(*shapes)) for shapes in _SYSTEMS),
    lapack.SOLVE,
)


def _eager_triangular(xp: Any, a: Array, b: Array, upper: bool, unitriangular: bool) -> Array:
    a = xp.triu(a) if upper else xp.tril(a)
    n = a.shape[-1]
    if unitriangular:
        a = xp.where(xp.eye(n, dtype=bool), a.dtype.type(1), a)
    x = b.copy()
    for i in reversed(range(n)) if upper else range(n):  # substitution; a zero on the diagonal gives inf, as in LAPACK
        done = xp.arange(n) > i if upper else xp.arange(n) < i
        known = xp.matmul(xp.where(done, a[..., i : i + 1, :], 0), xp.where(done[:, None], x, 0))
        x[..., i, :] = (x[..., i, :] - known[..., 0, :]) / a[..., i, i, None]
    return x


def _vjp_triangular(g: Value, out: Value, a: Value, b: Value, upper: bool, unitriangular: bool) -> tuple[Value, Value]:
    gb = prims.solve_triangular(H(a), g, upper=not upper, unitriangular=unitriangular)
    ga = prims.neg(mm(gb, H(out)))
    offset = int(unitriangular)
    return (triu(ga, offset) if upper else tril(ga, -offset)), gb


SOLVE_TRIANGULAR = linalg_op(
    "solve_triangular",
    _infer_solve,
    _eager_triangular,
    _vjp_triangular,
    tuple(
        Sample((), {"upper": upper, "unitriangular": unit}, make=_system(*shapes))
        for shapes, upper, unit in zip(_SYSTEMS * 2, (True, False, False, True), (False, False, True, True))
    ),
    lapack.TRIANGULAR,
    lapack.accepts_triangular,
)


# ---- determinants


def _infer_scalar(name: str, *extra: int) -> Any:
    def infer(a: TensorMeta) -> TensorMeta:
        batch, _, _ = check_matrix(name, a, square=True)
        return a.with_shape((*batch, *extra))

    return infer


def _spread(v: Value, a: Value) -> Value:
    """v[*batch] repeated over matrices like a."""
    return prims.expand(prims.reshape(v, (*v.shape, 1, 1)), tuple(a.shape))


def _eager_cofactor(xp: Any, a: Array) -> Array:
    """d det(a) / d a, from the SVD: det(U) det(Vh) U diag(products of the other singular values) Vh."""
    u, s, vh = xp.linalg.svd(a)
    n = s.shape[-1]
    others = xp.stack([xp.prod(xp.delete(s, i, -1), -1) for i in range(n)], -1) if n else s
    sign = xp.linalg.det(u) * xp.linalg.det(vh)
    return (sign[..., None, None] * xp.conj(xp.matmul(u * others[..., None, :], vh))).astype(a.dtype)  # type: ignore[no-any-return]


def _infer_cofactor(a: TensorMeta) -> TensorMeta:
    check_matrix("cofactor", a, square=True)
    return a


def _vjp_cofactor(g: Value, out: Value, a: Value) -> tuple[Value]:
    """Of det(a) a^-T, so for matrices that have an inverse. inverse: a^-H."""
    inverse = prims.solve(H(a), eye_like(a))
    last = (len(a.shape) - 2, len(a.shape) - 1)
    trace = prims.sum(prims.mul(g, inverse), last)
    turned = mm(mm(inverse, transpose_last(prims.mul(g, _spread(prims.conj(prims.det(a)), a)))), inverse)
    return (prims.sub(prims.mul(_spread(trace, a), prims.conj(out)), turned),)


_SQUARE = tuple(Sample((), make=positive_definite(*shape)) for shape in ((3, 3), (2, 2, 2), (1, 1)))

COFACTOR = linalg_op("cofactor", _infer_cofactor, _eager_cofactor, _vjp_cofactor, _SQUARE)

DET = linalg_op(
    "det",
    _infer_scalar("det"),
    lambda xp, a: xp.asarray(xp.linalg.det(a)),
    lambda g, out, a: (prims.mul(_spread(g, a), prims.conj(prims.cofactor(a))),),
    _SQUARE,
)


def _eager_slogdet(xp: Any, a: Array) -> Array:
    return xp.stack(xp.linalg.slogdet(a), -1)  # type: ignore[no-any-return]


def _vjp_slogdet(g: Value, out: Value, a: Value) -> tuple[Value]:
    """g a^-H; NaN for a singular matrix."""
    n = len(g.shape)
    g_log = prims.slice(g, (0,) * (n - 1) + (1,), tuple(g.shape), (1,) * n)
    log = prims.reshape(prims.slice(out, (0,) * (n - 1) + (1,), tuple(g.shape), (1,) * n), tuple(g.shape[:-1]))
    one = eye_like(a)
    is_singular = _spread(prims.eq(log, prims.full_like(log, -math.inf)), a)
    inverse = prims.solve(H(prims.where(is_singular, one, a)), one)
    inverse = prims.where(is_singular, prims.full_like(a, math.nan), inverse)
    if of(a.dtype).is_complex:  # the sign turns with the angle of det(a)
        first = ((0,) * n, (*g.shape[:-1], 1), (1,) * n)
        turning = prims.imag(prims.mul(prims.slice(g, *first), prims.conj(prims.slice(out, *first))))
        g_log = prims.complex(prims.real(g_log), turning)
    return (prims.mul(_spread(prims.reshape(g_log, tuple(g.shape[:-1])), a), inverse),)


SLOGDET = linalg_op("slogdet", _infer_scalar("slogdet", 2), _eager_slogdet, _vjp_slogdet, _SQUARE)


# ---- pseudo-inverse


def _infer_pinv(a: TensorMeta, limit: TensorMeta) -> TensorMeta:
    batch, m, n = check_matrix("pinv", a)
    check_dtype("pinv", limit, (a.dtype.real,), "the limit")
    check_shape("pinv", batch, limit, "the limit")
    return a.with_shape((*batch, n, m))


def _eager_pinv(xp: Any, a: Array, limit: Array) -> Array:
    """Singular values up to `limit` [*batch] count as zero."""
    u, s, vh = xp.linalg.svd(a, full_matrices=False)
    is_kept = s > limit[..., None]
    inverse = xp.where(is_kept, 1 / xp.where(is_kept, s, 1), 0).astype(a.dtype)
    swapped = xp.conj(xp.swapaxes(vh, -1, -2)) * inverse[..., None, :]
    return xp.matmul(swapped, xp.conj(xp.swapaxes(u, -1, -2)))  # type: ignore[no-any-return]


def _vjp_pinv(g: Value, out: Value, a: Value, limit: Value) -> tuple[Value, Value]:
    p, tp, tg = out, H(out), H(g)
    first = prims.neg(mm(mm(tp, g), tp))
    x = mm(tg, mm(p, tp))
    second = prims.sub(x, mm(mm(a, p), x))
    y = mm(mm(tp, p), tg)
    third = prims.sub(y, mm(y, mm(p, a)))
    return prims.add(first, prims.add(second, third)), prims.full_like(limit, 0.0)


def _with_limit(shape: tuple[int, ...]) -> Any:
    def make(rng: np.random.Generator, dtype: Any) -> list[Array]:
        a = rng.uniform(-1, 1, shape) + (1j * rng.uniform(-1, 1, shape) if dtype.is_complex else 0)
        return [a.astype(dtype.numpy), np.full(shape[:-2], 1e-6, dtype.real.numpy)]

    return make


PINV = linalg_op(
    "pinv",
    _infer_pinv,
    _eager_pinv,
    _vjp_pinv,
    tuple(Sample((shape, shape[:-2]), make=_with_limit(shape)) for shape in ((3, 3), (4, 2), (2, 2, 3))),
)


# ---- exponential


def _infer_matrix_exp(a: TensorMeta) -> TensorMeta:
    check_matrix("matrix_exp", a, square=True)
    return a


def _eager_matrix_exp(xp: Any, a: Array) -> Array:
    """Scaling and squaring about a Taylor polynomial of degree 18, in f64 or c128 (Bader, Blanes, Casas 2019)."""
    x = a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)
    norm = float(xp.abs(x).sum(-2).max()) if x.size else 0.0
    squarings = max(0, math.ceil(math.log2(norm)) + 1) if norm > 0 and math.isfinite(norm) else 0
    x = x / 2.0**squarings
    term = result = xp.broadcast_to(xp.eye(x.shape[-1]), x.shape)
    for k in range(1, 19):
        term = xp.matmul(term, x) / k
        result = result + term
    for _ in range(squarings):
        result = xp.matmul(result, result)
    return result.astype(a.dtype)  # type: ignore[no-any-return]


def _vjp_matrix_exp(g: Value, out: Value, a: Value) -> tuple[Value]:
    n, last = a.shape[-1], len(a.shape) - 1
    block = prims.cat([prims.cat([H(a), g], last), prims.cat([prims.full_like(a, 0.0), H(a)], last)], last - 1)
    starts = (*(0,) * last, n)
    stops = (*a.shape[:-2], n, 2 * n)
    return (prims.slice(prims.matrix_exp(block), starts, stops, (1,) * len(a.shape)),)


MATRIX_EXP = linalg_op("matrix_exp", _infer_matrix_exp, _eager_matrix_exp, _vjp_matrix_exp, _SQUARE)


# ---- whether it worked


def _eager_cholesky_info(xp: Any, a: Array) -> Array:
    def order(matrix: Array) -> int:
        for k in range(1, len(matrix) + 1):
            try:
                xp.linalg.cholesky(matrix[:k, :k])
            except np.linalg.LinAlgError:
                return k
        return 0

    found = [order(matrix) for matrix in a.reshape(math.prod(a.shape[:-2]), *a.shape[-2:])]
    return np.asarray(found, np.int32).reshape(a.shape[:-2])


def _infer_cholesky_info(a: TensorMeta) -> TensorMeta:
    batch, _, _ = check_matrix("cholesky_info", a, square=True)
    return TensorMeta(batch, int32)


CHOLESKY_INFO = register(
    Op(
        "cholesky_info",
        _infer_cholesky_info,
        _eager_cholesky_info,
        NotDifferentiable("an integer"),
        call_back("cholesky_info", _eager_cholesky_info, why="LAPACK, through NumPy"),
        _SQUARE,
        DTYPES,
        vmap=ALIKE,
        host="CuPy does not say at which minor a factorisation fails",
        engines=OwnCode("LAPACK"),
    )
)
