"""Batched matrix product: the one op that a library computes.

In: a: T[*batch, M, K], b: T[*batch, K, N], equal batch dims. Out: T[*batch, M, N]. Floating and complex dtypes only.
The 16-bit floats are multiplied and summed in f32 and rounded once; bf16, on a CPU that multiplies it, as gemm_bf16.py
has it, eager and compiled. K = 0 gives zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler_core.dtype import bfloat16
from compiler_core.errors import ShapeError
from compiler_core.late import Late
from compiler_core.meta import TensorMeta
from compiler_core.ops import prims
from compiler_core.ops.batching.rules import multiplied
from compiler_core.ops.checks import INEXACT, check_dtype
from compiler_core.ops.linear_algebra.gemm import GEMM
from compiler_core.ops.quiet import quietly, restore, silence
from compiler_core.ops.registry import Array, Op, PerOperand, Sample, Value, register
from compiler_core.ops.rules import CORE

# (a, b) -> their product; None where NumPy is to compute it
HERE: Late[Callable[[Array, Array], Array | None]] = Late("products of bf16: on the CPU")


def _infer_matmul(a: TensorMeta, b: TensorMeta) -> TensorMeta:
    check_dtype("matmul", a, INEXACT)
    check_dtype("matmul", b, (a.dtype,), "operand 1")
    if a.ndim < 2 or a.ndim != b.ndim or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        raise ShapeError("matmul: shapes do not fit", expected="(*batch, M, K) x (*batch, K, N)", got=f"{a} x {b}")
    return a.with_shape((*a.shape[:-1], b.shape[-1]))


def _eager_matmul(xp: Any, a: Array, b: Array) -> Array:
    if a.ndim != 2 or xp is not np or a.dtype.itemsize <= 2 or a.shape[1] == 1:  # dot skips 0 * inf there
        wide: Array = _product(xp, a, b)
        return wide
    before = silence()
    try:
        return a.dot(b)  # type: ignore[no-any-return]  # the same call of the BLAS, found in half the time
    finally:
        restore(before)


@quietly
def _product(xp: Any, a: Array, b: Array) -> Array:
    if a.dtype.itemsize > 2:
        return xp.matmul(a, b)  # type: ignore[no-any-return]
    if xp is np and a.dtype == bfloat16.numpy and (made := HERE.get()(a, b)) is not None:
        return made
    return xp.matmul(a.astype(np.float32), b.astype(np.float32)).astype(a.dtype)  # type: ignore[no-any-return]


def transpose_last(x: Value) -> Value:
    """x with its last two dims exchanged."""
    n = len(x.shape)
    return prims.permute(x, (*range(n - 2), n - 1, n - 2))


def adjoint(x: Value) -> Value:
    """The conjugate of x with its last two dims exchanged."""
    return prims.conj(transpose_last(x))


MATMUL = register(
    Op(
        "matmul",
        infer=_infer_matmul,
        eager=_eager_matmul,
        vjp=PerOperand(
            lambda g, out, a, b: prims.matmul(g, adjoint(b)),
            lambda g, out, a, b: prims.matmul(adjoint(a), g),
        ),
        vmap=multiplied,
        lower=GEMM,
        samples=tuple(
            Sample((a, b))
            for a, b in (
                ((3, 4), (4, 2)),
                ((2, 3, 4), (2, 4, 5)),
                ((2, 1, 3, 4), (2, 1, 4, 1)),
                ((3, 0), (0, 2)),
                ((0, 3), (3, 2)),
            )
        ),
        dtypes=INEXACT,
        engines=CORE,
    )
)
