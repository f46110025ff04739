"""Randomised decompositions of matrices of low rank: svd_lowrank, pca_lowrank.

In: A: f[*batch, m, n], q: how many components. Out: (U f[*, m, q], S f[*, q], V f[*, n, q]), A about U diag(S) V^T.
Method: the range of A is found from A times a random matrix and power iterations, then the small matrix in that range
is decomposed (Halko, Martinsson, Tropp 2009, arXiv:0909.4061, algorithms 4.4 and 5.1). The draws are this package's, so
results agree with torch's where q is at least A's rank, up to the vectors' signs.
"""

from __future__ import annotations

from compiler_core.errors import ShapeError
from compiler_core.ops import functional as F
from compiler_core.ops.broadcasting import floating
from compiler_core.ops.linear_algebra.factorisations import qr, svd
from compiler_core.ops.linear_algebra.matmul import transpose_last
from compiler_core.ops.refusals import need_kind
from compiler_core.tensor.making.random_creation import randn
from compiler_core.tensor.tensor import Tensor


def _range_basis(a: Tensor, q: int, niter: int) -> Tensor:
    """f[*batch, m, q], orthonormal columns that span what a's largest components span."""
    basis = qr(F.matmul(a, randn((a.shape[-1], q), dtype=a.dtype, device=a.device))).Q
    for _ in range(niter):
        basis = qr(F.matmul(transpose_last(a), basis)).Q
        basis = qr(F.matmul(a, basis)).Q
    return basis  # type: ignore[no-any-return]


def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The q largest singular values of A - M, descending, and their vectors. niter: power iterations."""
    need_kind("svd_lowrank", "fc", A)
    a = floating(A if M is None else F.sub(A, F.expand(M, tuple(A.shape))))
    is_wide = a.shape[-2] < a.shape[-1]
    tall = transpose_last(a) if is_wide else a
    basis = _range_basis(tall, 6 if q is None else q, 2 if niter is None else niter)
    inner, values, vectors = svd(F.matmul(transpose_last(basis), tall), False)
    left, right = F.matmul(basis, inner), transpose_last(vectors)
    return (right, values, left) if is_wide else (left, values, right)


def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """`svd_lowrank` of A, less the mean of its rows if `center`. q: min(6, m, n) by default.

    Raises ShapeError for q outside 0..min(m, n) or a negative niter.
    """
    need_kind("pca_lowrank", "fc", A)
    most = min(A.shape[-2:])
    q = min(6, most) if q is None else q
    if not 0 <= q <= most or niter < 0:
        raise ShapeError("pca_lowrank: q or niter is out of range", expected=f"0..{most}, 0..", got=f"{q}, {niter}")
    return svd_lowrank(F.sub(A, F.mean(A, -2, True)) if center else A, q, niter)
