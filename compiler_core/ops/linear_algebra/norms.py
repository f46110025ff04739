"""torch.linalg's norms, products and the rest that needs no factorisation of its own.

In: values f[*batch, m, n] or vectors. Out: values. All is composed of other functions, so it compiles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from compiler_core import dtype as dt
from compiler_core.dtype import DType
from compiler_core.errors import ShapeError
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import (
    as_new,
    as_value,
    cast,
    dtype_of,
    floating,
    normalize_dim,
    operands,
    plain,
)
from compiler_core.ops.casting import in_float32, in_lower
from compiler_core.ops.composites.arithmetic import times
from compiler_core.ops.composites.reduction import abs_squared, only_size, power_norm
from compiler_core.ops.linear_algebra.eigenvalues import eigvalsh
from compiler_core.ops.linear_algebra.factor import eye_like
from compiler_core.ops.linear_algebra.factorisations import svdvals
from compiler_core.ops.linear_algebra.matmul import adjoint
from compiler_core.ops.linear_algebra.matrices import matrix
from compiler_core.ops.linear_algebra.solvers import inv, pinv, solve, tolerance
from compiler_core.ops.lying import lies
from compiler_core.ops.refusals import need_kind
from compiler_core.ops.registry import Value
from compiler_core.ops.remembered import remembered

Dims = int | Sequence[int] | None


# ---- norms


@remembered
def vector_norm(
    x: Value, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Value:
    """(sum |x|^ord)^(1/ord) over dim (all of them by default); max, min and a count for ord = inf, -inf, 0."""
    need_kind("vector_norm", "fc", x)
    value = floating(cast(as_value(x), dtype))
    shape = tuple(value.shape)
    dims = range(len(shape)) if dim is None else (dim,) if isinstance(dim, int) else dim or range(len(shape))
    chosen = [normalize_dim(d, len(shape)) for d in dims]
    if ord < 0 and any(shape[d] == 0 for d in chosen if shape):
        raise ShapeError("linalg.vector_norm: no norm of negative order of an empty vector", got=str(shape))
    if not shape:
        return _is_not_zero(value) if ord == 0 else F.abs(value)
    size = F.abs(value)
    single = only_size(size, tuple(chosen), keepdim) if ord else None
    if single is not None:
        return single
    if math.isinf(ord):
        if ord > 0 and any(shape[d] == 0 for d in chosen):
            return F.sum(size, chosen, keepdim)
        found = (prims.max if ord > 0 else prims.min)(size, tuple(sorted(chosen)), shared=True)
        kept = tuple(1 if d in chosen else n for d, n in enumerate(shape))
        return F.reshape(found, kept) if keepdim else found
    if ord == 0:
        return F.sum(_is_not_zero(value), chosen, keepdim)
    if ord == 1:
        return F.sum(size, chosen, keepdim)
    if ord == 2:
        return F.sqrt_flat_at_zero(F.sum(abs_squared(value), chosen, keepdim))
    return power_norm(size, float(ord), chosen, keepdim)


def _is_not_zero(x: Value) -> Value:
    """1 where x is not 0, with the gradient 0."""
    if dtype_of(x).is_complex:
        x = F.abs(x)
    x = F.where(F.isfinite(x), x, 1.0) if dtype_of(x).is_inexact else x
    ones = F.add(F.mul(F.clamp(x, -1, 1), 0.0), 1.0)
    return F.where(F.eq(x, 0), F.sub(ones, 1.0), ones)


def _to_matrix(x: Value, dim: Sequence[int]) -> tuple[Value, tuple[int, int]]:
    ndim = len(x.shape)
    rows, columns = (normalize_dim(d, ndim) for d in dim)
    if rows == columns:
        raise ShapeError("linalg.matrix_norm: the dims must be different", got=str(tuple(dim)))
    return F.movedim(x, (rows, columns), (-2, -1)), (rows, columns)


def matrix_norm(
    A: Value,
    ord: float | str = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Value:
    """The norm of matrices over two dims. ord: "fro", "nuc", inf, -inf, 1, -1, 2, -2."""
    a, ord = cast(matrix(A, "matrix_norm"), dtype), ord if isinstance(ord, str) else plain(ord)
    if ord == "fro":
        return vector_norm(a, 2, tuple(dim), keepdim)
    x, dims = _to_matrix(a, dim)
    result = _matrix_norm(x, ord)
    for d in sorted(dims) if keepdim else ():
        result = F.unsqueeze(result, d)
    return result


def _matrix_norm(x: Value, ord: float | str) -> Value:
    if ord == "nuc":
        return F.sum(svdvals(x), -1)
    if ord in (2, -2):
        values = svdvals(x)
        return F.amax(values, -1) if ord == 2 else F.amin(values, -1)
    if ord in (1, -1, math.inf, -math.inf):
        sums = F.sum(F.abs(x), -2 if abs(ord) == 1 else -1)
        return F.amax(sums, -1) if ord > 0 else F.amin(sums, -1)
    raise ShapeError("linalg.matrix_norm: unknown order", expected="fro, nuc, ±inf, ±1, ±2", got=repr(ord))


def norm(
    A: Value,
    ord: float | str | None = None,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Value:
    """vector_norm, or matrix_norm where ord and dim ask for it (torch.linalg.norm's rule)."""
    need_kind("norm", "fc", A)
    a = as_value(A)
    if ord is None:
        return vector_norm(a, 2, dim, keepdim, dtype=dtype)
    dims = (dim,) if isinstance(dim, int) else dim
    if (dims is not None and len(dims) == 2) or (dims is None and len(a.shape) == 2) or isinstance(ord, str):
        if dims is None and len(a.shape) != 2:
            raise ShapeError("linalg.norm: this order takes a matrix", got=str(tuple(a.shape)))
        return matrix_norm(a, ord, (0, 1) if dims is None else dims, keepdim, dtype=dtype)
    if dims is None and len(a.shape) != 1:
        raise ShapeError("linalg.norm: with ord but no dim the input must be 1-d or 2-d", got=str(tuple(a.shape)))
    return vector_norm(a, ord, dims, keepdim, dtype=dtype)


@in_float32
def cond(A: Value, p: float | str | None = None) -> Value:
    """The condition number: |A| |A^-1|, of singular values for p None, 2 and -2."""
    a = matrix(A, "cond")
    if p in (None, 2, -2):
        values = svdvals(a)
        first, last = F.select(values, -1, 0), F.select(values, -1, -1)
        return F.div(last, first) if p == -2 else F.div(first, last)
    return F.mul(matrix_norm(a, p), matrix_norm(inv(a), p))


@in_float32
def matrix_rank(
    A: Value,
    tol: Any = None,
    hermitian: bool = False,
    *,
    atol: Any = None,
    rtol: Any = None,
) -> Value:
    """How many singular values are above max(atol, rtol * the largest)."""
    a = prims.detach(matrix(A, "matrix_rank"))
    values = F.abs(eigvalsh(a)) if hermitian else svdvals(a)
    if 0 in values.shape[-1:]:
        return F.sum(cast(values, dt.int64), -1)
    limit = tolerance(values, max(a.shape[-2:]), rtol, tol if atol is None else atol)
    return F.sum(F.gt(values, F.unsqueeze(limit, -1)), -1)


# ---- products and powers


def matrix_power(A: Value, n: int) -> Value:
    """A multiplied n times; of the inverse for negative n."""
    need_kind("matrix_power", "iufc", A)
    a = as_value(A) if n > 0 else matrix(A, "matrix_power")
    if len(a.shape) < 2 or a.shape[-1] != a.shape[-2]:
        raise ShapeError("linalg.matrix_power: A must be batches of square matrices", got=str(tuple(a.shape)))
    if n < 0:
        a, n = inv(a), -n
    result: Value = None
    while n:
        if n & 1:
            result = (as_new(a) if a is A else a) if result is None else F.matmul(result, a)
        n >>= 1
        a = F.matmul(a, a) if n else a
    return F.add(eye_like(a), times(a, 0.0)) if result is None else result


def multi_dot(tensors: Sequence[Value]) -> Value:
    """The product of matrices, in the cheapest order; the first and the last may be vectors."""
    need_kind("multi_dot", "iufc", *tensors)
    xs = [as_value(x) for x in tensors]
    if len(xs) < 2:
        raise ShapeError("linalg.multi_dot takes at least two tensors", got=str(len(xs)))
    first, last = len(xs[0].shape) == 1, len(xs[-1].shape) == 1
    xs[0] = F.unsqueeze(xs[0], 0) if first else xs[0]
    xs[-1] = F.unsqueeze(xs[-1], 1) if last else xs[-1]
    result = _cheapest(xs)
    result = F.squeeze(result, 0) if first else result
    return F.squeeze(result, -1) if last else result


def _cheapest(xs: list[Value]) -> Value:
    """Cormen et al., "Introduction to Algorithms", 15.2."""
    sizes = [x.shape[0] for x in xs] + [xs[-1].shape[1]]
    best: dict[tuple[int, int], tuple[int, int]] = {(i, i): (0, i) for i in range(len(xs))}
    for length in range(1, len(xs)):
        for i in range(len(xs) - length):
            j = i + length
            best[i, j] = min(
                (best[i, k][0] + best[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)
            )

    def product(i: int, j: int) -> Value:
        k = best[i, j][1]
        return xs[i] if i == j else F.matmul(product(i, k), product(k + 1, j))

    return product(0, len(xs) - 1)


@in_lower
def vecdot(x: Value, y: Value, *, dim: int = -1) -> Value:
    """Inner products along dim."""
    need_kind("vecdot", "fc", x)
    return F.sum(F.mul(prims.conj(as_value(x)), y), dim)


def cross(input: Value, other: Value, *, dim: int = -1) -> Value:
    """The vector product along dim, of size 3."""
    need_kind("linalg.cross", "iufc", input)
    if len(input.shape) != len(other.shape):
        raise ShapeError("linalg.cross: inputs must have the same number of dimensions.")
    for x in (input, other):
        if x.shape[normalize_dim(dim, len(x.shape))] != 3:
            raise ShapeError("linalg.cross: inputs dimension must have length 3", got=str(tuple(x.shape)))
    a, b = operands(input, other)
    d = normalize_dim(dim, len(a.shape))
    if a.shape[d] != 3:
        raise ShapeError("linalg.cross: inputs dimension must have length 3", got=str(tuple(a.shape)))
    (a0, a1, a2), (b0, b1, b2) = F.unbind(a, d), F.unbind(b, d)
    parts = [(a1, b2, a2, b1), (a2, b0, a0, b2), (a0, b1, a1, b0)]
    return F.stack([F.sub(F.mul(p, q), F.mul(r, s)) for p, q, r, s in parts], d)


def vander(x: Value, N: int | None = None) -> Value:
    """Powers 0, 1, ... N-1 of x along a new last dim."""
    need_kind("linalg.vander", "iufc", x)
    value = as_value(x)
    value = cast(value if value.shape else F.unsqueeze(value, 0), dt.promote(value, dt.int64))
    count = value.shape[-1] if N is None else N
    ones = prims.full_like(value, 1)
    powers = [ones]
    for _ in range(count - 1):
        powers.append(F.mul(powers[-1], value))
    return F.stack(powers[:count], -1) if count else F.stack([ones], -1)[..., :0]


@lies("columns")
@in_float32
def householder_product(A: Value, tau: Value) -> Value:
    """The first n columns of the product of the reflectors I - tau_k v_k v_k^T, v_k: column k of A below it."""
    a, scale = matrix(A, "householder_product"), floating(tau)
    *batch, m, n = a.shape
    result = F.expand(F.eye(m, n, dtype=dtype_of(a)), (*batch, m, n))
    unit = F.add(F.tril(a, -1), F.eye(m, n, dtype=dtype_of(a)))
    for k in reversed(range(scale.shape[-1])):
        v = F.narrow(unit, -1, k, 1)
        factor = F.unsqueeze(F.narrow(scale, -1, k, 1), -1)
        result = F.sub(result, F.mul(factor, F.matmul(v, F.matmul(adjoint(v), result))))
    return F.add(result, F.mul(a, 0.0)) if not scale.shape[-1] else result


@in_float32
def tensorinv(A: Value, ind: int = 2) -> Value:
    """The inverse of the linear map that A is from its last dims to its first `ind`."""
    a = floating(A)
    rows, columns = tuple(a.shape[:ind]), tuple(a.shape[ind:])
    if ind <= 0 or math.prod(rows) != math.prod(columns):
        raise ShapeError("linalg.tensorinv: the first dims must multiply to what the last do", got=str(tuple(a.shape)))
    return F.reshape(inv(F.reshape(a, (math.prod(rows), math.prod(columns)))), (*columns, *rows))


@in_float32
def tensorsolve(A: Value, B: Value, dims: Sequence[int] | None = None) -> Value:
    """X with tensordot(A, X, X.ndim) = B."""
    need_kind("linalg.tensorsolve", "fc", A, B)
    a, b = floating(A), floating(B)
    if dims is not None:
        chosen = [normalize_dim(d, len(a.shape)) for d in dims]
        a = F.permute(a, [*(d for d in range(len(a.shape)) if d not in chosen), *chosen])
    shape = tuple(a.shape[len(b.shape) :])
    n = math.prod(shape)
    return F.reshape(solve(F.reshape(a, (math.prod(b.shape), n)), F.reshape(b, (math.prod(b.shape),))), shape)


@in_float32
def pinverse(input: Value, rcond: float = 1e-15) -> Value:
    """torch.pinverse."""
    return pinv(input, rtol=rcond)


def nuclear_norm(input: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    """The sum of singular values."""
    if isinstance(dim, int):
        raise ShapeError("the nuclear norm is of matrices", expected="two dims", got=str(dim))
    return matrix_norm(input, "nuc", dim or (-2, -1), keepdim)
