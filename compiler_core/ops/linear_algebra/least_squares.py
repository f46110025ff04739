"""torch.linalg.lstsq over any Value: the X of least norm that minimises |A X - B|.

In: values f[*batch, m, n] and f[*batch, m, k]. Out: a named tuple, as torch's. Method: the pseudo-inverse.
"""

from __future__ import annotations

from typing import NamedTuple

from compiler_core import dtype as dt
from compiler_core.names.spelling import result_text
from compiler_core.ops import functional as F
from compiler_core.ops import prims
from compiler_core.ops.broadcasting import dtype_of, floating, like
from compiler_core.ops.composites.reduction import abs_squared
from compiler_core.ops.linear_algebra.factorisations import svdvals
from compiler_core.ops.linear_algebra.matrices import matrix, of_lapack, sizes
from compiler_core.ops.linear_algebra.norms import matrix_rank
from compiler_core.ops.linear_algebra.solvers import is_vector, pinv
from compiler_core.ops.registry import Value


class Lstsq(NamedTuple):
    solution: Value
    residuals: Value
    rank: Value
    singular_values: Value

    def __repr__(self) -> str:
        return result_text("linalg_lstsq", self)


@of_lapack
def lstsq(A: Value, B: Value, rcond: float | None = None, *, driver: str | None = None) -> Lstsq:
    """The X of least norm that minimises |A X - B|. rank and singular values as torch gives them for `driver`."""
    a, b = matrix(A, "lstsq"), floating(B)
    vector = is_vector(a, b)
    if vector:
        b = F.unsqueeze(b, -1)
    x = F.matmul(pinv(a, rtol=rcond), b)
    _, m, n = sizes(a)
    empty = like(prims.full((0,), 0.0, dtype_of(a).real), a)
    driver = driver or "gelsy"
    residuals = empty
    if m > n and driver != "gelsy":
        difference = F.sub(F.matmul(a, x), b)
        residuals = F.sum(abs_squared(difference), -2)
    rank = matrix_rank(a, rtol=rcond) if driver != "gels" else like(prims.full((0,), 0, dt.int64), a)
    values = svdvals(a) if driver in ("gelss", "gelsd") else empty
    return Lstsq(F.squeeze(x, -1) if vector else x, residuals, rank, values)
