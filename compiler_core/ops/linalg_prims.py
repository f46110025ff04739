"""The primitives of linear algebra as functions; prims.py, of which this is a part, has the others.

In: matrices of the dtypes that the ops take. Out: one value; what is packed in it, factor.py, solving.py say.
"""

from __future__ import annotations

from compiler_core.ops.registry import OPS, Value, bind


def cholesky(a: Value) -> Value:
    return bind(OPS["cholesky"], a)


def cholesky_info(a: Value) -> Value:
    return bind(OPS["cholesky_info"], a)


def eig(a: Value) -> Value:
    return bind(OPS["eig"], a)


def eigh(a: Value) -> Value:
    return bind(OPS["eigh"], a)


def svd(a: Value, full: bool) -> Value:
    return bind(OPS["svd"], a, full=full)


def svdvals(a: Value) -> Value:
    return bind(OPS["svdvals"], a)


def qr(a: Value, full: bool) -> Value:
    return bind(OPS["qr"], a, full=full)


def lu(a: Value, pivot: bool) -> Value:
    return bind(OPS["lu"], a, pivot=pivot)


def solve(a: Value, b: Value) -> Value:
    return bind(OPS["solve"], a, b)


def solve_triangular(a: Value, b: Value, upper: bool, unitriangular: bool) -> Value:
    return bind(OPS["solve_triangular"], a, b, upper=upper, unitriangular=unitriangular)


def det(a: Value) -> Value:
    return bind(OPS["det"], a)


def cofactor(a: Value) -> Value:
    return bind(OPS["cofactor"], a)


def slogdet(a: Value) -> Value:
    return bind(OPS["slogdet"], a)


def pinv(a: Value, limit: Value) -> Value:
    return bind(OPS["pinv"], a, limit)


def matrix_exp(a: Value) -> Value:
    return bind(OPS["matrix_exp"], a)
