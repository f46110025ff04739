"""The primitives of linear algebra as functions; prims.py, of which this is a part, has the others.

In: matrices of the dtypes that the ops take. Out: one value; what is packed in it, factor.py, solving.py say.
"""

from __future__ import annotations

from compiler_core.ops.registry import OPS, Value, bind, of_one, of_two

cholesky = of_one("cholesky")
cholesky_info = of_one("cholesky_info")
eig = of_one("eig")
eigh = of_one("eigh")


def svd(a: Value, full: bool) -> Value:
    return bind(OPS["svd"], a, full=full)


svdvals = of_one("svdvals")


def qr(a: Value, full: bool) -> Value:
    return bind(OPS["qr"], a, full=full)


def lu(a: Value, pivot: bool) -> Value:
    return bind(OPS["lu"], a, pivot=pivot)


solve = of_two("solve")


def solve_triangular(a: Value, b: Value, upper: bool, unitriangular: bool) -> Value:
    return bind(OPS["solve_triangular"], a, b, upper=upper, unitriangular=unitriangular)


det = of_one("det")
cofactor = of_one("cofactor")
slogdet = of_one("slogdet")
pinv = of_two("pinv")
matrix_exp = of_one("matrix_exp")
