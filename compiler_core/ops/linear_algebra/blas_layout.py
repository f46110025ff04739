"""How BLAS is told where the elements of a matrix lie: a transposition and a leading dimension.

In: a matrix of which the row or the column stride is 1. Out: CBLAS's code, 111 (as it is) or 112 (transposed), in
row-major order, and the leading dimension; the latter is free where there is one row, or one column.
"""

from __future__ import annotations

from compiler_core.ops.routine import Strided


def order(matrix: Strided) -> tuple[int, int]:
    """The code and the leading dimension of a matrix, or of each of a batch."""
    (rows, columns), (row, col) = matrix.shape[-2:], matrix.strides[-2:]
    if col == 1 and (row >= columns or rows == 1):
        return 111, max(row, columns, 1)
    return 112, max(col, rows, 1)
