"""Products of vectors and matrices, and distances: addmv, addr, kron, tensordot, cross, cdist, pdist.

In: values, torch's arguments. Out: one value, of reshapes, broadcasts and batched GEMMs.
Distances are norms of differences (not by the expanded square, which loses digits), so cdist of P and R points in M
dims makes P*R*M differences where it is not fused. The gradient of a distance of 0 is 0, as torch's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from compiler_core.errors import ShapeError
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import Scalar, as_value, cast, dtype_of, floating, normalize_dim, shape_of
from compiler_core.ops.casting import as_given, in_float32, in_lower, in_lower_on_cuda
from compiler_core.ops.indexing.placing import with_flat
from compiler_core.ops.linear_algebra.products import matmul, plus_product
from compiler_core.ops.lying import lies
from compiler_core.ops.numpy_names import numpy_names
from compiler_core.ops.refusals import need_dims, need_kind, need_one_dtype
from compiler_core.ops.registry import Value

_scalar_product = as_given(matmul)  # of two vectors, which autocast leaves alone


@in_lower_on_cuda
@as_given
def addmv(input: Value, mat: Value, vec: Value, *, beta: Scalar = 1, alpha: Scalar = 1) -> Value:
    """beta * input + alpha * mat @ vec."""
    need_kind("addmv", "iufc", input)
    need_one_dtype("addmv", mat, vec)
    if len(mat.shape) != 2 or len(vec.shape) != 1:
        raise ShapeError("addmv takes a matrix and a vector", got=f"{tuple(mat.shape)}, {tuple(vec.shape)}")
    return plus_product("addmv", input, matmul, mat, vec, beta, alpha)


def addr(input: Value, vec1: Value, vec2: Value, *, beta: Scalar = 1, alpha: Scalar = 1) -> Value:
    """beta * input + alpha * the outer product of two vectors."""
    need_dims("addr", 1, vec1, vec2)
    return plus_product("addr", input, F.mul, F.unsqueeze(vec1, 1), F.unsqueeze(vec2, 0), beta, alpha)


@lies("rows")
@in_lower
def addbmm(input: Value, batch1: Value, batch2: Value, *, beta: Scalar = 1, alpha: Scalar = 1) -> Value:
    """beta * input + alpha * the sum of the products of a batch."""
    need_kind("addbmm", "iufc", input)
    if len(batch1.shape) != 3 or len(batch2.shape) != 3:
        raise ShapeError("addbmm takes batches of matrices", got=f"{tuple(batch1.shape)}, {tuple(batch2.shape)}")
    b, n, m = batch1.shape
    wide = F.reshape(F.permute(batch1, (1, 0, 2)), (n, b * m))
    return plus_product("addbmm", input, matmul, wide, F.reshape(batch2, (b * m, batch2.shape[-1])), beta, alpha)


def kron(input: Value, other: Value) -> Value:
    """The Kronecker product: each element of input times all of other."""
    ndim = max(len(input.shape), len(other.shape))
    a = (1,) * (ndim - len(input.shape)) + shape_of(input)
    b = (1,) * (ndim - len(other.shape)) + shape_of(other)
    left = F.reshape(input, tuple(n for size in a for n in (size, 1)))
    right = F.reshape(other, tuple(n for size in b for n in (1, size)))
    return F.reshape(F.mul(left, right), tuple(m * n for m, n in zip(a, b)))


@as_given
def vdot(input: Value, other: Value) -> Value:
    """The inner product of two vectors, of which the first is conjugated."""
    need_kind("vdot", "iufc", input)
    need_dims("vdot", 1, input, other)
    return inner(prims.conj(as_value(input)), other)


def inner(input: Value, other: Value) -> Value:
    """Inner products over the last dims."""
    need_kind("inner", "iufc", input)
    if not input.shape or not other.shape:
        return F.mul(input, other)
    need_one_dtype("inner", input, other)
    a, b = (F.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1])) for x in (input, other))
    if a.shape[1] != b.shape[1]:
        raise ShapeError("inner: last sizes differ", expected=str(a.shape[1]), got=str(b.shape[1]))
    product = matmul if len(input.shape) + len(other.shape) > 2 else _scalar_product
    return F.reshape(product(a, F.t(b)), (*input.shape[:-1], *other.shape[:-1]))


def tensordot(a: Value, b: Value, dims: int | Sequence[Sequence[int]] | Value = 2) -> Value:
    """Products summed over pairs of dims: the last `dims` of a with the first of b, or two lists of dims."""
    need_kind("tensordot", "iufc", a)
    if hasattr(dims, "tolist"):
        dims = dims.tolist()
    if isinstance(dims, int):
        pairs = [list(range(len(a.shape) - dims, len(a.shape))), list(range(dims))]
    else:
        pairs = [[d] if isinstance(d, int) else list(d) for d in dims]
    need_one_dtype("tensordot", a, b)
    dtype = dtype_of(a)
    da = [normalize_dim(d, len(a.shape)) for d in pairs[0]]
    db = [normalize_dim(d, len(b.shape)) for d in pairs[1]]
    for i, j in zip(da, db, strict=True):  # sizes of 1 are summed against the other's
        if a.shape[i] != b.shape[j]:
            a = cast(F.sum(a, i, True), dtype) if b.shape[j] == 1 else a  # sums of whole numbers are wider
            b = cast(F.sum(b, j, True), dtype) if a.shape[i] == 1 else b
    rest_a = [d for d in range(len(a.shape)) if d not in da]
    rest_b = [d for d in range(len(b.shape)) if d not in db]
    k = math.prod(a.shape[d] for d in da)
    left = F.reshape(F.permute(a, (*rest_a, *da)), (math.prod(a.shape[d] for d in rest_a), k))
    right = F.reshape(F.permute(b, (*db, *rest_b)), (k, math.prod(b.shape[d] for d in rest_b)))
    product = matmul if rest_a or rest_b else _scalar_product
    return F.reshape(product(left, right), (*(a.shape[d] for d in rest_a), *(b.shape[d] for d in rest_b)))


@numpy_names
def cross(input: Value, other: Value, dim: int | None = None) -> Value:
    """The cross product of vectors of three along `dim` (None: the first dim of size 3)."""
    need_kind("cross", "iufc", input)
    a, b = F.broadcast_tensors(input, other)
    d = next((k for k, n in enumerate(a.shape) if n == 3), 0) if dim is None else normalize_dim(dim, len(a.shape))
    if not a.shape or a.shape[d] != 3:
        raise ShapeError("cross needs a dim of size 3", got=str(tuple(a.shape)))
    return F.sub(F.mul(F.roll(a, -1, d), F.roll(b, -2, d)), F.mul(F.roll(a, -2, d), F.roll(b, -1, d)))


# ---- distances


def _norm(difference: Value, p: float) -> Value:
    """The p-norm over the last dim."""
    x = difference
    if not x.shape[-1]:
        return F.sum(x, -1)
    if p == 0:
        values = prims.detach(x)
        counted = F.where(F.isnan(values), values, prims.cast(F.ne(values, 0), dtype_of(x)))
        return with_flat(F.sum(x, -1), F.sum(counted, -1))
    if p == 1:
        return F.sum(F.abs(x), -1)
    if p == 2:
        return F.sqrt_flat_at_zero(F.sum(F.mul(x, x), -1))
    if math.isinf(p):
        return F.amax(F.abs(x), -1)
    size = F.abs(x)
    is_zero = F.eq(size, 0.0)
    powers = F.where(is_zero, 0.0, F.pow(F.where(is_zero, 1.0, size), p))
    total = F.sum(powers, -1)
    nothing = F.eq(total, 0.0)
    return F.where(nothing, 0.0, F.pow(F.where(nothing, 1.0, total), 1.0 / p))


@in_float32
def cdist(
    x1: Value, x2: Value, p: float = 2.0, compute_mode: str | None = "use_mm_for_euclid_dist_if_necessary"
) -> Value:
    """p-norm distances of every row of x1: T[*B, P, M] to every row of x2: T[*B, R, M]: T[*B, P, R].

    compute_mode: taken, and without effect: differences are always computed.
    """
    need_kind("cdist", "f", x1, x2)
    if len(x1.shape) < 2 or len(x2.shape) < 2 or x1.shape[-1] != x2.shape[-1] or p < 0:
        raise ShapeError("cdist: (*, P, M) and (*, R, M), p >= 0", got=f"{tuple(x1.shape)}, {tuple(x2.shape)}, {p}")
    return _norm(F.sub(F.unsqueeze(floating(x1), -2), F.unsqueeze(floating(x2), -3)), p)


def pdist(input: Value, p: float = 2.0) -> Value:
    """p-norm distances of every pair of rows of a matrix: T[N (N-1) / 2].

    Example:
        >>> F.pdist(torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]))
        tensor([5.0000, 1.0000, 4.2426])
    """
    need_kind("pdist", "f", input)
    if len(input.shape) != 2 or p < 0:
        raise ShapeError("pdist takes a matrix, p >= 0", got=f"{tuple(input.shape)}, {p}")
    first, second = np.triu_indices(input.shape[0], 1)
    x = floating(as_value(input))
    return _norm(F.sub(prims.take(x, first), prims.take(x, second)), p)


def dist(input: Value, other: Value, p: float = 2) -> Value:
    """The p-norm of the difference."""
    return F.norm(F.sub(input, other), p)


# ---- einsum's and numpy's kin


def ger(input: Value, vec2: Value) -> Value:
    """The outer product of two vectors."""
    return F.outer(input, vec2)


def chain_matmul(*matrices: Value) -> Value:
    """The product of matrices, from left to right."""
    out = matrices[0]
    for matrix in matrices[1:]:
        out = F.matmul(out, matrix)
    return out
